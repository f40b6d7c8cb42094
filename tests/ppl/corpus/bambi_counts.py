"""Bambi regressions of counts, shares of trials, categories and ordered categories."""

from __future__ import annotations

from tests.ppl.corpus.bambi_building import Built, build
from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("Bambi")
RATES = {"Intercept": 0.2, "x": 0.3}
CHANCES = {"Intercept": -1.0, "x": 0.3}
DISCRETE = {"goes_in": "log", "reason": "its outcomes are discrete", "says": "discrete"}
WITH_ATOM = {"goes_in": "log", "reason": "zero has a probability", "says": "atom at 0"}


@CORPUS.case("counts", "Poisson regression with exposure", quick=True, **DISCRETE)
def poisson_regression() -> Built:
    formula = "count ~ x + condition + offset(np.log(exposure))"
    return build(formula, "poisson", column="count", near=RATES)


@CORPUS.case("counts", "negative binomial with varying intercepts", **DISCRETE)
def negative_binomial() -> Built:
    formula = "count ~ x + (1|subject)"
    return build(formula, "negativebinomial", column="count", near={**RATES, "alpha": 3.0})


@CORPUS.case("counts", "negative binomial whose dispersion depends on covariates", **DISCRETE)
def varying_dispersion() -> Built:
    import bambi as bmb

    formula = bmb.Formula("count ~ x", "alpha ~ z")
    return build(formula, "negativebinomial", column="count", near=RATES)


@CORPUS.case("counts", "zero-inflated Poisson, zeros on covariates of their own", **DISCRETE)
def zero_inflated_poisson() -> Built:
    import bambi as bmb

    formula = bmb.Formula("often_zero ~ x", "psi ~ z")
    return build(formula, "zero_inflated_poisson", column="often_zero", near=RATES)


@CORPUS.case("counts", "zero-inflated negative binomial", **DISCRETE)
def zero_inflated_negative_binomial() -> Built:
    near = {**RATES, "alpha": 3.0, "psi": 0.6}
    return build("often_zero ~ x", "zero_inflated_negativebinomial", column="often_zero", near=near)


@CORPUS.case("hurdles", "hurdle Poisson", **DISCRETE)
def hurdle_poisson() -> Built:
    near = {**RATES, "psi": 0.6}
    return build("often_zero ~ x", "hurdle_poisson", column="often_zero", near=near)


@CORPUS.case("hurdles", "hurdle negative binomial", **DISCRETE)
def hurdle_negative_binomial() -> Built:
    near = {**RATES, "alpha": 3.0, "psi": 0.6}
    return build("often_zero ~ x", "hurdle_negativebinomial", column="often_zero", near=near)


@CORPUS.case("hurdles", "amounts, some of them zero: hurdle gamma", **WITH_ATOM)
def hurdle_gamma() -> Built:
    near = {**RATES, "alpha": 3.0, "psi": 0.6}
    return build("amount ~ x", "hurdle_gamma", column="amount", link="log", near=near)


@CORPUS.case("hurdles", "amounts, some of them zero: hurdle log-normal", **WITH_ATOM)
def hurdle_lognormal() -> Built:
    near = {**RATES, "sigma": 0.5, "psi": 0.6}
    return build("amount ~ x", "hurdle_lognormal", column="amount", near=near)


@CORPUS.case("binary", "logistic regression of zeros and ones", **DISCRETE)
def logistic_regression() -> Built:
    return build("event ~ x * condition", "bernoulli", column="event", near=CHANCES)


@CORPUS.case("binary", "logistic regression of a level: vote['yes']", quick=True, **DISCRETE)
def vote_for_a_level() -> Built:
    return build("vote['yes'] ~ condition:x", "bernoulli", column=None, near=CHANCES)


@CORPUS.case("links", "binary outcomes with the probit link, in groups", **DISCRETE)
def probit_link() -> Built:
    formula = "event ~ x + (x|subject)"
    return build(formula, "bernoulli", column="event", link="probit", near=CHANCES)


@CORPUS.case("survival", "discrete hazards with the complementary log-log link", **DISCRETE)
def discrete_hazards() -> Built:
    formula = "event ~ 0 + C(day) + x"
    return build(formula, "bernoulli", column="event", link="cloglog", near={"x": 0.1})


@CORPUS.case("trials", "binomial proportions: p(hits, tries)", quick=True, **DISCRETE)
def binomial_proportion() -> Built:
    return build("p(hits, tries) ~ x + (1|subject)", "binomial", column="hits", near=CHANCES)


@CORPUS.case("trials", "binomial proportions of as many trials each: p(hits, 8)", **DISCRETE)
def constant_trials() -> Built:
    return build("proportion(hits, 8) ~ x", "binomial", column="hits", near=CHANCES)


@CORPUS.case("trials", "beta-binomial", **DISCRETE)
def beta_binomial() -> Built:
    near = {**CHANCES, "kappa": 5.0}
    return build("p(hits, tries) ~ x", "beta_binomial", column="hits", near=near)


@CORPUS.case("trials", "zero-inflated binomial", **DISCRETE)
def zero_inflated_binomial() -> Built:
    near = {**CHANCES, "psi": 0.6}
    return build("p(hits, tries) ~ x", "zero_inflated_binomial", column="hits", near=near)


@CORPUS.case("categories", "categorical regression", quick=True, **DISCRETE)
def categorical_regression() -> Built:
    return build("species ~ x + z", "categorical", column=None)


@CORPUS.case("categories", "categorical regression with varying intercepts", **DISCRETE)
def categories_in_groups() -> Built:
    return build("species ~ x + (1|subject)", "categorical", column=None)


@CORPUS.case("categories", "categories without covariates", **DISCRETE)
def categories_alone() -> Built:
    return build("species ~ 1", "categorical", column=None)


@CORPUS.case("ordered categories", "cumulative model of ratings", quick=True, **DISCRETE)
def cumulative() -> Built:
    near = {"threshold": [-1.0, 0.2, 1.1], "x": 0.2}
    return build("rating ~ 0 + x", "cumulative", column=None, near=near)


@CORPUS.case("ordered categories", "cumulative model with the probit link, in groups", **DISCRETE)
def cumulative_probit() -> Built:
    near = {"threshold": [-1.0, 0.2, 1.1], "x": 0.2}
    formula = "rating ~ 0 + x + (1|subject)"
    return build(formula, "cumulative", column=None, link="probit", near=near)


@CORPUS.case("ordered categories", "sequential model: stopping ratios", **DISCRETE)
def stopping_ratio() -> Built:
    near = {"threshold": [-0.6, 0.2, 0.4], "x": 0.2}
    return build("rating ~ 0 + x", "sratio", column=None, near=near)


@CORPUS.case("categories", "counts of several kinds: multinomial", quick=True, **DISCRETE)
def multinomial() -> Built:
    return build("c(red, green, blue) ~ x", "multinomial", column=None)


@CORPUS.case("categories", "counts of several kinds: Dirichlet-multinomial", **DISCRETE)
def dirichlet_multinomial() -> Built:
    return build("c(red, green, blue) ~ x", "dirichlet_multinomial", column=None)
