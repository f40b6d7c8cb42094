"""Situations built to mislead scores, comparisons and readers, and what the library says.

``tests/test_situations.py`` runs them all; the page on limits has the table that
``python -m tests.situations`` prints. To add one, write a function and decorate it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import LockquackError, LockquackWarning

SITUATIONS: dict[str, Situation] = {}
#: Which of many random data a situation is made of.
AGAIN = 0


@dataclass(frozen=True)
class Situation:
    """What misleads, and what must be said: a remark's code, an error, or words that are shown."""

    name: str
    misleads: str
    says: str
    act: Callable[[], Any]

    def said(self, again: int = 0) -> set[str]:
        """Act, and collect codes of remarks, names of errors, and what is printed.

        ``again`` chooses other random numbers.
        """
        global AGAIN
        AGAIN = again
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = self.act()
            except LockquackError as error:
                return {type(error).__name__}
        codes = {w.message.remark.code for w in caught if isinstance(w.message, LockquackWarning)}
        return codes | {f"“{result}”" if isinstance(result, str) else ""}


def situation(name: str, misleads: str, says: str) -> Callable[[Callable[[], Any]], Any]:
    """Register what a function does as a situation."""

    def register(act: Callable[[], Any]) -> Callable[[], Any]:
        SITUATIONS[name] = Situation(name, misleads, says, act)
        return act

    return register


