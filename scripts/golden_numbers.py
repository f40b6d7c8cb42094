"""Write tests/golden/numbers.json: what the library computes, so that a change of it is seen.

``python scripts/golden_numbers.py`` writes the file; ``--compare FILE`` computes everything again
and prints how far it is from what FILE holds. Only public names are used.

The script must not be called numbers.py: beside that, numpy would take it for Python's module of
that name, and no script in this folder could be run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

import lockquack as lq
from lockquack.demo import diabetes_models
from lockquack.testing import example_models

Array = NDArray[np.float64]
Numbers = dict[str, float | list[float]]
Models = dict[str, lq.Model]

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "numbers.json"
#: Chains and draws of most models here.
DRAWS = (4, 50)


# What will be called otherwise


def predict(
    fit: lq.Combination, y: Any = None, *, models: Models | None = None, **data: Any
) -> Any:
    """Predict other observations: by data about them, or by the models made for them."""
    return fit.predict(y, **data) if models is None else fit.predict(models=models)


@contextmanager
def on_cluster() -> Iterator[None]:
    """Let what is inside the ``with`` run on two processes."""
    from lockquack.parallel import cluster

    with cluster(workers=2):
        yield


# How numbers are written


def every(values: Any) -> list[float]:
    """All values, as plain numbers."""
    return np.asarray(values, dtype=np.float64).ravel().tolist()


def short(values: Any) -> list[float]:
    """First four values and the mean of all of them."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    return [*flat[:4].tolist(), float(flat.mean())]


def named(prefix: str, numbers: Mapping[str, float | list[float]]) -> Numbers:
    """Put a prefix before all names."""
    return {f"{prefix}/{name}": value for name, value in numbers.items()}


def of_fit(fit: lq.Combination) -> Numbers:
    """Objective; weights and other parameters."""
    others = [value for values in fit.parameters.values() for value in every(values)]
    return {
        "objective": float(fit.solution.objective),
        "parameters": [*every(fit.weights), *others],
    }


def of_draws(tree: xr.DataTree) -> list[float]:
    """First draws at the first observations, and the mean of all."""
    (draws,) = tree["posterior_predictive"].to_dataset().data_vars.values()
    return short(draws)


# Models


def jitter(rng: np.random.Generator, centre: float, spread: float = 0.08) -> Array:
    """Draw a positive parameter."""
    return centre * np.exp(spread * rng.normal(size=DRAWS))


def slopes(rng: np.random.Generator, centre: float, spread: float = 0.12) -> Array:
    """Draw the coefficient of one covariate."""
    return centre + spread * rng.normal(size=(*DRAWS, 1))


def regressions(n: int = 40) -> Models:
    """Make three regressions of the same outcomes, each with one of three covariates."""
    rng = np.random.default_rng(20230511)
    x = rng.normal(size=(n, 3))
    y = x.sum(axis=1) + rng.normal(size=n)
    mu = [lq.linear_predictor(x[:, [k]], slopes(rng, 1.0)) for k in range(2)]
    place = -1.0 + 0.15 * rng.normal(size=DRAWS)
    leaning = lq.linear_predictor(x[:, [2]], slopes(rng, 1.0), intercept=place)
    return {
        "a": lq.from_family("normal", y=y, mu=mu[0], sigma=jitter(rng, 1.5)),
        "b": lq.from_family("student_t", y=y, nu=6.0, mu=mu[1], sigma=jitter(rng, 1.4)),
        "c": lq.from_family("skew_normal", y=y, mu=leaning, sigma=jitter(rng, 2.0), alpha=1.2),
    }


def positive(n: int = 40) -> Models:
    """Make three models of positive outcomes, each with one of three covariates."""
    rng = np.random.default_rng(1923)
    x = rng.normal(size=(n, 3))
    y = rng.gamma(4.0, np.exp(0.4 * x.sum(axis=1)) / 4.0)

    def predictor(k: int, level: float, slope: float, link: str = "log") -> Any:
        place = level + 0.1 * rng.normal(size=DRAWS)
        return lq.linear_predictor(x[:, [k]], slopes(rng, slope, 0.05), intercept=place, link=link)

    return {
        "a": lq.from_family("gamma", y=y, alpha=jitter(rng, 2.2), beta=predictor(0, 0.6, -0.4)),
        "b": lq.from_family(
            "normal", y=y, transform="log", mu=predictor(1, 0.0, 0.4, "identity"), sigma=0.8
        ),
        "c": lq.from_family("weibull", y=y, alpha=jitter(rng, 1.5), beta=predictor(2, 0.3, 0.4)),
    }


