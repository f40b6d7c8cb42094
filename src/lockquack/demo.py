"""Three regressions on real data, locked: ``python -m lockquack.demo``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lockquack as lq
from lockquack.combination import Combination
from lockquack.density.pooled import densities_on
from lockquack.jets import Array
from lockquack.predictive import Predictive

_COLUMNS = {
    "demographics": ["age", "sex"],
    "body": ["bmi", "bp"],
    "blood": ["s1", "s2", "s3", "s4", "s5", "s6"],
}
_CHAINS, _DRAWS = 4, 1000
# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS = ("#999999", "#0072B2", "#E69F00")
_LOCKED = "#009E73"


@dataclass(frozen=True)
class Demo:
    """What the demonstration computed."""

    fit: Combination
    log_scores: dict[str, float]  # leave-one-out, of each model and of "[locking]"


def diabetes_models(random_seed: int = 0) -> dict[str, Predictive]:
    """Fit three linear regressions of disease progression in 442 people.

    The priors are flat in the coefficients and in log σ, so the posteriors are known and the
    draws are exact and independent.
    """
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    rng = np.random.default_rng(random_seed)
    models = {}
    for name, columns in _COLUMNS.items():
        chosen = [data.feature_names.index(column) for column in columns]
        X = np.column_stack([np.ones(len(data.target)), data.data[:, chosen]])
        beta, sigma = _posterior_draws(X, data.target, rng)
        mu = lq.linear_predictor(X, beta)
        models[name] = lq.from_family("normal", y=data.target, mu=mu, sigma=sigma)
    return models


def _posterior_draws(X: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    n, p = X.shape
    estimate, residual = np.linalg.lstsq(X, y)[:2]
    sigma = np.sqrt(residual.item() / rng.chisquare(n - p, size=(_CHAINS, _DRAWS)))
    root = np.linalg.inv(np.linalg.cholesky(X.T @ X)).T
    noise = rng.normal(size=(_CHAINS, _DRAWS, p)) @ root.T
    return estimate + sigma[..., None] * noise, sigma


def run(random_seed: int = 0, progressbar: bool | None = None) -> Demo:
    """Lock the three regressions and compare leave-one-out log scores."""
    models = diabetes_models(random_seed)
    fit = lq.lock(models, random_seed=random_seed, progressbar=progressbar)
    scores = {
        name: float(model.loo(progressbar=progressbar).logp.sum()) for name, model in models.items()
    }
    locked = fit.logpdf(loo=True, progressbar=progressbar)
    return Demo(fit, {**scores, "[locking]": float(locked.sum())})


def draw(demo: Demo, path: Path, people: tuple[int, ...] = (3, 78, 123, 322)) -> None:
    """Picture the predictions of the models and of the combination for a few people."""
    from matplotlib.figure import Figure

    fit = demo.fit
    models = fit.models or {}
    y = fit.observations.values[:, 0]
    grid = np.linspace(y.min() - 180, y.max() + 120, 400)
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for axis, person in zip(axes.flat, people, strict=True):
        each, pooled = densities_on(models, fit.operator, fit.solution.x, grid, person, loo=True)
        for name, weight, logp, colour in zip(models, fit.solution.x, each, _COLOURS, strict=True):
            label = f"{name}, weight {weight:.2f}"
            axis.plot(grid, np.exp(logp), color=colour, lw=1.4, label=label)
        axis.fill_between(grid, np.exp(pooled), color=_LOCKED, alpha=0.25, lw=0)
        axis.plot(grid, np.exp(pooled), color=_LOCKED, lw=2, label="locked")
        axis.axvline(y[person], color="black", lw=1, ls=":", label="observed")
        axis.set_title(f"person {person}", loc="left", fontsize=10)
        axis.set_yticks([])
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[0, 0].set_ylim(bottom=0)
    figure.supxlabel("disease progression after one year")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(path: Path = Path("demo-output/diabetes.png")) -> None:
    """Run the demonstration, print its tables and write its picture."""
    demo = run()
    print(demo.fit)
    best = max(demo.fit.names, key=lambda name: demo.log_scores[name])
    print("\nLeave-one-out log score, larger is better")
    for name, score in sorted(demo.log_scores.items(), key=lambda item: -item[1]):
        print(f"  {name:<14}{score:10.1f}{score - demo.log_scores[best]:+10.1f}")
    table = lq.compare(demo.fit.models or {}, ["quack", "lock", "stack", "pseudo-BMA+", "select"])
    print("\nWeights cross-validated (lq.compare): held-out log score, and is a difference noise?")
    print(table[["elpd", "elpd_diff", "dse", "verdict"]].round(1).to_string())
    draw(demo, path)
    print(f"\nPredictions for four people: {path}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
