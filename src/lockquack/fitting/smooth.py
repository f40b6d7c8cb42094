"""Problems that are smooth but not convex."""

from __future__ import annotations

import numpy as np

from lockquack.fitting.base import Problem
from lockquack.jets import Array
from lockquack.operators.space import Positive, Simplex
from lockquack.solvers.base import Solution
from lockquack.solvers.multistart import MultistartSolution, multistart, newton

#: Fewest and most points to start from.
_FEWEST, _MOST = 8, 24
#: Weight without a prior below which it is tried at exactly zero.
_SMALL = 1e-5
#: Objective, in units of the scale, that setting small weights to zero may cost.
_COST = 1e-8
#: Most steps of a bootstrap replicate, the longest of them in any coordinate, and its shares.
_QUASI_STEPS = 100
_REACH = 2.0
_LENGTHS = 0.5 ** np.arange(20)
#: Share of the largest eigenvalue below which a direction is flat, and a step off a saddle.
_FLAT, _NUDGE = 1e-6, 0.05
#: Decrease of the objective, in units of the scale, for which no step is taken any more.
_SETTLED = 1e-13


class SmoothProblem(Problem):
    """Any operator by any rule, from several starts; how many of them agree is reported."""

    kind = "multi-start"

    def solve(self) -> Solution:
        """Fit the parameters, every observation counting once."""
        count = int(np.clip(2 * self.space.size, _FEWEST, _MOST))
        starts = self.space.starts(count)
        scale = self._scale(starts[0])
        found = multistart(self._finite, starts, scale=scale)
        return self._solution(self._without_small(found, scale), found, scale)

    def _solution(self, z: Array, found: MultistartSolution, scale: float) -> Solution:
        value, slope = self._finite(z)
        return Solution(
            x=self.space.natural(z),
            objective=np.array(value),
            gap=np.array(np.nan),
            scale=np.array(scale),
            converged=np.array(found.converged),
            iterations=np.array(found.iterations),
            status=np.array(found.status),
            starts=(found.agreeing, found.n_starts),
            stationarity=float(np.abs(slope).max(initial=0.0)) / scale,
        )

    def resolve(self, counts: Array, x: Array) -> Array:
        """Fit again for many countings u of the observations, (replicate, n) → (replicate, P).

        Each goes downhill from the solution. The Hessians there, weighted by the counts, tell
        how far to go at first, and what the slopes do on the way corrects them.
        """
        z = self.space.free(x)
        gradients, hessians = self.observation_expansions(z)
        P, n = gradients.shape
        bend = (counts @ hessians.reshape(P * P, n).T).reshape(-1, P, P) + self._prior_bend(z)
        return np.stack([self._downhill(z, u, each) for u, each in zip(counts, bend, strict=True)])

    def refit(self, counts: Array, x: Array) -> Array:
        """Fit again, from the solution for equal counts, for one counting of the observations."""
        z = self.space.free(x)
        inside = np.isfinite(z)

        def reduced(part: Array) -> tuple[float, Array]:
            full = z.copy()
            full[inside] = part
            value, slope = self._finite(full, counts)
            return value, slope[inside]

        found = newton(reduced, z[inside], scale=self._scale(z))
        full = z.copy()
        full[inside] = found.x
        return self.space.natural(full)

    def observation_expansions(self, z: Array) -> tuple[Array, Array]:
        """Gradients, (P, n), and Hessians, (P, P, n), of minus each score at free coordinates."""
        gradients = self._slopes(z)
        P, n = gradients.shape
        hessians = np.zeros((P, P, n))
        for j in np.flatnonzero(np.isfinite(z)):
            step = 1e-5 * np.eye(P)[j]
            ahead, behind = (np.where(np.isfinite(z), z + d, z) for d in (step, -step))
            hessians[j] = (self._slopes(ahead) - self._slopes(behind)) / 2e-5
        return gradients, (hessians + hessians.swapaxes(0, 1)) / 2

    def _slopes(self, z: Array) -> Array:
        return -self.space.pull(z, self.expand(self.space.natural(z))[1])

    def _prior_bend(self, z: Array) -> Array:
        P = z.size
        bend = np.zeros((P, P))

        def slope(at: Array) -> Array:
            return -self.space.pull(at, self.space.prior_slopes(self.space.natural(at)))

        for j in np.flatnonzero(np.isfinite(z)):
            step = np.where(np.arange(P) == j, 1e-5, 0.0)
            bend[j] = (slope(z + step) - slope(z - step)) / 2e-5
        return (bend + bend.T) / 2

    def _downhill(self, z: Array, counts: Array, bend: Array) -> Array:
        """Minimise from z by BFGS, given the Hessian there."""
        held, scale = ~np.isfinite(z), self._scale(z)
        values, vectors = np.linalg.eigh(bend)
        size = np.maximum(np.abs(values), _FLAT * np.abs(values).max(initial=1e-300))
        inverse = (vectors / size) @ vectors.T
        if values.min(initial=0.0) < -_FLAT * size.max(initial=0.0):
            z = z + _NUDGE * vectors[:, 0]  # equal phases, say, may be a saddle now
        value, slope = self._finite(z, counts)
        for _ in range(_QUASI_STEPS):
            step = -inverse @ np.where(held, 0.0, slope)
            step *= min(1.0, _REACH / max(float(np.abs(step).max()), _REACH))
            decline = float(slope @ step)
            if -decline <= _SETTLED * scale:
                break
            for length in _LENGTHS:
                moved = np.where(held, z, z + length * step)
                after, turned = self._finite(moved, counts)
                if after <= value + 1e-4 * length * decline:
                    break
            else:
                break
            inverse = _updated(inverse, length * step, turned - slope)
            z, value, slope = moved, after, turned
        return self.space.natural(z)

    def _finite(self, z: Array, counts: Array | None = None) -> tuple[float, Array]:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value, slope = self.expand_free(z, counts)
        return (value, slope) if np.isfinite(value) else (np.inf, np.zeros_like(z))

    def _scale(self, z: Array) -> float:
        """Size of the terms of the objective."""
        scores = self.scores(self.space.natural(z))
        return float(np.abs(scores - np.median(scores)).sum()) + self.evidence.n_obs

    def _without_small(self, found: MultistartSolution, scale: float) -> Array:
        """Set weights that tend to zero to exactly zero, where no prior keeps them away."""
        z = found.x
        small = self._small(z)
        if not small.any():
            return z
        rest = ~small

        def reduced(part: Array) -> tuple[float, Array]:
            full = np.full(z.size, -np.inf)
            full[rest] = part
            value, slope = self._finite(full)
            return value, slope[rest]

        polished = newton(reduced, z[rest], scale=scale)
        if polished.objective > found.objective + _COST * scale:
            return z
        full = np.full(z.size, -np.inf)
        full[rest] = polished.x
        return full

    def _small(self, z: Array) -> np.ndarray:
        marks = []
        for block, part in self.space.parts(z):
            mark = np.zeros(block.size, dtype=bool)
            if isinstance(block, Simplex | Positive):
                mark = (block.natural(part) < _SMALL) & (block.concentration == 1)
            marks.append(mark)
        return np.concatenate(marks)


def _updated(inverse: Array, step: Array, change: Array) -> Array:
    """Correct an inverse Hessian by what a step did to the slopes (BFGS)."""
    along = float(step @ change)
    if along <= 0:
        return inverse
    push = np.eye(step.size) - np.outer(step, change) / along
    return push @ inverse @ push.T + np.outer(step, step) / along
