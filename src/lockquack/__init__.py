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
    from lockquack.adapters.arrays import from_arrays as from_arrays
    from lockquack.adapters.bambi import from_bambi as from_bambi
    from lockquack.adapters.datatree import from_datatree as from_datatree
    from lockquack.adapters.family import from_family as from_family
    from lockquack.adapters.jax import from_jax as from_jax
    from lockquack.adapters.numpyro import from_numpyro as from_numpyro
    from lockquack.adapters.parameters import linear_predictor as linear_predictor
    from lockquack.adapters.pymc import from_pymc as from_pymc
    from lockquack.adapters.stan import from_cmdstanpy as from_cmdstanpy
    from lockquack.adapters.stan import from_pystan as from_pystan
    from lockquack.adapters.stan import stan_code as stan_code
    from lockquack.checking import check as check
    from lockquack.combination import Combination as Combination
    from lockquack.combination import load as load
    from lockquack.comparison import compare as compare
    from lockquack.distribution import Distribution as Distribution
    from lockquack.methods import bma as bma
    from lockquack.methods import combine as combine
    from lockquack.methods import equal as equal
    from lockquack.methods import lock as lock
    from lockquack.methods import pseudo_bma as pseudo_bma
    from lockquack.methods import quack as quack
    from lockquack.methods import select as select
    from lockquack.methods import stack as stack
    from lockquack.operators import Hoelder as Hoelder
    from lockquack.operators import Hybrid as Hybrid
    from lockquack.operators import Linear as Linear
    from lockquack.operators import Locking as Locking
    from lockquack.operators import Nested as Nested
    from lockquack.operators import Selection as Selection
    from lockquack.operators import Superposition as Superposition
    from lockquack.plots import plot_compare as plot_compare
    from lockquack.predictive import Predictive as Predictive
    from lockquack.rules import Hyvarinen as Hyvarinen
    from lockquack.rules import LogScore as LogScore
    from lockquack.rules import PairwiseScore as PairwiseScore

#: Where each public name lives. It is imported when first used, so importing the package
#: itself takes no time.
_HOMES = {
    "Combination": "combination",
    "Distribution": "distribution",
    "Hoelder": "operators",
    "Hybrid": "operators",
    "Hyvarinen": "rules",
    "Linear": "operators",
    "Locking": "operators",
    "LogScore": "rules",
    "Nested": "operators",
    "PairwiseScore": "rules",
    "Predictive": "predictive",
    "Selection": "operators",
    "Superposition": "operators",
    "bma": "methods",
    "check": "checking",
    "combine": "methods",
    "compare": "comparison",
    "equal": "methods",
    "from_arrays": "adapters.arrays",
    "from_bambi": "adapters.bambi",
    "from_cmdstanpy": "adapters.stan",
    "from_datatree": "adapters.datatree",
    "from_family": "adapters.family",
    "from_jax": "adapters.jax",
    "from_numpyro": "adapters.numpyro",
    "from_pymc": "adapters.pymc",
    "from_pystan": "adapters.stan",
    "linear_predictor": "adapters.parameters",
    "load": "combination",
    "lock": "methods",
    "plot_compare": "plots",
    "pseudo_bma": "methods",
    "quack": "methods",
    "select": "methods",
    "stack": "methods",
    "stan_code": "adapters.stan",
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
