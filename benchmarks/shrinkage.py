"""How much weights that depend on covariates are pulled together: which rule should choose λ.

``python benchmarks/shrinkage.py simulated`` and ``... real`` fit weights for every λ of the grid to
parts of data sets, and score them on what was held out from that, in nats. What each rule would
have chosen, from cross-validation within the part alone, is then looked up. The real data sets come
with statsmodels and vega_datasets; none of them was looked at when the rules were written.

Both take part of a label where only some are wanted: ``real engel``; or, of 200 data sets from seed
30000, ``simulated "constant, spline, stack" 200 30000``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

import lockquack as lq
from lockquack.fitting.densities import Densities
from lockquack.fitting.shrinkage import beyond_constant, deal_folds, shrinkages
from lockquack.fitting.varying import VaryingFitter
from lockquack.jets import Array, Jet
from lockquack.methods.gather import Gathered
from lockquack.methods.method import METHODS, Varying
from lockquack.models.design import Design, read_by
from lockquack.models.observations import as_observations
from lockquack.rules import Hyvarinen
from lockquack.totals import error_of_total, total

Predictions = tuple[Array, Array]  # means and standard deviations, (K, n)
#: Held-out scores of every λ minus those of constant weights, the last, (λ, n) → which λ.
Rule = Callable[[Array], int]


def best_if_clear(limit: float) -> Rule:
    """Take the best λ if it is some standard errors above constant weights, else these."""

    def rule(apart: Array) -> int:
        gains, errors = total(apart, None), error_of_total(apart, None)
        found = int(gains.argmax())
        return found if gains[found] > limit * errors[found] else gains.size - 1

    return rule


def strongest(within: float) -> Rule:
    """Take the strongest shrinkage within some standard errors of the best."""

    def rule(apart: Array) -> int:
        top = int(apart.sum(axis=1).argmax())
        behind = apart[top] - apart
        close = behind.sum(axis=1) <= within * error_of_total(behind, None)
        return int(np.flatnonzero(close).max())

    return rule


def if_any_is_clear(limit: float, then: Rule) -> Rule:
    """Take constant weights unless some λ is some of its own standard errors above them."""

    def rule(apart: Array) -> int:
        clear = total(apart, None) > limit * error_of_total(apart, None)
        return then(apart) if clear.any() else len(apart) - 1

    return rule


RULES: dict[str, Rule] = {
    "best": best_if_clear(0.0),
    "best if clear by 1 se": best_if_clear(1.0),
    "best if clear by 1.5 se": best_if_clear(1.5),
    "best if clear by 2 se": best_if_clear(2.0),
    "strongest within 1 se": strongest(1.0),
    "best if any clear by 2 se": if_any_is_clear(2.0, best_if_clear(0.0)),
    "strongest in .5 se if any 2 se": if_any_is_clear(2.0, strongest(0.5)),
    "strongest in 1 se if any 2 se": if_any_is_clear(2.0, strongest(1.0)),
    "the same in .5 se, folds 5 times": if_any_is_clear(2.0, strongest(0.5)),
}
#: Rules that look at the average over several divisions into folds.
REPEATS = {"the same in .5 se, folds 5 times": 5}

#: Data sets: outcome; columns of three regressions, with semicolons between; covariates.
SETS = {
    "engel": ("foodexp", "income; root;", "income"),
    "fair": (
        "rate_marriage",
        "age yrs_married; religious; educ occupation",
        "age yrs_married religious educ",
    ),
    "star98": ("share", "LOWINC; PERASIAN PERBLACK; AVYRSEXP AVSALK", "LOWINC PERSPENK PTRATIO"),
    "cancer": ("cancer", "population; root;", "population"),
    "statecrime": ("murder", "hs_grad poverty; single; white urban", "urban poverty"),
    "macrodata": ("infl", "unemp; tbilrate; realint", "year unemp"),
    "ccard": ("AVGEXP", "INCOME; AGE; OWNRENT INCOMESQ", "INCOME AGE"),
    "grunfeld": ("invest", "value; capital; year", "firm year"),
    "anes96": ("TVnews", "age; educ income; PID selfLR", "age income PID"),
    "cars": (
        "Miles_per_Gallon",
        "Weight_in_lbs; Horsepower Acceleration; Year Displacement",
        "Origin Horsepower Year",
    ),
    "barley": ("yield", "waseca; early;", "site year variety"),
}


def log_scores(method: str, weights: Array, y: Array, mu: Array, sigma: Array) -> Array:
    """Log scores of normal predictions, mixed or locked."""
    if method == "stack":
        return np.asarray(np.log((weights * norm.pdf(y, mu, sigma)).sum(axis=0) + 1e-300))
    precision = (weights / sigma**2).sum(axis=0)
    mean = (weights * mu / sigma**2).sum(axis=0) / precision
    return np.asarray(norm.logpdf(y, mean, precision**-0.5))


def pose(
    method: str, y: Array, predictions: Predictions, by: object
) -> tuple[VaryingFitter, Design]:
    """Set up weights that depend on covariates, from normal predictions."""
    mu, sigma = predictions
    z = (y - mu) / sigma
    grad, curv = -z / sigma, -1 / sigma**2 + 0 * y
    scale = y.std()
    jets = Jet(norm.logpdf(z) - np.log(sigma), grad[..., None] * scale, curv[..., None] * scale**2)
    design, basis = read_by(by, as_observations(y))
    known = METHODS[method]
    if known.rule.needs_derivatives:
        known = replace(known, rule=Hyvarinen(scale=1.0, transform=None))
    posed = known.varied(Varying(basis), ["x"]).pose(
        Gathered(Densities(jets), ()), np.full(len(mu), known.concentration)
    )
    return posed, design


def tried(fitter: VaryingFitter, counts: Array, seed: int) -> tuple[Array, list[Array]]:
    """Held-out scores of every λ within the counted, minus constant ones; and weights of each.

    The scores are (repetition, λ, n).
    """
    inside = np.flatnonzero(counts > 0)
    objective = fitter.objective
    some = replace(fitter, objective=objective.at(inside))
    ones = np.ones(inside.size)
    constant = some.constant.refit(ones, some.constant.solve().x)
    grid = shrinkages(some.stiffness(ones, constant))
    start = some.objective.same_everywhere(constant)
    apart = []
    for repetition in range(max(REPEATS.values())):
        folds = deal_folds(np.random.default_rng(seed + repetition), inside.size)
        scores = some.held_out_scores(grid, folds, ones, start)
        apart.append(beyond_constant(*scores, ones))
    found = [some.with_shrinkage(each).again(ones, start) for each in grid]
    return np.stack(apart), found


def outer(
    method: str, y: Array, predictions: Predictions, by: object, folds: list[NDArray[np.intp]]
) -> dict[str, Array]:
    """Gain over constant weights on each held-out observation, by every rule."""
    fitter, _ = pose(method, y, predictions, by)
    mu, sigma = (each + 0 * y for each in predictions)
    gains = {rule: np.zeros(y.size) for rule in RULES}
    for number, fold in enumerate(folds):
        counts = np.ones(y.size)
        counts[fold] = 0.0
        apart, found = tried(fitter, counts, number)
        basis = fitter.objective.basis.at(fold)
        there = np.stack(
            [
                log_scores(
                    method,
                    fitter.objective.parameters(x, basis),
                    y[fold],
                    mu[:, fold],
                    sigma[:, fold],
                )
                for x in found
            ]
        )
        for rule, choose in RULES.items():
            seen = apart[: REPEATS.get(rule, 1)].mean(axis=0)
            gains[rule][fold] = there[choose(seen)] - there[-1]
    return gains


def show(rows: dict[str, list[tuple[float, float]]], label: str) -> None:
    """Print the mean gain of every rule, its standard error, and how often it was at a loss."""
    for rule, each in rows.items():
        gain, se = np.array(each).T
        mean, error = gain.mean(), gain.std(ddof=1) / np.sqrt(gain.size)
        print(
            f"{label:<28}{rule:<32}{mean:+7.2f} ± {error:.2f}   better {(gain > 1e-6).sum():3d}, "
            f"worse {(gain < -1e-6).sum():3d} (by 2 se {(gain < -2 * se - 1e-6).sum():2d}) of "
            f"{gain.size}",
            flush=True,
        )


def simulated(only: str = "", data_sets: str = "50", first: str = "10000") -> None:
    """Print gains where the truth is constant, where it varies a little, and where it does."""
    n, new = 200, 4000
    mu, sigma = np.array([[-1.0], [1.0], [0.0]]), np.array([[1.0], [1.3], [2.0]])
    for label, strength in (("constant", 0.0), ("varies a little", 0.35), ("varies", 1.0)):
        for kind in ("spline", "groups"):
            for method in ("lock", "stack"):
                rows: dict[str, list[tuple[float, float]]] = {rule: [] for rule in RULES}
                if only not in f"{label}, {kind}, {method}":
                    continue
                for seed in range(int(data_sets)):
                    rng = np.random.default_rng(int(first) + seed)
                    x = rng.uniform(size=n + new)
                    group = (8 * x).astype(int)
                    moved = rng.normal(size=8)[group] if kind == "groups" else 3.0 * (x - 0.5)
                    left = rng.random(n + new) < 1 / (1 + np.exp(2.0 * strength * moved))
                    size = n + new
                    y = np.where(left, rng.normal(-1, 1, size), rng.normal(0.8, 1.3, size))
                    by = lq.Spline(x) if kind == "spline" else lq.Groups(group)
                    gains = outer(method, y, (mu, sigma), by, [np.arange(n, n + new)])
                    for rule, each in gains.items():
                        part = each[n:]
                        rows[rule].append((n * part.mean(), n * part.std() / np.sqrt(new)))
                show(rows, f"{label}, {kind}, {method}")


def regression(X: Array, y: Array) -> Predictions:
    """Leave-one-out predictions of a linear regression, as normal ones."""
    X = np.column_stack([np.ones(len(y)), X])
    n, p = X.shape
    Q, _ = np.linalg.qr(X)
    h = np.square(Q).sum(axis=1).clip(max=0.999)
    e = y - Q @ (Q.T @ y)
    variance = (e @ e - e**2 / (1 - h)) / (n - 1 - p)
    return y - e / (1 - h), np.sqrt(variance / (1 - h))


def tables() -> dict[str, pd.DataFrame]:
    """Load the data sets, with the columns that regressions need besides theirs."""
    from statsmodels import datasets
    from vega_datasets import data as vega

    def own(name: str) -> pd.DataFrame:
        return getattr(datasets, name).load_pandas().data.dropna()

    barley, cars = vega.barley(), vega.cars().dropna()
    found = {name: own(name) for name in SETS if name not in ("cars", "barley")}
    above, below = (found["star98"][name] for name in ("NABOVE", "NBELOW"))
    return {
        **found,
        "engel": found["engel"].assign(root=np.sqrt(found["engel"]["income"])),
        "fair": found["fair"].sample(600, random_state=0),
        "star98": found["star98"].assign(share=above / (above + below)),
        "cancer": found["cancer"].assign(root=np.sqrt(found["cancer"]["population"])),
        "cars": cars.assign(Year=cars["Year"].dt.year),
        "barley": barley.assign(
            waseca=(barley["site"] == "Waseca") * 1.0, early=(barley["year"] == 1931) * 1.0
        ),
    }


def real_sets() -> Iterator[tuple[str, Array, Predictions, object]]:
    """Go through data sets: three regressions each, and a covariate."""
    known = tables()
    for name, (outcome, columns, covariates) in SETS.items():
        table = known[name]
        y = table[outcome].to_numpy(dtype=float)
        designs = [table[part.split()].to_numpy(dtype=float) for part in columns.split(";")]
        each = [regression(X, y) for X in designs]
        mu, sigma = (np.stack(part) for part in zip(*each, strict=True))
        for covariate in covariates.split():
            values = table[covariate].to_numpy()
            grouped = values.dtype == object or len(set(values.tolist())) < 6
            by = lq.Groups(values) if grouped else lq.Spline(values.astype(float))
            yield f"{name} by {covariate}", y, (mu, sigma), by


def real(only: str = "") -> None:
    """Print gains on data sets, ten-fold."""
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, list[tuple[float, float]]]] = {
        method: {rule: [] for rule in RULES} for method in ("lock", "stack")
    }
    for label, y, predictions, by in real_sets():
        for method in rows if only in label else ():
            order = np.random.default_rng(1).permutation(y.size)
            folds = [np.sort(part) for part in np.array_split(order, 10)]
            gains = outer(method, y, predictions, by, folds)
            for rule, each in gains.items():
                rows[method][rule].append((each.sum(), each.std() * np.sqrt(y.size)))
            told = "  ".join(f"{each.sum():+6.1f}" for each in gains.values())
            print(f"{label:<28}{method:<7}n {y.size:4d}   {told}", flush=True)
    for method, each in rows.items():
        show(each, method)


if __name__ == "__main__":
    {"simulated": simulated, "real": real}[sys.argv[1]](*sys.argv[2:])