def counts(n: int = 40) -> Models:
    """Make three models of counts, each with one of three covariates."""
    rng = np.random.default_rng(1837)
    x = rng.normal(size=(n, 3))
    y = np.minimum(rng.poisson(np.exp(1.0 + 0.4 * x.sum(axis=1))), 30)

    def predictor(k: int, level: float, link: str = "log") -> Any:
        place = level + 0.08 * rng.normal(size=DRAWS)
        return lq.linear_predictor(x[:, [k]], slopes(rng, 0.5, 0.06), intercept=place, link=link)

    return {
        "a": lq.from_family("poisson", y=y, mu=predictor(0, 1.1)),
        "b": lq.from_family("negative_binomial", y=y, mu=predictor(1, 1.2), alpha=jitter(rng, 4.0)),
        "c": lq.from_family("binomial", y=y, n=30, p=predictor(2, -2.1, "logit")),
    }


def vectors(n: int = 6) -> Models:
    """Make two models of outcomes with two components, each with one of two covariates."""
    rng = np.random.default_rng(1773)
    x = rng.normal(size=(n, 2))
    y = x + rng.normal(size=(n, 2))
    coef = np.eye(2)[:, None, None, None] + 0.1 * rng.normal(size=(2, *DRAWS, 1, 2))
    first, second = (lq.linear_predictor(x[:, [k]], coef[k]) for k in range(2))
    wide, tilted = np.diag([1.2, 2.0]), np.array([[1.8, 0.3], [0.3, 0.9]])
    return {
        "a": lq.from_family("mv_normal", y=y, mu=first, cov=wide),
        "b": lq.from_family("mv_student_t", y=y, nu=8.0, mu=second, scale=tilted),
    }


def stored() -> Models:
    """Make two models that are known at the outcomes only and by predictive draws."""
    rng = np.random.default_rng(1665)
    n = 20
    y = rng.normal(0.0, 1.2, size=n)
    models = {}
    for name, shift, sigma in (("left", -0.6, 1.0), ("right", 0.8, 1.3)):
        mu = shift + 0.2 * rng.normal(size=DRAWS)
        tree = lq.from_family("normal", y=y, mu=mu, sigma=sigma).to_datatree()
        drawn = rng.normal(mu[..., None], sigma, size=(*DRAWS, n))
        group = xr.Dataset({"y": (("chain", "draw", "obs_id"), drawn)})
        models[name] = lq.from_datatree(
            xr.DataTree.from_dict({**tree.to_dict(), "/posterior_predictive": group})
        )
    return models


def arrays_of(model: lq.Model) -> dict[str, Array]:
    """Log densities and derivatives at all draws and observations."""
    tree = model.to_datatree()
    groups = {
        "logp": "log_likelihood",
        "grad": "log_likelihood_grad",
        "curv": "log_likelihood_curv",
    }
    return {part: tree[group].to_dataset()["y"].values for part, group in groups.items()}


def outcomes(model: lq.Model) -> Array:
    """Observed outcomes of a model."""
    return model.to_datatree()["observed_data"].to_dataset()["y"].values


# Topics: operators and rules

OPERATORS: dict[str, Any] = {
    "linear": lq.Linear(),
    "locking": lq.Locking(),
    "locking, nonnegative": lq.Locking("nonnegative"),
    "superposition": lq.Superposition(),
    "superposition, phases 0": lq.Superposition(0.0),
    "hybrid": lq.Hybrid(),
    "hoelder": lq.Hoelder(),
    "hoelder, -1": lq.Hoelder(-1),
    "selection": lq.Selection(),
    "nested": lq.Nested(lq.Locking(), [(lq.Linear(), ["a", "b"]), "c"]),
}
#: By the log score it takes a minute, and it has no normaliser where supports differ.
SIGNED = {"hybrid, signed": lq.Hybrid(signed=True)}


def every_operator(models: Models, rule: Any, operators: Mapping[str, Any]) -> Numbers:
    """Fit each operator by a rule."""
    numbers: Numbers = {}
    for name, operator in operators.items():
        numbers |= named(name, of_fit(lq.combine(models, operator, rule, prior=1.01)))
    return numbers


