r"""The generalised posterior of parameters, :math:`\text{prior}(x) \exp(\eta\, \text{score}(x))`.

It is sampled in coordinates of which each is free and changes something: weights on a simplex move
along contrasts of their logarithms, and one phase stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import block_diag

from lockquack.jets import Array
from lockquack.operators.space import Block, Space, contrasts
from lockquack.sampling.nuts import LogDensity, draw_nuts

#: Share of an equal weight that each has at least where chains begin.
_INSIDE = 0.1
#: Parameters up to which directions are a dense matrix.
_SMALL = 500
#: Standard deviation of angles, whole turns included: what is left of one turn is uniform to 3e-9.
_TURN = 2 * np.pi
#: Draws for each coordinate from which their correlations are known well enough to be of use.
_DRAWS_TO_CORRELATE = 10
#: Steps by which a chain is tuned that begins in coordinates made for its density.
_TUNE_QUICKLY = 50


@dataclass(frozen=True)
class Chart:
    """Coordinates of a space, each of which changes something, around a place inside it."""

    space: Space
    origin: Array  # (P,), free coordinates

    @classmethod
    def around(cls, space: Space, x: Array) -> Chart:
        """Make the chart whose origin is beside parameters x."""
        return cls(space, space.free(space.inside(x, _INSIDE)))

    @cached_property
    def directions(self) -> Array | sparse.csr_array:
        """Directions in which the free coordinates move, (P, D)."""
        parts = [_directions(block) for block in self.space.blocks] or [np.zeros((0, 0))]
        if self.space.size <= _SMALL:
            return block_diag(*parts)
        return sparse.csr_array(sparse.block_diag([sparse.csr_array(each) for each in parts]))

    @cached_property
    def _round(self) -> Array:
        """Which free coordinates come round after a turn, as ones and zeros."""
        each = [np.full(block.size, float(block.comes_round)) for block in self.space.blocks]
        return np.concatenate(each) if each else np.zeros(0)

    def free(self, t: Array) -> Array:
        """Return the free coordinates at t, (D,) → (P,)."""
        return self.origin + self.directions @ t

    def natural(self, t: Array) -> Array:
        """Return the parameters at t."""
        return self.space.natural(self.free(t))

    def back(self, x: Array) -> Array:
        """Return the coordinates of parameters, (P,) → (D,); the directions are orthonormal."""
        return np.asarray(self.directions.T @ (self.space.free(x) - self.origin))

    def log_measure(self, z: Array) -> float:
        """Log of what counts as flat, at free coordinates."""
        turns = self._round * z / _TURN
        return self.space.log_volume(z) - 0.5 * float(turns @ turns)

    def measure_slopes(self, z: Array) -> Array:
        """Slopes of it."""
        return self.space.volume_slopes(z) - self._round * z / _TURN**2


@dataclass(frozen=True)
class Target:
    """A posterior to draw from: its log density, where to begin, and what is drawn."""

    log_density: LogDensity
    start: Array  # (D,)
    #: Parameters at coordinates, (D,) → (P,).
    natural: Callable[[Array], Array]

    def draw(self, chains: int, draws: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Draw parameters, (chain, draw, P); return how often the sampler diverged too."""
        found, divergences = draw_nuts(
            self.log_density, self.start, chains=chains, draws=draws, rng=rng
        )
        return np.apply_along_axis(self.natural, -1, found), divergences

    def measured_by(self, near: Array) -> Target:
        """Return the same in coordinates that draws of nearly the same density, (S, D), spread in.

        There it is about a standard normal density, which hardly needs tuning.
        """
        centre, (count, size) = near.mean(axis=0), near.shape
        known = count >= _DRAWS_TO_CORRELATE * size
        covariance = np.cov(near.T, ddof=1) if known else near.var(axis=0, ddof=1)
        scale = np.linalg.cholesky(np.atleast_2d(covariance)) if known else covariance**0.5

        def back(t: Array) -> Array:
            return np.asarray(centre + (scale @ t if known else scale * t))

        def log_density(t: Array) -> tuple[float, Array]:
            value, slopes = self.log_density(back(t))
            return value, scale.T @ slopes if known else scale * slopes

        return Target(log_density, np.zeros(size), lambda t: self.natural(back(t)))

    def draw_quickly(self, chains: int, draws: int, rng: np.random.Generator) -> Array:
        """Draw parameters where the density is about a standard normal one, (chain * draw, P)."""
        found, _ = draw_nuts(
            self.log_density,
            self.start,
            chains=chains,
            draws=draws,
            rng=rng,
            tune=_TUNE_QUICKLY,
            jitter=1.0,
        )
        return np.apply_along_axis(self.natural, -1, found).reshape(chains * draws, -1)


def generalised_posterior(
    expand_free: LogDensity, learning_rate: float, space: Space, x: Array
) -> Target:
    """Return the posterior of an objective, minus score and log prior, and its gradient.

    All that is not the prior counts η times: what shrinks weights together as well.
    """
    chart = Chart.around(space, x)

    def log_density(t: Array) -> tuple[float, Array]:
        z = chart.free(t)
        at = space.natural(z)
        value, slopes = expand_free(z)
        rest = 1.0 - learning_rate
        by_prior = space.pull(z, space.prior_slopes(at))
        gradient = -learning_rate * slopes + rest * by_prior + chart.measure_slopes(z)
        total = -learning_rate * value + rest * space.log_prior(at) + chart.log_measure(z)
        return total, chart.directions.T @ gradient

    return Target(log_density, np.zeros(chart.directions.shape[1]), chart.natural)


def _directions(block: Block) -> Array:
    if block.shares_out:
        return contrasts(block.size)
    return np.eye(block.size)[:, :-1] if block.comes_round else np.eye(block.size)
