"""Log score, CRPS and PIT of models and their pools at held-out outcomes, in plain numpy.

Predictive densities are averages over draws, at nodes that all models and pools share:
Gauss-Legendre nodes in panels between quantiles of the models' predictions, one of whose ends is
the outcome; for counts, all numbers from zero on, or, where predictions reach far, panels beyond
the first thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from regressions import Draws, Likelihood
from scipy.special import logsumexp

Array = NDArray[np.float64]
#: Pools log densities (K, nodes, n) into one that is not normalised.
Pooling = Callable[[Array], Array]
LEVELS = np.array([0.0002, 0.002, 0.01, *np.linspace(0.03, 0.97, 24), 0.99, 0.998, 0.9998])
#: Panels beyond the outermost quantiles, in units of the distance of these.
BEYOND = np.array([0.3, 1.0, 3.0, 10.0, 40.0])
PER_PANEL = 5
#: Counts up to which all are summed, and up to which they are beside panels.
MOST, NEAR = 20_000, 1_000
#: Observations at a time.
CHUNK = 16


@dataclass(frozen=True)
class Member:
    """A fitted model at held-out covariates."""

    likelihood: Likelihood
    draws: Draws
    X: Array

    def at(self, obs: slice) -> Member:
        """Return the same for some of the observations."""
        return Member(self.likelihood, self.draws, self.X[obs])

    def predictor(self) -> tuple[Array, Array]:
        """Linear predictor (n, S) and dispersion (S,)."""
        eta = self.draws.predictor(self.X)
        return eta.reshape(-1, len(self.X)).T, self.draws.dispersion.reshape(-1)

    def log_density(self, y: Array) -> Array:
        """Log predictive density at nodes, (nodes, n) or (nodes, 1)."""
        eta, dispersion = self.predictor()
        logp = self.likelihood.logp(y[..., None], eta, dispersion)
        top = logp.max(axis=-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            return np.log(np.exp(logp - top).mean(axis=-1)) + top[..., 0]

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw outcomes, (n, S)."""
        return self.likelihood.draw(*self.predictor(), rng)


def score(
    members: Sequence[Member], poolings: dict[str, Pooling], y: Array, *, counts: bool, seed: int
) -> dict[str, Array]:
    """Return for each pooling the log score, CRPS and coverage of 90 % at each outcome, (3, n)."""
    rng = np.random.default_rng(seed)
    parts: dict[str, list[Array]] = {name: [] for name in poolings}
    for first in range(0, len(y), CHUNK):
        obs = slice(first, first + CHUNK)
        some = [member.at(obs) for member in members]
        sample = np.concatenate([member.sample(rng) for member in some], axis=1)
        grid = (_numbers if counts else _panels)(sample, y[obs])
        logp = np.stack([np.broadcast_to(m.log_density(grid.y), grid.shape) for m in some])
        at = np.stack([member.log_density(y[None, obs]) for member in some])
        for name, pool in poolings.items():
            parts[name].append(grid.score(pool(logp), pool(at)[0], y[obs]))
    return {name: np.concatenate(each, axis=1) for name, each in parts.items()}


@dataclass(frozen=True)
class Numbers:
    """All counts up to one that a prediction exceeds once in ten thousand times at most."""

    y: Array  # (G, 1)
    shape: tuple[int, int]

    def score(self, logq: Array, at: Array, y: Array) -> Array:
        """Score an unnormalised pool; the PIT of a count is spread evenly over its step."""
        log_norm = logsumexp(logq, axis=0)
        p = np.exp(logq - log_norm)
        cdf = np.cumsum(p, axis=0)
        crps = np.square(cdf - (self.y >= y)).sum(axis=0)
        own = np.exp(at - log_norm)
        upper = np.take_along_axis(cdf, y[None].astype(int), axis=0)[0]
        return np.stack([at - log_norm, crps, _share_inside(upper, own)])