def table() -> str:
    """Write all situations as a table in Markdown."""
    rows = [
        f"| {each.name} | {each.misleads} | {_marked(each.says)} |" for each in SITUATIONS.values()
    ]
    head = ["| situation | what would be misled | what is said |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def _marked(says: str) -> str:
    return says.replace("|", r"\|") if says.startswith("“") else f"`{says}`"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng([AGAIN, seed] if AGAIN else seed)


def outcomes(n: int = 100) -> np.ndarray:
    return rng(1).normal(size=n)


def normal(y: Any, mu: Any, sigma: float = 1.0, shape: Any = (4, 100), **more: Any) -> lq.Model:
    """Make a normal model whose location is known up to a twentieth."""
    noise = 0.05 * rng(3).normal(size=(*shape, *[1] * np.ndim(mu)))
    return lq.from_family("normal", y=y, mu=np.asarray(mu) + noise, sigma=sigma, **more)


def arrays(y: np.ndarray, mu: float, sigma: float = 1.0, **instead: Any) -> lq.Model:
    """Make the same of arrays: nothing is known away from the outcomes."""
    z = (y - mu - 0.05 * rng(3).normal(size=(4, 100, 1))) / sigma
    logp = stats.norm.logpdf(z) - np.log(sigma)
    given = {"logp": logp, "grad": -z / sigma, "curv": np.full(z.shape, -1 / sigma**2)}
    return lq.from_arrays(**{**given, **instead}, y=y)


def two(y: Any, **more: Any) -> dict[str, lq.Model]:
    return {"a": normal(y, 0.0, **more), "b": normal(y, 0.5, 1.3, **more)}


# Models


@situation("a mixture with a model 8 sd from all data", "H: its weight is free", "unseen-weight")
def _() -> Any:
    y = outcomes()
    far = normal(y, y.max() + 8.0)
    return lq.combine({"right": normal(y, 0.0), "far": far}, "linear", "hyvarinen")


@situation("a superposition with a far model", "H: gives it all weight", "misled-score")
def _() -> Any:
    y = outcomes()
    return lq.combine(
        {"right": normal(y, 0.0), "far": normal(y, 8.0)}, "superposition", "hyvarinen"
    )


@situation("a harmonic mean with a far model", "H: sees nothing but it", "misled-score")
def _() -> Any:
    y = outcomes(30)
    models = {"right": normal(y, 0.0), "wide": normal(y, 0.3, 2.0), "far": normal(y, 100.0)}
    return lq.combine(models, lq.Hoelder(-1.0), "hyvarinen")


@situation("the superposition, known at the data only", "H: no normaliser to check", "misled-score")
def _() -> Any:
    y = outcomes()
    return lq.quack({"right": arrays(y, 0.0), "far": arrays(y, 8.0)})


@situation("a mixture of pools, one member far", "H: inherited by the pool", "unseen-weight")
def _() -> Any:
    y = outcomes()
    models = {"right": normal(y, 0.0), "wide": normal(y, 0.3, 2.0), "far": normal(y, 9.0)}
    nested = lq.Nested(lq.Linear(), [(lq.Locking(), ["right", "wide"]), "far"])
    return lq.combine(models, nested, "hyvarinen")


@situation("two clumps of data, a model for each", "H: blind to proportions", "modes-apart")
def _() -> Any:
    y = outcomes()
    y = np.where(y > 0, y + 5, y - 5)
    return lq.combine({"a": normal(y, 5.0), "b": normal(y, -5.0)}, "linear", "hyvarinen")


@situation("a near-node between models", "H: rewards zeros of the density", "phases-at-cap")
def _() -> Any:
    y = outcomes(40) + np.repeat([-2.5, 2.5], 20)
    models = {"left": normal(y, -0.3, 1.5), "right": normal(y, 0.3, 1.5)}
    return lq.quack(models, rule="hyvarinen")


@situation("a pool known at the data only", "H: is it worth anything?", "log-score-unknown")
def _() -> Any:
    y = outcomes(60) + np.repeat([-2.5, 2.5], 30)
    models = {"left": arrays(y, -0.3, 1.5), "right": arrays(y, 0.3, 1.5)}
    return lq.quack(models, rule="hyvarinen")


@situation("the same, H not asked for by name", "H: a near-node is for free", "uncertain-pool")
def _() -> Any:
    y = outcomes(60)
    return lq.quack({"right": arrays(y, 0.0), "wide and beside": arrays(y, 1.5, 2.0)})


@situation("a pool with many optima", "the search: which is best?", "several-optima")
def _() -> Any:
    y = outcomes(60)
    return lq.quack({f"m{k}": arrays(y, 0.7 * k) for k in range(-2, 3)}, rule="hyvarinen")


@situation("an order that data do not determine", "Hölder pools", "parameter-at-bound")
def _() -> Any:
    y = outcomes(40) + np.repeat([-3.0, 3.0], 20)
    return lq.combine({"left": normal(y, -1.0), "right": normal(y, 1.0)}, "hoelder", "log")


@situation("the same model under two names", "how weight is split", "models-alike")
def _() -> Any:
    y = outcomes()
    return lq.lock({"a": normal(y, 0.0), "again": normal(y, 0.0), "b": normal(y, 1.0)})


@situation("a model that is the pool of two others", "single weights", "weights-undetermined")
def _() -> Any:
    y = outcomes()
    return lq.lock({"left": normal(y, -1.0), "right": normal(y, 1.0), "middle": normal(y, 0.0)})


@situation("one observation that decides", "H and its standard errors", "few-decide")
def _() -> Any:
    y = outcomes(50)
    y[20] = 12.0
    return lq.lock({"narrow": normal(y, 0.0), "shifted": normal(y, 1.2, 1.1)})


@situation("one observation that decides which model", "selection by log score", "few-decide")
def _() -> Any:
    y = outcomes(50)
    y[20] = 8.0
    return lq.select({"narrow": normal(y, 0.0), "wide": normal(y, 0.0, 2.0)})


@situation("a flat model far away", "selection by H: flat is not wrong", "scores-disagree")
def _() -> Any:
    y = outcomes(40)
    mu = 100 + 0.05 * rng(3).normal(size=(2, 20))
    flat = lq.from_family("student_t", y=y, nu=1.0, mu=mu, sigma=1.0)
    return lq.select({"narrow": normal(y, 0.0, 0.5), "flat and far": flat}, by="hyvarinen")


@situation("densities that end at 0, plain score", "H: not proper at an edge", "EdgeError")
def _() -> Any:
    y = np.exp(outcomes())
    models = {
        "exponential": lq.from_family("exponential", y=y, lam=1 + 0.1 * rng(2).random((4, 100))),
        "normal": normal(y, 1.0, 2.0),
    }
    return lq.lock(models, rule=lq.Hyvarinen(transform=None))


@situation("gamma of shape 2.5, plain score", "H: no variance", "slow-edge")
def _() -> Any:
    y = rng(4).gamma(2.5, size=100)
    shape = 2.5 + 0.02 * rng(2).random((4, 100))
    models = {
        "gamma": lq.from_family("gamma", y=y, alpha=shape, beta=1.0),
        "flat": lq.from_family("gamma", y=y, alpha=shape, beta=0.9),
    }
    return lq.lock(models, rule=lq.Hyvarinen(transform=None))


@situation("models of different supports", "pools: which outcomes remain", "different-supports")
def _() -> Any:
    y = np.exp(outcomes())
    lognormal = lq.from_family("lognormal", y=y, mu=0.05 * rng(2).normal(size=(4, 100)), sigma=1.0)
    return lq.stack({"lognormal": lognormal, "normal": normal(y, 1.0, 2.0)})


@situation("an outcome that a model excludes", "log score: minus infinity", "SupportError")
def _() -> Any:
    y = np.append(np.exp(outcomes()), 0.0)
    return lq.lock({"lognormal": lq.from_family("lognormal", y=y, mu=np.zeros((4, 9)), sigma=1.0)})


@situation("counts and a continuous model", "log score: mass against density", "UnsupportedError")
def _() -> Any:
    y = rng(2).poisson(4.0, size=50).astype(float)
    poisson = lq.from_family("poisson", y=y, mu=4 + 0.1 * rng(3).normal(size=(4, 100)))
    return lq.stack({"poisson": poisson, "normal": normal(y, 4.0, 0.3)})


@situation("counts by the Hyvärinen score", "H: no derivatives", "SmoothnessError")
def _() -> Any:
    y = rng(2).poisson(4.0, size=50).astype(float)
    mu = 4 + 0.1 * rng(3).normal(size=(4, 100))
    models = {name: lq.from_family("poisson", y=y, mu=mu + m) for name, m in (("a", 0), ("b", 1))}
    return lq.combine(models, "locking", "hyvarinen")


@situation("weights without a bound on their sum", "H: no normaliser", "normaliser-unchecked")
def _() -> Any:
    y = outcomes()
    models = {"a": arrays(y, 0.0), "b": arrays(y, 1.0)}
    return lq.combine(models, lq.Locking("nonnegative"), "hyvarinen")


@situation("a prior that makes weights improper", "the optimum", "ParameterError")
def _() -> Any:
    return lq.lock(two(outcomes()), prior=0.5)


# Data


@situation("40 % of the outcomes exactly 0", "densities at an atom", "repeated-outcome")
def _() -> Any:
    y = np.where(rng(5).random(100) < 0.4, 0.0, rng(6).gamma(2.0, size=100))
    return lq.stack({"wide": normal(y, 1.0, 1.5), "spike": normal(y, 0.0, 0.01)})


@situation("an outcome without variation", "units of H", "ScaleError")
def _() -> Any:
    return lq.lock(two(np.ones(50)))


@situation("outcomes around 10^16", "float64: differences are lost", "coarse-outcomes")
def _() -> Any:
    y = 1e16 + 4 * outcomes()
    return lq.lock({"a": normal(y, 1e16, 4.0), "b": normal(y, 1e16 + 2, 5.0)})


@situation("a missing outcome", "every score", "NonFiniteError")
def _() -> Any:
    y = outcomes()
    y[3] = np.nan
    return lq.lock(two(y))


@situation("nearly all case weight on one observation", "standard errors", "few-observations")
def _() -> Any:
    weights = np.ones(100)
    weights[4] = 1e5
    return lq.stack(two(outcomes(), weights=weights))


@situation("two observations", "standard errors", "few-observations")
def _() -> Any:
    return lq.lock(two(outcomes(2)))


@situation("fewer observations than models", "weights", "few-observations")
def _() -> Any:
    y = outcomes(6)
    return lq.lock({f"m{k}": normal(y, 0.3 * k) for k in range(8)})


@situation("outcomes in metres and in centimetres", "densities of two variables", "TransformError")
def _() -> Any:
    y = outcomes()
    return lq.lock({"m": normal(y, 0.0), "cm": normal(100 * y, 0.0, 100.0)})


@situation("a model of log y, not declared", "densities of two variables", "TransformError")
def _() -> Any:
    y = np.exp(outcomes())
    return lq.lock({"y": normal(y, 1.0, 2.0), "log y": normal(np.log(y), 0.0)})


@situation("other observations", "scores that are not paired", "ObservationMismatchError")
def _() -> Any:
    y = outcomes()
    return lq.lock({"a": normal(y, 0.0), "b": normal(y[:-1], 0.0)})


@situation("the same rows in another order", "paired differences", "ObservationMismatchError")
def _() -> Any:
    y = outcomes()
    return lq.lock({"a": normal(y, 0.0), "b": normal(y[::-1].copy(), 0.0)})


@situation("labels in another order", "rows matched by position", "ObservationMismatchError")
def _() -> Any:
    y = pd.Series(np.zeros(30) + outcomes(30), index=[f"i{k}" for k in range(30)])
    other = pd.Series(y.values, index=y.index[::-1])
    return lq.lock({"a": normal(y, 0.0), "b": normal(other, 0.5)})


@situation("case weights for one model only", "totals", "ObservationMismatchError")
def _() -> Any:
    y = outcomes()
    return lq.lock({"a": normal(y, 0.0, weights=1 + (y > 0)), "b": normal(y, 0.5)})


# Draws and arrays


@situation("a single chain", "Monte Carlo errors", "single-chain")
def _() -> Any:
    return lq.lock(two(outcomes(), shape=(1, 400)))


@situation("three draws a chain", "Monte Carlo errors", "hardly-any-draws")
def _() -> Any:
    return lq.lock(two(outcomes(), shape=(4, 3)))


@situation("chains that do not mix", "averages over chains", "too-few-draws")
def _() -> Any:
    y = outcomes()
    mu = np.array([0, 0, 0, 2.0])[:, None] + 0.05 * rng(3).normal(size=(4, 100))
    return lq.lock({"a": lq.from_family("normal", y=y, mu=mu, sigma=1.0), "b": normal(y, 0.5)})


@situation("a chain that is stuck", "averages over chains", "stuck-chain")
def _() -> Any:
    y = outcomes()
    mu = 0.1 * rng(3).normal(size=(4, 100))
    mu[2] = mu[2, 0]
    return lq.lock({"a": lq.from_family("normal", y=y, mu=mu, sigma=1.0), "b": normal(y, 0.5)})


@situation("an outlier, leave-one-out by importance", "log score: Pareto k̂ > 0.7", "pareto-k")
def _() -> Any:
    y = outcomes()
    y[7] = 12.0
    mu = 0.3 * rng(3).normal(size=(4, 100))
    return lq.stack({"a": lq.from_family("normal", y=y, mu=mu, sigma=1.0), "b": normal(y, 0, 2.0)})


@situation("in-sample averages that few draws carry", "in-sample scores", "handful-of-draws")
def _() -> Any:
    y = outcomes()
    mu = 8 + 2 * rng(3).normal(size=(4, 100))
    models = {"a": lq.from_family("normal", y=y, mu=mu, sigma=0.3), "b": normal(y, 0.0)}
    return lq.lock(models, scores="in-sample")


@situation("gradients with respect to a parameter", "H of arrays", "suspect-derivatives")
def _() -> Any:
    y = outcomes()
    in_theta = y - 0.05 * rng(3).normal(size=(4, 100, 1))
    return lq.lock({"a": arrays(y, 0.0, grad=in_theta), "b": arrays(y, 0.5, 1.3)})


@situation("probabilities as log densities", "log scores of arrays", "suspect-log-density")
def _() -> Any:
    y = outcomes()
    logp = stats.norm.logpdf(y - 0.05 * rng(3).normal(size=(4, 100, 1)))
    return lq.stack({"a": lq.from_arrays(logp=np.exp(logp), y=y), "b": arrays(y, 0.5)})


@situation("negative log likelihoods", "log scores of arrays", "suspect-log-density")
def _() -> Any:
    y = outcomes()
    logp = stats.norm.logpdf(y - 0.05 * rng(3).normal(size=(4, 100, 1)))
    return lq.stack({"a": lq.from_arrays(logp=-logp, y=y), "b": arrays(y, 0.5)})


@situation("predictive draws as log densities", "log scores of arrays", "pareto-k")
def _() -> Any:
    y = outcomes()
    draws = 2 * rng(3).normal(size=(4, 100, 100))
    return lq.stack({"a": lq.from_arrays(logp=draws, y=y), "b": arrays(y, 0.5)})


@situation("the total log likelihood in every column", "log scores of arrays", "pareto-k")
def _() -> Any:
    y = outcomes()
    logp = stats.norm.logpdf(y - 0.2 * rng(3).normal(size=(4, 100, 1))).sum(axis=2, keepdims=True)
    return lq.stack({"a": lq.from_arrays(logp=np.repeat(logp, 100, 2), y=y), "b": arrays(y, 0.5)})


@situation("a log density of minus infinity", "log scores of arrays", "NonFiniteError")
def _() -> Any:
    y = outcomes()
    logp = np.where(np.arange(100) == 3, -np.inf, np.zeros((4, 100, 100)))
    return lq.stack({"a": lq.from_arrays(logp=logp, y=y), "b": arrays(y, 0.5)})


@situation(
    "parameters of chains in another order", "draws matched by position", "ObservationMismatchError"
)
def _() -> Any:
    y = outcomes()
    draws = rng(3).normal(size=(4, 50))
    dims, chains = ("chain", "draw"), {"chain": [0, 1, 2, 3], "draw": range(50)}
    mu = xr.DataArray(0.1 * draws, dims=dims, coords=chains)
    sigma = xr.DataArray(
        np.exp(0.1 * draws[::-1]), dims=dims, coords={**chains, "chain": [3, 2, 1, 0]}
    )
    return lq.from_family("normal", y=y, mu=mu, sigma=sigma)


@situation("densities of the data that made the model", "overfitting", "“in-sample”")
def _() -> str:
    shown = repr(lq.lock(two(outcomes()), scores="in-sample"))
    return "in-sample" if "the in-sample Hyvärinen score" in shown else "nothing"


# compare


def compared(models: dict[str, lq.Model], methods: Any = ("stack", "equal"), **more: Any) -> Any:
    return lq.compare(models, methods, cv=5, **more)


@situation("20 equally good models", "compare: one is best by chance", "“none is called worse”")
def _() -> str:
    y = outcomes(100)
    noise = rng(9).choice([-0.3, 0.3], size=(20, 100))
    models = {f"m{k}": normal(y, each, shape=(2, 15)) for k, each in enumerate(noise)}
    verdicts = compared(models, ["select"])["verdict"]
    return "worse" if (verdicts == "worse").any() else "none is called worse"


@situation("the luckiest of many", "compare: the first row", "“recommends the simplest”")
def _() -> str:
    y = outcomes(60)
    table = compared(two(y), None)
    simplest = table.loc[table.recommended, "kind"] == "model"
    return "recommends the simplest" if simplest else table.recommended


@situation("a tiny difference, clear by its error", "compare: standard errors", "“|diff| < 4”")
def _() -> str:
    y = outcomes(400)
    table = compared({"a": normal(y, 0.0), "b": normal(y, 0.0, 1.03)})
    return "|diff| < 4" if (table["flags"].iloc[1:] == "|diff| < 4").any() else "nothing"


@situation("fewer than 100 observations", "compare: standard errors", "“rough”")
def _() -> str:
    return "rough" if "are rough" in compared(two(outcomes(40))).caution else "nothing"


@situation("five observations", "compare: standard errors", "“no standard errors and no verdicts”")
def _() -> str:
    table = compared(two(outcomes(5)))
    silent = table["dse"].isna().all() and set(table["verdict"]) <= {"best", "unclear"}
    return "no standard errors and no verdicts" if silent and table.caution else "numbers"


@situation("differences that depend on a high k̂", "compare: verdicts", "pareto-k")
def _() -> Any:
    y = outcomes()
    y[7] = 12.0
    mu = 0.3 * rng(3).normal(size=(4, 100))
    return compared({"a": lq.from_family("normal", y=y, mu=mu, sigma=1.0), "b": normal(y, 0, 2.0)})


@situation(
    "folds without a label for some rows",
    "compare: rows without a fold",
    "ObservationMismatchError",
)
def _() -> Any:
    y = pd.Series(outcomes(30), index=[f"i{k}" for k in range(30)])
    folds = pd.Series(np.arange(29) % 3, index=y.index[:29])
    return lq.compare(two(y), ["stack"], cv=folds)


# What sceptics tried


@situation(
    "a table that was pasted twice", "standard errors: half of it is copies", "copied-observations"
)
def _() -> Any:
    return lq.lock(two(np.tile(outcomes(50), 2)))


@situation(
    "rows that a join repeated 20 times", "compare: certain of nothing", "copied-observations"
)
def _() -> Any:
    return compared(two(np.repeat(outcomes(20), 20)))


@situation("-999 for missing values", "every score", "coded-outcome")
def _() -> Any:
    y = outcomes()
    y[[3, 50, 77]] = -999.0
    student = lq.from_family(
        "student_t", y=y, nu=2.0, mu=0.1 * rng(3).normal(size=(4, 100)), sigma=1.0
    )
    return lq.lock({"normal": normal(y, 0.0), "student": student})


@situation("rounded outcomes, spikes at them", "log score: grows without limit", "rounded-outcomes")
def _() -> Any:
    y = 2 * outcomes(200).round()
    mu = 0.001 * rng(3).normal(size=(4, 100))
    spikes = [("normal", {"mu": mu + 2 * k, "sigma": 0.05}) for k in range(-3, 4)]
    spiky = lq.from_family("mixture", y=y, weights=np.full(7, 1 / 7), components=spikes)
    return lq.stack({"spiky": spiky, "smooth": normal(y, 0.0, 2.1)})


@situation("a density of log y, given as one of y", "log scores of arrays", "too-much-mass")
def _() -> Any:
    y = np.exp(outcomes())
    z = np.log(y) - 0.05 * rng(3).normal(size=(4, 100, 1))
    of_log = lq.from_arrays(logp=stats.norm.logpdf(z), y=y)
    return lq.stack({"log y": of_log, "y": arrays(y, 1.6, 2.0)})


@situation(
    "a density of standardised y, given as one of y", "log scores of arrays", "too-much-mass"
)
def _() -> Any:
    y = 300 + 50 * outcomes()
    z = (y - 300) / 50 - 0.05 * rng(3).normal(size=(4, 100, 1))
    scaled = lq.from_arrays(logp=stats.norm.logpdf(z), y=y)
    return lq.stack({"standardised": scaled, "y": arrays(y, 300.0, 50.0)})


@situation("base-10 logarithms of densities", "log scores of arrays", "too-much-mass")
def _() -> Any:
    y = outcomes()
    z = y - 0.05 * rng(3).normal(size=(4, 100, 1))
    base = lq.from_arrays(logp=stats.norm.logpdf(z) / np.log(10), y=y)
    return lq.stack({"base 10": base, "natural": arrays(y, 0.5)})


@situation("derivatives by log y, given as those by y", "H of arrays", "inconsistent-derivatives")
def _() -> Any:
    y = np.exp(outcomes())
    z = np.log(y) - 0.05 * rng(3).normal(size=(4, 100, 1))
    given = {"logp": stats.norm.logpdf(z), "grad": -z, "curv": np.full(z.shape, -1.0)}
    return lq.lock({"log y": lq.from_arrays(**given, y=y), "y": arrays(y, 1.6, 2.0)})


@situation("f''/f in place of the curvature", "H of arrays", "inconsistent-derivatives")
def _() -> Any:
    y = outcomes()
    z = y - 0.05 * rng(3).normal(size=(4, 100, 1))
    return lq.lock({"f''/f": arrays(y, 0.0, curv=np.square(z) - 1), "b": arrays(y, 0.5, 1.2)})


@situation("warm-up draws that were left in", "averages over draws", "too-few-draws")
def _() -> Any:
    y = outcomes()
    mu = 0.1 * rng(3).normal(size=(4, 300))
    mu[:, :60] += np.linspace(8, 0, 60)
    return lq.lock({"a": lq.from_family("normal", y=y, mu=mu, sigma=1.0), "b": normal(y, 0.5)})


@situation("four chains, each stuck elsewhere", "averages over chains", "stuck-chain")
def _() -> Any:
    y = outcomes()
    mu = np.array([0.0, 0.3, -0.2, 0.1])[:, None] + np.zeros((4, 100))
    return lq.lock({"a": lq.from_family("normal", y=y, mu=mu, sigma=1.0), "b": normal(y, 0.5)})


@situation("six fits of one model", "which of them has the weight", "models-alike")
def _() -> Any:
    y = outcomes()
    again = {
        f"fit {k}": lq.from_family(
            "normal", y=y, mu=0.05 * rng(10 + k).normal(size=(4, 100)), sigma=1.0
        )
        for k in range(6)
    }
    return lq.stack({**again, "other": normal(y, -0.3, 1.2)})


@situation("perfect separation", "log score: minus infinity next door", "pareto-k")
def _() -> Any:
    x = outcomes(80)
    slope = np.exp(rng(4).normal(3.0, 1.0, size=(4, 100, 1)))
    p = np.clip(1 / (1 + np.exp(np.clip(-slope * x, -700, 700))), 1e-12, 1 - 1e-12)
    y = (x > 0).astype(float)
    base = lq.from_family("bernoulli", y=y, p=0.5 + 0.02 * rng(3).normal(size=(4, 100)))
    return lq.stack({"logit": lq.from_family("bernoulli", y=y, p=p), "base": base})


@situation("one outcome that differs in one file", "paired differences", "ObservationMismatchError")
def _() -> Any:
    y = outcomes()
    other = y.copy()
    other[17] += 1e-3
    return lq.stack({"a": normal(y, 0.0), "b": normal(other, 0.5)})


@situation("one model of standardised outcomes", "densities of two variables", "TransformError")
def _() -> Any:
    y = 3 + 1.3 * outcomes()
    return lq.stack({"y": normal(y, 3.0, 1.3), "z": normal((y - y.mean()) / y.std(), 0.0)})


@situation("folds that predict other rows", "cross-validation", "ObservationMismatchError")
def _() -> Any:
    y = outcomes(60)

    def fit(rows: np.ndarray) -> lq.Model:
        return normal(y[rows], 0.0)

    wrong = lq.cross_validate(lambda train, test: fit(train[: len(test)]), n=60, folds=5)
    right = lq.cross_validate(lambda train, test: fit(test), n=60, folds=5)
    return lq.stack({"wrong": wrong, "right": right})


@situation("draws thinned to four", "leave-one-out weights", "UnsupportedError")
def _() -> Any:
    y = outcomes()
    return lq.stack({"thin": normal(y, 0.0, shape=(4, 1)), "b": normal(y, 0.5)})


@situation("a tail without any moment", "CRPS: infinite", "NonFiniteError")
def _() -> Any:
    y = np.exp(outcomes())
    mu = 0.1 * rng(3).normal(size=(4, 100))
    heavy = lq.from_family("logistic", y=y, mu=mu, s=4.0, transform="log")
    return lq.combine({"heavy": heavy, "normal": normal(y, 1.0, 2.0)}, "linear", "crps")


if __name__ == "__main__":
    print(table())