def operators_by_hyvarinen() -> Numbers:
    """Every operator by the Hyvärinen score."""
    return every_operator(regressions(), lq.Hyvarinen(), OPERATORS | SIGNED)


def operators_by_log_score() -> Numbers:
    """Every operator by the log score."""
    return every_operator(regressions(), lq.LogScore(), OPERATORS)


def operators_of_positive() -> Numbers:
    """Every operator by the weighted Hyvärinen score."""
    return every_operator(positive(), lq.Hyvarinen(transform="log"), OPERATORS | SIGNED)


def operators_of_counts() -> Numbers:
    """Every operator by the log score of counts."""
    return every_operator(counts(), lq.LogScore(), OPERATORS)


def operators_by_pairs() -> Numbers:
    """Every operator by the pairwise score of counts."""
    return every_operator(counts(), lq.PairwiseScore(), OPERATORS)


# Topics: methods


def methods() -> Numbers:
    """Every method by its name."""
    models = regressions()
    evidence = {"a": -80.0, "b": -79.4, "c": -81.3}
    fits = {
        "lock": lq.lock(models),
        "lock, log": lq.lock(models, rule="log", prior=1.0),
        "lock, priors": lq.lock(models, prior={"a": 1.0, "b": 1.5, "c": 3.0}, scale=2.0),
        "stack": lq.stack(models),
        "stack, prior": lq.stack(models, prior=2.0),
        "quack": lq.quack(models),
        "quack, phases": lq.quack(models, phases=[0.0, 0.3, 0.6], rule="hyvarinen"),
        "bma": lq.bma(models, evidence, model_prior=[0.2, 0.3, 0.5]),
        "pseudo-BMA+": lq.pseudo_bma(models, random_seed=3),
        "pseudo-BMA": lq.pseudo_bma(models, bootstrap=False),
        "select": lq.select(models),
        "select, hyvarinen": lq.select(models, "hyvarinen"),
        "select, evidence": lq.select(
            models, "marginal_likelihood", log_marginal_likelihood=evidence
        ),
        "equal": lq.equal(models),
        "one model": lq.lock({"a": models["a"]}, weights="nonnegative"),
    }
    return {name: every(fit.weights) for name, fit in fits.items()}


def of_comparison(table: pd.DataFrame) -> Numbers:
    """Columns of a table of methods, in the order of their names."""
    methods = table[table["kind"] == "method"]
    by_name = methods.assign(rank=np.arange(len(methods))).sort_index()
    weights = [column for column in map(str, table) if column.startswith("weight[")]
    return {
        "rank": every(by_name["rank"]),
        "noise": every(by_name["verdict"] == "noise"),
        **{column: every(by_name[column]) for column in ("elpd", "elpd_diff", "dse", "se")},
        **{column: every(by_name[column]) for column in weights},
    }


def comparison() -> Numbers:
    """All methods side by side."""
    table = lq.compare(regressions(30), log_marginal_likelihood=[-60.0, -59.4, -61.3])
    scores = ("hyvarinen", "hyvarinen_diff", "hyvarinen_dse")
    by_name = table[table["kind"] == "method"].sort_index()
    return of_comparison(table) | {column: every(by_name[column]) for column in scores}


def comparison_of_counts() -> Numbers:
    """All methods side by side for counts, in folds of our own."""
    return of_comparison(lq.compare(counts(30), cv=np.arange(30) % 4))


def kinds_of_scores() -> Numbers:
    """Leave-one-out, in-sample and held-out."""
    models = regressions()
    numbers: Numbers = {}
    for kind in ("loo", "in-sample", "held-out"):
        for method in (lq.lock, lq.stack):
            fit = method(models, scores=kind)
            name = f"{kind}/{method.__name__}"
            numbers[f"{name}/weights"] = every(fit.weights)
            numbers[f"{name}/pointwise"] = short(fit.pointwise)
            numbers[f"{name}/mcse"] = every(fit.mcse)
    numbers["held-out/pit"] = short(lq.lock(models, scores="held-out").pit())
    return numbers


def table() -> Numbers:
    """All columns of the table."""
    columns = lq.lock(regressions(), random_seed=5).to_dataframe()
    return {name: every(columns[name].dropna()) for name in map(str, columns)}


