"""Bambi regressions of numbers on the whole line, in the manner of its gallery."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ppl.corpus.bambi_building import DATA, Built, build, needs_family, with_draws
from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("Bambi")
LINE = {"Intercept": 1.0, "x": 0.5, "sigma": 0.6}


@CORPUS.case("regression", "multiple regression", quick=True)
def multiple_regression() -> Built:
    return build("y ~ x + z + exposure", near=LINE)


@CORPUS.case("varying coefficients", "growth curves: intercepts and slopes by subject", quick=True)
def varying_slopes() -> Built:
    return build("y ~ 1 + day + (day|subject)", near={"Intercept": 2.0, "sigma": 0.8})


@CORPUS.case("varying coefficients", "partial pooling without common effects")
def partial_pooling() -> Built:
    return build("y ~ 0 + condition + (0 + condition|subject)", near={"sigma": 0.8})


@CORPUS.case("varying coefficients", "crossed subjects and items, centred")
def crossed_effects() -> Built:
    formula = "y ~ condition + (1|subject) + (condition|item)"
    return build(formula, near={"Intercept": 2.0, "sigma": 0.8}, noncentered=False)


@CORPUS.case("regression", "robust regression, Student-t", quick=True)
def student_t_regression() -> Built:
    return build("y ~ x", "t", near={**LINE, "nu": 4.0})


@CORPUS.case("regression", "powers and orthogonal polynomials")
def polynomial() -> Built:
    return build("y ~ x + I(x ** 2) + {z ** 3} + poly(exposure, 2)", near=LINE)


@CORPUS.case("regression", "interactions of numbers and categories, scaled and centred terms")
def interactions() -> Built:
    formula = "y ~ scale(x) * C(item) + center(z):condition"
    return build(formula, near={"Intercept": 2.0, "sigma": 0.8})


@CORPUS.case("smooth terms", "B-splines with knots from the surrounding code")
def splines() -> Built:
    import bambi as bmb

    knots = np.quantile(DATA["x"], [0.3, 0.6])  # noqa: F841 (the formula sees it)
    return with_draws(bmb.Model("y ~ 0 + bs(x, knots=knots, intercept=True)", DATA))


@CORPUS.case("smooth terms", "Gaussian process by a Hilbert space approximation")
def hilbert_space_gp() -> Built:
    return build("y ~ 0 + hsgp(x, m=5, c=1.5)", near={"sigma": 0.8})


@CORPUS.case("smooth terms", "Gaussian processes by group")
def hilbert_space_gp_by_group() -> Built:
    return build("y ~ z + hsgp(x, m=4, c=1.5, by=condition)", near={"sigma": 0.8})


@CORPUS.case("distributional", "a spread that depends on covariates and groups")
def varying_spread() -> Built:
    import bambi as bmb

    formula = bmb.Formula("y ~ x + (1|subject)", "sigma ~ x + (1|subject)")
    return build(formula, near={**LINE, "sigma_Intercept": -0.5, "sigma_x": 0.1})


@CORPUS.case("distributional", "location, spread and tails of a Student-t on covariates")
def varying_tails() -> Built:
    import bambi as bmb

    formula = bmb.Formula("y ~ x", "sigma ~ z", "nu ~ 1 + z")
    return build(formula, "t", near={**LINE, "nu_Intercept": 1.5, "nu_z": 0.1})


@CORPUS.case("regression", "an offset, no intercept")
def offset_without_intercept() -> Built:
    return build("y ~ 0 + x + offset(z)", near={"x": 0.6, "sigma": 0.8})


@CORPUS.case("regression", "terms, parameters and the outcome under other names")
def aliases() -> Built:
    import bambi as bmb

    model = bmb.Model("y ~ x + (1|subject)", DATA)
    model.set_alias({"x": "slope", "sigma": "noise", "1|subject": "person", "y": "outcome"})
    return with_draws(model, near={"Intercept": 1.0, "slope": 0.5, "noise": 0.6})


@CORPUS.case("regression", "priors of one's own, with a hyperprior")
def own_priors() -> Built:
    import bambi as bmb

    priors = {
        "Intercept": bmb.Prior("Normal", mu=0, sigma=2),
        "x": bmb.Prior("Laplace", mu=0, b=1),
        "1|subject": bmb.Prior("Normal", mu=0, sigma=bmb.Prior("HalfCauchy", beta=2)),
        "sigma": bmb.Prior("Exponential", lam=1),
    }
    return build("y ~ x + (1|subject)", near=LINE, priors=priors)


@CORPUS.case("links", "normal outcomes with a logarithmic link")
def log_link() -> Built:
    return build("positive ~ x", column="positive", link="log", near={"x": 0.3, "sigma": 1.0})


@CORPUS.case("transformed outcome", "a standardised outcome, on the scale of the model")
def standardised_outcome() -> Built:
    # Bambi standardises new outcomes anew, so that only the observed ones can be compared.
    return build("scale(y) ~ scale(x)", column=None, near={"Intercept": 0.0, "sigma": 0.6})


@CORPUS.case("transformed outcome", "the logarithm of an outcome, on the scale of the model")
def logarithm() -> Built:
    return build("np.log(positive) ~ x", column=None, near={"x": 0.3, "sigma": 0.6})


@CORPUS.case("incomplete data", "rows with missing values, which Bambi drops")
def dropped_rows() -> Built:
    data = DATA.assign(x=DATA["x"].where(DATA.index != 3), y=DATA["y"].where(DATA.index != 7))
    return build("y ~ x", data=data, column=None, near=LINE, dropna=True)


@CORPUS.case("regression", "reaction times: exponentially modified normal")
def exponentially_modified() -> Built:
    from scipy import stats

    def by_hand(y: Any, p: Any) -> Any:  # PyMC's own jumps a little, where it changes formulas
        sigma, nu = (p[name].values[..., None] for name in ("sigma", "nu"))
        return stats.exponnorm.logpdf(y, nu / sigma, loc=p["mu"].values, scale=sigma)

    needs_family("exgaussian")
    return build("y ~ x", "exgaussian", near={**LINE, "nu": 0.5}, by_hand=by_hand)


@CORPUS.case("own family", "a likelihood of one's own: logistic")
def own_family() -> Built:
    import bambi as bmb

    likelihood = bmb.Likelihood("Logistic", params=["mu", "s"], parent="mu")
    family = bmb.Family("logistic", likelihood, "identity")
    priors = {"s": bmb.Prior("HalfNormal", sigma=1)}
    return build("y ~ x", family, near={**LINE, "s": 0.5}, priors=priors)


@CORPUS.case(
    "quantile regression",
    "asymmetric Laplace with a fixed quantile",
    goes_in="log",
    reason="its density has a kink",
    says="kink at its mode",
)
def quantile_regression() -> Built:
    near = {"Intercept": 1.0, "x": 0.5, "b": 0.6}
    return build("y ~ bs(x, df=4) + z", "asymmetriclaplace", near=near, priors={"kappa": 3})


@CORPUS.case(
    "regression",
    "median regression: Laplace",
    goes_in="log",
    reason="its density has a kink",
    says="kink at its centre",
)
def laplace_regression() -> Built:
    return build("y ~ x", "laplace", near={"Intercept": 1.0, "x": 0.5, "b": 0.6})


@CORPUS.case(
    "incomplete data",
    "draws of another model",
    goes_in="no",
    reason="they lack variables",
    says="Bambi cannot compute the parameters",
)
def draws_of_another_model() -> Built:
    built = build("y ~ x", near=LINE)
    other = build("y ~ z", near=LINE)
    return Built(built.model, other.idata, "y")
