"""Several outcomes of a container, scored jointly."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import ShapeError, UnsupportedError

N, SHAPE = 12, (2, 80)
SAMPLE = ("chain", "draw")


def container(rng, own="school", pupils=None, derivatives=True):
    """A normal model of y and one of z, independent given their parameters."""
    labels = {"school": [f"s{i}" for i in range(N)]} if own == "school" else {}
    groups = {}
    for name, sigma in (("y", 1.0), ("z", 2.0)):
        dims = ("school",) if own == "school" else (f"{name}_dim_0",)
        shape = (N,)
        if name == "y" and pupils:
            dims, shape = ("school", "pupil"), (N, pupils)
        y, mu = rng.normal(size=shape), 0.2 * rng.normal(size=(*SHAPE, *(1,) * len(shape)))
        parts = {
            "log_likelihood": stats.norm.logpdf(y, mu, sigma),
            "posterior_predictive": rng.normal(mu, sigma, size=(*SHAPE, *shape)),
        }
        if derivatives:
            parts["log_likelihood_grad"] = (mu - y) / sigma**2
            parts["log_likelihood_curv"] = np.full((*SHAPE, *shape), -1 / sigma**2)
        for group, values in parts.items():
            groups.setdefault(group, {})[name] = ((*SAMPLE, *dims), values)
        groups.setdefault("observed_data", {})[name] = (dims, y)
    return xr.DataTree.from_dict(
        {group: xr.Dataset(variables, labels) for group, variables in groups.items()}
    )


@pytest.mark.parametrize("own", ["school", "unnamed"])
def test_an_observation_is_the_vector_of_them(rng, own):
    tree = container(rng, own)
    model = lq.from_datatree(tree, var_name=["y", "z"])
    assert model.observations.d == 2
    assert model.observations.name == "y_and_z"
    assert model.observations.components.tolist() == ["y", "z"]
    both = [tree["observed_data"][name].values for name in ("y", "z")]
    np.testing.assert_array_equal(model.observations.values, np.stack(both, axis=1))
    single = [lq.from_datatree(tree, var_name=name).source for name in ("y", "z")]
    everything = slice(0, N)
    np.testing.assert_allclose(
        model.source.all_logp(everything), sum(each.all_logp(everything) for each in single)
    )
    for k in (0, 1):
        expected = [each.all_derivatives(everything)[k][..., 0] for each in single]
        np.testing.assert_array_equal(
            model.source.all_derivatives(everything)[k], np.stack(expected, axis=-1)
        )
    drawn = [tree["posterior_predictive"][name].values for name in ("y", "z")]
    np.testing.assert_array_equal(model.source.outcome_draws, np.stack(drawn, axis=-1))
    assert (model.observations.dims == ("school",)) == (own == "school")


def test_it_is_the_product_in_every_score(rng):
    tree = container(rng)
    model = lq.from_datatree(tree, var_name=["y", "z"])
    exact = lq.from_family(
        "mv_normal",
        y=model.observations.values,
        mu=np.zeros((*SHAPE, 2)),
        cov=np.diag([1.0, 4.0]),
    )
    fit = lq.lock({"joint": model, "other": exact})
    assert fit.observations.d == 2
    assert lq.stack({"joint": model, "other": exact}).weights.sum() == pytest.approx(1.0)
    swapped = lq.from_datatree(tree, var_name=["z", "y"])
    np.testing.assert_allclose(swapped.loo().logp, model.loo().logp)


def test_what_lies_along_other_dimensions_is_part_of_the_vector(rng):
    tree = container(rng, pupils=3)
    model = lq.from_datatree(tree, var_name=["y", "z"])
    assert model.observations.components.tolist() == ["y[0]", "y[1]", "y[2]", "z"]
    logp = tree["log_likelihood"].to_dataset()
    np.testing.assert_allclose(
        model.source.all_logp(slice(0, N)), (logp["y"].sum("pupil") + logp["z"]).values
    )
    assert model.source.can.differentiate
    assert model.observations.coords["school"].tolist()[1] == "s1"


def test_lazily_too(rng, tmp_path):
    tree = container(rng)
    tree.to_netcdf(tmp_path / "both.nc", engine="h5netcdf")
    lazy = lq.from_datatree(tmp_path / "both.nc", var_name=["y", "z"], lazy=True)
    assert lazy.source.dask_draws() is not None
    model = lq.from_datatree(tree, var_name=["y", "z"])
    np.testing.assert_allclose(lazy.loo().logp, model.loo().logp)
    np.testing.assert_allclose(lazy.collapse("loo").jet.curv, model.collapse("loo").jet.curv)


def test_without_derivatives_there_is_the_log_score(rng):
    model = lq.from_datatree(container(rng, derivatives=False), var_name=["y", "z"])
    assert not model.source.can.differentiate
    assert np.isfinite(model.loo().logp).all()


def test_outcomes_that_no_observation_has_both_of(rng):
    tree = container(rng)
    other = {
        name: child.to_dataset().assign(z=child.to_dataset()["z"].rename(school="town"))
        for name, child in tree.children.items()
    }
    with pytest.raises(UnsupportedError, match=r"no dimension in common \('y': \('school',\), 'z'"):
        lq.from_datatree(xr.DataTree.from_dict(other), var_name=["y", "z"])
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    groups["log_likelihood"] = groups["log_likelihood"].drop_vars("z")
    with pytest.raises(UnsupportedError, match="one of y, not 'z'"):
        lq.from_datatree(xr.DataTree.from_dict(groups), var_name=["y", "z"])


def test_labels_that_contradict(rng):
    tree = container(rng)
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    from lockquack.sources.groups import find_outcome
    from lockquack.sources.joining import join_outcomes

    one = find_outcome(tree, "y", outcomes_needed=True)
    for group in groups.values():
        group["school"] = [f"t{i}" for i in range(N)]
    other = find_outcome(xr.DataTree.from_dict(groups), "z", outcomes_needed=True)
    with pytest.raises(ShapeError, match="have different labels or draws"):
        join_outcomes([one, other])