def uncertainty() -> Numbers:
    """Bootstrap, sandwich and generalised posterior."""
    models = regressions()
    fits = {
        "lock": lq.lock(models),
        "stack": lq.stack(models),
        "superposition": lq.combine(models, lq.Superposition(0.0), "hyvarinen"),
    }
    chosen = lq.select(models).bootstrap(50, random_seed=1)
    numbers: Numbers = {"select/bootstrap": every(chosen.mean("draw"))}
    for name, fit in fits.items():
        draws = fit.bootstrap(100, random_seed=1)
        posterior = fit.posterior(250, random_seed=2)
        numbers |= {
            f"{name}/weights_se": every(fit.weights_se),
            f"{name}/bootstrap": every(draws.quantile([0.05, 0.5, 0.95], "draw")),
            f"{name}/sandwich": every(fit.sandwich()),
            f"{name}/posterior": [
                *every(posterior.mean(["chain", "draw"])),
                *every(posterior.std(["chain", "draw"])),
            ],
            f"{name}/learning rate": float(posterior.attrs["learning_rate"]),
        }
    return numbers


def real_data() -> Numbers:
    """Three regressions of 442 people."""
    models = diabetes_models()
    lock, stack = lq.lock(models), lq.stack(models)
    first = models["body"].loo()
    return {
        **named("lock", of_fit(lock)),
        "lock/weights_se": every(lock.weights_se),
        "lock/mcse": every(lock.mcse),
        **named("stack", of_fit(stack)),
        "stack/mcse": every(stack.mcse),
        "loo": short(first.logp),
        "pareto_k": short(first.pareto_k),
    }


# Topics: where models come from


def families() -> Numbers:
    """Densities and derivatives of the families, averaged over draws."""
    rng = np.random.default_rng(1809)
    real, above = rng.normal(size=12), rng.gamma(2.0, size=12) + 0.1
    inside, whole, pairs = rng.beta(2, 3, size=12), rng.poisson(3.0, size=12), real.reshape(6, 2)
    near = partial(jitter, rng)
    share = near(0.4)

    def around(centre: float) -> Array:
        return centre + 0.2 * rng.normal(size=DRAWS)

    parts = [
        ("normal", {"mu": around(-1.0), "sigma": near(0.8)}),
        ("student_t", {"nu": 4.0, "mu": around(1.0), "sigma": near(1.1)}),
    ]
    lower = np.array([[1.0, 0.0], [-0.3, 1.1]])
    likelihoods: dict[str, tuple[Any, dict[str, Any]]] = {
        "normal": (real, {"mu": around(0.1), "sigma": near(1.0)}),
        "student_t": (real, {"nu": near(5.0), "mu": around(0.1), "sigma": near(1.0)}),
        "skew_normal": (real, {"mu": around(-0.5), "sigma": near(1.3), "alpha": around(1.0)}),
        "logistic": (real, {"mu": around(0.0), "s": near(0.6)}),
        "gumbel": (real, {"mu": around(-0.4), "beta": near(0.9)}),
        "mixture": (real, {"weights": np.stack([share, 1 - share], -1), "components": parts}),
        "normal of exp": (real, {"mu": around(1.5), "sigma": near(1.5)}),
        "gamma": (above, {"alpha": near(2.5), "beta": near(1.1)}),
        "lognormal": (above, {"mu": around(0.4), "sigma": near(0.8)}),
        "normal of log": (above, {"mu": around(0.4), "sigma": near(0.8)}),
        "normal of sqrt": (above, {"mu": around(1.2), "sigma": near(0.6)}),
        "weibull": (above, {"alpha": near(1.8), "beta": near(2.2)}),
        "inverse_gamma": (above, {"alpha": near(2.0), "beta": near(1.5)}),
        "exponential": (above, {"lam": near(0.5)}),
        "half_normal": (above, {"sigma": near(2.0)}),
        "beta": (inside, {"alpha": near(2.2), "beta": near(2.8)}),
        "normal of logit": (inside, {"mu": around(-0.4), "sigma": near(1.0)}),
        "mv_normal": (pairs, {"mu": np.stack([around(0.0), around(0.3)], -1), "chol": lower}),
        "mv_student_t": (pairs, {"nu": near(7.0), "mu": np.zeros(2), "scale": lower @ lower.T}),
        "poisson": (whole, {"mu": near(3.0)}),
        "negative_binomial": (whole, {"mu": near(3.0), "alpha": near(16.0)}),
        "binomial": (whole, {"n": 15, "p": near(0.2)}),
        "zero_inflated_poisson": (whole, {"psi": near(0.6), "mu": near(3.5)}),
        "geometric": (whole + 1, {"p": near(0.3)}),
    }
    numbers: Numbers = {}
    for name, (y, parameters) in likelihoods.items():
        family, *of = name.split(" of ")
        transform = of[0] if of else None
        model = lq.from_family(family, y=y, transform=transform, **parameters)
        jet = model.collapse("in-sample", derivatives=model.source.can.differentiate).jet
        derivatives = [*short(jet.grad), *short(jet.curv)] if model.source.can.differentiate else []
        numbers[name] = [*short(jet.logp), *derivatives]
    return numbers


