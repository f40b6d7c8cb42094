r"""Drawing from a pool of predictive densities, at one observation.

Three ways need no more than densities and draws of the members.

- *rejection*: exact; a draw from a mixture above the pool (:meth:`.Operator.mixture_above`) is
  accepted with probability :math:`q / \sum_k c_k \pi_k`, on average :math:`Z / \sum_k c_k`.
- *importance*: draws from :math:`.8\,t_5 + .2 \sum_k w_k \pi_k`, the first part around the moments
  of the pool, are resampled by Pareto-smoothed weights. The second part is above a multiple of
  the pool, so that the weights are bounded.
- *mixture-is*: the same with the equal mixture of the members, the paper's proposal. Where members
  are far apart, next to nothing of it lies where the pool is.

The fourth, *smc*, takes particles from the first proposal to the pool through densities between
them, and moves them along the gradient of the pooled jet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.draws.psis import psis
from lockquack.errors import UnsupportedError
from lockquack.jets import Array, log_sum_exp
from lockquack.registry import require_known
from lockquack.sampling.proposals import (
    TMixture,
    moment_pool,
    robust_moments,
    safe_factor,
    t_mixture,
)

#: Draws of each member from which its moments are taken.
_PILOT = 1000
#: Proposals for each draw that is wanted by importance resampling, and their least number.
_PROPOSALS, _FEWEST = 4, 1000
#: Share of the members' own mixture in a proposal.
_DEFENSIVE = 0.2
#: Acceptance from which rejection is chosen, and below which it is given up.
_WORTHWHILE, _HOPELESS = 0.1, 1e-4
#: Effective share of the draws below which another way is looked for.
_POOR = 0.25
#: Steps along the gradient at each temperature, and at the last.
_MOVES, _LAST_MOVES = 4, 12
_MOST_TEMPERATURES = 200


class Target(ABC):
    """A pool at one observation: what the samplers ask of it."""

    d: int
    #: Share of each member in the pool.
    weights: Array  # (K,)
    #: Coefficients of a mixture above the pool, or None.
    envelope: Array | None  # (K,)
    #: Whether the pool is zero wherever one of its members is.
    narrow: bool
    #: Whether the pool is the mixture of its members by their weights.
    is_mixture: bool

    @abstractmethod
    def log_components(self, y: Array) -> Array:
        """Log densities of the members at points (n, d) → (K, n)."""

    @abstractmethod
    def pool(self, log_components: Array) -> Array:
        """Log density of the pool, not normalised, from those of its members."""

    @abstractmethod
    def with_gradient(self, y: Array) -> tuple[Array, Array]:
        """Log density of the pool at points (n, d), and its gradient."""

    @abstractmethod
    def draw_component(self, k: int, n: int, rng: np.random.Generator) -> Array:
        """Draw from a member, (n, d)."""

    def draw_mixture(self, shares: Array, n: int, rng: np.random.Generator) -> Array:
        """Draw from a mixture of the members, (n, d), in random order."""
        counts = rng.multinomial(n, shares / shares.sum())
        parts = [self.draw_component(k, int(m), rng) for k, m in enumerate(counts) if m]
        return rng.permutation(np.concatenate(parts))


@dataclass(frozen=True)
class Drawn:
    """Draws from a pool, how they were made, and what that tells; NaN where it tells nothing."""

    y: Array  # (n, d)
    method: str
    #: Share of the proposals that were accepted.
    acceptance: float = np.nan
    #: Independent draws that would tell as much.
    ess: float = np.nan
    #: Tail index of the importance weights.
    pareto_k: float = np.nan
    #: Log of the pool's integral, and the standard error of that.
    log_norm: float = np.nan
    log_norm_error: float = np.nan

    @property
    def reliable(self) -> bool:
        """Whether the diagnostics allow to trust the draws."""
        few = self.ess < min(100.0, 0.05 * len(self.y))
        heavy = self.pareto_k > pareto_k_threshold(max(len(self.y), 1000))
        return not (few or heavy)


def sample(target: Target, n: int, method: str, rng: np.random.Generator) -> Drawn:
    """Draw n times from a pool by a method of that name, or by the first good one."""
    if method == "auto":
        return automatic(target, n, rng)
    require_known("sampling method", method, SAMPLERS)
    return SAMPLERS[method](target, n, rng)


def automatic(target: Target, n: int, rng: np.random.Generator) -> Drawn:
    """Draw by rejection if enough is accepted, else by importance, else by tempering."""
    if target.is_mixture:
        return rejection(target, n, rng)
    if target.envelope is not None:
        pilot = target.draw_mixture(target.envelope, _PILOT // 2, rng)
        if np.exp(_log_acceptance(target, pilot)).mean() > _WORTHWHILE:
            return rejection(target, n, rng)
    drawn = importance(target, n, rng)
    if drawn.reliable and drawn.ess > _POOR * n:
        return drawn
    return smc(target, n, rng)


def rejection(target: Target, n: int, rng: np.random.Generator) -> Drawn:
    """Accept draws from the mixture above the pool; all of them where the pool is a mixture."""
    if target.is_mixture:
        y = target.draw_mixture(target.weights, n, rng)
        return Drawn(y, "rejection", 1.0, float(n), np.nan, 0.0, 0.0)
    if target.envelope is None:
        raise UnsupportedError(
            "There is no mixture of the models above this pool, so draws cannot be accepted or "
            "rejected. Use method='auto'."
        )
    accepted: list[Array] = []
    tried = got = 0
    while got < n:
        rate = max(got, 1) / max(tried, 1)
        batch = int(np.clip((n - got) / rate * 1.1, 200, 20 * max(n, 1000)))
        y = target.draw_mixture(target.envelope, batch, rng)
        keep = np.log(rng.random(batch)) < _log_acceptance(target, y)
        accepted.append(y[keep])
        tried, got = tried + batch, got + int(keep.sum())
        if got < _HOPELESS * tried and tried >= 2 / _HOPELESS:
            raise UnsupportedError(
                f"Of {tried} draws from the mixture of the models, {got} were accepted: they "
                "disagree too much for method='rejection'. Use method='auto'."
            )
    rate = got / tried
    error = np.sqrt((1 - rate) / got)
    log_norm = float(np.log(rate * target.envelope.sum()))
    return Drawn(np.concatenate(accepted)[:n], "rejection", rate, float(n), np.nan, log_norm, error)


def importance(target: Target, n: int, rng: np.random.Generator) -> Drawn:
    """Resample draws from a defensive proposal around the moments of the pool."""
    return _importance(target, moment_proposal(target, rng), n, rng)


def mixture_importance(target: Target, n: int, rng: np.random.Generator) -> Drawn:
    """Resample draws from the equal mixture of the models."""
    shares = np.full(target.weights.size, 1.0 / target.weights.size)
    y = target.draw_mixture(shares, _n_proposals(n), rng)
    logs = target.log_components(y)
    log_proposal = log_sum_exp(logs) - np.log(shares.size)
    return _resampled(y, target.pool(logs) - log_proposal, n, "mixture-is", rng)


def smc(target: Target, n: int, rng: np.random.Generator) -> Drawn:
    r"""Temper particles from the moments' proposal g to the pool.

    Densities :math:`g^{1-\beta} q^\beta` lead from one to the other, each so close to the last that
    half of the particles count; after each step particles are resampled and moved by the Metropolis
    adjusted Langevin algorithm. The normaliser is then found by importance sampling with a proposal
    around the particles.
    """
    proposal = moment_proposal(target, rng)
    n_particles = max(n, 500)
    cloud = _Cloud.start(target, proposal, n_particles, rng)
    for _ in range(_MOST_TEMPERATURES):
        cloud = cloud.tempered(rng)
        for _ in range(_MOVES if cloud.beta < 1 else _LAST_MOVES):
            cloud = cloud.moved(target, proposal, rng)
        if cloud.beta == 1:
            break
    mean, covariance = robust_moments(cloud.y)
    check = _importance(target, t_mixture([(1.0, mean, covariance)]), n, rng)
    lineages = np.bincount(cloud.ancestor) / n_particles
    return Drawn(
        rng.permutation(cloud.y)[:n],
        "smc",
        cloud.accepted,
        min(float(n), 1.0 / np.square(lineages).sum()),
        check.pareto_k,
        check.log_norm,
        check.log_norm_error,
    )


SAMPLERS: dict[str, Callable[[Target, int, np.random.Generator], Drawn]] = {
    "rejection": rejection,
    "importance": importance,
    "mixture-is": mixture_importance,
    "smc": smc,
}


def normalise_by_sampling(target: Target, n: int, rng: np.random.Generator) -> Drawn:
    """Find the normaliser by importance sampling, by a better proposal where the first is bad."""
    drawn = importance(target, n, rng)
    return drawn if drawn.reliable and drawn.ess > _POOR * n else smc(target, n, rng)


def moment_proposal(target: Target, rng: np.random.Generator) -> TMixture:
    """Student t distributions around the moments of the pool and, if it is wide, of its members."""
    used = np.flatnonzero(target.weights > 0)
    moments = [robust_moments(target.draw_component(k, _PILOT, rng)) for k in used.tolist()]
    means = np.stack([mean for mean, _ in moments])
    covariances = np.stack([factor @ factor.T for factor in (safe_factor(c) for _, c in moments)])
    shares = target.weights[used] / target.weights[used].sum()
    middle = moment_pool(means, covariances, target.weights[used])
    if target.narrow:
        return t_mixture([(1.0, *middle)])
    each = [(0.7 * share, m, c) for share, m, c in zip(shares, means, covariances, strict=True)]
    return t_mixture([(0.3, *middle), *each])


def _importance(target: Target, proposal: TMixture, n: int, rng: np.random.Generator) -> Drawn:
    total = _n_proposals(n)
    others = rng.binomial(total, _DEFENSIVE)
    shares = target.weights / target.weights.sum()
    y = np.concatenate(
        [
            proposal.draw(total - others, rng),
            target.draw_mixture(shares, max(others, 1), rng)[:others],
        ]
    )
    logs = target.log_components(y)
    with np.errstate(divide="ignore"):
        mixture = log_sum_exp(logs + np.log(shares)[:, None])
    log_proposal = np.logaddexp(
        np.log1p(-_DEFENSIVE) + proposal.logpdf(y), np.log(_DEFENSIVE) + mixture
    )
    return _resampled(y, target.pool(logs) - log_proposal, n, "importance", rng)


def _resampled(y: Array, log_ratio: Array, n: int, method: str, rng: np.random.Generator) -> Drawn:
    """Resample proposals by Pareto-smoothed ratios, and see what these tell."""
    log_ratio = np.where(np.isnan(log_ratio), -np.inf, log_ratio)
    total = log_ratio.size
    log_norm = float(log_sum_exp(log_ratio) - np.log(total))
    relative = np.exp(log_ratio - log_norm)
    error = float(relative.std() / np.sqrt(total))
    finite = np.isfinite(log_ratio)
    weights, pareto_k = np.zeros(total), np.inf
    if finite.sum() >= 25:
        smoothed, tail = psis(-log_ratio[finite][None, :, None])
        weights[finite], pareto_k = np.exp(smoothed[0, :, 0]), float(tail[0])
    elif finite.any():
        weights[finite] = relative[finite] / relative[finite].sum()
    else:
        raise UnsupportedError(
            "No proposal has a positive density under the pool: the models have hardly an "
            "outcome in common."
        )
    # The variance of the weighted proposals, and what resampling them adds to it.
    ess = 1.0 / (np.square(weights).sum() + 1.0 / n)
    chosen = rng.permutation(systematic(weights, n, rng))
    return Drawn(y[chosen], method, np.nan, float(ess), pareto_k, log_norm, error)


def systematic(weights: Array, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Choose n positions, each as often as its weight says, give or take one."""
    total = np.cumsum(weights)
    points = (np.arange(n) + rng.random()) / n * total[-1]
    return np.minimum(np.searchsorted(total, points, side="right"), weights.size - 1)


