"""Combine the predictions of several Bayesian models into one.

Make models with :func:`from_pymc`, :func:`from_numpyro`, :func:`from_family` or another ``from_``
function, put them in a dict by name, and give it to :func:`lock`, :func:`quack`, :func:`stack` or
:func:`compare`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from lockquack import errors as errors
    from lockquack.checks.derivatives import check as check
    from lockquack.combination.combination import Combination as Combination
    from lockquack.combination.mixtures import bma as bma
    from lockquack.combination.mixtures import equal as equal
    from lockquack.combination.mixtures import pseudo_bma as pseudo_bma
    from lockquack.combination.mixtures import select as select
    from lockquack.combination.mixtures import stack as stack
    from lockquack.combination.verbs import combine as combine
    from lockquack.combination.verbs import load as load
    from lockquack.combination.verbs import lock as lock
    from lockquack.combination.verbs import quack as quack
    from lockquack.methods.compare import compare as compare
    from lockquack.models.model import Model as Model
    from lockquack.operators import Hoelder as Hoelder
    from lockquack.operators import Hybrid as Hybrid
    from lockquack.operators import Linear as Linear
    from lockquack.operators import Locking as Locking
    from lockquack.operators import Nested as Nested
    from lockquack.operators import Selection as Selection
    from lockquack.operators import Superposition as Superposition
    from lockquack.plots import plot_compare as plot_compare
    from lockquack.prediction.prediction import Prediction as Prediction
    from lockquack.rules import Hyvarinen as Hyvarinen
    from lockquack.rules import LogScore as LogScore
    from lockquack.rules import PairwiseScore as PairwiseScore
    from lockquack.sources.arrays import from_arrays as from_arrays
    from lockquack.sources.bambi import from_bambi as from_bambi
    from lockquack.sources.datatree import from_datatree as from_datatree
    from lockquack.sources.family import from_family as from_family
    from lockquack.sources.jax import from_jax as from_jax
    from lockquack.sources.numpyro import from_numpyro as from_numpyro
    from lockquack.sources.parameters import linear_predictor as linear_predictor
    from lockquack.sources.pymc import from_pymc as from_pymc
    from lockquack.sources.stan import from_cmdstanpy as from_cmdstanpy
    from lockquack.sources.stan import from_pystan as from_pystan
    from lockquack.sources.stan import stan_code as stan_code

#: Where each public name lives. It is imported when first used, so importing the package
#: itself takes no time.
_HOMES = {
    "Combination": "combination.combination",
    "Prediction": "prediction.prediction",
    "Hoelder": "operators",
    "Hybrid": "operators",
    "Hyvarinen": "rules",
    "Linear": "operators",
    "Locking": "operators",
    "LogScore": "rules",
    "Model": "models.model",
    "Nested": "operators",
    "PairwiseScore": "rules",
    "Selection": "operators",
    "Superposition": "operators",
    "bma": "combination.mixtures",
    "check": "checks.derivatives",
    "combine": "combination.verbs",
    "compare": "methods.compare",
    "equal": "combination.mixtures",
    "from_arrays": "sources.arrays",
    "from_bambi": "sources.bambi",
    "from_cmdstanpy": "sources.stan",
    "from_datatree": "sources.datatree",
    "from_family": "sources.family",
    "from_jax": "sources.jax",
    "from_numpyro": "sources.numpyro",
    "from_pymc": "sources.pymc",
    "from_pystan": "sources.stan",
    "linear_predictor": "sources.parameters",
    "load": "combination.verbs",
    "lock": "combination.verbs",
    "plot_compare": "plots",
    "pseudo_bma": "combination.mixtures",
    "quack": "combination.verbs",
    "select": "combination.mixtures",
    "stack": "combination.mixtures",
    "stan_code": "sources.stan",
}

__all__ = ["__version__", "errors", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("lockquack.errors")
    if name not in _HOMES:
        from difflib import get_close_matches

        near = get_close_matches(name, __all__, n=1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'lockquack' has no attribute {name!r}{hint}")
    return getattr(import_module(f"lockquack.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
