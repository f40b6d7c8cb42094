"""Bambi regressions of positive, bounded and circular outcomes."""

from __future__ import annotations

from tests.ppl.corpus.bambi_building import Built, build, needs_family
from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("Bambi")
RATES = {"Intercept": 0.2, "x": 0.3}
AT_ZERO = "its density need not vanish at 0"


@CORPUS.case("positive", "gamma regression with a logarithmic link", quick=True)
def gamma_regression() -> Built:
    return build("positive ~ x", "gamma", column="positive", link="log", near={**RATES, "alpha": 5})


@CORPUS.case("positive", "gamma regression with the inverse link and a shape on covariates")
def gamma_inverse_link() -> Built:
    import bambi as bmb

    formula = bmb.Formula("positive ~ x", "alpha ~ z")
    near = {"Intercept": 0.9, "x": -0.1, "alpha_Intercept": 1.8}
    link = {"mu": "inverse", "alpha": "log"}
    return build(formula, "gamma", column="positive", near=near, link=link)


@CORPUS.case(
    "positive",
    "gamma regression with small shapes",
    goes_in="H of log y",
    reason=AT_ZERO,
    says="does not vanish smoothly at 0",
)
def gamma_small_shape() -> Built:
    near = {**RATES, "alpha": 1.2}
    return build("positive ~ x + (1|subject)", "gamma", column="positive", link="log", near=near)


@CORPUS.case("positive", "insurance claims: inverse Gaussian (Wald) with a logarithmic link")
def inverse_gaussian() -> Built:
    return build("positive ~ x", "wald", column="positive", link="log", near={**RATES, "lam": 8.0})


@CORPUS.case("positive", "log-normal regression")
def lognormal_regression() -> Built:
    needs_family("lognormal")
    return build("positive ~ x", "lognormal", column="positive", near={**RATES, "sigma": 0.5})


@CORPUS.case(
    "positive",
    "waiting times: exponential",
    goes_in="H of log y",
    reason=AT_ZERO,
    says="does not vanish smoothly at 0",
)
def exponential_regression() -> Built:
    return build("positive ~ x", "exponential", column="positive", link="log", near=RATES)


@CORPUS.case("survival", "Weibull regression without censoring")
def weibull_regression() -> Built:
    near = {**RATES, "alpha": 3.5}
    return build("positive ~ x", "weibull", column="positive", link="log", near=near)


@CORPUS.case("bounded", "beta regression, concentrated")
def beta_regression() -> Built:
    return build("share ~ x", "beta", column="share", near={"Intercept": 0, "x": 0.1, "kappa": 12})


@CORPUS.case(
    "bounded",
    "beta regression with a precision on covariates, which may be small",
    goes_in="H of logit y",
    reason="its density need not vanish at 0 and 1",
    says="does not vanish smoothly at",
)
def beta_small_precision() -> Built:
    import bambi as bmb

    formula = bmb.Formula("share ~ x", "kappa ~ z")
    near = {"Intercept": 0.0, "x": 0.1, "kappa_Intercept": 1.0, "kappa_z": 0.2}
    return build(formula, "beta", column="share", near=near)


@CORPUS.case("circular", "directions: von Mises")
def directions() -> Built:
    near = {"Intercept": 0.2, "x": 0.1, "kappa": 2.0}
    return build("angle ~ x", "vonmises", column="angle", near=near)
