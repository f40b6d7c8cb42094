"""Bambi models as people write them: their densities, derivatives and new data, or the refusal."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("bambi")

import lockquack as lq
from lockquack.checks.models import check_models
from lockquack.errors import LockquackError
from lockquack.sources.bambi import from_bambi
from tests.ppl.corpus import bambi_counts, bambi_marked, bambi_positive, bambi_regressions
from tests.ppl.corpus.checking import assert_same_densities, assert_same_derivatives
from tests.ppl.helpers import not_compiled

# What Bambi and its dependencies warn of is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::lockquack.errors.LockquackWarning"),
]
MODULES = (bambi_regressions, bambi_positive, bambi_counts, bambi_marked)
CASES = [case for module in MODULES for case in module.CORPUS]
#: Rows of new data, in another order, one of them twice.
ROWS = np.array([4, 1, 8, 1])


def marked(case):
    return pytest.param(case, id=case.name, marks=[] if case.quick else [pytest.mark.full])


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


def test_names_differ():
    assert len({case.name for case in CASES}) == len(CASES) >= 25


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_model(case):
    built = case.build()
    if case.goes_in == "no":
        with pytest.raises(LockquackError, match=case.says):
            from_bambi(built.model, built.idata)
        return
    model = from_bambi(built.model, built.idata)
    assert_same_densities(model, built.own_logp)
    check_models({"a": model}, lq.LogScore())
    if case.says:
        with pytest.raises(LockquackError, match=case.says):
            check_models({"a": model}, lq.Hyvarinen(transform=None))
    if case.goes_in != "log":
        check_models({"a": model}, lq.Hyvarinen(transform=case.transform))
        if built.column is not None:
            assert_same_derivatives(model, built.own_logp)
        lq.check(model, thorough=True).require()
    assert_same_elsewhere(model, built)


def assert_same_elsewhere(model, built):
    """Compare other rows, which are some of the same, with those of the fit."""
    data, n = built.model.data, model.observations.n
    if len(data) != n:  # some rows were dropped
        return
    rows, everything = data.iloc[ROWS], model.source.all_logp(slice(0, n))
    y = model.observations.values[ROWS]
    y = y[:, 0] if model.observations.component_dim is None else y
    moved = model.with_data(y, newdata=rows)
    again = from_bambi(built.model, built.idata, newdata=rows)
    for each in (moved, again):
        np.testing.assert_array_equal(each.observations.values, model.observations.values[ROWS])
        np.testing.assert_allclose(
            each.source.all_logp(slice(0, len(ROWS))), everything[..., ROWS], rtol=1e-8, atol=1e-8
        )