def passes_over_draws() -> Numbers:
    """Averages over draws of one model, leave-one-out densities and sample sizes."""
    model = regressions()["b"]
    numbers: Numbers = {}
    for kind in ("loo", "in-sample", "held-out"):
        collapsed = model.collapse(kind)
        numbers[f"{kind}/grad"] = short(collapsed.jet.grad)
        numbers[f"{kind}/curv"] = short(collapsed.jet.curv)
        numbers[f"{kind}/mcse"] = float(collapsed.mcse(np.ones(1)))
    loo, ess = model.loo(), model.ess()
    fit = lq.lock(regressions())
    return numbers | {
        "held-out/logp": short(model.collapse("held-out").jet.logp),
        "psis/logp": short(loo.logp),
        "psis/pareto_k": short(loo.pareto_k),
        "ess/grad": short(ess["grad"]),
        "ess/curv": short(ess["curv"]),
        "diagnostics/elpd": short(fit.diagnostics()["elpd"]),
    }


def compiled_sums() -> Numbers:
    """Averages over so many draws that the sums are compiled, where there is a compiler."""
    rng = np.random.default_rng(1954)
    n = 8400
    x = rng.normal(size=(n, 1))
    mu = lq.linear_predictor(x, 1.0 + 0.1 * rng.normal(size=(4, 1000, 1)))
    model = lq.from_family("normal", y=x[:, 0] + rng.normal(size=n), mu=mu, sigma=1.1)
    numbers: Numbers = {}
    for kind in ("loo", "in-sample"):
        collapsed = model.collapse(kind)
        numbers[f"{kind}/slopes"] = [*short(collapsed.jet.grad), *short(collapsed.jet.curv)]
        numbers[f"{kind}/mcse"] = float(collapsed.mcse(np.ones(1)))
    return numbers


def arrays() -> Numbers:
    """Models held as arrays, in several layouts."""
    models = regressions()
    held = {name: arrays_of(model) for name, model in models.items()}
    y = outcomes(models["a"])

    def fit(change: Callable[[Array], Any], method: Any = lq.lock) -> lq.Combination:
        return method(
            {
                name: lq.from_arrays(
                    y=y, **{part: change(values) for part, values in parts.items()}
                )
                for name, parts in held.items()
            }
        )

    densities = {name: lq.from_arrays(logp=parts["logp"], y=y) for name, parts in held.items()}
    in_order = fit(np.ascontiguousarray)
    fits = {
        "C": in_order,
        "F": fit(np.asfortranarray),
        "float32": fit(np.float32),
        "dask": fit(lambda values: da.from_array(values, (2, 15, 9))),
        "stack, C": fit(np.ascontiguousarray, lq.stack),
        "stack, float32": fit(np.float32, lq.stack),
        "stack, dask": fit(lambda values: da.from_array(values, (2, 15, 9)), lq.stack),
        "stack, densities": lq.stack(densities),
        "quack": fit(np.ascontiguousarray, lq.quack),
    }
    return {
        **{name: of_fit(each)["parameters"] for name, each in fits.items()},
        "mcse": every(in_order.mcse),
        "logpdf": short(fits["stack, C"].logpdf(loo=True)),
    }