@dataclass(frozen=True)
class Panels:
    """Gauss-Legendre nodes in panels, one of whose ends is the outcome."""

    ends: Array  # (panels + 1, n)

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes by observations."""
        return ((len(self.ends) - 1) * PER_PANEL, self.ends.shape[1])

    @property
    def y(self) -> Array:
        """The nodes, (nodes, n)."""
        left, width = self.ends[:-1, None], np.diff(self.ends, axis=0)[:, None]
        return (left + width * _NODES[:, None]).reshape(self.shape)

    def integrals(self, q: Array) -> tuple[Array, Array]:
        """Integrals over each panel, (panels, n), and from its start up to each of its nodes."""
        width = np.diff(self.ends, axis=0)
        q = q.reshape(len(width), PER_PANEL, -1)
        whole = width * np.einsum("j,pjn->pn", _WEIGHTS, q)
        return whole, width[:, None] * np.einsum("ij,pjn->pin", _UP_TO, q)

    def score(self, logq: Array, at: Array, y: Array) -> Array:
        """Score an unnormalised pool."""
        top = logq.max(axis=0)
        mass, within = self.integrals(np.exp(logq - top))
        norm = mass.sum(axis=0)
        before = np.concatenate([np.zeros((1, mass.shape[1])), mass.cumsum(axis=0)]) / norm
        cdf = before[:-1, None] + within / norm
        above = self.ends[:-1] >= y
        crps = self.integrals(np.square(cdf - above[:, None]))[0].sum(axis=0)
        pit = np.where(above, 0.0, mass / norm).sum(axis=0)
        return np.stack([at - top - np.log(norm), crps, (pit >= 0.05) & (pit <= 0.95)])


@dataclass(frozen=True)
class FarNumbers:
    """Counts up to some number, and panels beyond, where sums over counts are integrals.

    By Euler and Maclaurin, the sum of a smooth function over whole numbers is its integral from
    half a number before the first on, up to a 24th of its slope there.
    """

    panels: Panels  # from NEAR + 1/2 on

    @property
    def shape(self) -> tuple[int, int]:
        """Counts and nodes, by observations."""
        nodes, n = self.panels.shape
        return NEAR + 1 + nodes, n

    @property
    def y(self) -> Array:
        """The counts, then the nodes, (counts + nodes, n)."""
        nodes = self.panels.y
        near = np.arange(NEAR + 1.0)[:, None] * np.ones(nodes.shape[1])
        return np.concatenate([near, nodes])

    def score(self, logq: Array, at: Array, y: Array) -> Array:
        """Score an unnormalised pool."""
        top = logq.max(axis=0)
        near, far = np.split(np.exp(logq - top), [NEAR + 1])
        mass, within = self.panels.integrals(far)
        norm = near.sum(axis=0) + mass.sum(axis=0)
        cdf, beyond = np.cumsum(near, axis=0) / norm, within / norm
        below = np.concatenate([cdf[-1:], cdf[-1] + mass.cumsum(axis=0)[:-1] / norm])
        above = self.panels.ends[:-1] >= y
        errors = np.square(cdf - (np.arange(NEAR + 1.0)[:, None] >= y))
        # The integrand belongs half a number further to the right than the panels begin.
        crps = errors.sum(axis=0) - 0.5 * errors[-1]
        crps += self.panels.integrals(np.square(below[:, None] + beyond - above[:, None]))[0].sum(0)
        own = np.exp(at - top) / norm
        at_count = np.minimum(y, NEAR).astype(int)[None]
        upper = np.take_along_axis(cdf, at_count, axis=0)[0]
        middle = upper + np.where(above, 0.0, mass / norm).sum(axis=0)
        upper = np.where(y > NEAR, middle + 0.5 * own, upper)
        return np.stack([at - top - np.log(norm), crps, _share_inside(upper, own)])


def _share_inside(upper: Array, own: Array) -> Array:
    """Share of the step that a distribution function makes at a count between 5 and 95 %."""
    inside = np.minimum(upper, 0.95) - np.maximum(upper - own, 0.05)
    # A step that is too small to be seen is inside or not.
    seen = own > 1e-12
    share = np.clip(inside, 0.0, None) / np.where(seen, own, 1.0)
    return np.where(seen, share, (upper >= 0.05) & (upper <= 0.95))


def _numbers(sample: Array, y: Array) -> Numbers | FarNumbers:
    most = int(max(np.quantile(sample, 0.9999), y.max())) + 20
    if most <= MOST:
        return Numbers(np.arange(most + 1.0)[:, None], (most + 1, len(y)))
    return FarNumbers(Panels(np.maximum(_panels(sample, y).ends, NEAR + 0.5)))


def _panels(sample: Array, y: Array) -> Panels:
    inner = np.quantile(sample, LEVELS, axis=1)
    reach = (inner[-1] - inner[0]) * BEYOND[:, None]
    ends = [inner[0] - reach, inner, inner[-1] + reach, y[None], np.zeros((1, len(y)))]
    return Panels(np.sort(np.concatenate(ends), axis=0))


def _integrals_up_to(nodes: Array) -> Array:
    """Weights of values at the nodes in the integral from 0 up to each of them."""
    powers = np.arange(nodes.size)
    values = nodes[:, None] ** powers
    integrals = nodes[:, None] ** (powers + 1) / (powers + 1)
    return integrals @ np.linalg.inv(values)


_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(PER_PANEL)[i] for i in (0, 1))
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS
_UP_TO = _integrals_up_to(_NODES)
