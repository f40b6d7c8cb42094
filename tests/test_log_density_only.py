"""Models that have log densities and nothing else: what they can do, and how they say no."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from arviz_base import convert_to_datatree
from scipy import special, stats

import lockquack as lq
from lockquack.checks.models import check_models
from lockquack.draws.collapse import collapse
from lockquack.errors import (
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    SupportError,
    UnsupportedError,
)
from lockquack.models.source import Source

C, D, N = 4, 60, 9


@pytest.fixture
def parts(rng):
    y = rng.normal(size=N)
    mu = 0.3 * rng.normal(size=(C, D, 1))
    return {"logp": stats.norm.logpdf(y, mu), "grad": mu - y, "curv": -np.ones((C, D, N)), "y": y}


@pytest.fixture
def full(parts):
    return lq.from_arrays(**parts)


@pytest.fixture
def bare(parts):
    return lq.from_arrays(logp=parts["logp"], y=parts["y"])


class Unread(Source):
    """A model that must not be asked for derivatives."""

    def __init__(self, source):
        super().__init__(source.observations, source.n_chains, source.n_draws, source.likelihood)
        object.__setattr__(self, "source", source)

    def logp(self, chain, draws, obs):
        return self.source.logp(chain, draws, obs)

    def derivatives(self, chain, draws, obs):
        raise AssertionError("derivatives were read")


# What they know


def test_derivatives_are_optional(full, bare, parts):
    assert full.source.can.differentiate
    assert not bare.source.can.differentiate
    np.testing.assert_array_equal(bare.source.all_logp(slice(0, N)), parts["logp"])
    remedies = r"from_family.*from_arrays grad= and curv=.*LogScore\(\).*lq\.stack"
    with pytest.raises(UnsupportedError, match=f"arrays has log densities only.*{remedies}"):
        bare.source.derivatives(0, slice(0, 1), slice(0, N))
    for needs in (bare.collapse, bare.ess, lambda: bare.passes.predict("loo", density=True)):
        with pytest.raises(UnsupportedError, match="log densities only"):
            needs()
    full.source.require_derivatives()


@pytest.mark.parametrize(("there", "lacking"), [("grad", "curv"), ("curv", "grad")])
def test_one_derivative_alone_is_refused(parts, there, lacking):
    given = {key: parts[key] for key in ("logp", "y", there)}
    with pytest.raises(ParameterError, match=f"There is {there} but no {lacking}.*both"):
        lq.from_arrays(**given)


def test_vector_outcomes_without_derivatives(rng):
    y, logp = rng.normal(size=(N, 2)), rng.normal(size=(C, D, N))
    model = lq.from_arrays(logp=logp, y=y)
    assert model.observations.d == 2
    assert not model.source.can.differentiate
    back = lq.from_datatree(model.to_datatree())
    assert not back.source.can.differentiate
    np.testing.assert_array_equal(back.observations.values, y)
    with pytest.raises(ShapeError, match="logp must have shape"):
        lq.from_arrays(logp=logp[..., 0], y=y)


def test_the_layout_of_the_log_densities_counts(bare, parts):
    turned = np.moveaxis(np.moveaxis(parts["logp"], -1, 0).copy(), 0, -1)
    other = lq.from_arrays(logp=turned, y=parts["y"])
    assert other.source.can.read_along_draws
    assert not bare.source.can.read_along_draws
    got, want = (m.collapse("in-sample", derivatives=False).jet.logp for m in (other, bare))
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_counts_by_arrays_may_begin_their_support(rng):
    y = np.array([0, 1, 4])
    logp = stats.poisson.logpmf(y, rng.gamma(9.0, 0.2, size=(C, D, 1)))
    model = lq.from_arrays(logp=logp, y=y, likelihood="poisson", support=(0, np.inf))
    assert model.likelihood.discrete
    assert model.likelihood.support == (0.0, np.inf)
    with pytest.raises(SupportError, match=r"whole numbers from 1; 1 .*first 0 at observation 0"):
        lq.from_arrays(logp=logp, y=y, likelihood="poisson", support=(1, np.inf))


# Predictions without derivatives


@pytest.mark.parametrize("kind", ["loo", "in-sample", "held-out"])
def test_predictions_without_derivatives_agree_with_those_with(full, bare, kind):
    want = full.passes.predict(kind, density=True)
    for model in (full, bare, lq.Model(Unread(full.source))):
        got = model.passes.predict(kind, density=True, derivatives=False)
        np.testing.assert_allclose(got.jet.logp, want.jet.logp, rtol=1e-13)
        assert got.jet.grad.shape == got.jet.curv.shape == (N, 0)
        assert got.effect.shape == (*got.log_effect.shape, 0)
        np.testing.assert_allclose(got.log_effect, want.log_effect, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(got.n_effective, want.n_effective, rtol=1e-12)
        assert got.n_samples == want.n_samples
        assert got.mcse_logp() == pytest.approx(want.mcse_logp(), rel=1e-9)


def test_leave_one_out_is_psis_alone(full, monkeypatch):
    def refused(*args, **options):
        raise AssertionError("there was a pass over the draws")

    monkeypatch.setattr("lockquack.models.source.collapse", refused)
    got = full.passes.predict("loo", density=True, derivatives=False)
    np.testing.assert_array_equal(got.jet.logp, full.loo().logp)


def test_passes_are_remembered_by_what_they_read(full):
    thin = full.passes.predict("in-sample", density=True, derivatives=False)
    assert full.passes.predict("in-sample", density=True, derivatives=False) is thin
    thick = full.passes.predict("in-sample", density=True)
    assert thick is full.collapse("in-sample")
    assert thick is not thin
    assert thick.jet.grad.shape == (N, 1)


@pytest.mark.parametrize("n_draws", [1, 7, 50, 101])
def test_a_pass_of_densities_alone(rng, n_draws):
    logp = rng.normal(size=(2, n_draws, 5))
    model = lq.from_arrays(logp=logp, y=np.zeros(5))
    weights = rng.normal(size=(2, n_draws))
    plain = collapse(model.source, "held-out", derivatives=False).jet.logp
    flat = logp.reshape(-1, 5)
    np.testing.assert_allclose(plain, special.logsumexp(flat, axis=0) - np.log(2 * n_draws))
    weighted = collapse(model.source, "in-sample", log_weights=weights, derivatives=False).jet.logp
    want = special.logsumexp(flat + weights.reshape(-1, 1), axis=0) - special.logsumexp(weights)
    np.testing.assert_allclose(weighted, want)
    loo = collapse(model.source, "loo", density=True, derivatives=False).jet.logp
    np.testing.assert_allclose(loo, np.log(2 * n_draws) - special.logsumexp(-flat, axis=0))


# Checks


def test_rules_that_need_derivatives_say_so_first(full, bare):
    elsewhere = lq.from_arrays(logp=np.zeros((C, D, 2)), y=np.zeros(2))
    remedies = r"from_family.*PPL adapter.*grad= and curv=.*LogScore\(\).*lq\.stack"
    # The observations differ as well; that is not what matters first.
    with pytest.raises(UnsupportedError, match=f"Model 'bare': arrays .*{remedies}"):
        check_models({"full": full, "bare": elsewhere}, lq.Hyvarinen())
    assert check_models({"full": full, "bare": bare}, lq.LogScore()) == []
    with pytest.raises(ObservationMismatchError):
        check_models({"full": full, "bare": elsewhere}, lq.LogScore())


# ArviZ containers


@pytest.fixture
def plain(parts):
    """What ArviZ files commonly hold."""
    return {
        "posterior": {"mu": np.zeros((C, D))},
        "log_likelihood": {"height": parts["logp"]},
        "observed_data": {"height": parts["y"]},
    }


def tree(groups):
    return convert_to_datatree(
        xr.DataTree.from_dict(
            {
                name: convert_to_datatree(
                    values, group=name, **({"sample_dims": []} if name == "observed_data" else {})
                )[name].to_dataset()
                for name, values in groups.items()
            }
        )
    )


def test_a_plain_arviz_container(plain, bare):
    model = lq.from_datatree(tree(plain))
    assert not model.source.can.differentiate
    assert model.log_marginal_likelihood is None
    assert model.likelihood.description == "outcome 'height'"
    np.testing.assert_array_equal(model.observations.values, bare.observations.values)
    np.testing.assert_array_equal(model.loo().logp, bare.loo().logp)
    del plain["observed_data"]
    with pytest.raises(UnsupportedError, match="no group 'observed_data'"):
        lq.from_datatree(tree(plain))


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_files_leave_out_what_is_not_there(bare, full, tmp_path, suffix):
    derivatives = {"log_likelihood_grad", "log_likelihood_curv"}
    assert derivatives < set(full.to_datatree().children)
    assert not derivatives & set(bare.to_datatree().children)
    path = tmp_path / f"model{suffix}"
    lq.Model(replace(bare.source, log_marginal_likelihood=-3.25)).save(path)
    back = lq.from_datatree(path)
    assert not back.source.can.differentiate
    assert back.log_marginal_likelihood == pytest.approx(-3.25, rel=1e-15)
    assert back.likelihood == bare.likelihood
    np.testing.assert_array_equal(
        back.source.all_logp(slice(0, N)), bare.source.all_logp(slice(0, N))
    )


def ragged(*chains):
    """Chains of different lengths as PyMC 5 leaves them: a list each, along ``draw``."""
    values = np.empty((1, len(chains)), dtype=object)
    values[0] = [list(chain) for chain in chains]
    return values


NAN = np.nan
A, B = -12.5, -11.0
BOTH = np.logaddexp(A, B) - np.log(2)


@pytest.mark.parametrize(
    ("given", "dims", "expected"),
    [
        ([A, B], ("chain",), BOTH),
        ([[NAN, NAN, A], [NAN, B, NAN]], ("chain", "draw"), BOTH),
        (np.array([[-99.0, A], [-88.0, B]], dtype=object), ("chain", "draw"), BOTH),
        ([[NAN, -88.0], [A, B]], ("draw", "chain"), BOTH),
        ([[NAN, NAN], [-88.0, B]], ("chain", "draw"), B),
        (ragged([NAN, NAN, A], [NAN, B]), ("chain", "draw"), BOTH),
        (ragged([NAN, A]), ("chain", "draw"), A),
        ([NAN, A], ("stage",), A),
        ([-1e4, -1e4], ("chain",), -1e4),
    ],
)
def test_the_evidence_of_sequential_monte_carlo(plain, given, dims, expected):
    data = tree(plain)
    stats_group = xr.Dataset({"log_marginal_likelihood": (dims, given)})
    data = xr.DataTree.from_dict(
        {**{k: v.to_dataset() for k, v in data.children.items()}, "sample_stats": stats_group}
    )
    model = lq.from_datatree(data)
    assert model.log_marginal_likelihood == pytest.approx(expected, rel=1e-14)
    other = replace(model.likelihood, description="other")
    described = lq.Model(replace(model.source, likelihood=other))
    assert described.log_marginal_likelihood == model.log_marginal_likelihood


def test_other_sample_statistics_do_not_matter(plain):
    unknown = {"log_marginal_likelihood": np.full((C, D), NAN)}
    assert (
        lq.from_datatree(tree({**plain, "sample_stats": unknown})).log_marginal_likelihood is None
    )
    data = tree({**plain, "sample_stats": {"energy": np.zeros((C, D))}})
    assert lq.from_datatree(data).log_marginal_likelihood is None
    assert lq.from_family("normal", y=[0.0], mu=0.0, sigma=1.0).log_marginal_likelihood is None