def files() -> Numbers:
    """Models and combinations that went through containers and files."""
    models = regressions()
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, model in models.items():
            model.save(place / f"{name}.nc")
            model.to_zarr(place / f"{name}.zarr")
            model.to_zarr(place / f"{name}-32.zarr", dtype="float32")
        read: dict[str, Callable[[str], lq.Model]] = {
            "in memory": lambda name: lq.from_datatree(models[name].to_datatree()),
            "netcdf": lambda name: lq.from_datatree(place / f"{name}.nc"),
            "netcdf, lazy": lambda name: lq.from_datatree(place / f"{name}.nc", lazy=True),
            "zarr, lazy": lambda name: lq.from_datatree(place / f"{name}.zarr", lazy=True),
            "zarr, float32": lambda name: lq.from_datatree(place / f"{name}-32.zarr"),
        }
        for how, source in read.items():
            again = {name: source(name) for name in models}
            numbers[f"{how}/weights"] = [
                *every(lq.lock(again).weights),
                *every(lq.stack(again).weights),
            ]
            numbers[f"{how}/in-sample"] = short(lq.lock(again, scores="in-sample").pointwise)
        for suffix in ("nc", "zarr"):
            path = place / f"fit.{suffix}"
            lq.combine(models, OPERATORS["nested"]).save(path)
            fit = lq.load(path)
            numbers |= named(f"loaded from {suffix}", of_fit(fit))
            numbers[f"loaded from {suffix}/score"] = every(fit.to_dataframe()["score"])
            numbers[f"loaded from {suffix}/weights_se"] = every(fit.weights_se)
    return numbers


def cluster() -> Numbers:
    """Compute on two other processes."""
    models = regressions(3000)
    with on_cluster():
        lock, stack = lq.lock(models), lq.stack(models)
        return {
            **named("lock", of_fit(lock)),
            "lock/mcse": every(lock.mcse),
            **named("stack", of_fit(stack)),
            "loo": short(models["b"].loo().logp),
            "logpdf": short(lq.lock(regressions(20)).logpdf(loo=True)),
        }


# Topics: combinations as distributions


def of_prediction(prediction: Any, points: Any) -> Numbers:
    """Ask a combination, or a prediction of other observations, for what both have."""
    calibrated = prediction  # a combination leaves observations out for that
    if isinstance(prediction, lq.Combination):
        prediction = prediction.predict()
    logpdf, cdf, log_norm = prediction.logpdf, prediction.cdf, prediction.log_norm
    return {
        "densities": [*short(logpdf()), *short(logpdf(points)), *short(log_norm())],
        "probabilities": [*short(cdf()), *short(cdf(points)), *short(calibrated.pit())],
        "quantiles": [*short(prediction.quantile([0.1, 0.6])), *short(prediction.interval(0.8))],
        "hdi": short(prediction.interval(0.8, kind="hdi")),
        "moments": [*short(prediction.mean()), *short(prediction.var())],
        "mode": short(prediction.mode()),
        "sample": of_draws(prediction.sample(40, random_seed=7)),
    }


def of_leave_one_out(fit: lq.Combination) -> Numbers:
    """Predictions of each observation without it."""
    return {
        "densities": [*short(fit.logpdf(loo=True)), *short(fit.predict(loo=True).log_norm())],
        "pit": short(fit.pit(loo=True)),
        "quantiles": short(fit.predict(loo=True).quantile(0.7)),
        "moments": [*short(fit.predict(loo=True).mean()), *short(fit.predict(loo=True).var())],
    }


def distributions() -> Numbers:
    """Use a combination as a distribution of scalar outcomes."""
    fit = lq.lock(regressions())
    return of_prediction(fit, [[-1.0], [0.5]]) | named("loo", of_leave_one_out(fit))


def distributions_of_all() -> Numbers:
    """Pools of other operators, and of positive outcomes."""
    models = regressions(15)
    numbers: Numbers = {}
    for name in ("linear", "superposition, phases 0", "hybrid", "hoelder, -1", "nested"):
        fit = lq.combine(models, OPERATORS[name], "hyvarinen", prior=1.01)
        numbers[f"{name}/densities"] = short(fit.logpdf(loo=True))
        numbers[f"{name}/quantiles"] = [
            *short(fit.predict().quantile(0.3)),
            *short(fit.predict().mean()),
        ]
    edged = lq.combine(positive(15), "locking", lq.Hyvarinen(transform="log"))
    return numbers | named("positive", of_prediction(edged, [[0.4], [1.5]]))


