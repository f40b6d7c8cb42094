"""Problems that are smooth but not convex."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property

import numpy as np
from typing_extensions import override

from lockquack.fitting.fitter import Fitter
from lockquack.fitting.objective import Objective
from lockquack.jets import Array
from lockquack.operators.base import Positions
from lockquack.operators.space import Mask, Space
from lockquack.solvers.base import Solution
from lockquack.solvers.differences import hessian
from lockquack.solvers.multistart import MultistartSolution, downhill, multistart, near, newton

#: Fewest and most points to start from.
_FEWEST, _MOST = 8, 24
#: Weight without a prior below which it is tried at exactly zero.
_SMALL = 1e-5
#: Objective, in units of the scale, that setting small weights to zero may cost.
_COST = 1e-8
#: Most optima, besides the best, from which it is tried to fit again.
_RIVALS = 3
#: Weight from which a model without any is tried again.
_A_LITTLE = 1e-2


class SmoothFitter(Fitter):
    """Any operator by any rule, from several starts; how many of them agree is reported.

    All work is done on the same problem with its models in an order that depends on their
    densities only. So the answer does not depend on the order in which they were given, to the
    last bit: where there are many optima, rounding would be enough to end in another one.
    """

    kind = "multi-start"
    refits_cheaply = False

    @override
    def solve(self) -> Solution:
        return self.solutions()[0]

    @override
    def solutions(self) -> Sequence[Solution]:
        twin, chosen = self._ordered
        found = twin._search()
        return [replace(each, x=put_back(each.x, chosen)) for each in found]

    @override
    def solve_near(self, found: Sequence[Solution]) -> Sequence[Solution]:
        """Begin where the search of the other problem ended, without another search."""
        twin, chosen = self._ordered
        space = twin.objective.space
        starts = [space.free(_with_a_little_weight(space, each.x[chosen])) for each in found]
        again = SmoothFitter._search_from(twin, np.stack(starts))
        values = np.array([float(each.objective) for each in found])
        nearest = [int(np.abs(values - float(each.objective)).argmin()) for each in again]
        return [
            replace(each, x=put_back(each.x, chosen), starts=found[k].starts)
            for each, k in zip(again, nearest, strict=True)
        ]

    def refit_many(self, counts: Array, x: Array) -> Array:
        """Fit again for many sets of counts u, (replicate, n) → (replicate, P).

        Each goes downhill from the solution. The Hessians there, weighted by the counts, tell
        how far to go at first, and what the slopes do on the way corrects them.
        """
        twin, chosen = self._ordered
        return put_back(twin._refit_many(counts, x[chosen]), chosen)

    def refit(self, counts: Array, x: Array) -> Array:
        """Fit again, from the solution for equal counts, for one set of counts."""
        twin, chosen = self._ordered
        return put_back(twin._refit(counts, x[chosen]), chosen)

    @override
    def without_each(self, chosen: Positions, x: Array) -> Array:
        """Fit again without each of the chosen observations, one at a time, (m, P).

        Each goes downhill from the solution for all, and from the other optima that were found
        there, as far as they are worse: without an observation another may be the best. What has
        no weight cannot gain any that way, so it is tried from a little weight too. Where that ends
        on a saddle, Newton's method leads away from it.
        """
        counts, objective = self.counts_without(chosen), self.objective
        found = self.refit_many(counts, x)
        values = [objective.value(each, u) for each, u in zip(found, counts, strict=True)]
        for start in self._other_starts(x):
            others = self.refit_many(counts, start)
            for row, (other, u) in enumerate(zip(others, counts, strict=True)):
                value = objective.value(other, u)
                if value < values[row]:
                    found[row], values[row] = other, value
        return np.stack([self.refit(u, each) for each, u in zip(found, counts, strict=True)])

    def _other_starts(self, x: Array) -> list[Array]:
        """Where to begin besides the solution x, when something little changes."""
        worst_first = sorted(self.solutions(), key=lambda each: -float(each.objective))
        best = self.objective.value(x)
        rivals = [each.x for each in worst_first if each.objective > best][-_RIVALS:]
        inside = _with_a_little_weight(self.objective.space, x)
        return rivals if inside is x else [inside, *rivals]

    @cached_property
    def _ordered(self) -> tuple[SmoothFitter, Positions]:
        """The same problem with its models in order, and where its parameters come from."""
        objective, chosen = self.objective.of(order_of_models(self.objective))
        return replace(self, objective=objective), chosen

    def _search(self) -> Sequence[Solution]:
        """Find local optima, the best first."""
        count = int(np.clip(2 * self.objective.space.size, _FEWEST, _MOST))
        return self._search_from(self.objective.space.starts(count))

    def _search_from(self, starts: Array) -> Sequence[Solution]:
        scale = self._scale(starts[0])
        found = multistart(self._finite, starts, scale=scale)
        return [self._at(self._without_small(each, scale), each) for each in (found, *found.rivals)]

    def _at(self, z: Array, found: MultistartSolution) -> Solution:
        """Return what was found as a solution in the parameters, at coordinates z."""
        value, slope = self._finite(z)
        known = {each.name: getattr(found, each.name) for each in fields(Solution)}
        return replace(
            Solution(**known),
            x=self.objective.space.natural(z),
            objective=np.array(value),
            stationarity=float(np.abs(slope).max(initial=0.0)) / float(found.scale),
        )

    def _refit_many(self, counts: Array, x: Array) -> Array:
        space = self.objective.space
        z = space.free(x)
        hessians = self.observation_hessians(z)
        P, _, n = hessians.shape
        summed = (counts @ hessians.reshape(P * P, n).T).reshape(-1, P, P) + self._prior_hessian(z)
        scores, slopes = self.objective.expand(x)
        values = -counts @ scores - space.log_prior(x)
        gradients = -space.pull(z, slopes @ counts.T + space.prior_slopes(x)[:, None]).T
        inside, scale = np.isfinite(z), self._scale(z)
        found = np.repeat(z[None], len(counts), axis=0)
        for b, u in enumerate(counts):
            known = float(values[b]), gradients[b, inside], summed[b][np.ix_(inside, inside)]
            reduced = self._reduced(z, inside, u)
            found[b, inside] = downhill(reduced, z[inside], *known, scale=scale)
        return np.stack([space.natural(each) for each in found])

    def _refit(self, counts: Array, x: Array) -> Array:
        z = self.objective.space.free(x)
        inside, scale = np.isfinite(z), self._scale(z)
        reduced = self._reduced(z, inside, counts)
        curvature = self._known_hessians(z) @ counts + self._prior_hessian(z)
        found = near(reduced, z[inside], curvature[np.ix_(inside, inside)], scale=scale)
        if found is None:
            found = newton(reduced, z[inside], scale=scale).x
        full = z.copy()
        full[inside] = found
        return self.objective.space.natural(full)

    def _known_hessians(self, z: Array) -> Array:
        """Hessians of minus each score at coordinates, kept for other counts there."""
        if z.tobytes() not in self._last_hessians:
            found = self.observation_hessians(z)
            self._last_hessians.clear()
            self._last_hessians[z.tobytes()] = found
        return self._last_hessians[z.tobytes()]

    @cached_property
    def _last_hessians(self) -> dict[bytes, Array]:
        return {}

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
        return self.objective.size_of(self.objective.scores(self.objective.space.natural(z)))

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


def order_of_models(objective: Objective) -> Positions:
    """Order models by their densities: by their scores, then by what else there is to sum up.

    Models that are the same in all of that are in the order of their ranks.
    """
    jets = objective.jets
    sums = [objective.model_scores(), jets.logp, jets.grad.sum(axis=-1), jets.curv.sum(axis=-1)]
    totals = [np.nan_to_num(objective.total(each)) for each in sums]
    ranks = objective.densities.ranks or range(objective.K)
    return np.lexsort([np.array(ranks), *reversed(totals)])


def _with_a_little_weight(space: Space, x: Array) -> Array:
    """Give a little to the weights that are exactly zero."""
    z = space.free(x)
    inside = np.isfinite(z)
    return x if inside.all() else space.natural(np.where(inside, z, np.log(_A_LITTLE)))


def put_back(x: Array, chosen: Positions) -> Array:
    """Put parameters, along the last axis, where they were taken from."""
    whole = np.empty_like(x)
    whole[..., chosen] = x
    return whole
