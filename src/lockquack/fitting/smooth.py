"""Problems that are smooth but not convex."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from typing_extensions import override

from lockquack.fitting.fitter import Fitter
from lockquack.jets import Array
from lockquack.operators.space import Mask
from lockquack.solvers.base import Solution
from lockquack.solvers.differences import hessian
from lockquack.solvers.multistart import MultistartSolution, downhill, multistart, newton

#: Fewest and most points to start from.
_FEWEST, _MOST = 8, 24
#: Weight without a prior below which it is tried at exactly zero.
_SMALL = 1e-5
#: Objective, in units of the scale, that setting small weights to zero may cost.
_COST = 1e-8


class SmoothFitter(Fitter):
    """Any operator by any rule, from several starts; how many of them agree is reported."""

    kind = "multi-start"
    refits_cheaply = False

    @override
    def solve(self) -> Solution:
        count = int(np.clip(2 * self.objective.space.size, _FEWEST, _MOST))
        starts = self.objective.space.starts(count)
        scale = self._scale(starts[0])
        found = multistart(self._finite, starts, scale=scale)
        return self._solution(self._without_small(found, scale), found, scale)

    def _solution(self, z: Array, found: MultistartSolution, scale: float) -> Solution:
        value, slope = self._finite(z)
        return Solution(
            x=self.objective.space.natural(z),
            objective=np.array(value),
            gap=np.array(np.nan),
            scale=np.array(scale),
            converged=np.array(found.converged),
            iterations=np.array(found.iterations),
            status=np.array(found.status),
            starts=(found.agreeing, found.n_starts),
            stationarity=float(np.abs(slope).max(initial=0.0)) / scale,
        )

    def refit_many(self, counts: Array, x: Array) -> Array:
        """Fit again for many countings u of the observations, (replicate, n) → (replicate, P).

        Each goes downhill from the solution. The Hessians there, weighted by the counts, tell
        how far to go at first, and what the slopes do on the way corrects them.
        """
        space = self.objective.space
        z = space.free(x)
        hessians = self.observation_hessians(z)
        P, _, n = hessians.shape
        bend = (counts @ hessians.reshape(P * P, n).T).reshape(-1, P, P) + self._prior_hessian(z)
        inside, scale = np.isfinite(z), self._scale(z)
        found = np.repeat(z[None], len(counts), axis=0)
        for b, u in enumerate(counts):
            reduced = self._reduced(z, inside, u)
            rest = bend[b][np.ix_(inside, inside)]
            found[b, inside] = downhill(reduced, z[inside], rest, scale=scale)
        return np.stack([space.natural(each) for each in found])

    def refit(self, counts: Array, x: Array) -> Array:
        """Fit again, from the solution for equal counts, for one counting of the observations."""
        z = self.objective.space.free(x)
        inside = np.isfinite(z)
        found = newton(self._reduced(z, inside, counts), z[inside], scale=self._scale(z))
        full = z.copy()
        full[inside] = found.x
        return self.objective.space.natural(full)

    def observation_hessians(self, z: Array) -> Array:
        """Hessians of minus each score at free coordinates, (P, P, n)."""
        objective = self.objective

        def slopes(at: Array) -> Array:
            by_parameter = objective.expand(objective.space.natural(at))[1]
            return -objective.space.pull(at, by_parameter)

        return hessian(slopes, z)

    def _prior_hessian(self, z: Array) -> Array:
        space = self.objective.space

        def slopes(at: Array) -> Array:
            return -space.pull(at, space.prior_slopes(space.natural(at)))

        return hessian(slopes, z)

    def _reduced(
        self, z: Array, free: Mask, counts: Array | None = None
    ) -> Callable[[Array], tuple[float, Array]]:
        """Return the objective as a function of some of the coordinates."""

        def reduced(part: Array) -> tuple[float, Array]:
            full = z.copy()
            full[free] = part
            value, slope = self._finite(full, counts)
            return value, slope[free]

        return reduced

    def _finite(self, z: Array, counts: Array | None = None) -> tuple[float, Array]:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value, slope = self.objective.expand_free(z, counts)
        return (value, slope) if np.isfinite(value) else (np.inf, np.zeros_like(z))

    def _scale(self, z: Array) -> float:
        """Size of the terms of the objective."""
        scores = self.objective.scores(self.objective.space.natural(z))
        return float(np.abs(scores - np.median(scores)).sum()) + self.objective.n_obs

    def _without_small(self, found: MultistartSolution, scale: float) -> Array:
        """Set weights that tend to zero to exactly zero, where no prior keeps them away."""
        z = found.x
        small = self._small(z)
        if not small.any():
            return z
        full = np.where(small, -np.inf, z)
        polished = newton(self._reduced(full, ~small), z[~small], scale=scale)
        if polished.objective > found.objective + _COST * scale:
            return z
        full[~small] = polished.x
        return full

    def _small(self, z: Array) -> Mask:
        blocks = self.objective.space.parts(z)
        return np.concatenate(
            [block.vanishing(block.natural(part), _SMALL) for block, part in blocks]
        )
