"""NumPyro models as people write them: each goes in, with its own numbers, or says why not."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

# Compiling is most of what these tests do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
pytest.importorskip("numpyro")

import lockquack as lq
from lockquack.errors import LockquackError
from tests.ppl.corpus.checking import (
    assert_same_densities,
    assert_same_derivatives,
    assert_terms_of,
)
from tests.ppl.corpus.numpyro import CORPUS

pytestmark = pytest.mark.filterwarnings("ignore")


def test_there_are_many_with_names_of_their_own():
    assert len(CORPUS) >= 60
    assert {case.kind for case in CORPUS if case.quick} == {case.kind for case in CORPUS}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.quick else pytest.mark.full)
        for case in CORPUS
    ],
)
def test_a_model_goes_in_or_says_why_not(case):
    example = case.build()
    posterior = example.posterior()
    if case.goes_in == "no":
        with pytest.raises(LockquackError, match=re.escape(case.says)):
            example.to_model(posterior)
        return
    found = example.to_model(posterior)
    if example.one_event:
        assert_terms_of(found, example.own_joint(posterior))
    else:
        own_logp = example.own_logp(posterior)
        assert_same_densities(found, own_logp)
        if case.goes_in.startswith("H"):
            assert_same_derivatives(found, own_logp)
    assert_rules(case, found)
    assert_possible_outcomes(example, found)


@pytest.mark.parametrize("name", ["local_linear_trend", "garch"])
def test_a_loop_that_begins_with_a_latent_in_a_session_of_double_precision(name):
    """In a session of single precision, NumPyro's default, every model of the corpus is tried."""
    import jax

    with jax.enable_x64(True):
        example = CORPUS[name].build()
        posterior = example.posterior()
        assert {values.dtype for values in posterior.values()} == {np.dtype(np.float64)}
        assert_same_densities(example.to_model(posterior), example.own_logp(posterior))


def assert_rules(case, found):
    """The Hyvärinen score takes the model, in these coordinates, or says why not."""
    models = {"the model": found}
    if case.goes_in != "H":
        with pytest.raises(LockquackError, match=rf"'the model'.*{re.escape(case.says)}"):
            lq.lock(models, rule=lq.Hyvarinen(transform=None))
    if case.goes_in == "log":
        fit = lq.stack(models, scores="in-sample")
    else:
        fit = lq.lock(models)
        assert case.goes_in == "H" or f"score {case.goes_in[2:]}" in str(fit)
        assert lq.check(found).ok
    remarks = {"given-earlier-outcomes", "not-scored"} & {each.code for each in fit.remarks}
    assert remarks == ({case.remark} if case.remark else set())


def assert_possible_outcomes(example, found):
    """Drawn outcomes have a density under the draw that they were drawn with."""
    source = found.source
    if not source.can.draw:
        # A series would begin anew.
        assert example.without_generator or source.likelihood.given_earlier
        return
    rows = np.arange(source.n_obs)
    drawn = source.draw_outcomes(1, np.arange(source.n_draws), rows, np.random.default_rng(1))
    for draw in range(source.n_draws):
        one = slice(draw, draw + 1)
        assert np.isfinite(source.logp_at(drawn[None, draw], 1, one, rows)).all()
