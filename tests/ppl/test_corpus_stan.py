"""Stan programs as people write them, run by PyStan: their log densities, derivatives, refusals."""

from __future__ import annotations

import fcntl
import re
import subprocess
from functools import partial

import numpy as np
import pytest

pytest.importorskip("stan", reason="PyStan, which compiles Stan programs, has no wheel here")

import lockquack as lq
from lockquack.errors import LockquackError
from tests.ppl.corpus.checking import FIRST, SECOND
from tests.ppl.corpus.stan import CORPUS, STEP
from tests.ppl.corpus.stan_merging import OwnFit, merged

pytestmark = pytest.mark.filterwarnings("ignore")
PROGRAMS = {case.name: case.build() for case in CORPUS}


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """All posteriors at once. Of several test processes, one compiles and the others wait."""
    program = merged(list(PROGRAMS.values()))
    with (tmp_path_factory.getbasetemp().parent / "stan.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        posterior = built(program)
    return posterior.sample(num_chains=2, num_warmup=150, num_samples=10)


def built(program):
    """Compile a program, without optimising it, which takes most of the time.

    PyStan gives Stan's translator one second and the compiler five minutes, however busy a
    machine is.
    """
    import aiohttp
    import httpstan.models
    import stan

    run = subprocess.run
    quick = ["-O0", "-std=c++14", "-Wno-sign-compare"]
    build = partial(httpstan.models.build_services_extension_module, extra_compile_args=quick)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", lambda *what, timeout, **how: run(*what, **how))
        patch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=None))
        patch.setattr(httpstan.models, "build_services_extension_module", build)
        return stan.build(program.code, data=program.data, random_seed=1)


def test_there_are_many_with_names_of_their_own():
    assert len(PROGRAMS) >= 8


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_goes_in_or_says_why_not(fit, name):
    case, program = CORPUS[name], PROGRAMS[name]
    own = OwnFit(fit, list(PROGRAMS).index(name))
    stored = lq.from_pystan(own, y=program.y, **program.stored)
    models = {"stored": stored}
    if program.by_hand is None:
        models["family"] = lq.from_pystan(own, y=program.y, **program.family)
    for model in models.values():
        assert_own_densities(model, program, own)
        if model.source.can.differentiate:
            assert_own_derivatives(model, models.get("family", model), own)
        assert_rules(case, model)


def assert_own_densities(model, program, own):
    """Compare every log density with Stan's own, or with one by hand."""
    got = model.source.all_logp(slice(0, model.observations.n))
    if program.by_hand is not None:
        expected = program.by_hand({name: own.draws(name) for name in own.param_names})
    elif "moved" in own.param_names:
        expected = own.draws("moved")[..., 2]
    else:
        expected = own.draws("log_lik")
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


def assert_own_derivatives(model, family, own):
    """Compare derivatives with differences of Stan's densities, or with those of the family."""
    everything = slice(0, model.observations.n)
    got = model.source.all_derivatives(everything)
    if "moved" not in own.param_names:
        for each, expected in zip(got, family.source.all_derivatives(everything), strict=True):
            np.testing.assert_allclose(each, expected, rtol=1e-8, atol=1e-8)
        return
    for weights, power, each in zip((FIRST, SECOND), (1, 2), got, strict=True):
        expected = own.draws("moved") @ weights / STEP**power
        atol = 1e-4 * np.abs(expected).max()
        np.testing.assert_allclose(each[..., 0], expected, rtol=1e-4, atol=atol)


def assert_rules(case, model):
    """The Hyvärinen score takes the model, in these coordinates, or says why not."""
    models = {"the model": model}
    # How a density ends is not known where it is stored at the outcomes only.
    if case.goes_in == "log" or (case.goes_in != "H" and model.source.can.evaluate):
        with pytest.raises(LockquackError, match=rf"'the model'.*{re.escape(case.says)}"):
            lq.lock(models, rule=lq.Hyvarinen(transform=None))
    if case.goes_in == "log" or not model.source.can.differentiate:
        lq.stack(models, scores="in-sample")
    else:
        fit = lq.lock(models)
        assert case.goes_in == "H" or f"score {case.goes_in[2:]}" in str(fit)
