"""What is refused, and whether the message names the model, the variable and the observation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr

import lockquack as lq
from lockquack.errors import (
    DerivativeError,
    EdgeError,
    EdgeWarning,
    IdentifiabilityWarning,
    LockquackError,
    NonFiniteError,
    ObservationMismatchError,
    ParameterError,
    SmoothnessError,
    SupportWarning,
    TransformError,
    UnsupportedError,
)
from lockquack.families import FAMILIES
from lockquack.rules import Pooled
from lockquack.sources.family import FamilySource
from tests.helpers import unheard

SHAPE = (4, 50)


def normal(y, **options):
    return lq.from_family("normal", y=y, **{"mu": np.zeros(SHAPE), "sigma": 1.0, **options})


# The same observations


def test_other_numbers_of_observations(rng):
    with pytest.raises(ObservationMismatchError, match="'b' has 4 observations.*'a' has 5"):
        lq.lock({"a": normal(rng.normal(size=5)), "b": normal(rng.normal(size=4))})


@pytest.mark.parametrize("dims", [("obs",), ("unit", "item")])
def test_vectors_beside_their_components_are_told_apart_from_missing_rows(rng, dims):
    y = rng.normal(size=(20, 2))
    cells = xr.DataArray(y if dims[1:] else y.ravel(), dims=dims)
    mu = rng.normal(size=(4, 10))
    joint = lq.from_family("mv_normal", y=y, mu=mu[:, :, None, None] + np.zeros(2), cov=np.eye(2))
    each = lq.from_family("normal", y=cells, mu=mu, sigma=1.0)
    with pytest.raises(ObservationMismatchError, match=r"predicts vectors.*'mv_normal' with diag"):
        lq.stack({"joint": joint, "each": each})


def test_other_values_are_located(rng):
    y = rng.normal(size=5)
    other = y.copy()
    other[3] += 0.01
    with pytest.raises(ObservationMismatchError, match="'a' and 'b'.* 1 observations.*tion 3"):
        lq.lock({"a": normal(y), "b": normal(other)})


def test_another_order_is_recognised(rng):
    y = rng.normal(size=5)
    with pytest.raises(ObservationMismatchError, match="another order"):
        lq.lock({"a": normal(y), "b": normal(y[::-1])})


def test_other_labels_are_located():
    def model(labels):
        y = xr.DataArray(np.ones(3), dims="person", coords={"person": labels})
        return normal(y)

    with pytest.raises(ObservationMismatchError, match="'person' .*position 1 is x in .* b in"):
        lq.lock({"a": model(["a", "b", "c"]), "b": model(["a", "x", "c"])}, scale=1.0)
    with pytest.raises(ObservationMismatchError, match="another order"):
        lq.lock({"a": model(["a", "b", "c"]), "b": model(["a", "c", "b"])}, scale=1.0)


def test_labels_of_different_dimensions_are_not_compared(rng):
    y = rng.normal(size=3)
    a = normal(xr.DataArray(y, dims="person", coords={"person": [1, 2, 3]}))
    b = normal(xr.DataArray(y, dims="y_dim_0", coords={"y_dim_0": [0, 1, 2]}), sigma=2.0)
    with pytest.warns(IdentifiabilityWarning, match="too few"):
        fit = lq.lock({"a": a, "b": b})
    assert fit.weights.sum() == pytest.approx(1)


def test_single_precision_outcomes_are_the_same(rng):
    y = 1000 + rng.normal(size=20)
    mu = np.full(SHAPE, y.mean())
    fit = lq.lock({"a": normal(y, mu=mu), "b": normal(np.float32(y), mu=mu, sigma=2.0)})
    assert fit.solution.converged


@pytest.mark.parametrize("name", ["log", "log10", "sqrt"])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_undeclared_transform_is_recognised(rng, name, swapped):
    y = rng.lognormal(size=20)
    transformed = {"log": np.log, "log10": np.log10, "sqrt": np.sqrt}[name](y)
    models = {"raw": normal(y), "changed": normal(transformed)}
    if swapped:
        models = dict(reversed(models.items()))
    with pytest.raises(TransformError, match=f"'changed' is the {name} .*transform='{name}'"):
        lq.lock(models)


def test_standardised_outcomes_are_recognised(rng):
    y = rng.normal(3.0, 2.0, size=20)
    with pytest.raises(TransformError, match="standardising"):
        lq.lock({"a": normal(y), "b": normal((y - y.mean()) / y.std())})


# Densities for which the Hyvärinen score is proper


def with_likelihood(model, **changes):
    likelihood = replace(model.likelihood, **changes)
    return lq.Model(replace(model.source, likelihood=likelihood))


def test_discrete_and_kinked_likelihoods_are_refused(rng):
    model = normal(rng.normal(size=5))
    with pytest.raises(SmoothnessError, match="Model 'counts': .*discrete.*log score"):
        lq.lock({"counts": with_likelihood(model, discrete=True)})
    with pytest.raises(SmoothnessError, match="Model 'laplace': .*a kink at the median"):
        lq.lock({"laplace": with_likelihood(model, not_smooth="a kink at the median")})


@pytest.mark.parametrize(
    "likelihood",
    [
        "beta_binomial",
        "zero_inflated_binomial",
        "ordered_logistic",
        "Categorical",
        "laplace",
        "double_exponential",
        "TruncatedNormal",
        "censored_normal",
        "hurdle_gamma",
    ],
)
def test_named_likelihoods_of_arrays_are_refused(rng, likelihood):
    shape = (4, 10, 5)
    model = lq.from_arrays(
        logp=np.zeros(shape),
        grad=rng.normal(size=shape),
        curv=-np.ones(shape),
        y=rng.normal(size=5),
        likelihood=likelihood,
    )
    with pytest.raises(SmoothnessError, match=f"Model 'a': {likelihood}.*log score"):
        lq.lock({"a": model})
    with pytest.raises(UnsupportedError, match="log score|transform"):
        lq.from_family(likelihood, y=[1.0])


def test_integer_outcomes_of_a_smooth_likelihood_are_fine():
    y = np.arange(10)
    assert lq.lock({"a": normal(y, mu=np.full(SHAPE, 4.5), sigma=3.0)}).solution.converged


@pytest.mark.filterwarnings("ignore:A chain of .* is stuck")
def test_edges_where_the_density_does_not_vanish_are_refused(rng):
    y, plain = rng.gamma(3.0, size=20), lq.Hyvarinen(transform=None)
    draws = np.full(SHAPE, 5.0)
    fine = {"fine": lq.from_family("gamma", y=y, alpha=draws, beta=1.0)}
    assert lq.lock(fine, rule=plain).remarks == ()
    draws[2, 7] = 1.9  # one draw is enough to spoil the average
    with pytest.raises(EdgeError, match=r"Model 'gamma': .*at 0 .*distance\^0.9"):
        lq.lock({"gamma": lq.from_family("gamma", y=y, alpha=draws, beta=1.0)}, rule=plain)
    p = y / (1 + y)
    beta = lq.from_family("beta", y=p, alpha=3.0, beta=np.full(SHAPE, 1.5))
    with pytest.raises(EdgeError, match="at 1 "):
        lq.lock({"beta": beta}, rule=plain)
    with pytest.raises(EdgeError, match="student_t of log y"):
        lq.lock(
            {"t": lq.from_family("student_t", y=y, transform="log", nu=4.0, mu=draws, sigma=1.0)},
            rule=plain,
        )
    lognormal = lq.from_family("lognormal", y=y, mu=draws - 4.0, sigma=1.0)
    lq.lock({"lognormal": lognormal}, rule=plain)


def test_the_edge_score_is_really_wrong_there():
    # Exponential data: the expected score of a rate λ is λ², best at λ = 0, not at the truth.
    y = np.random.default_rng(0).exponential(size=2000)
    scores = []
    for rate in (0.25, 1.0):
        jet = FAMILIES["gamma"].jet(y, {"alpha": np.array(1.0), "beta": np.array(rate)})
        scores.append(lq.Hyvarinen().score(Pooled(jet, {})).sum())
    assert scores[0] > scores[1]


def test_a_density_that_vanishes_slowly_is_noted(rng):
    y = rng.gamma(3.0, size=20)
    slow = {"gamma": lq.from_family("gamma", y=y, alpha=np.full(SHAPE, 3.0), beta=1.0)}
    with pytest.warns(EdgeWarning, match="Near 0 the score has no finite variance"):
        lq.lock(slow, rule=lq.Hyvarinen(transform=None))


@pytest.mark.parametrize(("shape", "refused"), [(3.0, True), (30.0, False)])
def test_the_edge_of_the_combination_is_looked_at_too(rng, shape, refused):
    # Of order 2 w where a gamma with shape 3 and weight w meets a normal that goes on.
    y = rng.gamma(shape, size=200)
    models = {
        "normal": normal(y, mu=np.full(SHAPE, shape), sigma=np.sqrt(shape)),
        "gamma": lq.from_family("gamma", y=y, alpha=np.full(SHAPE, shape), beta=1.0),
    }
    prior = {"normal": 1e6, "gamma": 2e5}  # a sixth of the weight for the gamma
    plain = lq.Hyvarinen(transform=None)
    if refused:
        with pytest.raises(EdgeError, match=r"The combination .* at 0 .*distance\^0.333"):
            lq.lock(models, prior=prior, rule=plain)
    else:
        with pytest.warns(SupportWarning):
            assert lq.lock(models, prior=prior, rule=plain).solution.converged


@pytest.mark.filterwarnings("ignore::lockquack.errors.InfluenceWarning")
def test_different_supports_are_noted(rng):
    y = rng.lognormal(size=30)
    models = {
        "normal": normal(y, mu=np.full(SHAPE, 1.5), sigma=2.0),
        "lognormal": lq.from_family("lognormal", y=y, mu=np.zeros(SHAPE), sigma=1.0),
    }
    with pytest.warns(SupportWarning, match=r"'lognormal' on \(0, inf\)"):
        lq.lock(models)
    with pytest.warns(SupportWarning, match="mixture allows every outcome that one of them allows"):
        fit = lq.equal(unheard(models))
    assert (fit.logpdf(-1.0) > -np.inf).all()


# Derivatives


@dataclass(frozen=True, eq=False, repr=False)
class Wrong(FamilySource):
    """A normal model whose derivatives have been tampered with."""

    def derivatives(self, chain, draws, obs):
        grad, curv = super().derivatives(chain, draws, obs)
        return self.change(grad, curv)


def tampered(change, y):
    model = lq.from_family("normal", y=y, mu=0.3 * np.ones(SHAPE), sigma=1.5)
    broken = type("Broken", (Wrong,), {"change": staticmethod(change)})
    return lq.Model(
        broken(
            model.observations,
            n_chains=4,
            n_draws=50,
            likelihood=model.likelihood,
            family=model.source.family,
            parameters=model.source.parameters,
        )
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda grad, curv: (-grad, curv),  # the gradient in the mean, not in y
        lambda grad, curv: (grad, -curv),
        lambda grad, curv: (1.1 * grad, curv),
        lambda grad, curv: (grad, np.zeros_like(curv)),
        lambda grad, curv: (np.zeros_like(grad), np.zeros_like(curv)),
    ],
    ids=["in the parameter", "sign", "scale", "missing", "both missing"],
)
def test_wrong_derivatives_are_caught(rng, change):
    y = rng.normal(size=10)
    lq.lock({"right": tampered(lambda g, h: (g, h), y)})
    with pytest.raises(DerivativeError, match="Model 'wrong': at observation .* not in the param"):
        lq.lock({"wrong": tampered(change, y)})


EXTREMES = {
    "normal": [{"mu": 0.0, "sigma": 1e-6}, {"mu": 1e8, "sigma": 1e3}],
    "student_t": [{"nu": 1.0, "mu": 0.0, "sigma": 1e-3}, {"nu": 200.0, "mu": 30.0, "sigma": 1.0}],
    "logistic": [{"mu": 40.0, "s": 1.0}],
    "lognormal": [{"mu": -8.0, "sigma": 0.1}],
    "gamma": [{"alpha": 500.0, "beta": 0.1}],
    "beta": [{"alpha": 300.0, "beta": 2.5}],
    "skew_normal": [{"mu": 0.0, "sigma": 1.0, "alpha": 20.0}],
    "gumbel": [{"mu": 3.0, "beta": 0.5}],
}


@pytest.mark.parametrize("name", EXTREMES)
def test_right_derivatives_raise_no_alarm(rng, name):
    low, high = FAMILIES[name].support
    for p in EXTREMES[name]:
        y = rng.uniform(max(low, -3.0), min(high, 3.0), size=15)
        given = {key: np.full((2, 3), value) for key, value in p.items()}
        lq.check(lq.from_family(name, y=y, **given), thorough=True).require()


def test_a_flat_saddle_raises_no_alarm():
    # Between two modes both derivatives nearly vanish, and with them any scale for a step.
    for at in np.linspace(0.0, 0.1, 21):
        parts = [("normal", {"mu": np.full((2, 5), mu), "sigma": 1.0}) for mu in (-1.0, 1.0)]
        model = lq.from_family(
            "mixture", y=[at, 1.0], weights=np.array([0.5, 0.5]), components=parts
        )
        lq.check(model).require()


def test_a_check_is_a_table_that_says_where_it_is_worst(rng):
    y = rng.normal(size=30)

    def one_off(grad, curv):  # at one observation only, by a thousandth
        curv = curv.copy()
        if curv.shape[1] == y.size:
            curv[:, 17] *= 1.001
        return grad, curv

    report = lq.check(tampered(one_off, y), thorough=True)
    assert not report.ok
    assert (report.worst.what, report.worst.where) == ("curvature", "observed")
    assert report.worst.observation == "observation 17"
    assert report.worst.error == pytest.approx(1e-3 / 1.5**2 / _unit_squared(y[17]), rel=0.3)
    table = report.to_dataframe()
    assert table["n"].tolist() == [16 * 30] * 5
    assert list(table.index.get_level_values("at")) == ["observed"] * 3 + ["elsewhere"] * 2
    assert "NOT right: at observation 17 the second derivative" in repr(report)
    assert "<table" in report._repr_html_()
    assert "NOT right" in report._repr_html_()
    with pytest.raises(DerivativeError, match="observation 17 .* not in the parameters"):
        report.require()

    quick = lq.check(tampered(one_off, y), random_seed=3)  # which does not look there
    assert quick.ok
    assert quick.to_dataframe()["n"].tolist() == [3 * 4] * 3
    assert repr(quick).endswith("all agree")
    quick.require()


def _unit_squared(y):
    return 1 / 1.5**2 + ((y - 0.3) / 1.5**2) ** 2


def test_which_draws_are_checked_follows_from_the_seed(rng):
    y = rng.normal(size=5)
    model = lq.from_family("normal", y=y, mu=rng.normal(size=(4, 100)), sigma=1.0)
    first, again, other = (lq.check(model, random_seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_arrays_are_checked_against_a_density_only(rng):
    y, mu = rng.normal(size=6), rng.normal(size=(2, 20))
    exact = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    everything = slice(0, 20), slice(0, 6)
    tiles = [
        (exact.source.logp(c, *everything), *exact.source.derivatives(c, *everything))
        for c in (0, 1)
    ]
    logp, grad, curv = (np.stack(part) for part in zip(*tiles, strict=True))
    grad, curv = grad[..., 0], curv[..., 0]
    right = lq.from_arrays(logp=logp, grad=grad, curv=curv, y=y)
    with pytest.raises(UnsupportedError, match="cannot be checked by themselves.*against="):
        lq.check(right)
    assert lq.check(right, against=exact, thorough=True).ok
    in_the_mean = lq.from_arrays(logp=logp, grad=-grad, curv=curv, y=y)
    report = lq.check(in_the_mean, against=exact)
    assert report.worst.what == "gradient"
    assert report.worst.got == pytest.approx(-report.worst.expected)
    other_draws = lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.0)
    assert lq.check(right, against=other_draws).to_dataframe()["error"].iloc[0] > 0.1
    with pytest.raises(UnsupportedError, match="whose density can be evaluated"):
        lq.check(right, against=right)
    with pytest.raises(ParameterError, match="must be one model.* got dict"):
        lq.check({"exact": exact})
    with pytest.raises(ParameterError, match="against= must be one model.* got str"):
        lq.check(right, against="exact")
    with pytest.raises(ObservationMismatchError, match="20 draws, against= has 10"):
        lq.check(right, against=lq.from_family("normal", y=y, mu=mu[:, :10], sigma=1.0))
    with pytest.raises(ObservationMismatchError, match="different outcomes"):
        lq.check(right, against=lq.from_family("normal", y=y + 1.0, mu=mu, sigma=1.0))


def test_there_is_nothing_to_check_without_derivatives():
    counts = lq.from_family("poisson", y=[1, 2], mu=np.ones((2, 3)))
    with pytest.raises(UnsupportedError, match="is discrete"):
        lq.check(counts)


@pytest.mark.parametrize("name", ["normal", "student_t", "gamma", "weibull", "mv_normal"])
def test_families_pass_a_thorough_check(rng, name):
    if name == "mv_normal":
        y, given = rng.normal(size=(20, 3)), {"mu": np.zeros((2, 30, 3)), "cov": np.eye(3) + 0.5}
    else:
        y = rng.gamma(4.0, size=20)
        given = {"mu": 1.0, "sigma": 2.0, "nu": 4.0, "alpha": 3.0, "beta": 2.0}
        needed = FAMILIES[name].signatures[0]
        given = {key: rng.normal(given[key], 0.1, size=(2, 30)) for key in needed}
    report = lq.check(lq.from_family(name, y=y, **given), thorough=True)
    assert report.ok
    assert report.to_dataframe()["n"].min() > 200
    assert report.to_dataframe()["error"].max() < 1e-6


# The call itself


def test_models_must_be_a_dict_of_models(normals):
    with pytest.raises(LockquackError, match="dict of name"):
        lq.lock(list(normals.values()))
    with pytest.raises(LockquackError, match="no models"):
        lq.lock({})
    with pytest.raises(LockquackError, match="Model 'a' is a ndarray.*from_arrays"):
        lq.lock({"a": np.zeros(3)})


def test_derivatives_whose_squares_overflow_are_refused():
    shape = (2, 10, 3)
    grad = np.zeros(shape)
    grad[..., 1] = 1e200  # finite, but its square is not
    grad[0, 0, 1] = 0.0
    with pytest.raises(NonFiniteError, match=r"grad is 1e\+200 at chain 0, draw 1, observation 1"):
        lq.from_arrays(
            logp=np.zeros(shape), grad=grad, curv=np.zeros(shape), y=np.array([0.0, 1.0, 2.0])
        )
