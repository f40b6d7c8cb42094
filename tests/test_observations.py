"""Outcomes and their labels: what is read, compared, kept and refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import lockquack as lq
from lockquack.errors import (
    LockquackError,
    NonFiniteError,
    ObservationMismatchError,
    ScaleError,
    ShapeError,
)
from lockquack.models.labels import require_same_labels, storable
from lockquack.models.observations import as_observations

C, D = 2, 6


def normal(y, mu=0.0, sigma=1.0, **options):
    return lq.from_family("normal", y=y, mu=mu, sigma=sigma, **options)


def array_parts(model):
    tree = model.to_datatree("outcome")
    groups = {"logp": "", "grad": "_grad", "curv": "_curv"}
    return {part: tree[f"log_likelihood{end}"]["outcome"] for part, end in groups.items()}


# Values


def test_the_outcomes_are_a_copy_that_nobody_changes():
    y = np.array([1.0, 2.0, 3.0])
    observations = as_observations(y)
    y[0] = 100.0
    np.testing.assert_array_equal(observations.values[:, 0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="read-only"):
        observations.values[0] = 5.0


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (np.ma.masked_equal([1.0, 2.0, 3.0], 2.0), NonFiniteError, r"masked at position \(1,\)"),
        (np.array([1j, 2, 3]), LockquackError, "complex128.*real part"),
        (np.array(["2020-01-01"] * 3, dtype="M8[D]"), LockquackError, "datetime64.*days"),
        (np.array([1, 2, 3], dtype="m8[D]"), LockquackError, "timedelta64.*unit"),
        (["1", "2", "3"], LockquackError, "<U1.*Convert"),
        (np.array([1.0, None, 2.0]), LockquackError, "object"),
        ([[1.0, 2.0], [3.0]], LockquackError, "rows differ in length"),
        (None, LockquackError, "None; give numbers"),
    ],
)
def test_what_is_not_a_number_is_refused_by_its_name(bad, error, message):
    """For outcomes, parameters, covariates, coefficients and log densities alike."""
    parts = array_parts(normal(np.zeros(3), mu=np.zeros((C, D))))
    routes = {
        "y": lambda: normal(bad),
        "'mu'": lambda: normal(np.zeros(3), mu=bad),
        "X": lambda: lq.linear_predictor(bad, np.zeros((C, D, 1))),
        "coef": lambda: lq.linear_predictor(np.zeros((3, 1)), bad),
        "logp": lambda: lq.from_arrays(**{**parts, "logp": bad}, y=np.zeros(3)),
        "grad": lambda: lq.from_arrays(**{**parts, "grad": bad}, y=np.zeros(3)),
        "curv": lambda: lq.from_arrays(**{**parts, "curv": bad}, y=np.zeros(3)),
        "scale": lambda: lq.Hyvarinen(scale=bad),
    }
    if bad is None:
        for name in ("scale", "grad", "curv"):  # it stands for the default
            del routes[name]
    for name, route in routes.items():
        with pytest.raises(error, match=f"{name} is .*{message}"):
            route()


def test_a_mask_that_hides_nothing_is_no_matter():
    y = np.ma.masked_array([1.0, 2.0], mask=[False, False])
    np.testing.assert_array_equal(as_observations(y).values, [[1.0], [2.0]])


def test_single_precision_draws_are_not_copied():
    logp = np.zeros((C, D, 3), dtype=np.float32)
    model = lq.from_arrays(logp=logp, grad=logp, curv=logp, y=np.zeros(3))
    assert np.shares_memory(model.source.logp_draws, logp)
    assert np.shares_memory(model.source.grad_draws, logp)


# Names of dimensions


@pytest.mark.parametrize("dim", ["model", "chain", "draw"])
def test_reserved_dimensions_are_refused(dim):
    with pytest.raises(ShapeError, match=f"called '{dim}'.*Rename"):
        as_observations(xr.DataArray([1.0, 2.0], dims=dim))
    with pytest.raises(ShapeError, match=f"called '{dim}'"):
        as_observations(xr.DataArray(np.ones((2, 2)), dims=("obs", dim)), component_dim=dim)


def test_dimensions_that_are_not_strings_become_strings():
    y = xr.DataArray(np.arange(6.0).reshape(3, 2), dims=(0, 1))
    observations = as_observations(y, component_dim=1)
    assert (observations.dims, observations.component_dim) == (("0",), "1")
    np.testing.assert_array_equal(observations.values, y.values)
    by_row = xr.DataArray(np.arange(3.0), dims=(0,))
    grid = normal(y, mu=by_row)
    assert grid.observations.dims == ("0", "1")
    np.testing.assert_array_equal(
        grid.source.derivatives(0, slice(0, 1), slice(0, 6))[0].ravel(), (by_row - y).values.ravel()
    )


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("dim", ["y", "weights", "logp", "unit_component"])
@pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning")
def test_dimensions_called_like_variables_survive_files(dim, suffix, tmp_path):
    y = xr.DataArray([0.5, 1.5, 0.0], dims=dim, coords={dim: ["a", "b", "c"]})
    model = normal(y, mu=np.zeros((C, D)))
    model.save(tmp_path / f"model{suffix}")
    back = lq.from_datatree(tmp_path / f"model{suffix}")
    xr.testing.assert_equal(back.observations.to_dataarray(), y)
    fit = lq.lock({"a": model, "b": normal(y, mu=np.ones((C, D)))})
    fit.save(tmp_path / f"fit{suffix}")
    again = lq.load(tmp_path / f"fit{suffix}")
    xr.testing.assert_equal(again.observations.to_dataarray(), y)
    xr.testing.assert_equal(again.weights, fit.weights)


@pytest.mark.parametrize(
    ("y", "component_dim", "message"),
    [
        (np.zeros(3), "side", "no dimension 'side'.*obs_id.*Leave component_dim out"),
        (xr.DataArray(np.zeros((3, 2)), dims=("a", "b")), "side", "no dimension 'side'"),
        (xr.DataArray([1.0, 2.0], dims="side"), "side", "observations"),
        (3.0, None, r"got \(\)"),
        (xr.DataArray(3.0), None, "single number"),
        (np.zeros((2, 2, 2)), None, r'dims=\("school", "year"\)'),
    ],
)
def test_outcomes_of_the_wrong_shape(y, component_dim, message):
    with pytest.raises(ShapeError, match=message):
        as_observations(y, component_dim)


# pandas


def test_the_index_of_a_series_becomes_labels_unless_it_only_counts():
    named = pd.Series([1.0, 2.0], index=pd.Index(["a", "b"], name="school"))
    observations = as_observations(named)
    assert observations.dims == ("school",)
    assert observations.coords["school"].tolist() == ["a", "b"]
    assert as_observations(pd.Series([1.0, 2.0], index=[5, 2])).coords["obs_id"].tolist() == [5, 2]
    assert as_observations(pd.Series([1.0, 2.0])).coords == {}


def test_tables():
    table = pd.DataFrame({"left": [1.0, 2.0, 3.0], "right": [True, False, True]})
    both = as_observations(table)
    assert both.components.tolist() == ["left", "right"]
    np.testing.assert_array_equal(both.values, [[1, 1], [2, 0], [3, 1]])
    one = as_observations(table[["left"]])
    assert one.component_dim is None
    np.testing.assert_array_equal(one.values[:, 0], [1.0, 2.0, 3.0])
    with pytest.raises(LockquackError, match="y is not numeric.*object"):
        as_observations(pd.DataFrame({"a": [1.0], "b": ["x"]}))
    with pytest.raises(LockquackError, match="If values are missing .*drop these observations"):
        as_observations([1.0, None, 2.0])


def test_a_shuffled_series_of_parameters_is_noticed():
    y = pd.Series([1.0, 2.0, 3.0], index=list("abc"))
    sigma = pd.Series([3.0, 2.0, 1.0], index=list("cba"))
    with pytest.raises(ObservationMismatchError, match="sigma and y label 'obs_id'"):
        normal(y, sigma=sigma)
    normal(y, sigma=sigma[list("abc")])


# Labels


def draws_for(y, labels):
    dim = y.dims[0]
    return xr.DataArray(np.zeros((C, D, y.size)), dims=("chain", "draw", dim), coords={dim: labels})


Y = xr.DataArray([0.0, 1.0, 2.0], dims="obs", coords={"obs": ["a", "b", "c"]})


def mixture(mu):
    parts = [("normal", {"mu": mu, "sigma": 1.0}), ("normal", {"mu": 0.0, "sigma": 1.0})]
    return lq.from_family("mixture", y=Y, weights=[0.5, 0.5], components=parts)


def by_arrays(part, given):
    parts = {name: draws_for(Y, Y.obs.values) for name in ("logp", "grad", "curv")}
    return lq.from_arrays(**{**parts, part: given}, y=Y)


def by_tree(group, given):
    tree = normal(Y, mu=np.zeros((C, D))).to_datatree()
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    return lq.from_datatree(xr.DataTree.from_dict({**groups, group: xr.Dataset({"y": given})}))


ROUTES = {
    "mu": lambda given: normal(Y, mu=given),
    "component 0: mu": mixture,
    "logp": lambda given: by_arrays("logp", given),
    "grad": lambda given: by_arrays("grad", given),
    "curv": lambda given: by_arrays("curv", given),
}


@pytest.mark.parametrize("name", ROUTES)
def test_labels_of_draws_must_be_those_of_the_outcomes(name):
    ROUTES[name](draws_for(Y, ["a", "b", "c"]))
    said = rf"{name} and y label 'obs' differently: position 1 is c in .* and b in y"
    with pytest.raises(ObservationMismatchError, match=rf"{said}.*\.sel\(obs=\.\.\.\)"):
        ROUTES[name](draws_for(Y, ["a", "c", "b"]))
    said = rf"{name} and y label 'obs' differently: position 2 is d in .* and c in y"
    with pytest.raises(ObservationMismatchError, match=f"{said}. They must be the same"):
        ROUTES[name](draws_for(Y, ["a", "b", "d"]))


@pytest.mark.parametrize("group", ["log_likelihood", "log_likelihood_grad", "log_likelihood_curv"])
def test_labels_inside_a_container_are_compared(group):
    by_tree(group, draws_for(Y, ["a", "b", "c"]))
    with pytest.raises(ObservationMismatchError, match="another order"):
        by_tree(group, draws_for(Y, ["a", "c", "b"]))


def test_labels_of_another_length_are_counted():
    short = xr.DataArray(np.ones(2), dims="obs", coords={"obs": ["a", "b"]})
    with pytest.raises(ObservationMismatchError, match="sigma has 2 labels of 'obs', y has 3"):
        normal(Y, sigma=short)


def test_labels_on_one_side_only_are_no_matter():
    normal(Y, mu=draws_for(Y, ["a", "b", "c"]).drop_vars("obs"))
    normal(Y.drop_vars("obs"), mu=draws_for(Y, ["c", "b", "a"]))
    # ArviZ counts where a variable has a dimension of its own: no label of y's.
    own = draws_for(Y, [0, 1, 2]).rename(obs="mu_dim_0")
    normal(Y, mu=own)


def test_labels_of_the_components_are_compared():
    y = xr.DataArray(np.zeros((3, 2)), dims=("obs", "side"), coords={"side": ["left", "right"]})
    mu = xr.DataArray(np.zeros(2), dims="side", coords={"side": ["right", "left"]})
    with pytest.raises(ObservationMismatchError, match="mu and y label 'side'"):
        lq.from_family("mv_normal", y=y, component_dim="side", mu=mu, cov=np.eye(2))


def test_labels_of_covariates_are_compared():
    X = xr.DataArray(
        np.arange(6.0).reshape(3, 2),
        dims=("obs", "covariate"),
        coords={"obs": ["a", "b", "c"], "covariate": ["age", "size"]},
    )
    beta = xr.DataArray(
        np.ones((C, D, 2)),
        dims=("chain", "draw", "covariate"),
        coords={"covariate": ["size", "age"]},
    )
    with pytest.raises(ObservationMismatchError, match="coef and X label 'covariate'.*another"):
        lq.linear_predictor(X, beta)
    mu = lq.linear_predictor(X.T, beta.sel(covariate=X.covariate))  # names, not places
    np.testing.assert_array_equal(mu.X, X)
    normal(Y, mu=mu)
    with pytest.raises(ObservationMismatchError, match="X of mu and y label 'obs'"):
        normal(Y[::-1], mu=mu)
    with pytest.raises(ObservationMismatchError, match="offset and X label 'obs'"):
        lq.linear_predictor(X, np.ones((C, D, 2)), offset=Y[::-1])
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0]}, index=pd.Index(list("cab"), name="obs"))
    with pytest.raises(ObservationMismatchError, match="X of mu"):
        normal(Y, mu=lq.linear_predictor(frame, np.ones((C, D, 1))))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0, np.nan], [1.0, np.nan]),
        ([1, 2], [1.0, 2.0]),
        (np.array(["2020-01-01"], "M8[ns]"), np.array(["2020-01-01"], "M8[s]")),
    ],
)
def test_the_same_labels_in_another_type(a, b):
    require_same_labels("mu", {"obs": np.asarray(a)}, {"obs": np.asarray(b)})


@pytest.mark.parametrize(
    ("a", "b"), [([1, 2], ["1", "2"]), ([1.0, np.nan], [1.0, 2.0]), ([True], [0])]
)
def test_other_labels(a, b):
    with pytest.raises(ObservationMismatchError):
        require_same_labels("mu", {"obs": np.asarray(a)}, {"obs": np.asarray(b)})


INDEXES = {
    "words": pd.Index(["a", "b", "c"]),
    "dates": pd.date_range("2024-01-01", periods=3),
    "zoned": pd.date_range("2024-01-01", periods=3, tz="Europe/Berlin"),
    "periods": pd.period_range("2024-01", periods=3, freq="M"),
    "intervals": pd.interval_range(0, 3),
    "durations": pd.to_timedelta([1, 2, 3], unit="h"),
    "levels": pd.MultiIndex.from_product([["a"], [1, 2, 3]], names=["school", "year"]),
    "mixed": pd.Index([1, "b", None], dtype=object),
    "objects": pd.Index([0, 1, 2], dtype=object),
    "categories": pd.CategoricalIndex(["a", "b", "a"]),
    "missing": pd.Index([0.0, np.nan, 2.0]),
}


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("kind", INDEXES)
def test_every_kind_of_label_survives_a_file(kind, suffix, tmp_path):
    index = INDEXES[kind]
    coords = (
        xr.Coordinates.from_pandas_multiindex(index, "obs") if kind == "levels" else {"obs": index}
    )
    y = xr.DataArray([0.0, 1.0, 2.0], dims="obs", coords=coords)
    mu = xr.DataArray(np.zeros((C, D, 3)), dims=("chain", "draw", "obs"), coords=coords)
    model = normal(y, mu=mu)  # the labels of mu are brought to the same form
    model.save(tmp_path / f"model{suffix}")
    back = lq.from_datatree(tmp_path / f"model{suffix}")
    require_same_labels("back", back.observations.labels, {"obs": storable(index)})
    assert back.observations.labels.keys() == {"obs"}


# The unit and the seed


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (2, 2.0),
        (np.int64(2), 2.0),
        (np.array(2.0), 2.0),
        ([1, 2], (1.0, 2.0)),
        (np.array([1.0, 2.0]), (1.0, 2.0)),
        (xr.DataArray([1.0, 2.0]), (1.0, 2.0)),
        (None, None),
    ],
)
def test_the_unit_is_kept_in_plain_numbers(given, kept):
    rule = lq.Hyvarinen(scale=given)
    assert rule.scale == kept
    assert rule == lq.Hyvarinen.from_options(rule.options)
    assert hash(rule) == hash(lq.Hyvarinen(scale=kept))
    with pytest.raises(ScaleError, match=r"shape \(1, 2\)"):
        lq.Hyvarinen(scale=[[1.0, 2.0]])


@pytest.mark.parametrize("seed", [0, 2**31, 2**80])
@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_seeds_of_any_size_survive_a_file(seed, suffix, normals, tmp_path):
    fit = lq.lock(normals, random_seed=seed)
    fit.save(tmp_path / f"fit{suffix}")
    assert lq.load(tmp_path / f"fit{suffix}").random_seed == seed


# Labels that meet under different names


def test_a_permutation_shows_even_where_the_names_of_dimensions_differ(rng):
    labels = [f"p{i}" for i in range(6)]
    y = pd.Series(rng.normal(size=6), index=labels)
    backwards = xr.DataArray(
        rng.normal(size=(2, 30, 6)),
        dims=("chain", "draw", "person"),
        coords={"person": labels[::-1]},
    )
    with pytest.raises(ObservationMismatchError, match="another order"):
        lq.from_family("normal", y=y, mu=backwards, sigma=1.0)
    with pytest.raises(ObservationMismatchError, match="another order"):
        lq.from_arrays(logp=backwards, grad=backwards, curv=backwards, y=y)
    forwards = backwards.assign_coords(person=labels)
    lq.from_family("normal", y=y, mu=forwards, sigma=1.0)
    lq.from_arrays(logp=forwards, grad=forwards, curv=forwards, y=y)
    other = backwards.assign_coords(person=list("abcdef"))  # labelled in another way
    lq.from_family("normal", y=y, mu=other, sigma=1.0)


def test_permuted_covariates_show_even_where_the_names_of_dimensions_differ(rng):
    X = pd.DataFrame(rng.normal(size=(6, 2)), columns=["bmi", "bp"])
    beta = xr.DataArray(
        rng.normal(size=(2, 30, 2)),
        dims=("chain", "draw", "predictor"),
        coords={"predictor": ["bp", "bmi"]},
    )
    with pytest.raises(ObservationMismatchError, match="columns of X .*another order"):
        lq.linear_predictor(X, beta)
    lq.linear_predictor(X, beta.assign_coords(predictor=["bmi", "bp"]))
