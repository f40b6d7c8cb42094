"""Models from which rows with missing values are left out keep the numbers of the others."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")

import lockquack as lq
from lockquack.errors import ObservationMismatchError, UnsupportedError
from lockquack.sources.pymc import from_pymc
from tests.ppl.helpers import container

pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE, N, OUTLIER = (2, 100), 12, 9
RNG = np.random.default_rng(5)
X = RNG.normal(size=N)
Y = 1 + X + RNG.normal(size=N)
Y[OUTLIER] = 30.0
GAPS = np.where(np.isin(np.arange(N), [2, 5]), np.nan, Y)
SEEN = ~np.isnan(GAPS)
ROWS = np.flatnonzero(SEEN)
A, S = RNG.normal(1, 0.3, size=SHAPE), RNG.gamma(50, 0.02, size=SHAPE)


def regression(y=GAPS, coords=None, x=X):
    with pm.Model(coords=coords) as model:
        a, s = pm.Normal("a"), pm.HalfNormal("s")
        data = pm.Data("x", x)
        dims = next(iter(coords)) if coords else None
        pm.Normal("y", a + data, s, observed=y, dims=dims, shape=data.shape)
    return model


def idata(**more):
    return container({"a": A, "s": S, **more})


def plain():
    """Return the same model of the rows with outcomes, made without labels."""
    return lq.from_family("normal", y=Y[SEEN], mu=A[..., None] + X[SEEN], sigma=S)


def labelled():
    return from_pymc(regression(coords={"row": np.arange(100, 100 + N)}), idata())


def numbered():
    return from_pymc(regression(), idata())


def named_by(fit):
    """Return what the remark on Pareto k̂ calls its worst observation."""
    (found,) = [each.observation for each in fit.remarks if each.code == "pareto-k"]
    return found


@pytest.mark.parametrize("first", ["numbered", "plain"])
def test_observations_keep_their_numbers(first):
    both = {"numbered": numbered(), "plain": plain()}
    models = {first: both[first], **both}
    fit = lq.stack(models)
    assert named_by(fit) == f"observation {OUTLIER}"
    assert fit.pointwise.coords["obs_id"].values.tolist() == ROWS.tolist()
    assert fit.influence().weights.coords["obs_id"].values.tolist() == ROWS.tolist()
    assert "left out: 2 of 12" in repr(both["numbered"])


def test_observations_keep_their_labels():
    model = labelled()
    assert named_by(lq.stack({"a": model, "b": plain()})) == "observation 9 (row=109)"
    assert model.observations.coords["row"].tolist() == (100 + ROWS).tolist()


def test_observations_on_a_grid_keep_their_numbers():
    model = from_pymc(regression(GAPS.reshape(3, 4), x=X.reshape(3, 4)), idata())
    assert model.observations.coords["obs_id"].tolist() == ROWS.tolist()


def test_other_rows_left_out_are_other_observations():
    other = np.where(np.isin(np.arange(N), [2, 6]), np.nan, np.where(np.arange(N) == 5, Y[6], Y))
    models = {"a": numbered(), "b": from_pymc(regression(other), idata())}
    assert np.array_equal(*(model.observations.values for model in models.values()))
    with pytest.raises(ObservationMismatchError, match="position 4 is 5 in .* and 6 in"):
        lq.stack(models)
    with pytest.raises(ObservationMismatchError, match="different outcomes|order"):
        lq.stack({"a": numbered(), "c": from_pymc(regression(np.roll(GAPS, 1)), idata())})


@pytest.mark.parametrize("make", [labelled, numbered])
def test_rows_that_are_numbered_have_no_labels_to_contradict(make):
    names = pd.Series(Y[SEEN], index=pd.Index(list("abcdefghij"), name="obs_id"))
    other = lq.from_family("normal", y=names, mu=A[..., None] + X[SEEN], sigma=S)
    assert lq.stack({"a": make(), "b": other}).weights.sizes == {"model": 2}


@pytest.mark.parametrize("kind", [np.asarray, list, pd.Series, pd.Categorical])
def test_values_of_all_rows_are_those_of_the_rows_that_remain(kind):
    groups = np.array(list("ab") * (N // 2))
    models = {"a": numbered(), "b": plain()}
    whole = lq.stack(models, by=lq.Groups(kind(groups)), shrinkage=1.0)
    some = lq.stack(models, by=lq.Groups(groups[SEEN]), shrinkage=1.0)
    np.testing.assert_array_equal(whole.weights, some.weights)
    shares = np.column_stack([groups == "a", groups == "b"]).astype(float)
    shares = lq.stack(models, by=lq.Features(shares), shrinkage=1.0)
    np.testing.assert_allclose(shares.weights, some.weights, atol=1e-6)


def test_case_weights_of_all_rows():
    weights = np.arange(1.0, N + 1)
    for given in (weights, pd.Series(weights), pd.Series(weights)[SEEN]):
        got = numbered().with_weights(given).observations.weights
        np.testing.assert_array_equal(got, weights[SEEN])
    row = pd.Series(weights, index=np.arange(100, 100 + N))
    np.testing.assert_array_equal(labelled().with_weights(row).observations.weights, weights[SEEN])


def test_values_of_all_rows_go_by_labels():
    shuffled = pd.Series(X).sample(frac=1, random_state=1)
    with pytest.raises(ObservationMismatchError, match="by is numbered 0 to 11 in another order"):
        lq.stack({"a": numbered(), "b": plain()}, by=shuffled)
    with pytest.raises(ObservationMismatchError, match="by and y label 'row' differently"):
        lq.stack({"a": labelled(), "b": plain()}, by=pd.Series(X))


def test_variables_that_lack_values_in_different_rows_are_no_vectors():
    with pm.Model() as model:
        a, s = pm.Normal("a"), pm.HalfNormal("s")
        pm.Normal("y", a + X, s, observed=GAPS)
        pm.Normal("z", a + X, s, observed=np.roll(GAPS, 1))
    with pytest.raises(UnsupportedError, match="missing outcomes in different rows"):
        from_pymc(model, idata(), var_name=["y", "z"])


def test_imputation_is_named_where_it_keeps_a_model_from_other_rows():
    with pytest.raises(UnsupportedError, match="imputed 2 missing outcomes.* 10 of 12 rows"):
        lq.equal({"a": numbered()}).predict(x=np.array([0.0, 1.0]))
    # What the message says to do: the same model of the other rows, with the same draws.
    again = from_pymc(regression(Y[SEEN], x=X[SEEN]), idata(y_unobserved=np.zeros((*SHAPE, 2))))
    got = lq.stack({"a": again}).predict(x=np.array([0.0, 1.0])).mean()
    np.testing.assert_allclose(got, [A.mean(), A.mean() + 1], rtol=1e-6)
