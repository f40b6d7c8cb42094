"""Shared fixtures: models with known answers, and real posteriors where they are at hand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import lockquack as lq

REFERENCE_DATA = Path(__file__).parents[2] / "shared" / "data"
FAMILIES_OF_POSTERIORS = sorted(
    path.parent.name for path in REFERENCE_DATA.glob("*/reference.json")
)
ON_LOG_SCALE = [
    name
    for name in FAMILIES_OF_POSTERIORS
    if "logy" in json.loads((REFERENCE_DATA / name / "reference.json").read_text())["scales"]
]


class ReferenceFamily:
    """Reference draws of several models of one outcome, with the right answers."""

    def __init__(self, name: str) -> None:
        folder = REFERENCE_DATA / name
        self.answers = json.loads((folder / "reference.json").read_text())
        self.y = np.load(folder / "data.npz")["y"]
        self.pointwise = dict(np.load(folder / "pointwise.npz"))
        self.draws = {model: dict(np.load(folder / f"draws_{model}.npz")) for model in self.order}

    @property
    def order(self) -> list[str]:
        return self.answers["order"]

    def models(self, scale: str, thin: int = 1) -> dict[str, lq.Model]:
        """All models, brought to the scale of y or of log y."""
        return {name: self._model(name, scale, thin) for name in self.order}

    def _model(self, name: str, scale: str, thin: int) -> lq.Model:
        fitted_to = {"identity": "y", "log": "logy"}[self.answers["models"][name]["transform_of_y"]]
        transform = {("y", "logy"): "log", ("logy", "y"): "exp"}.get((scale, fitted_to))
        X, draws = self.draws[name]["X"], self.draws[name]["draws"][:, ::thin]
        return lq.from_family(
            "normal",
            y=self.y if scale == "y" else np.log(self.y),
            transform=transform,
            mu=lq.linear_predictor(X, draws[..., :-1]),
            sigma=draws[..., -1],
        )


@pytest.fixture(scope="session", params=FAMILIES_OF_POSTERIORS)
def family(request) -> ReferenceFamily:
    return ReferenceFamily(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20230506)


@pytest.fixture
def normals(rng) -> dict[str, lq.Model]:
    """Three models of the same thirty outcomes: two sensible ones and a bad one."""
    y = rng.normal(1.0, 2.0, size=30)
    mu = rng.normal(0.0, 0.2, size=(4, 200))
    sigma = np.exp(rng.normal(0.0, 0.1, size=(4, 200)))
    return {
        "left": lq.from_family("normal", y=y, mu=mu, sigma=2 * sigma),
        "right": lq.from_family("normal", y=y, mu=mu + 2.0, sigma=2 * sigma),
        "far": lq.from_family("student_t", y=y, nu=50.0, mu=mu + 8.0, sigma=0.5 * sigma),
    }


@pytest.fixture(scope="session")
def browser() -> str:
    """Path of a Chromium, which CI installs."""
    script = Path(__file__).parents[1] / "scripts" / "ensure_chromium.sh"
    found = subprocess.run(["sh", str(script)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"no browser: {found.stderr.strip()}")
    return found.stdout.split()[-1]
