"""Three regressions on real data, locked: ``python -m lockquack.demo``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lockquack as lq
from lockquack.combination.combination import Combination
from lockquack.files.places import require_file_place, written_whole
from lockquack.jets import Array
from lockquack.models.model import Model

_COLUMNS = {
    "demographics": ["age", "sex"],
    "body": ["bmi", "bp"],
    "blood": ["s1", "s2", "s3", "s4", "s5", "s6"],
}
_CHAINS, _DRAWS = 4, 1000


@dataclass(frozen=True)
class Demo:
    """What the demonstration computed."""

    fit: Combination
    log_scores: dict[str, float]  # leave-one-out, of each model and of "[lock]"


def diabetes_models(random_seed: int = 0) -> dict[str, Model]:
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
    return Demo(fit, {**scores, "[lock]": float(locked.sum())})


def draw(demo: Demo, path: Path, people: tuple[int, ...] = (3, 78, 123, 322)) -> None:
    """Picture the predictions of the models and of the combination for a few people."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.8), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    demo.fit.plot_densities(people, xlabel="disease progression after one year", axes=axes.ravel())
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:] or "png", dpi=150)


def main(path: Path = Path("demo-output/diabetes.png")) -> None:
    """Run the demonstration, print its tables and write its picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    require_file_place(path)
    demo = run()
    print(demo.fit)
    best = max(demo.fit.names, key=lambda name: demo.log_scores[name])
    print("\nLeave-one-out log score, larger is better")
    for name, score in sorted(demo.log_scores.items(), key=lambda item: -item[1]):
        print(f"  {name:<14}{score:10.1f}{score - demo.log_scores[best]:+10.1f}")
    table = lq.compare(demo.fit.models or {}, ["quack", "lock", "stack", "pseudo-BMA+", "select"])
    print(f"\n{table}")
    draw(demo, path)
    print(f"\nPredictions for four people: {path}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