def new_data() -> Numbers:
    """Predictions of other observations."""
    x = np.random.default_rng(1777).normal(size=(5, 3))
    own = {name: x[:, [k]] for k, name in enumerate("abc")}
    fit, mixed = lq.lock(regressions()), lq.stack(regressions())
    counted = lq.combine(counts(), "locking", "log")
    others = predict(lq.lock(example_models()), models=example_models(5, random_seed=2))
    return {
        **named("lock", of_prediction(predict(fit, x[:, 0], x=own), 0.3)),
        "unknown/densities": short(predict(fit, x=own).logpdf(0.3)),
        "unknown/quantiles": short(predict(fit, x=own).quantile(0.6)),
        "stack/densities": short(predict(mixed, x[:, 0], x=own).logpdf()),
        "stack/quantiles": short(predict(mixed, x=own).quantile([0.2, 0.8])),
        **named("counts", of_prediction(predict(counted, [0, 2, 1, 5, 3], x=own), 2)),
        "other models/densities": short(others.logpdf()),
        "other models/moments": short(others.mean()),
    }


def distributions_of_counts() -> Numbers:
    """Use a combination as a distribution of counts."""
    fit, mixed = lq.combine(counts(), "locking", "log"), lq.stack(counts())
    return {
        **of_prediction(fit, [[0], [4]]),
        **named("loo", of_leave_one_out(fit)),
        "pit, middle": short(fit.pit(random_seed=None)),
        "coverage": every(fit.coverage([0.5, 0.9])),
        "stack/densities": short(mixed.logpdf(loo=True)),
        "stack/quantiles": short(mixed.predict().quantile(0.9)),
    }


def distributions_of_vectors() -> Numbers:
    """Use a combination as a distribution of vectors, also at new data."""
    fit, mixed = lq.lock(vectors()), lq.stack(vectors())
    rng = np.random.default_rng(1855)
    new = predict(fit, rng.normal(size=(2, 2)), x={"a": [[0.2], [0.9]], "b": [[0.5], [-1.0]]})
    return {
        **named("lock", of_fit(fit)),
        **of_prediction(fit, rng.normal(size=(2, 6, 2))),
        **named("loo", of_leave_one_out(fit)),
        **named("new", of_prediction(new, rng.normal(size=(1, 2, 2)))),
        **named("stack", of_fit(mixed)),
        "stack/densities": short(mixed.logpdf(loo=True)),
    }


def sampling() -> Numbers:
    """Every way to draw."""
    numbers: Numbers = {}
    lock, pairs = lq.lock(regressions(6)), lq.lock(vectors(3))
    for method in ("inverse-cdf", "rejection", "importance", "smc", "mixture-is"):
        numbers[f"lock/{method}"] = of_draws(lock.sample(200, method=method, random_seed=11))
    for method in ("rejection", "importance", "smc", "mixture-is"):
        tree = pairs.sample(200, method=method, random_seed=11)
        numbers[f"vectors/{method}"] = of_draws(tree)
        numbers[f"vectors/{method}/ess"] = short(tree["sampling_stats"]["ess"])
    numbers["loo"] = of_draws(lock.sample(50, loo=True, random_seed=13))
    superposed = lq.combine(regressions(6), lq.Superposition(0.0), "hyvarinen")
    for method in ("rejection", "smc"):
        tree = superposed.sample(100, method=method, random_seed=19)
        numbers[f"superposition/{method}"] = of_draws(tree)
    return numbers


def calibration() -> Numbers:
    """Probability integral transforms and coverage."""
    fit = lq.lock(regressions())
    tables = {
        "central": fit.coverage(),
        "hdi": fit.coverage(kind="hdi"),
        "in-sample": fit.coverage([0.5], loo=False),
        "vectors": lq.lock(vectors(3)).coverage([0.5], loo=False),
    }
    numbers: Numbers = {"pit": short(fit.pit()), "pit, in-sample": short(fit.pit(loo=False))}
    for name, each in tables.items():
        shares = [column for column in map(str, each) if column[0].isdigit()]
        numbers[f"{name}/shares"] = every(each[shares])
        numbers[f"{name}/widths"] = every(each.filter(like="width"))
        numbers[f"{name}/uniformity_p"] = every(each["uniformity_p"])
    return numbers


