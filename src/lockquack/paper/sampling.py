r"""Drawing from the locked prediction.

The paper draws from the equal mixture :math:`\frac1K \sum_k \pi_k` and weights the draws. Exact
draws cost no more: the weighted geometric mean is below the weighted arithmetic mean, so a draw
from :math:`\sum_k w_k \pi_k` is accepted with probability
:math:`\prod_k \pi_k^{w_k} / \sum_k w_k \pi_k`, on average :math:`Z(w)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockquack.jets import Array, log_sum_exp
from lockquack.operators import Linear, Locking
from lockquack.paper.comparison import N_TRAIN, closed_form_densities, grid_of
from lockquack.paper.methods import fit
from lockquack.paper.scenarios import (
    SCENARIOS,
    Density,
    Scenario,
    log_marginal_likelihoods,
    loo_predictions,
    predictions,
)

N_DRAWS = 4000
_STEP = 0.05


@dataclass(frozen=True)
class Sampled:
    """Draws from one scenario's locked prediction, and what they should look like."""

    scenario: Scenario
    components: tuple[Density, ...]
    weights: Array  # (K,)
    grid: Array  # (m,)
    locked: Array  # (m,): log density on the grid, normalised
    log_norm: float
    importance: Array  # draws of the equal mixture, drawn again by their weights
    importance_ess: float  # of as many draws of the mixture
    exact: Array  # draws by rejection
    acceptance: float

    def row(self) -> dict[str, Any]:
        """Summarise as one row of a table."""
        return {
            "scenario": self.scenario.number,
            "w1": float(self.weights[0]),
            "normaliser": float(np.exp(self.log_norm)),
            "acceptance": self.acceptance,
            "importance_ess": self.importance_ess,
            "distance_importance": self.distance(self.importance),
            "distance_exact": self.distance(self.exact),
            "kl_truth_to_locked": self.divergence(),
            "n_draws": self.exact.size,
        }

    def distance(self, draws: Array) -> float:
        """Largest difference of the draws' distribution function from the locked one."""
        cumulated = np.cumsum(np.exp(self.locked)) * (self.grid[1] - self.grid[0])
        cumulated -= 0.5 * np.exp(self.locked) * (self.grid[1] - self.grid[0])
        place = np.interp(np.sort(draws), self.grid, cumulated)
        ranks = np.arange(draws.size + 1) / draws.size
        return float(max(np.abs(place - ranks[1:]).max(), np.abs(place - ranks[:-1]).max()))

    def divergence(self) -> float:
        """Kullback-Leibler divergence from the truth to the locked prediction."""
        truth = self.scenario.truth.logp(self.grid)
        return float(np.exp(truth) @ (truth - self.locked)) * float(self.grid[1] - self.grid[0])


def sample_scenarios(seed: np.random.SeedSequence, n: int = N_DRAWS) -> list[Sampled]:
    """Lock the two models on one data set per scenario, and draw from the result."""
    children = seed.spawn(len(SCENARIOS))
    return [
        sample_locked(scenario, np.random.default_rng(child), n)
        for scenario, child in zip(SCENARIOS, children, strict=True)
    ]


def sample_locked(scenario: Scenario, rng: np.random.Generator, n: int = N_DRAWS) -> Sampled:
    """Fit on one data set; draw n times by importance sampling and n times exactly."""
    y = rng.normal(scenario.mean, np.sqrt(scenario.variance), N_TRAIN)
    densities = closed_form_densities(loo_predictions(y), y)
    weights = fit("lock", densities, log_marginal_likelihoods(y)).weights
    components = predictions(y)
    grid = grid_of(components, _STEP)
    pooled = _log_pool(components, weights, grid)
    log_norm = float(log_sum_exp(pooled)) + np.log(grid[1] - grid[0])
    importance, ess = importance_draws(components, weights, n, rng)
    exact, acceptance = exact_draws(components, weights, n, rng)
    return Sampled(
        scenario, components, weights, grid, pooled - log_norm, log_norm,
        importance, ess, exact, acceptance,
    )  # fmt: skip


def importance_draws(
    components: Sequence[Density], weights: Array, n: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """Draw from the equal mixture and again from these by their weights, as the paper does.

    Returns the draws and the effective number of those of the mixture.
    """
    equal = np.full(len(components), 1.0 / len(components))
    proposed = mixture_draws(components, equal, n, rng)
    log_ratio = _log_pool(components, weights, proposed) - _log_mixture(components, equal, proposed)
    share = np.exp(log_ratio - log_sum_exp(log_ratio))
    return rng.choice(proposed, size=n, p=share), float(1.0 / np.square(share).sum())


def exact_draws(
    components: Sequence[Density], weights: Array, n: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """Draw by rejection from the mixture with the same weights; return also the rate."""
    accepted: list[Array] = []
    proposed = 0
    while sum(part.size for part in accepted) < n:
        y = mixture_draws(components, weights, n, rng)
        log_ratio = _log_pool(components, weights, y) - _log_mixture(components, weights, y)
        accepted.append(y[np.log(rng.random(n)) < log_ratio])
        proposed += n
    kept = np.concatenate(accepted)
    return kept[:n], kept.size / proposed


def mixture_draws(
    components: Sequence[Density], weights: Array, n: int, rng: np.random.Generator
) -> Array:
    """Draw from a mixture of densities."""
    chosen = rng.choice(len(components), size=n, p=weights)
    return np.asarray(np.stack([c.draw(n, rng) for c in components])[chosen, np.arange(n)])


def _log_pool(components: Sequence[Density], weights: Array, y: Array) -> Array:
    return Locking().pool_density(np.stack([c.logp(y) for c in components]), weights)


def _log_mixture(components: Sequence[Density], weights: Array, y: Array) -> Array:
    return Linear().pool_density(np.stack([c.logp(y) for c in components]), weights)
