"""Rows, chains and draws are matched by their labels, never against them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import lockquack as lq
from lockquack.cli import main
from lockquack.errors import ObservationMismatchError, ParameterError

N, C, D = 6, 2, 40
rng = np.random.default_rng(3)
Y, X, BETA = rng.normal(size=N), rng.normal(size=(N, 2)), rng.normal(size=(C, D, 2))
COUNT, SHUFFLED, NAMES = np.arange(N), np.array([3, 0, 5, 1, 4, 2]), list("abcdef")
ORDER = "label 'obs_id' differently.* same labels in another order"
OTHER = "label 'obs_id' differently.*must be the same"


def normal(y, mu=0.0, sigma=1.0):
    return lq.from_family("normal", y=y, mu=mu, sigma=sigma)


def regression(index, **options):
    return lq.linear_predictor(pd.DataFrame(X, index=index), BETA, **options)


def draws(*dims, **coords):
    sizes = {"chain": C, "draw": D, "covariate": 2}
    shape = [sizes.get(dim, N) for dim in dims]
    return xr.DataArray(rng.normal(size=shape), dims=dims, coords=coords)


# Tables of pandas


@pytest.mark.parametrize(
    ("rows_of_y", "rows_of_x", "said"),
    [
        (SHUFFLED, COUNT, ORDER),
        (COUNT, SHUFFLED, ORDER),
        ([0, 2, 3, 5, 8, 9], COUNT, OTHER),  # what dropna() leaves, and a table counted anew
        (COUNT, NAMES, OTHER),
        (NAMES, COUNT, OTHER),
        (NAMES, NAMES[::-1], ORDER),
    ],
)
def test_an_index_that_only_counts_is_a_label_too(rows_of_y, rows_of_x, said):
    y = pd.Series(Y, index=rows_of_y)
    with pytest.raises(ObservationMismatchError, match=f"X of mu and y {said}"):
        normal(y, mu=regression(rows_of_x))
    with pytest.raises(ObservationMismatchError, match=f"sigma and y {said}"):
        normal(y, sigma=pd.Series(np.ones(N), index=rows_of_x))
    with pytest.raises(ObservationMismatchError, match=f"offset and X {said}"):
        regression(rows_of_y, offset=pd.Series(Y, index=rows_of_x))
    normal(y, mu=regression(rows_of_y), sigma=pd.Series(np.ones(N), index=rows_of_y))
    # Numbers without labels are matched by position: that is how to say that they belong together.
    normal(y.to_numpy(), mu=regression(rows_of_x))


def test_the_name_of_an_index_does_not_hide_it():
    y = pd.Series(Y, index=pd.Index(NAMES, name="patient"))
    with pytest.raises(ObservationMismatchError, match="X of mu and y label 'patient'"):
        normal(y, mu=regression(pd.Index(NAMES[::-1], name="person")))
    with pytest.raises(ObservationMismatchError, match="sigma and y label 'patient'"):
        normal(y, sigma=pd.Series(np.ones(N), index=NAMES[::-1]))
    normal(y, mu=regression(pd.Index(NAMES, name="person")))


def test_a_default_index_labels_nothing_in_results():
    model = normal(pd.Series(Y), mu=regression(None))
    assert model.observations.coords == {}
    assert list(model.loo().logp.shape) == [N]


def test_new_outcomes_and_their_covariates_go_by_labels():
    model = normal(pd.Series(Y), mu=regression(None))
    new = pd.Series(Y, index=SHUFFLED)
    with pytest.raises(ObservationMismatchError, match=f"x and y {ORDER}"):
        model.with_data(new, x=pd.DataFrame(X))
    model.with_data(new, x=pd.DataFrame(X, index=SHUFFLED))


def test_outcomes_to_look_at_go_by_labels():
    fit = lq.equal({"one": normal(pd.Series(Y), mu=regression(None))}, scores="held-out")
    with pytest.raises(ObservationMismatchError, match="same labels in another order"):
        fit.logpdf(pd.Series(Y, index=SHUFFLED))
    np.testing.assert_allclose(fit.logpdf(pd.Series(Y)), fit.logpdf(), atol=1e-9)


def test_vectors_in_a_table_go_by_labels():
    logp = draws("chain", "draw", "obs", obs=COUNT)
    grad = np.zeros((C, D, N, 2))
    with pytest.raises(ObservationMismatchError, match="y and logp have the same labels"):
        lq.from_arrays(logp=logp, grad=grad, curv=grad, y=pd.DataFrame(X, index=SHUFFLED))
    mu = 0.1 * draws("chain", "draw", "covariate").values
    model = lq.from_family("mv_normal", y=pd.DataFrame(X), mu=mu, cov=np.eye(2))
    fit = lq.equal({"one": model}, scores="held-out")
    with pytest.raises(ObservationMismatchError, match="same labels in another order"):
        fit.predict().cdf(pd.DataFrame(X, index=SHUFFLED))


# Dimensions that are called otherwise, as ArviZ does


def test_a_count_of_another_dimension_says_nothing_but_its_order():
    """ArviZ counts the dimensions that nobody named; what is left of a table keeps its labels."""
    mu = draws("chain", "draw", "mu_dim_0", mu_dim_0=COUNT)
    normal(pd.Series(Y, index=[0, 2, 3, 5, 8, 9]), mu=mu)
    normal(pd.Series(Y, index=NAMES), mu=mu)
    with pytest.raises(ObservationMismatchError, match="same labels in another order"):
        normal(pd.Series(Y, index=SHUFFLED), mu=mu)
    rows = xr.DataArray(X, dims=("X_dim_0", "X_dim_1"), coords={"X_dim_0": COUNT})
    normal(pd.Series(Y, index=NAMES), mu=lq.linear_predictor(rows, BETA))
    with pytest.raises(ObservationMismatchError, match="X of mu and y have the same labels"):
        normal(pd.Series(Y, index=SHUFFLED), mu=lq.linear_predictor(rows, BETA))


def test_parameters_must_agree_where_the_outcomes_have_no_labels():
    mu = draws("chain", "draw", "obs_id", obs_id=NAMES)
    sigma = np.exp(draws("obs_id", obs_id=NAMES[::-1]))
    with pytest.raises(ObservationMismatchError, match=f"sigma and mu {ORDER}"):
        normal(Y, mu, sigma)
    normal(Y, mu, sigma[::-1])
    mu, sigma = mu.rename(obs_id="person"), sigma.rename(obs_id="person")
    with pytest.raises(ObservationMismatchError, match="sigma and mu label 'person'"):
        normal(Y, mu, sigma)


# Chains and draws


CONTRADICTIONS = [
    ("chain", np.arange(C), np.arange(C)[::-1]),
    ("chain", np.arange(C), 1 + np.arange(C)),
    ("draw", np.arange(D), np.arange(D)[::-1]),
    ("draw", np.arange(D), rng.permutation(D)),
    ("draw", np.arange(D), 1000 + np.arange(D)),
]


@pytest.mark.parametrize(("dim", "one", "other"), CONTRADICTIONS)
def test_chains_and_draws_that_contradict_each_other(dim, one, other):
    said = rf"label '{dim}' differently"

    def parts(names, *dims):
        labels = dict.fromkeys(names, one) | {names[-1]: other}
        return {name: draws("chain", "draw", *dims, **{dim: labels[name]}) for name in names}

    mu, sigma = parts(["mu", "sigma"]).values()
    with pytest.raises(ObservationMismatchError, match=f"sigma and mu {said}"):
        normal(Y, mu, np.exp(sigma))
    coef, level = draws("chain", "draw", "covariate", **{dim: one}), sigma
    with pytest.raises(ObservationMismatchError, match=f"intercept and coef {said}"):
        lq.linear_predictor(X, coef, intercept=level)
    with pytest.raises(ObservationMismatchError, match=f"sigma and mu {said}"):
        normal(Y, lq.linear_predictor(X, coef), np.exp(sigma))
    weights = xr.DataArray([0.5, 0.5], dims="part")
    two = [("normal", {"mu": mu, "sigma": 1.0}), ("normal", {"mu": sigma, "sigma": 1.0})]
    with pytest.raises(
        ObservationMismatchError, match=f"component 1: mu and component 0: mu {said}"
    ):
        lq.from_family("mixture", y=Y, weights=weights, components=two)
    for last in ("grad", "curv"):
        names = [name for name in ("logp", "grad", "curv") if name != last]
        given = parts([*names, last], "obs_id")
        with pytest.raises(ObservationMismatchError, match=f"{last} and .* {said}"):
            lq.from_arrays(y=Y, **given)
    logp = {**given, last: given[last].assign_coords({dim: one})}
    lq.from_arrays(y=Y, **logp)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize(("dim", "one", "other"), CONTRADICTIONS)
def test_contradictions_in_files(dim, one, other, suffix, tmp_path, capsys):
    tree = normal(Y, draws("chain", "draw")).to_datatree()
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    groups["log_likelihood_curv"] = groups["log_likelihood_curv"].assign_coords({dim: other})
    path = tmp_path / f"model{suffix}"
    wrong = xr.DataTree.from_dict(groups)
    wrong.to_netcdf(path) if suffix == ".nc" else wrong.to_zarr(path, zarr_format=2)
    with pytest.raises(ObservationMismatchError, match=rf"model.*curv and .* label '{dim}'"):
        lq.from_datatree(path)
    assert main(["weights", str(path)]) == 1
    said = capsys.readouterr().err
    assert "label" in said
    assert ".sel(" not in said  # no Python in a shell


def test_one_side_without_labels_is_matched_by_position():
    labelled = draws("chain", "draw", chain=[7, 8])
    normal(Y, labelled, np.ones((C, D)))
    normal(Y, labelled, xr.ones_like(labelled).drop_vars("chain"))


def test_parameters_at_new_data_are_of_the_same_draws():
    mu, sigma = draws("chain", "draw", chain=[0, 1]), np.exp(draws("chain", "draw", chain=[0, 1]))
    model = normal(Y, mu, sigma)
    with pytest.raises(ObservationMismatchError, match="label 'chain'"):
        model.with_data(Y[:2], mu=mu.assign_coords(chain=[1, 0]))


# The command line


def test_formulas_go_by_labels(tmp_path, capsys):
    posterior = xr.Dataset(
        {"beta": draws("chain", "draw", "covariate", covariate=["bp", "bmi"])},
        coords={"chain": range(C), "draw": range(D)},
    )
    data = xr.Dataset(
        {"X": (("rows", "column"), X)}, coords={"rows": COUNT, "column": ["bmi", "bp"]}
    )
    observed = xr.Dataset({"y": ("obs", Y)}, coords={"obs": NAMES})

    def weights(data, observed):
        groups = {"posterior": posterior, "constant_data": data, "observed_data": observed}
        xr.DataTree.from_dict(groups).to_netcdf(tmp_path / "a.nc")
        family = "normal(mu=X @ beta, sigma=1)"
        return main(["weights", str(tmp_path / "a.nc"), "--family", family])

    assert weights(data, observed) == 1
    assert "same labels in another order" in capsys.readouterr().err
    fine = data.assign_coords(column=["bp", "bmi"])
    assert weights(fine, observed) == 0
    capsys.readouterr()
    assert weights(fine, observed.assign_coords(obs=SHUFFLED)) == 1
    assert "same labels in another order" in capsys.readouterr().err


# Folds


@pytest.mark.parametrize(
    "cv",
    [
        [0, 0, 0, 1, 1, np.nan],
        ["a", "a", "a", "b", "b", None],
        np.ma.masked_array([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1]),
        pd.array([0, 0, 0, 1, 1, None], dtype="Int64"),
        pd.Categorical(["a", "a", "a", "b", "b", None]),
        pd.to_datetime(["2020", "2020", "2020", "2021", "2021", None]),
        pd.Series(["a", "a", "a", "b", "b", None]),
        xr.DataArray([0, 0, 0, 1, 1, np.nan], dims="obs_id"),
    ],
)
def test_every_observation_needs_a_fold(cv):
    models = {"one": normal(pd.Series(Y), draws("chain", "draw"))}
    with pytest.raises(ParameterError, match="cv has no fold for observation 5"):
        lq.compare(models, ["lock"], cv=cv)


def test_folds_go_by_labels():
    models = {"one": normal(pd.Series(Y), 0.1 * draws("chain", "draw"))}
    groups = pd.Series(list("aabbcc"))
    expected = lq.compare(models, ["lock"], scores="held-out", cv=groups.to_numpy())
    for same in (groups, groups.to_frame(), groups.to_xarray().rename(index="obs_id")):
        pd.testing.assert_frame_equal(
            lq.compare(models, ["lock"], scores="held-out", cv=same), expected
        )
    with pytest.raises(ObservationMismatchError, match="cv and y label 'obs_id'"):
        lq.compare(models, ["lock"], scores="held-out", cv=groups.set_axis(SHUFFLED))


def test_folds_of_a_grid_are_in_its_order():
    y = xr.DataArray(X, dims=("school", "year"))
    model = normal(y, mu=xr.DataArray(0.1 * rng.normal(size=(C, D)), dims=("chain", "draw")))
    folds = xr.DataArray(np.arange(N) // 2, dims="school").expand_dims(year=2)
    found = lq.compare({"one": model}, ["lock"], scores="held-out", cv=folds)
    expected = lq.compare(
        {"one": model}, ["lock"], scores="held-out", cv=np.repeat(np.arange(N) // 2, 2)
    )
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
@pytest.mark.parametrize("index", [SHUFFLED, SHUFFLED.astype(float), pd.Index(SHUFFLED, name="id")])
def test_numbers_in_another_order_are_refused_where_outcomes_have_no_labels(index):
    model, given = normal(Y), pd.Series(np.arange(1.0, N + 1), index=index)
    ways = {
        "by": lambda values: lq.stack({"a": model, "b": normal(Y, 0.5)}, by=values, shrinkage=1.0),
        "weights": model.with_weights,
    }
    for name, take in ways.items():
        with pytest.raises(
            ObservationMismatchError,
            match=rf"{name} is numbered 0 to 5 in another order \(3.*sort_index.*to_numpy",
        ):
            take(given)
        for fine in (given.sort_index(), given.to_numpy(), given.set_axis(NAMES)):
            take(fine)
    with pytest.raises(ObservationMismatchError, match="by is numbered"):
        lq.lock({"a": model, "b": normal(Y, 0.5)}, by=pd.DataFrame({"z": given}))
