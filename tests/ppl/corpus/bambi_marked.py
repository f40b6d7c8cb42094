"""Bambi models whose responses are censored, truncated, constrained or weighted.

Bambi itself has no log likelihood of these: they are compared with scipy, at the parameters that
Bambi predicts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from tests.ppl.corpus.bambi_building import DATA, Built, build
from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("Bambi")
LINE = {"Intercept": 1.0, "x": 0.5, "sigma": 0.6}
RATES = {"Intercept": 0.2, "x": 0.3}
CENSORED = {
    "goes_in": "log",
    "reason": "a censored outcome has a probability, not a density",
    "says": "atoms where outcomes are censored",
}
Params = Any


def _column(values: Any) -> Any:
    return np.asarray(values)[..., None]


def _normal(p: Params) -> Any:
    return stats.norm(p["mu"].values, _column(p["sigma"]))


@CORPUS.case("censored", "censored on both sides: a tobit model", quick=True, **CENSORED)
def tobit() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of, status = _normal(p), DATA["status"].to_numpy()
        seen = np.where(status == "left", of.logcdf(y), of.logpdf(y))
        return np.where(status == "right", of.logsf(y), seen)

    return build("censored(y, status) ~ x", near=LINE, by_hand=by_hand)


@CORPUS.case("survival", "survival times, right-censored: Weibull", **CENSORED)
def weibull_survival() -> Built:
    from scipy.special import gamma

    def by_hand(y: Any, p: Params) -> Any:
        alpha = _column(p["alpha"])
        of = stats.weibull_min(alpha, scale=p["mu"].values / gamma(1 + 1 / alpha))
        return np.where(DATA["seen"] == "right", of.logsf(y), of.logpdf(y))

    formula, near = "censored(positive, seen) ~ x + (1|subject)", {**RATES, "alpha": 2.0}
    return build(formula, "weibull", near=near, by_hand=by_hand, link="log")


@CORPUS.case("survival", "survival times, right-censored: exponential", **CENSORED)
def exponential_survival() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of = stats.expon(scale=p["mu"].values)
        return np.where(DATA["seen"] == "right", of.logsf(y), of.logpdf(y))

    formula = "censored(positive, seen) ~ x"
    return build(formula, "exponential", near=RATES, by_hand=by_hand, link="log")


@CORPUS.case("censored", "counts that are censored", goes_in="log",
             reason="its outcomes are discrete", says="discrete")  # fmt: skip
def censored_counts() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of = stats.poisson(p["mu"].values)
        return np.where(DATA["seen"] == "right", of.logsf(y - 1), of.logpmf(y))

    return build("censored(count, seen) ~ x", "poisson", near=RATES, by_hand=by_hand)


@CORPUS.case(
    "truncated",
    "truncated regression: only positive outcomes are recorded",
    quick=True,
    goes_in="H of log y",
    reason="its density does not vanish where it is cut off",
    says="does not vanish smoothly at 0",
)
def truncated_regression() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of = _normal(p)
        return of.logpdf(y) - of.logsf(0.0)

    return build("truncated(y, lb=0) ~ x", near=LINE, by_hand=by_hand)


@CORPUS.case(
    "truncated",
    "truncated between two bounds, Student-t",
    goes_in="log",
    reason="its density does not vanish where it is cut off",
    says="does not vanish smoothly at -2",
)
def truncated_on_both_sides() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of = stats.t(_column(p["nu"]), p["mu"].values, _column(p["sigma"]))
        return of.logpdf(y) - np.log(of.cdf(9.0) - of.cdf(-2.0))

    near = {**LINE, "nu": 4.0}
    return build("truncated(y, lb=-2, ub=9) ~ x", "t", near=near, by_hand=by_hand)


@CORPUS.case(
    "truncated",
    "a bound for each observation",
    goes_in="log",
    reason="its density does not vanish where it is cut off, which differs between observations",
    says="differs between observations",
)
def bounds_by_observation() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of = _normal(p)
        return of.logpdf(y) - of.logsf(DATA["floor"].to_numpy())

    return build("truncated(y, lb=floor) ~ x", near=LINE, by_hand=by_hand)


@CORPUS.case("truncated", "counts from 1: a zero-truncated Poisson", goes_in="log",
             reason="its outcomes are discrete", says="discrete")  # fmt: skip
def zero_truncated_counts() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of = stats.poisson(p["mu"].values)
        return of.logpmf(y) - of.logsf(0)

    return build("truncated(some, lb=1) ~ x", "poisson", near=RATES, by_hand=by_hand)


@CORPUS.case(
    "truncated",
    "a likelihood constrained to positive numbers",
    goes_in="H of log y",
    reason="its density does not vanish where it is cut off",
    says="does not vanish smoothly at 0",
)
def constrained_likelihood() -> Built:
    def by_hand(y: Any, p: Params) -> Any:
        of = _normal(p)
        return of.logpdf(y) - of.logsf(0.0)

    return build("constrained(y, lb=0) ~ x + (1|subject)", near=LINE, by_hand=by_hand)


@CORPUS.case("weighted", "observations with weights, normal", quick=True)
def weighted_regression() -> Built:
    return build("weighted(y, weight) ~ x", near=LINE, by_hand=lambda y, p: _normal(p).logpdf(y))


@CORPUS.case("weighted", "counts with weights", goes_in="log",
             reason="its outcomes are discrete", says="discrete")  # fmt: skip
def weighted_counts() -> Built:
    return build(
        "weighted(count, weight) ~ x",
        "poisson",
        near=RATES,
        by_hand=lambda y, p: stats.poisson(p["mu"].values).logpmf(y),
    )
