"""Data for the benchmarks, in plain files that Python and R can read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CHAINS, DRAWS = 4, 1000


def write_draws(folder: Path, n_models: int, n_obs: int) -> None:
    """Regressions on one covariate each, with draws around the least-squares fit.

    Log densities and derivatives in the outcome, (chain, draw, obs) in C order, of each model.
    """
    rng = np.random.default_rng(n_obs)
    x = rng.normal(size=(n_models, n_obs))
    y = x.sum(axis=0) + rng.normal(size=n_obs)
    for k in range(n_models):
        slope = x[k] @ y / (x[k] @ x[k])
        spread = np.std(y - slope * x[k])
        beta = slope + spread / np.linalg.norm(x[k]) * rng.normal(size=(CHAINS, DRAWS, 1))
        sigma = spread * np.exp(rng.normal(size=(CHAINS, DRAWS, 1)) / np.sqrt(2 * n_obs))
        grad = (beta * x[k] - y) / sigma**2
        curv = np.broadcast_to(-1 / sigma**2, grad.shape)
        logp = -0.5 * np.square(grad * sigma) - np.log(sigma) - 0.5 * np.log(2 * np.pi)
        for name, array in (("logp", logp), ("grad", grad), ("curv", curv)):
            np.ascontiguousarray(array).tofile(folder / f"{name}_{k}.f8")
    y.tofile(folder / "y.f8")
    _write_shape(folder, n_models, n_obs)


def write_elpds(folder: Path, n_models: int, n_obs: int) -> None:
    """Pointwise log predictive densities of normal models, (obs, model)."""
    rng = np.random.default_rng(n_models)
    place = rng.normal(size=n_models)
    noise = 0.3 * rng.normal(size=(n_obs, n_models))
    elpd = -0.5 * np.square(rng.normal(size=(n_obs, 1)) - place - noise)
    elpd.tofile(folder / "elpd.f8")
    _write_shape(folder, n_models, n_obs)


def write_far_elpds(folder: Path, n_models: int, n_obs: int) -> None:
    """Write the same, but for one observation that no model expects: a log density near −760."""
    write_elpds(folder, n_models, n_obs)
    elpd = read(folder, "elpd")
    elpd[0] += -760.0 - elpd[0].max()
    elpd.tofile(folder / "elpd.f8")


def read(folder: Path, name: str) -> np.ndarray:
    """Read one of the arrays."""
    shape = json.loads((folder / "shape.json").read_text())
    array = np.fromfile(folder / f"{name}.f8")
    if name == "y":
        return array
    if name == "elpd":
        return array.reshape(shape["obs"], shape["models"])
    return array.reshape(shape["chains"], shape["draws"], shape["obs"])


def n_models(folder: Path) -> int:
    """Tell how many models there are."""
    return int(json.loads((folder / "shape.json").read_text())["models"])


def _write_shape(folder: Path, n_models: int, n_obs: int) -> None:
    shape = {"chains": CHAINS, "draws": DRAWS, "obs": n_obs, "models": n_models}
    (folder / "shape.json").write_text(json.dumps(shape))
