"""The paper's two models through posterior draws, as a user has them."""

from __future__ import annotations

from typing import Any

import numpy as np

import lockquack as lq
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.paper.scenarios import MODELS, PRIOR_NU, PRIOR_SCALE, PRIOR_VARIANCE

#: Parameters of each model's normal likelihood by name, (chain, draw) or one number.
Draws = dict[str, dict[str, Any]]


def posterior_draws(
    y: Array, rng: np.random.Generator, shape: tuple[int, int] = (4, 1000)
) -> Draws:
    """Draw from both posteriors; exact and independent, since the models are conjugate."""
    n = y.size
    variance = 1.0 / (n + 1.0 / PRIOR_VARIANCE)
    mean = variance * y.sum() + np.sqrt(variance) * rng.normal(size=shape)
    squares = PRIOR_NU * PRIOR_SCALE + np.square(y).sum()
    scale = np.sqrt(squares / rng.chisquare(PRIOR_NU + n, size=shape))
    first, second = MODELS
    return {first: {"mu": mean, "sigma": 1.0}, second: {"mu": 0.0, "sigma": scale}}


def models_at(y: Array, draws: Draws) -> dict[str, Model]:
    """Make models of these outcomes, those of the posterior or new ones."""
    return {name: lq.from_family("normal", y=y, **parameters) for name, parameters in draws.items()}
