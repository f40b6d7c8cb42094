"""Combine the predictions of several Bayesian models into one.

Make models with :func:`from_pymc`, :func:`from_numpyro`, :func:`from_family` or another ``from_``
function, put them in a dict by name, and give it to :func:`lock`, :func:`quack`, :func:`stack` or
:func:`compare`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lockquack import errors as errors
    from lockquack.checks.derivatives import check as check
    from lockquack.combination.combination import Combination as Combination
    from lockquack.combination.mixtures import bma as bma
    from lockquack.combination.mixtures import equal as equal
    from lockquack.combination.mixtures import pseudo_bma as pseudo_bma
    from lockquack.combination.mixtures import select as select
    from lockquack.combination.mixtures import stack as stack
    from lockquack.combination.quantiles import average_quantiles as average_quantiles
    from lockquack.combination.running import RunningLock as RunningLock
    from lockquack.combination.running import RunningStack as RunningStack
    from lockquack.combination.running import running_lock as running_lock
    from lockquack.combination.running import running_stack as running_stack
    from lockquack.combination.verbs import combine as combine
    from lockquack.combination.verbs import load as load
    from lockquack.combination.verbs import lock as lock
    from lockquack.combination.verbs import quack as quack
    from lockquack.methods.compare import compare as compare
    from lockquack.models.covariates import Features as Features
    from lockquack.models.covariates import Groups as Groups
    from lockquack.models.covariates import Spline as Spline
    from lockquack.models.model import Model as Model
    from lockquack.operators import Hoelder as Hoelder
    from lockquack.operators import Hybrid as Hybrid
    from lockquack.operators import Linear as Linear
    from lockquack.operators import Locking as Locking
    from lockquack.operators import Nested as Nested
    from lockquack.operators import Quantiles as Quantiles
    from lockquack.operators import Selection as Selection
    from lockquack.operators import Superposition as Superposition
    from lockquack.plots import plot_compare as plot_compare
    from lockquack.prediction.prediction import Prediction as Prediction
    from lockquack.rules import CRPS as CRPS
    from lockquack.rules import EnergyScore as EnergyScore
    from lockquack.rules import Hyvarinen as Hyvarinen
    from lockquack.rules import LogScore as LogScore
    from lockquack.rules import PairwiseScore as PairwiseScore
    from lockquack.sources.arrays import from_arrays as from_arrays
    from lockquack.sources.bambi import from_bambi as from_bambi
    from lockquack.sources.chains import split_chains as split_chains
    from lockquack.sources.cross_validation import cross_validate as cross_validate
    from lockquack.sources.datatree import from_datatree as from_datatree
    from lockquack.sources.drawn import from_draws as from_draws
    from lockquack.sources.elpd import from_elpd as from_elpd
    from lockquack.sources.family import from_family as from_family
    from lockquack.sources.folds import from_folds as from_folds
    from lockquack.sources.group_out import leave_group_out as leave_group_out
    from lockquack.sources.jax import from_jax as from_jax
    from lockquack.sources.numpyro import from_numpyro as from_numpyro
    from lockquack.sources.parameters import linear_predictor as linear_predictor
    from lockquack.sources.pymc import from_pymc as from_pymc
    from lockquack.sources.quantiles import from_quantiles as from_quantiles
    from lockquack.sources.refitting import refit as refit
    from lockquack.sources.splits import leave_future_out as leave_future_out
    from lockquack.sources.stan import from_cmdstanpy as from_cmdstanpy
    from lockquack.sources.stan import from_pystan as from_pystan
    from lockquack.sources.stan import stan_code as stan_code
    from lockquack.testing import example_models as example_models

#: Where each public name lives. It is imported when first used, so importing the package
#: itself takes no time.
_HOMES = {
    "CRPS": "rules",
    "Combination": "combination.combination",
    "EnergyScore": "rules",
    "Prediction": "prediction.prediction",
    "Features": "models.covariates",
    "Groups": "models.covariates",
    "Hoelder": "operators",
    "Hybrid": "operators",
    "Hyvarinen": "rules",
    "Linear": "operators",
    "Locking": "operators",
    "LogScore": "rules",
    "Model": "models.model",
    "Nested": "operators",
    "Quantiles": "operators",
    "PairwiseScore": "rules",
    "RunningLock": "combination.running",
    "RunningStack": "combination.running",
    "Selection": "operators",
    "Spline": "models.covariates",
    "Superposition": "operators",
    "average_quantiles": "combination.quantiles",
    "bma": "combination.mixtures",
    "check": "checks.derivatives",
    "combine": "combination.verbs",
    "compare": "methods.compare",
    "cross_validate": "sources.cross_validation",
    "equal": "combination.mixtures",
    "example_models": "testing",
    "from_arrays": "sources.arrays",
    "from_bambi": "sources.bambi",
    "from_cmdstanpy": "sources.stan",
    "from_datatree": "sources.datatree",
    "from_draws": "sources.drawn",
    "from_elpd": "sources.elpd",
    "from_family": "sources.family",
    "from_folds": "sources.folds",
    "from_jax": "sources.jax",
    "from_numpyro": "sources.numpyro",
    "from_pymc": "sources.pymc",
    "from_pystan": "sources.stan",
    "from_quantiles": "sources.quantiles",
    "leave_group_out": "sources.group_out",
    "leave_future_out": "sources.splits",
    "linear_predictor": "sources.parameters",
    "load": "combination.verbs",
    "lock": "combination.verbs",
    "plot_compare": "plots",
    "pseudo_bma": "combination.mixtures",
    "quack": "combination.verbs",
    "refit": "sources.refitting",
    "running_lock": "combination.running",
    "running_stack": "combination.running",
    "select": "combination.mixtures",
    "split_chains": "sources.chains",
    "stack": "combination.mixtures",
    "stan_code": "sources.stan",
}

__all__ = ["__version__", "errors", *_HOMES]

#: What is meant by names that people try: other libraries have them, or the likes of them.
_MEANT = {
    "from_arviz from_idata from_inferencedata from_inference_data from_netcdf from_nc from_zarr "
    "from_file from_path from_xarray from_dataset from_datatrees": "from_datatree, or put it into "
    "the dict of models as it is: lq.stack({'a': idata, 'b': 'b.nc'})",
    "from_stan from_rstan": "from_cmdstanpy or from_pystan",
    "from_cmdstan from_cmdstan_csv from_csv": "from_cmdstanpy; draws in CSV files go to the "
    "command line too: lockquack weights 'fit-*.csv' --y data.csv:y",
    "from_brms from_rstanarm from_r from_jags from_nimble": "from_family with the draws of the "
    "likelihood's parameters, from_arrays with a matrix of log densities, or the command line on "
    "CSV files: lockquack weights a.csv b.csv --y data.csv:y",
    "from_loo from_elpddata from_waic from_kfold from_reloo": "from_elpd, or put it into the dict "
    "of models as it is",
    "from_dict from_numpy from_array from_log_likelihood from_log_lik from_matrix": "from_arrays",
    "from_posterior from_samples from_parameters from_pandas from_dataframe": "from_family",
    "from_blackjax from_tfp from_flax from_nutpie from_oryx": "from_jax",
    "from_pyro from_edward from_turing": "from_family with the draws of the likelihood's "
    "parameters, or from_arrays",
    "from_predictive from_ensemble from_forecasts from_simulator from_posterior_predictive "
    "from_ppc": "from_draws, or from_quantiles",
    "stacking stack_models bayesian_stacking mix": "stack",
    "log_pool log_linear geometric locking lock_models": "lock",
    "superposition superpose quantum": "quack",
    "average model_average model_averaging": "bma, pseudo_bma or stack",
    "vincentize vincentization average_forecasts quantile_average": "average_quantiles",
    "loo_compare compare_models model_compare": "compare",
    "chains separate_chains": "split_chains",
    "kfold k_fold loo_kfold cv crossval cross_validation": "cross_validate",
    "reloo loo_refit exact_loo": "refit",
    "lfo lfo_cv time_series_split prequential": "leave_future_out, whose folds cross_validate "
    "takes; with reuse=True it makes few fits",
    "moment_match loo_moment_match": "refit, or ArviZ's loo_moment_match, whose result is a model "
    "for stack and compare",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("lockquack.errors")
    if name not in _HOMES:
        message = f"module 'lockquack' has no attribute {name!r}{_hint(name)}"
        # Without the module, or Python adds the name that is nearest in letters.
        raise AttributeError(message, name=name, obj=None)
    return getattr(import_module(f"lockquack.{_HOMES[name]}"), name)


def _hint(name: str) -> str:
    """Suggest what is meant, or else what is nearest in letters."""
    from difflib import get_close_matches

    meant = [what for names, what in _MEANT.items() if name.lower() in names.split()]
    if meant:
        return f". Use {meant[0]}."
    near = get_close_matches(name, __all__, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""


def __dir__() -> list[str]:
    return sorted(__all__)
