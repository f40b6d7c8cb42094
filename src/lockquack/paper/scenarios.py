r"""The paper's two models, their exact predictions, and the four truths.

.. math::

    M_1:&\quad y \sim N(\theta_1, 1), \; \theta_1 \sim N(0, 10) \\
    M_2:&\quad y \sim N(0, \theta_2), \; \theta_2 \sim \text{scaled-inverse-}\chi^2(0.1, 1)

Second arguments are variances. Both models are conjugate: their predictions are a normal and a
Student t, with or without an observation left out, and draws from their posteriors are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from lockquack.families import Family, get_family
from lockquack.jets import Array, Jet
from lockquack.models.model import Model
from lockquack.sources.family import from_family

MODELS = ("M1", "M2")
#: Parameters of each model's normal likelihood by name, (chain, draw) or one number.
Draws = dict[str, dict[str, Any]]
#: Variance of the prior of M1's mean; degrees of freedom and scale² of that of M2's variance.
PRIOR_VARIANCE, PRIOR_NU, PRIOR_SCALE = 10.0, 0.1, 1.0


@dataclass(frozen=True)
class Scenario:
    """A truth: the data are normal with this mean and variance."""

    number: int
    mean: float
    variance: float
    title: str

    @property
    def truth(self) -> Density:
        """The density the data come from."""
        return Density.of("normal", mu=self.mean, sigma=np.sqrt(self.variance))


@dataclass(frozen=True)
class Density:
    """A density of a known family; its parameters may differ between observations."""

    family: Family
    parameters: Mapping[str, Array]

    @classmethod
    def of(cls, family: str, **parameters: Array | float) -> Density:
        """Make it from the family's name."""
        values = {name: np.asarray(value, dtype=np.float64) for name, value in parameters.items()}
        return cls(get_family(family), values)

    def jet(self, y: Array) -> Jet:
        """Log density and derivatives at outcomes that broadcast against the parameters."""
        return self.family.jet(y, self.parameters)

    def logp(self, y: Array) -> Array:
        """Log density."""
        return self.family.logp(y, self.parameters)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Draw outcomes, where there is one set of parameters."""
        return self.family.draw(self.parameters, rng, (n,))

    @property
    def location(self) -> Array:
        """Middle of the density, for each set of parameters."""
        return self.family.location(self.parameters)

    @property
    def spread(self) -> Array:
        """Width of the density, for each set of parameters."""
        return self.family.spread(self.parameters)


SCENARIOS = (
    Scenario(1, 1.0, 1.0, "N(1, 1): M1 is right"),
    Scenario(2, 0.0, 5.0, "N(0, 5): M2 is right"),
    Scenario(3, 4.0, 3.0, "N(4, 3): neither is right"),
    Scenario(4, 0.0, 1.0, "N(0, 1): both are right"),
)


def predictions(y: Array) -> tuple[Density, Density]:
    """Predict a new outcome from all observations, by M1 and by M2."""
    return _normal(y.size, y.sum()), _student(y.size, np.square(y).sum())


def loo_predictions(y: Array) -> tuple[Density, Density]:
    """Predict each observation from all others, by M1 and by M2; parameters of shape (n,)."""
    n, squares = y.size - 1, np.square(y)
    return _normal(n, y.sum() - y), _student(n, squares.sum() - squares)


def sequential_predictions(y: Array) -> tuple[Density, Density]:
    """Predict each observation from those before it, the first from the prior; of shape (n,)."""
    n, squares = np.arange(float(y.size)), np.square(y)
    return _normal(n, np.cumsum(y) - y), _student(n, np.cumsum(squares) - squares)


def _normal(n: float | Array, total: Array) -> Density:
    variance = 1.0 / (n + 1.0 / PRIOR_VARIANCE)
    return Density.of("normal", mu=variance * total, sigma=np.sqrt(1.0 + variance))


def _student(n: float | Array, squares: Array) -> Density:
    nu = PRIOR_NU + n
    scale = np.sqrt((PRIOR_NU * PRIOR_SCALE + squares) / nu)
    return Density.of("student_t", nu=nu, mu=0.0, sigma=scale)


def log_marginal_likelihoods(y: Array) -> Array:
    """Log probability of all observations under each model's prior, (2,)."""
    n, total, squares = y.size, y.sum(), np.square(y).sum()
    variance = 1.0 / (n + 1.0 / PRIOR_VARIANCE)
    first = 0.5 * (np.log(variance / PRIOR_VARIANCE) - n * np.log(2 * np.pi))
    first += 0.5 * (variance * total**2 - squares)
    shape, rate = 0.5 * PRIOR_NU, 0.5 * PRIOR_NU * PRIOR_SCALE
    second = gammaln(shape + 0.5 * n) - gammaln(shape) - 0.5 * n * np.log(2 * np.pi)
    second += shape * np.log(rate) - (shape + 0.5 * n) * np.log(rate + 0.5 * squares)
    return np.array([first, second])


def posterior_draws(
    y: Array, rng: np.random.Generator, shape: tuple[int, int] = (4, 1000)
) -> Draws:
    """Draw from both posteriors, independently."""
    n = y.size
    variance = 1.0 / (n + 1.0 / PRIOR_VARIANCE)
    mean = variance * y.sum() + np.sqrt(variance) * rng.normal(size=shape)
    squares = PRIOR_NU * PRIOR_SCALE + np.square(y).sum()
    scale = np.sqrt(squares / rng.chisquare(PRIOR_NU + n, size=shape))
    first, second = MODELS
    return {first: {"mu": mean, "sigma": 1.0}, second: {"mu": 0.0, "sigma": scale}}


def models_at(y: Array, draws: Draws) -> dict[str, Model]:
    """Make models of these outcomes, those of the posterior or new ones, as a user does."""
    return {name: from_family("normal", y=y, **parameters) for name, parameters in draws.items()}