def stored_draws() -> Numbers:
    """Mixtures of models that are known by predictive draws."""
    fit = lq.stack(stored())
    return {
        "weights": every(fit.weights),
        "pit": short(fit.pit()),
        "pit, in-sample": short(fit.pit(loo=False)),
        "quantiles": [
            *short(fit.predict().quantile([0.1, 0.6])),
            *short(fit.predict(loo=True).quantile(0.6)),
        ],
        "hdi": short(fit.interval(0.8, kind="hdi")),
        "moments": [
            *short(fit.predict().mean()),
            *short(fit.predict(loo=True).mean()),
            *short(fit.predict().var()),
        ],
        "densities": short(fit.logpdf(loo=True)),
        "coverage": every(fit.coverage([0.5, 0.9])),
    }


def checks() -> Numbers:
    """Check derivatives that are wrong."""
    model = regressions()["b"]
    held, y = arrays_of(model), outcomes(model)
    wrong = lq.from_arrays(
        logp=held["logp"] + 0.01 * held["grad"], grad=-held["grad"], curv=1.3 * held["curv"], y=y
    )
    numbers: Numbers = {}
    for name, thorough in (("quick", False), ("thorough", True)):
        found = lq.check(wrong, against=model, thorough=thorough, random_seed=3)
        rows = found.to_dataframe()
        numbers[f"{name}/error"] = [*every(rows["error"]), float(found.worst.error)]
        numbers[f"{name}/got"] = every(rows["got"])
    return numbers


TOPICS: dict[str, Callable[[], Numbers]] = {
    topic.__name__: topic
    for topic in (
        arrays,
        calibration,
        checks,
        cluster,
        comparison,
        comparison_of_counts,
        compiled_sums,
        distributions,
        distributions_of_all,
        distributions_of_counts,
        distributions_of_vectors,
        families,
        files,
        kinds_of_scores,
        methods,
        new_data,
        operators_by_hyvarinen,
        operators_by_log_score,
        operators_by_pairs,
        operators_of_counts,
        operators_of_positive,
        passes_over_draws,
        real_data,
        sampling,
        stored_draws,
        table,
        uncertainty,
    )
}


def compute(topic: str) -> Numbers:
    """Compute the numbers of a topic, without warnings about the quality of small models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lq.errors.LockquackWarning)
        return TOPICS[topic]()


def deviation(found: float | list[float], expected: float | list[float]) -> float:
    """Return the largest difference of two entries, relative to the largest number in them."""
    new, old = np.atleast_1d(found), np.atleast_1d(expected)
    if new.shape != old.shape:
        return np.inf
    apart = np.where(new == old, 0.0, np.abs(new - old))
    size = np.abs(old).max(initial=0.0) or 1.0
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0) / size)


def compare(found: Mapping[str, Numbers], expected: Mapping[str, Numbers]) -> dict[str, float]:
    """Return the deviations of all entries of either, the largest first."""
    new, old = (
        {f"{t}/{name}": v for t in all_ for name, v in all_[t].items()}
        for all_ in (found, expected)
    )
    apart = {
        name: deviation(new[name], old[name]) if name in new and name in old else np.inf
        for name in new | old
    }
    return dict(sorted(apart.items(), key=lambda item: (-item[1], item[0])))


def main() -> None:
    """Compute everything; write it, or compare it with what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compare", type=Path, metavar="FILE", help="write nothing, compare")
    parser.add_argument("--output", type=Path, default=GOLDEN, metavar="FILE")
    options = parser.parse_args()
    found = {}
    for topic in TOPICS:
        began = time.process_time()
        found[topic] = compute(topic)
        print(f"{topic:<28}{len(found[topic]):4d} entries {time.process_time() - began:6.1f} s")
    if options.compare is None:
        text = json.dumps(found, indent=1, sort_keys=True, allow_nan=False)
        options.output.write_text(text + "\n", encoding="utf-8")
        return
    apart = compare(found, json.loads(options.compare.read_text(encoding="utf-8")))
    print(f"\nlargest relative deviation of {len(apart)} entries: {max(apart.values()):.3g}")
    for name, by in list(apart.items())[:10]:
        print(f"  {by:9.3g}  {name}")


if __name__ == "__main__":
    main()
