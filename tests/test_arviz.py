"""What ArviZ users have goes into every verb as it is: containers, files, results of loo."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import arviz_stats
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    az = pytest.importorskip("arviz")

import lockquack as lq
from lockquack.errors import (
    LikelihoodWarning,
    LockquackError,
    NonFiniteError,
    ObservationMismatchError,
    ParameterError,
    ParetoWarning,
    ShapeError,
    UnsupportedError,
)
from lockquack.remarks.draws import Divergences
from lockquack.sources.reading import as_model

N, CHAINS, DRAWS = 30, 4, 200
OLD = az.__version__.startswith("0.")
SCHOOLS = [f"school {i}" for i in range(N)]
VERBS = {
    "stack": lq.stack,
    "pseudo_bma": lq.pseudo_bma,
    "select": lq.select,
    "equal": lq.equal,
    "combine": lambda models: lq.combine(models, "linear", "log"),
    "bma": lambda models: lq.bma(models, dict.fromkeys(models, -1.0)),
}


def container(groups):
    """Hold groups as the installed ArviZ does."""
    if not OLD:
        return xr.DataTree.from_dict(groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return az.InferenceData(**groups)


def groups_of(tree):
    return {name: xr.DataTree.to_dataset(child) for name, child in tree.children.items()}


@pytest.fixture(scope="module")
def parts():
    """The groups that a sampler leaves, of two models, and the models as arrays."""
    rng = np.random.default_rng(11)
    y = rng.normal(0.3, 1.3, size=N)
    sample = {"chain": np.arange(CHAINS), "draw": np.arange(DRAWS)}
    labels = {"school": SCHOOLS}
    groups, models = {}, {}
    for name, shift, sigma in (("left", -0.6, 1.0), ("right", 0.9, 1.4)):
        mu = shift + 0.2 * rng.normal(size=(CHAINS, DRAWS))
        logp = stats.norm.logpdf(y, mu[..., None], sigma)
        drawn = rng.normal(mu[..., None], sigma, size=logp.shape)
        dims = ("chain", "draw", "school")
        posterior = xr.Dataset({"mu": (("chain", "draw"), mu)}, sample)
        posterior.attrs["inference_library"] = "pymc"
        groups[name] = {
            "posterior": posterior,
            "log_likelihood": xr.Dataset({"score": (dims, logp)}, {**sample, **labels}),
            "posterior_predictive": xr.Dataset({"score": (dims, drawn)}, {**sample, **labels}),
            "observed_data": xr.Dataset({"score": ("school", y)}, labels),
        }
        models[name] = lq.from_arrays(logp=logp, y=xr.DataArray(y, labels, ["school"]))
    return SimpleNamespace(groups=groups, models=models, y=y)


def loo(groups, **options):
    options = {"pointwise": True, "reff": 1.0, **options}
    return arviz_stats.loo(xr.DataTree.from_dict(groups), **options)


def compared(parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, about ArviZ
        return arviz_stats.compare({name: loo(groups) for name, groups in parts.groups.items()})


FORMS = ["container", "tree", "str.nc", "Path.nc", "str.zarr", "folder", "elpd", "model"]


def given(form, name, parts, folder):
    groups, model = parts.groups[name], parts.models[name]
    tree = xr.DataTree.from_dict(groups)
    if form.endswith(".nc"):
        tree.to_netcdf(folder / f"{name}.nc", engine="h5netcdf")
    if form in ("str.zarr", "folder"):
        tree.to_zarr(folder / (f"{name}.zarr" if form != "folder" else name), zarr_format=2)
    return {
        "container": lambda: container(groups),
        "tree": lambda: tree,
        "str.nc": lambda: str(folder / f"{name}.nc"),
        "Path.nc": lambda: folder / f"{name}.nc",
        "str.zarr": lambda: str(folder / f"{name}.zarr"),
        "folder": lambda: folder / name,
        "elpd": lambda: loo(groups),
        "model": lambda: model,
    }[form]()


@pytest.mark.parametrize("form", FORMS)
def test_what_arviz_has_is_a_model_in_the_dict(form, parts, tmp_path):
    expected = lq.stack(parts.models)
    got = {name: given(form, name, parts, tmp_path) for name in parts.groups}
    fit = lq.stack(got)
    np.testing.assert_allclose(fit.weights, expected.weights, atol=1e-9)
    np.testing.assert_allclose(fit.pointwise, expected.pointwise, atol=1e-9)
    assert fit.remarks == expected.remarks == ()
    mixed = lq.stack({"left": got["left"], "right": parts.models["right"]})
    np.testing.assert_allclose(mixed.weights, expected.weights, atol=1e-9)
    assert mixed.observations.known
    np.testing.assert_array_equal(mixed.observations.values[:, 0], parts.y)


@pytest.mark.filterwarnings("ignore::lockquack.errors.InfluenceWarning")
@pytest.mark.parametrize("verb", VERBS)
def test_in_every_verb(verb, parts):
    got = {"left": container(parts.groups["left"]), "right": loo(parts.groups["right"])}
    expected = VERBS[verb](parts.models)
    np.testing.assert_allclose(VERBS[verb](got).weights, expected.weights, atol=1e-9)


def test_and_in_compare(parts):
    got = {"left": container(parts.groups["left"]), "right": loo(parts.groups["right"])}
    ours, theirs = lq.compare(got, cv=4), lq.compare(parts.models, cv=4)
    np.testing.assert_allclose(ours["elpd"], theirs["elpd"], atol=1e-6)
    assert list(ours.index) == list(theirs.index)


def test_the_weights_are_those_of_stacking(parts):
    fit = lq.stack({name: container(groups) for name, groups in parts.groups.items()})
    elpd = np.stack([loo(groups)["elpd_i"].values for groups in parts.groups.values()])
    share = np.linspace(0.0, 1.0, 10001)[1:-1, None]
    total = np.logaddexp(np.log(share) + elpd[0], np.log1p(-share) + elpd[1]).sum(axis=1)
    assert fit.weights.values[0] == pytest.approx(share[total.argmax(), 0], abs=2e-4)


def test_the_outcome_has_the_name_of_the_variable(parts):
    fit = lq.stack({name: container(groups) for name, groups in parts.groups.items()})
    assert fit.observations.name == "score"
    assert fit.observations.coords["school"].tolist() == SCHOOLS


def test_the_examples_that_come_with_arviz():
    files = {name: az.load_arviz_data(name) for name in ("centered_eight", "non_centered_eight")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are the same model, with one high k̂
        table = lq.compare(files, cv=4)
        fit = lq.stack(files)
        known = [arviz_stats.loo(each if not OLD else az_tree(each)) for each in files.values()]
    assert np.isfinite(table["elpd"]).all()
    np.testing.assert_allclose(
        fit.to_dataframe()["score"].iloc[1:], [each["elpd"] for each in known], atol=0.05
    )
    assert fit.observations.name == "obs"
    # Of the centred parametrisation everybody knows that it makes samplers diverge.
    (said,) = [each for each in fit.remarks if isinstance(each, Divergences)]
    counts = {name: int(each.sample_stats["diverging"].sum()) for name, each in files.items()}
    assert counts["centered_eight"] > 10
    samples = files["centered_eight"].posterior["mu"].size
    expected = tuple((name, count, samples) for name, count in counts.items() if count)
    assert said.models == expected
    again = lq.from_datatree(fit.models["centered_eight"].to_datatree())
    assert again.source.divergent == counts["centered_eight"]


def az_tree(idata):
    from arviz_base import convert_to_datatree

    return convert_to_datatree(idata)


def test_dicts_of_arrays_by_arviz(parts):
    """What az.from_dict makes has no labels."""
    groups = parts.groups["left"]
    arrays = {
        "posterior": {"mu": groups["posterior"]["mu"].values},
        "log_likelihood": {"score": groups["log_likelihood"]["score"].values},
        "observed_data": {"score": parts.y},
    }
    made = az.from_dict(**arrays) if OLD else az.from_dict(arrays)
    expected = parts.models["left"].loo().logp
    fit = lq.equal({"left": made})
    np.testing.assert_allclose(fit.pointwise.values[1], expected, atol=1e-9)


# What is missing is said


def test_locking_needs_derivatives_and_says_where_from(parts):
    got = {name: container(groups) for name, groups in parts.groups.items()}
    message = r"Model 'left': .*from_pymc\(model, idata\).*from_family.*lq\.stack"
    for verb in (lq.lock, lq.quack):
        with pytest.raises(UnsupportedError, match=message):
            verb(got)
    scores = {name: loo(groups) for name, groups in parts.groups.items()}
    with pytest.raises(UnsupportedError, match=r"Model 'left': ELPDData \(loo\).*no draws.*pymc"):
        lq.lock(scores)
    with pytest.raises(UnsupportedError, match="no draws, so it has no in-sample scores"):
        lq.stack(scores, scores="in-sample")
    with pytest.raises(UnsupportedError, match="observed outcomes only"):
        lq.lock(got, rule="log")
    with pytest.raises(UnsupportedError, match="log densities only"):
        lq.check(got["left"])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"inference_library": "pymc"}, r"fitted: pm\.compute_log_likelihood\(idata.*from_pymc"),
        ({}, r"with PyMC: pm\.compute_log_likelihood\(idata.*from_pymc"),
        (
            {"inference_library": "pymc", "modeling_interface": "bambi"},
            r"model\.compute_log_likelihood\(idata\).*from_bambi",
        ),
        ({"inference_library": "numpyro"}, r"az\.from_numpyro\(mcmc, log_likelihood=True\)"),
        ({"inference_library": "cmdstanpy"}, r"az\.from_cmdstanpy\(fit, log_likelihood='log_lik'"),
    ],
)
def test_without_log_densities_it_is_said_how_to_add_them(parts, attrs, message):
    groups = {name: group for name, group in parts.groups["left"].items() if "log" not in name}
    groups["posterior"] = groups["posterior"].drop_attrs().assign_attrs(attrs)
    with pytest.raises(UnsupportedError, match=rf"Model 'left': .*'log_likelihood'.*{message}"):
        lq.stack({"left": container(groups)})
    inside = groups["posterior"].assign(log_lik=parts.groups["left"]["log_likelihood"]["score"])
    with pytest.raises(UnsupportedError, match=r"The posterior holds 'log_lik'"):
        lq.stack({"left": container({**groups, "posterior": inside})})


def test_stacking_does_without_outcomes(parts, tmp_path):
    bare = {k: v for k, v in parts.groups["left"].items() if k != "observed_data"}
    expected = lq.stack(parts.models)
    with pytest.warns(LikelihoodWarning, match="outcomes of 'left' are not known"):
        fit = lq.stack({"left": container(bare), "right": parts.models["right"]})
    np.testing.assert_allclose(fit.weights, expected.weights, atol=1e-9)
    with pytest.warns(LikelihoodWarning, match="outcomes of 'left' are not known"):
        alone = lq.stack({"left": container(bare), "right": loo(parts.groups["right"])})
    np.testing.assert_allclose(alone.weights, expected.weights, atol=1e-9)
    assert not alone.observations.known
    alone.save(tmp_path / "fit.nc")
    again = lq.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.weights, alone.weights)
    assert not again.observations.known
    page = alone.report(tmp_path / "page.html", methods=["stack", "select"])
    assert "ELPDData" in page.read_text(encoding="utf-8")
    with pytest.raises(
        UnsupportedError, match=r"no group 'observed_data'.*from_datatree\(idata, y="
    ):
        lq.from_datatree(container(bare))
    with pytest.raises(ParameterError, match=r"depends on the outcomes, which are not there.*y="):
        as_model(container(bare), transform="log")
    model = lq.from_datatree(container(bare), y=pd.Series(parts.y, name="score"))
    np.testing.assert_array_equal(model.observations.values[:, 0], parts.y)
    assert model.observations.dims == ("school",)


def test_outcomes_that_contradict_the_container_are_refused(parts):
    whole = container(parts.groups["left"])
    assert lq.from_datatree(whole, y=parts.y).observations.known
    with pytest.raises(
        ObservationMismatchError, match=r"y= differ .* first at observation 3 \(sch"
    ):
        lq.from_datatree(whole, y=parts.y + (np.arange(N) == 3))
    with pytest.raises(ObservationMismatchError, match=r"There are 29 outcomes .* and 30"):
        lq.from_datatree(whole, y=parts.y[1:])


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (lambda parts: container(parts.groups["left"]), "must be a dict of name → model, got"),
        (lambda parts: [container(parts.groups["left"])], "must be a dict .* got list.*idata"),
        (lambda parts: loo(parts.groups["left"]), "must be a dict of name → model, got ELPDData"),
        (lambda parts: {"a": None}, "Model 'a' is a NoneType"),
        (lambda parts: {"a": {"x": 1}}, "Model 'a' is a dict"),
        (lambda parts: {"a": pd.Series(parts.y)}, r"Model 'a' is a Series.*from_arrays"),
        (
            lambda parts: {"a": compared(parts)},
            "Model 'a' .*az.compare has no draws: give the dict",
        ),
        (lambda parts: compared(parts), "az.compare has no draws: give the dict"),
        (lambda parts: {"a": parts.groups["left"]["log_likelihood"]}, "group .* give all of idata"),
        (lambda parts: {"a": np.zeros((2, 3, 4))}, r"from_arrays\(.* \(chain, draw, observation"),
        (lambda parts: {1: loo(parts.groups["left"])}, "names must be strings"),
        (lambda parts: {}, "no models"),
    ],
)
def test_what_is_no_dict_of_models_is_refused(parts, models, message):
    for verb in (lq.stack, lq.compare, lq.lock, lq.quack, lq.bma):
        with pytest.raises(LockquackError, match=message):
            verb(models(parts))


def test_one_group_is_not_a_container(parts):
    group = xr.DataTree.from_dict(parts.groups["left"])["log_likelihood"]
    with pytest.raises(UnsupportedError, match="one group of a container, with score"):
        lq.stack({"a": group})


def test_scores_cannot_be_kept_as_draws(parts, tmp_path):
    model = lq.from_elpd(loo(parts.groups["left"]))
    for use in (
        model.to_datatree,
        lambda: model.save(tmp_path / "a.nc"),
        lambda: model.save("a.zarr"),
    ):
        with pytest.raises(UnsupportedError, match="no draws, so it cannot be held or written"):
            use()
    assert "ELPDData" in model._repr_html_()


def test_missing_files_and_files_of_something_else(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothere\.nc"):
        lq.stack({"a": tmp_path / "nothere.nc"})
    (tmp_path / "draws.csv").write_text("mu\n1\n")
    for path in (tmp_path, tmp_path / "draws.csv"):
        with pytest.raises(UnsupportedError, match=r"draws as CSV.*from_cmdstanpy.*--y"):
            lq.stack({"a": path})


def test_a_tree_of_containers_is_a_dict_of_them(parts):
    """ArviZ 1 users keep several fits in one tree."""
    both = xr.DataTree.from_dict(
        {f"{name}/{group}": data for name, gs in parts.groups.items() for group, data in gs.items()}
    )
    expected = lq.stack(parts.models)
    np.testing.assert_allclose(lq.stack(both).weights, expected.weights, atol=1e-9)
    assert lq.stack(both).names == ("left", "right")
    nested = lq.stack({"left": both["left"], "right": both["right"]})
    np.testing.assert_allclose(nested.weights, expected.weights, atol=1e-9)


# Containers as they come


def check_same(groups, parts, **options):
    got = lq.from_datatree(container(groups), **options)
    np.testing.assert_allclose(got.loo().logp, parts.models["left"].loo().logp, atol=1e-9)
    return got


def test_log_densities_of_another_name_as_stan_has_them(parts):
    groups = dict(parts.groups["left"])
    log_lik = groups["log_likelihood"].rename(score="log_lik", school="log_lik_dim_0")
    groups["log_likelihood"] = log_lik.assign_coords(log_lik_dim_0=np.arange(N))
    groups["posterior_predictive"] = groups["posterior_predictive"].rename(score="score_rep")
    model = check_same(groups, parts)
    assert model.observations.name == "score"
    assert model.observations.coords["school"].tolist() == SCHOOLS
    assert model.source.outcome_draws is not None
    check_same(groups, parts, var_name="score")
    observed = groups["observed_data"]
    groups["observed_data"] = observed.assign(x=observed["score"] + 1)
    with pytest.raises(UnsupportedError, match=r"does not hold the outcome 'log_lik'.*var_name"):
        lq.from_datatree(container(groups))
    check_same(groups, parts, var_name="score")
    groups["observed_data"] = observed.assign(N=N)  # a number that Stan was given
    check_same(groups, parts)


def test_log_densities_in_another_order_are_noticed(parts):
    groups = dict(parts.groups["left"])
    turned = groups["log_likelihood"].isel(school=slice(None, None, -1))
    groups["log_likelihood"] = turned.rename(school="other")
    with pytest.raises(ObservationMismatchError, match="same labels in another order"):
        lq.from_datatree(container(groups))


def test_several_outcomes_need_a_name(parts):
    groups = {
        name: group.assign(other=group["score"]) if "score" in group else group
        for name, group in parts.groups["left"].items()
    }
    with pytest.raises(UnsupportedError, match=r"Model 'a': .*var_name= of lq\.from_datatree"):
        lq.stack({"a": container(groups)})
    check_same(groups, parts, var_name="other")


def test_observations_on_a_grid(parts):
    grid = {"school": pd.MultiIndex.from_product([range(6), range(5)], names=["town", "class"])}
    groups = {
        name: group.assign_coords(xr.Coordinates.from_pandas_multiindex(grid["school"], "school"))
        .unstack("school")
        .transpose(..., "town", "class")
        if "school" in group.dims
        else group
        for name, group in parts.groups["left"].items()
    }
    model = check_same(groups, parts)
    assert model.observations.sizes == {"town": 6, "class": 5}
    fit = lq.equal({"left": container(groups), "right": loo(groups)})
    assert fit.pointwise.dims == ("model", "town", "class")


def test_draws_that_are_thinned_stacked_or_of_one_chain(parts):
    groups = parts.groups["left"]
    logp = groups["log_likelihood"]["score"].values
    thinned = {
        k: v.isel(draw=slice(None, None, 2)) if "draw" in v.dims else v for k, v in groups.items()
    }
    model = lq.from_datatree(container(thinned))
    assert model.n_draws == DRAWS // 2
    assert model.source.outcome_draws is not None
    stacked = {
        k: v.stack(sample=("chain", "draw")) if "draw" in v.dims else v for k, v in groups.items()
    }
    model = check_same(stacked, parts)
    assert (model.n_chains, model.n_draws) == (CHAINS, DRAWS)
    assert model.source.outcome_draws is not None
    some = {
        k: v.isel(sample=np.arange(0, 800, 3)) if "sample" in v.dims else v
        for k, v in stacked.items()
    }
    model = lq.from_datatree(container(some))
    assert (model.n_chains, model.n_draws) == (1, 267)
    np.testing.assert_allclose(
        model.source.all_logp(slice(0, N))[0], logp.reshape(-1, N)[::3], atol=1e-12
    )
    one = {k: v.isel(chain=1) if "chain" in v.dims else v for k, v in groups.items()}
    model = lq.from_datatree(container(one))
    assert (model.n_chains, model.n_draws) == (1, DRAWS)
    np.testing.assert_array_equal(model.source.all_logp(slice(0, N))[0], logp[1])
    assert model.source.outcome_draws is not None


def test_predictive_draws_of_other_observations_are_left_alone(parts):
    groups = dict(parts.groups["left"])
    groups["posterior_predictive"] = groups["posterior_predictive"].isel(school=slice(0, 7))
    assert check_same(groups, parts).source.outcome_draws is None


def test_files_that_are_open_are_read(parts, tmp_path):
    xr.DataTree.from_dict(parts.groups["left"]).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "a.nc", engine="h5netcdf") as tree:
        logp = lq.from_datatree(tree).loo().logp
    np.testing.assert_allclose(logp, parts.models["left"].loo().logp, atol=1e-9)
    chunked = xr.open_datatree(tmp_path / "a.nc", engine="h5netcdf", chunks={})
    fit = lq.stack({"left": chunked, "right": parts.models["right"]})
    np.testing.assert_allclose(fit.weights, lq.stack(parts.models).weights, atol=1e-9)
    chunked.close()


def test_where_arviz_kept_log_densities_before_it_had_a_group(parts):
    groups = dict(parts.groups["left"])
    log_likelihood = groups.pop("log_likelihood")
    groups["sample_stats"] = log_likelihood.rename(score="log_likelihood")
    assert check_same(groups, parts).observations.name == "score"


def test_outcomes_of_vectors(parts, rng):
    groups = dict(parts.groups["left"])
    pairs = rng.normal(size=(N, 2))
    groups["observed_data"] = xr.Dataset({"score": (("school", "side"), pairs)})
    groups.pop("posterior_predictive")
    model = check_same(groups, parts)
    assert model.observations.d == 2
    assert model.observations.component_dim == "side"


# Results of loo


def test_pareto_k_comes_along(parts):
    elpd = loo(parts.groups["left"])
    bad = elpd["pareto_k"].copy()
    bad[4] = 0.9
    elpd["pareto_k"] = bad
    with pytest.warns(ParetoWarning, match=r"'left'.*0\.9.*observation 4 \(school=school 4\)"):
        fit = lq.stack({"left": elpd, "right": parts.models["right"]})
    assert (fit.diagnostics()["pareto_k"].sel(model="left") == bad).all()
    with pytest.warns(ParetoWarning, match="'left'"):
        lq.pseudo_bma({"left": elpd, "right": parts.models["right"]})
    with pytest.warns(ParetoWarning, match="'left'"):
        table = lq.compare({"left": elpd, "right": parts.models["right"]}, ["stack"], cv=3)
    assert table["bad_k"].max() == 1


def kfold(groups):
    """What loo_kfold of either version returns, in so far as it matters."""
    elpd = loo(groups)
    options = {name: getattr(elpd, name) for name in ("elpd", "se", "p", "n_samples")}
    options |= {"n_data_points": N, "scale": "log", "warning": False, "good_k": None}
    options |= {"elpd_i": elpd["elpd_i"], "pareto_k": None, "n_folds": 10}
    kind = getattr(arviz_stats.utils, "ELPDDataLOOKFold", None)
    return kind(**options) if kind else arviz_stats.utils.ELPDData(kind="loo_kfold", **options)


def test_scores_by_k_folds_are_held_out(parts):
    folds = {name: kfold(groups) for name, groups in parts.groups.items()}
    fit = lq.stack(folds)
    assert fit.scores == "held-out"
    assert "held-out" in repr(fit)
    np.testing.assert_allclose(fit.weights, lq.stack(parts.models).weights, atol=1e-9)
    np.testing.assert_allclose(lq.stack(folds, scores="held-out").weights, fit.weights)
    assert lq.stack({"left": folds["left"], "right": parts.models["right"]}).scores == "loo"
    with pytest.raises(ParameterError, match="has no in-sample scores"):
        lq.stack(folds, scores="in-sample")
    with pytest.raises(UnsupportedError, match="it has no held-out scores"):
        lq.stack({"a": loo(parts.groups["left"])}, scores="held-out")
    assert lq.from_elpd(folds["left"]).likelihood.description == "ELPDData (K-fold)"


@pytest.mark.skipif(not OLD, reason="ArviZ 1 has one scale, and no WAIC")
def test_results_of_arviz_before_1(parts):
    idata = container(parts.groups["left"])
    for scale in ("log", "negative_log", "deviance"):
        elpd = az.loo(idata, pointwise=True, scale=scale, reff=1.0)
        model = lq.from_elpd(elpd)
        np.testing.assert_allclose(model.loo().logp, parts.models["left"].loo().logp, atol=1e-3)
        np.testing.assert_array_equal(model.loo().pareto_k, elpd["pareto_k"])
        assert model.source.pareto_limit == elpd["good_k"]
    waic = az.waic(idata, pointwise=True)
    assert lq.from_elpd(waic).likelihood.description == "ELPDData (waic)"
    np.testing.assert_allclose(lq.from_elpd(waic).loo().logp, waic["waic_i"])
    with pytest.raises(UnsupportedError, match="pointwise=True"):
        lq.stack({"a": az.loo(idata, pointwise=False, reff=1.0)})


def test_scores_with_case_weights(parts):
    weights = np.arange(N) % 3
    ours = {
        name: lq.from_elpd(loo(groups), weights=weights) for name, groups in parts.groups.items()
    }
    theirs = {name: model.with_weights(weights) for name, model in parts.models.items()}
    np.testing.assert_allclose(lq.stack(ours).weights, lq.stack(theirs).weights, atol=1e-9)


def test_results_that_are_no_scores_of_all_observations(parts):
    with pytest.raises(UnsupportedError, match=r"Model 'a': .*pointwise=True"):
        lq.stack({"a": loo(parts.groups["left"], pointwise=False)})
    some = loo(parts.groups["left"])
    some["elpd_i"] = some["elpd_i"].where(np.arange(N) != 2)
    with pytest.raises(NonFiniteError, match=r"nan at observation 2 .*Subsampled"):
        lq.stack({"a": some})
    one = loo(parts.groups["left"])
    one["elpd_i"] = -1.0
    with pytest.raises(ShapeError, match="single observation"):
        lq.from_elpd(one)
    with pytest.raises(ParameterError, match="needs an ELPDData of ArviZ; got a DataTree"):
        lq.from_elpd(xr.DataTree())


def test_scores_of_other_observations_are_noticed(parts):
    elpd = loo(parts.groups["left"])
    turned, fewer = loo(parts.groups["left"]), loo(parts.groups["left"])
    turned["elpd_i"] = elpd["elpd_i"].isel(school=slice(None, None, -1))
    with pytest.raises(ObservationMismatchError, match="another order"):
        lq.stack({"a": turned, "b": parts.models["right"]})
    fewer["elpd_i"] = elpd["elpd_i"].isel(school=slice(1, None))
    with pytest.raises(ObservationMismatchError, match="29 observations"):
        lq.stack({"a": fewer, "b": parts.models["right"]})
    with pytest.raises(ShapeError, match="y has 3 outcomes, the ELPDData 30 scores"):
        lq.from_elpd(elpd, y=[1.0, 2.0, 3.0])
    wrong = lq.from_elpd(elpd, y=parts.y + 1)
    with pytest.raises(LockquackError, match="differ by a shift"):
        lq.stack({"a": wrong, "b": parts.models["right"]})
    right = lq.from_elpd(elpd, y=parts.y)
    assert lq.stack({"a": right}).observations.coords["school"].tolist() == SCHOOLS


def test_scores_of_a_function_of_y_get_the_jacobian(parts):
    y, elpd = np.exp(parts.y), loo(parts.groups["left"])
    model = lq.from_elpd(elpd, y=y, transform="log")
    np.testing.assert_allclose(model.loo().logp, elpd["elpd_i"] - parts.y)
    brought = lq.from_datatree(container(parts.groups["left"]), transform="log")
    np.testing.assert_allclose(brought.loo().logp, model.loo().logp, atol=1e-9)
    np.testing.assert_allclose(
        brought.source.outcome_draws[0, 0, 0],
        np.exp(parts.groups["left"]["posterior_predictive"]["score"][0, 0, 0]),
    )
    with pytest.raises(ParameterError, match=r"which an ELPDData does not hold"):
        lq.from_elpd(elpd, transform="log")
    elpd.log_jacobian = elpd["elpd_i"]
    with pytest.raises(ParameterError, match="has a log_jacobian already"):
        lq.from_elpd(elpd, y=y, transform="log")