def _log_acceptance(target: Target, y: Array) -> Array:
    assert target.envelope is not None
    logs = target.log_components(y)
    with np.errstate(divide="ignore"):
        above = log_sum_exp(logs + np.log(target.envelope)[:, None])
    with np.errstate(invalid="ignore"):
        return np.minimum(np.nan_to_num(target.pool(logs) - above, nan=-np.inf), 0.0)


def _n_proposals(n: int) -> int:
    return max(_PROPOSALS * n, _FEWEST)


@dataclass(frozen=True)
class _Cloud:
    """Particles between a proposal and a pool, at β."""

    y: Array  # (particle, d)
    log_g: Array  # (particle,)
    grad_g: Array  # (particle, d)
    log_q: Array
    grad_q: Array
    ancestor: NDArray[np.intp]  # (particle,): which of the first particles it descends from
    factor: Array  # (d, d), of the particles' covariance
    beta: float
    step: float
    accepted: float

    @classmethod
    def start(cls, target: Target, proposal: TMixture, n: int, rng: np.random.Generator) -> _Cloud:
        y = proposal.draw(n, rng)
        d = y.shape[1]
        g, q = proposal.with_gradient(y), _quiet_gradient(target, y)
        return cls(
            y, *g, *q, np.arange(n), np.eye(d), beta=0.0, step=d ** (-1 / 3), accepted=np.nan
        )

    def tempered(self, rng: np.random.Generator) -> _Cloud:
        """Go on to the β at which half of the particles count, and resample them."""
        gain = np.where(np.isfinite(self.log_q), self.log_q - self.log_g, -np.inf)

        def effective(step: float) -> float:
            weights = np.exp(step * (gain - gain.max()))
            return float(weights.sum() ** 2 / np.square(weights).sum())

        low, high = 0.0, 1.0 - self.beta
        if effective(high) < 0.5 * gain.size:
            for _ in range(50):
                middle = (low + high) / 2
                low, high = (middle, high) if effective(middle) > 0.5 * gain.size else (low, middle)
            high = max(low, 1e-6)
        weights = np.exp(high * (gain - gain.max()))
        chosen = systematic(weights, gain.size, rng)
        beta = 1.0 if self.beta + high >= 1.0 - 1e-12 else self.beta + high
        y = self.y[chosen]
        factor = safe_factor(np.atleast_2d(np.cov(y, rowvar=False)))
        return replace(
            self,
            y=y,
            log_g=self.log_g[chosen],
            grad_g=self.grad_g[chosen],
            log_q=self.log_q[chosen],
            grad_q=self.grad_q[chosen],
            ancestor=self.ancestor[chosen],
            factor=factor,
            beta=beta,
        )

    def moved(self, target: Target, proposal: TMixture, rng: np.random.Generator) -> _Cloud:
        """Move every particle once along the gradient, and accept or reject that."""
        size = self.step**2 / 2
        drift = size * self._gradient(self.grad_g, self.grad_q)
        noise = rng.normal(size=self.y.shape)
        y = self.y + (drift + self.step * noise) @ self.factor.T
        (log_g, grad_g), (log_q, grad_q) = proposal.with_gradient(y), _quiet_gradient(target, y)
        new = replace(self, y=y, log_g=log_g, grad_g=grad_g, log_q=log_q, grad_q=grad_q)
        back = -(drift + self.step * noise) - size * self._gradient(new.grad_g, new.grad_q)
        with np.errstate(invalid="ignore"):
            log_ratio = new._log_density() - self._log_density()
            log_ratio += (np.square(noise) - np.square(back / self.step)).sum(axis=1) / 2
        log_ratio = np.nan_to_num(log_ratio, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        accept = np.log(rng.random(log_ratio.size)) < log_ratio
        rate = float(np.exp(np.minimum(log_ratio, 0.0)).mean())
        cell = accept[:, None]
        return replace(
            self,
            y=np.where(cell, y, self.y),
            log_g=np.where(accept, log_g, self.log_g),
            grad_g=np.where(cell, grad_g, self.grad_g),
            log_q=np.where(accept, log_q, self.log_q),
            grad_q=np.where(cell, grad_q, self.grad_q),
            # Langevin moves mix best when a little more than half of them are accepted.
            step=float(np.clip(self.step * np.exp(rate - 0.57), 1e-4, 2.0)),
            accepted=rate,
        )

    def _log_density(self) -> Array:
        return (1 - self.beta) * self.log_g + self.beta * self.log_q

    def _gradient(self, grad_g: Array, grad_q: Array) -> Array:
        """Gradient in the coordinates in which the particles are round."""
        grad = (1 - self.beta) * grad_g + self.beta * grad_q
        return np.asarray(grad @ self.factor)


def _quiet_gradient(target: Target, y: Array) -> tuple[Array, Array]:
    """Log density and gradient, zero where the density is."""
    with np.errstate(all="ignore"):
        log_q, grad = target.with_gradient(y)
    known = np.isfinite(log_q) & np.isfinite(grad).all(axis=1)
    return np.where(known, log_q, -np.inf), np.where(known[:, None], grad, 0.0)
