"""Real posteriors with the right answers: two families made here, more where they are at hand.

Those made here need nothing beside the repository: see ``posteriors.py`` for data and draws,
``scripts/reference_answers.py`` for the answers. Those in a folder ``shared/data`` beside the
checkout are reference draws of posteriordb.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

import lockquack as lq
from tests import posteriors

SHARED = Path(__file__).parents[2] / "shared" / "data"
SHARED_ANSWERS = {
    path.parent.name: json.loads(path.read_text())
    for path in sorted(SHARED.glob("*/reference.json"))
}
GOLDEN = Path(__file__).parent / "golden" / "posteriors.json"
MADE_ANSWERS = json.loads(GOLDEN.read_text())["families"]


class ReferenceFamily:
    """Posterior draws of several models of one outcome, with the right answers.

    ``pointwise`` holds some of the answers at ``observations``, by names such as
    ``y__loo__grad``: (observations, models).
    """

    answers: dict
    y: np.ndarray
    draws: dict[str, dict[str, np.ndarray]]  # of each model: X, draws
    observations: np.ndarray
    pointwise: dict[str, np.ndarray]

    @property
    def order(self) -> list[str]:
        return self.answers["order"]

    @property
    def duplicates(self) -> list[list[str]]:
        """Groups of models that say nearly the same."""
        groups = self.answers["duplicates"]
        return [[entry.split(" (")[0] for entry in group] for group in groups]

    def merge_duplicates(self, models: list[str]) -> np.ndarray:
        """Return a matrix that sums weights within groups, where only their sums are identified."""
        label = [next((g[0] for g in self.duplicates if m in g), m) for m in models]
        return np.array([[a == b for b in label] for a in label], dtype=float)

    def models(self, scale: str, thin: int = 1, obs: object = slice(None)) -> dict:
        """All models, brought to the scale of y or of log y, of some observations."""
        return {name: self._model(name, scale, thin, obs) for name in self.order}

    def _model(self, name: str, scale: str, thin: int, obs: object) -> lq.Model:
        fitted_to = {"identity": "y", "log": "logy"}[self.answers["models"][name]["transform_of_y"]]
        transform = {("y", "logy"): "log", ("logy", "y"): "exp"}.get((scale, fitted_to))
        X, draws = self.draws[name]["X"], self.draws[name]["draws"][:, ::thin]
        y = self.y[obs]
        return lq.from_family(
            "normal",
            y=y if scale == "y" else np.log(y),
            transform=transform,
            mu=lq.linear_predictor(X[obs], draws[..., :-1]),
            sigma=draws[..., -1],
        )

    def log_densities(self, scale: str, kind: str) -> np.ndarray:
        """Log densities of all observations, one column for each model."""
        raise NotImplementedError


class SharedFamily(ReferenceFamily):
    """Read from the folder beside the checkout."""

    def __init__(self, name: str) -> None:
        folder = SHARED / name
        self.answers = SHARED_ANSWERS[name]
        self.y = np.load(folder / "data.npz")["y"]
        self.observations = np.arange(self.y.size)
        self.pointwise = dict(np.load(folder / "pointwise.npz"))
        self.draws = {model: dict(np.load(folder / f"draws_{model}.npz")) for model in self.order}

    def log_densities(self, scale: str, kind: str) -> np.ndarray:
        return self.pointwise[f"{scale}__{kind}__logp"]


class MadeFamily(ReferenceFamily):
    """Made here; the answers are in golden/posteriors.json."""

    def __init__(self, name: str) -> None:
        self.made = posteriors.FAMILIES[name]()
        self.answers = MADE_ANSWERS[name]
        self.y = self.made.y
        self.observations = np.array(self.answers["observations"])
        self.pointwise = {key: np.array(part) for key, part in self.answers["pointwise"].items()}
        draws = self.made.draws()
        self.draws = {
            model: {"X": self.made.regressions[model].X, "draws": draws[model]}
            for model in self.order
        }

    def log_densities(self, scale: str, kind: str) -> np.ndarray:
        if kind.startswith("exact_"):
            return np.column_stack([self._exact(name, scale, kind) for name in self.order])
        models = self.models(scale).values()
        if kind == "loo":
            return np.column_stack([model.loo().logp for model in models])
        return np.column_stack([model.collapse("in-sample").jet.logp for model in models])

    def _exact(self, name: str, scale: str, kind: str) -> np.ndarray:
        regression = self.made.regressions[name]
        logp = regression.exact(kind.removeprefix("exact_")).jet(regression.z)[0]
        jacobian = {("y", "logy"): -np.log(self.y), ("logy", "y"): np.log(self.y)}
        return logp + jacobian.get((scale, regression.response), 0.0)


ANSWERS = {f"made-{name}": answers for name, answers in MADE_ANSWERS.items()} | {
    f"shared-{name}": answers for name, answers in SHARED_ANSWERS.items()
}
ALL = list(ANSWERS)
MADE = [label for label in ALL if label.startswith("made-")]
ON_LOG_SCALE = [label for label, answers in ANSWERS.items() if "logy" in answers["scales"]]


@cache
def reference_family(label: str) -> ReferenceFamily:
    source, name = label.split("-")
    return {"made": MadeFamily, "shared": SharedFamily}[source](name)
