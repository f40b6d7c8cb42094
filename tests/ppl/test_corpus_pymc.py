"""PyMC models as people write them: each goes in, with PyMC's own numbers, or says why not."""

from __future__ import annotations

import importlib
import re
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pymc")

import lockquack as lq
from lockquack.errors import LockquackError
from tests.ppl.corpus import pymc_own as own
from tests.ppl.corpus.checking import assert_same_derivatives, assert_terms_of
from tests.ppl.helpers import not_compiled

pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = (
    "regressions",
    "counts",
    "hierarchies",
    "series",
    "mixtures",
    "incomplete",
    "several",
    "processes",
    "written",
    "dims",
)
CASES = [
    case
    for kind in KINDS
    for case in importlib.import_module(f"tests.ppl.corpus.pymc_{kind}").CORPUS
]


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


def test_there_are_many_with_names_of_their_own():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    assert {case.kind for case in CASES if case.quick} == {case.kind for case in CASES}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.quick else pytest.mark.full)
        for case in CASES
    ],
)
def test_a_model_goes_in_or_says_why_not(case):
    model, said = own.parts(case.build())
    draws = own.prior_draws(model, said.pop("draws", {}))
    idata = own.posterior(model, draws)
    if case.goes_in == "no":
        with pytest.raises(LockquackError, match=re.escape(case.says)):
            lq.from_pymc(model, idata, **said)
        return
    found = lq.from_pymc(model, idata, **said)
    # PyMC itself cannot make its densities where a sampler has been told where to begin.
    model.rvs_to_initial_values = dict.fromkeys(model.rvs_to_initial_values)
    rvs = own.outcomes(model, said.get("var_name"))
    assert_own_densities(found, own.own_log_likelihood(model, rvs, idata))
    if case.goes_in.startswith("H"):
        assert_own_derivatives(found, own.own_density(model, rvs, draws))
    assert_rules(case, found)
    assert_possible_outcomes(found)


def assert_own_densities(found, theirs):
    """Compare every log density, summed over what one observation has; a joint one with all."""
    n = found.observations.n
    got = found.source.all_logp(slice(0, n))
    if theirs[0].ndim == 2:
        (expected,), got = theirs, got.sum(axis=-1)
    else:
        expected = sum(each.reshape(*own.SHAPE, n, -1).sum(axis=-1) for each in theirs)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def assert_own_derivatives(found, density):
    if density(found.observations.values).ndim == 2:
        assert_terms_of(found, density)
    else:
        assert_same_derivatives(found, density, in_turn=found.source.reach > 0)


def assert_rules(case, found):
    """The Hyvärinen score takes the model, in these coordinates, or says why not."""
    models = {"the model": found}
    if case.goes_in != "H":
        with pytest.raises(LockquackError, match=rf"'the model'.*{re.escape(case.says)}"):
            lq.lock(models, rule=lq.Hyvarinen(transform=None))
    if case.goes_in == "log":
        with pytest.raises(LockquackError, match="'the model'"):
            lq.lock(models)
        fit = lq.stack(models, scores="in-sample")
    else:
        fit = lq.lock(models)
        if case.transform is not None:
            assert fit.rule.transform == case.transform
        assert lq.check(found).ok
    remarks = {"given-earlier-outcomes", "not-scored"} & {each.code for each in fit.remarks}
    assert remarks == ({case.remark} if case.remark else set())


def assert_possible_outcomes(found):
    """Drawn outcomes have a density under the draw that they were drawn with."""
    source = found.source
    if not source.can.draw:
        # A series would begin anew, and users give no generator with a logp.
        assert source.reach > 0 or source.likelihood.description == "CustomDist"
        return
    if not source.can.evaluate:
        drawn = (
            lq.equal({"a": found, "b": found}, scores="in-sample")
            .predict()
            .sample(3, random_seed=1)
        )
        assert np.isfinite(drawn["posterior_predictive"].to_dataset().to_array()).all()
    rows = np.arange(source.n_obs)
    drawn = source.draw_outcomes(1, np.arange(own.DRAWS), rows, np.random.default_rng(1))
    for draw in range(own.DRAWS):
        one = slice(draw, draw + 1)
        assert np.isfinite(source.logp_at(drawn[None, draw], 1, one, rows)).all()
