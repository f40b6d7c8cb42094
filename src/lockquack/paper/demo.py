"""Two densities under every operator: a picture's data, and a page to play with."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from lockquack.jets import Array, log_sum_exp
from lockquack.operators import Hybrid, Linear, Locking, Operator, Superposition
from lockquack.paper.scenarios import Density

#: The two densities, also those with which the page opens.
COMPONENTS = (
    Density.of("normal", mu=-1.2, sigma=1.0),
    Density.of("normal", mu=1.2, sigma=0.8),
)
PHASES = (0.0, 0.25, 0.5, 0.75, 1.0)  # in units of π
GRID = np.linspace(-8.0, 8.0, 801)


@dataclass(frozen=True)
class Curve:
    """One operator's combination of the two densities."""

    title: str
    density: Array  # (m,), normalised, on GRID
    normaliser: float

    def rows(self) -> list[dict[str, Any]]:
        """Return the curve as rows of a tidy table."""
        pairs = zip(GRID, self.density, strict=True)
        return [{"curve": self.title, "y": y, "density": value} for y, value in pairs]


def component_curves() -> list[Curve]:
    """Return the two densities themselves."""
    return [
        Curve(f"density {k + 1}", np.exp(each.logp(GRID)), 1.0) for k, each in enumerate(COMPONENTS)
    ]


def combined_curves(weight: float = 0.5, mixture_exponent: float = 0.5) -> list[Curve]:
    """Return the mixture, locking, the hybrid, and superpositions with phases from 0 to π."""
    weights = np.array([weight, 1.0 - weight])
    exponents = (1.0 - mixture_exponent) * weights
    hybrid = np.concatenate([[mixture_exponent], exponents, weights])
    return [
        combine("linear pool", Linear(), weights),
        combine("locking", Locking(), weights),
        combine("hybrid", Hybrid(), hybrid),
        *(
            combine(phase_title(phase), Superposition([0.0, np.pi * phase]), weights)
            for phase in PHASES
        ),
    ]


def phase_title(phase: float) -> str:
    """Name a superposition by its phase, in units of π."""
    return "superposition, α = " + {0.0: "0", 1.0: "π"}.get(phase, f"{phase:g} π")


def combine(title: str, operator: Operator, x: Array) -> Curve:
    """Pool the two densities and normalise, by the trapezoidal rule."""
    logp = np.stack([each.logp(GRID) for each in COMPONENTS])
    with np.errstate(divide="ignore"):  # a zero of the density has no logarithm
        pooled = operator.pool_density(logp, x)
    log_norm = log_sum_exp(pooled) + np.log(GRID[1] - GRID[0])
    return Curve(title, np.exp(pooled - log_norm), float(np.exp(log_norm)))


def page() -> str:
    """Return the interactive page: one HTML file that needs nothing else."""
    return files("lockquack.paper").joinpath("demo.html").read_text(encoding="utf-8")
