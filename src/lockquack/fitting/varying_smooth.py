"""Weights that depend on covariates where the problem is not convex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from lockquack.fitting.fitter import Fitter
from lockquack.fitting.hybrid_hyvarinen import HybridHyvarinen
from lockquack.fitting.smooth import SmoothFitter, put_back
from lockquack.fitting.varying import VaryingFitter
from lockquack.jets import Array
from lockquack.solvers.base import Solution
from lockquack.solvers.differences import hessian
from lockquack.solvers.multistart import near, newton

#: Most optima of constant weights to begin from.
_OPTIMA = 3


class VaryingSmoothFitter(VaryingFitter, SmoothFitter):
    """Any operator by any rule, from the solutions for constant weights and from beside them."""

    kind = "multi-start"
    relative: ClassVar[type[Fitter]] = SmoothFitter

    @override
    def varying_solutions(self) -> Sequence[Solution]:
        twin, chosen = self._ordered
        return [replace(each, x=put_back(each.x, chosen)) for each in twin._search()]

    @override
    def _search(self) -> Sequence[Solution]:
        space = self.objective.space
        begin = [self._inside(each.x) for each in self.constant.solutions()[:_OPTIMA]]
        rng = np.random.default_rng(0)
        starts = [z + shift for z in begin for shift in (0.0, rng.normal(size=space.size))]
        return self._search_from(np.stack(starts))

    def _inside(self, constant: Array) -> Array:
        """Free coordinates of weights that are the same everywhere, none of them zero."""
        width = self.objective.width
        first = 0.95 * constant[:width] + 0.05 * constant[:width].sum() / width
        x = np.concatenate([first, constant[width:]])
        return self.objective.space.free(self.objective.same_everywhere(x))

    @override
    def varying_again(self, counts: Array, x: Array) -> Array:
        twin, chosen = self._ordered
        return put_back(twin._refit(counts, x[chosen]), chosen)

    @override
    def _refit(self, counts: Array, x: Array) -> Array:
        space, v = self.objective.space, self.objective.functions(x)
        # Where the next solution has a weight, this one may have had none.
        lifted = 0.99 * v + 0.01 * v.sum(axis=1, keepdims=True) / self.objective.width
        z = space.free(np.concatenate([lifted.ravel(), x[v.size :]]))
        reduced, scale = self._reduced(z, np.ones(z.size, dtype=np.bool_), counts), self._scale(z)
        found = near(reduced, z, self._known_curvature(z), scale=scale)
        return space.natural(newton(reduced, z, scale=scale).x if found is None else found)

    def _known_curvature(self, z: Array) -> Array:
        """Hessian at coordinates for the own counts, kept for others there."""
        if z.tobytes() not in self._last_hessians:
            found = hessian(lambda at: self._finite(at)[1], z)
            self._last_hessians.clear()
            self._last_hessians[z.tobytes()] = found
        return self._last_hessians[z.tobytes()]


class VaryingHybridHyvarinen(VaryingSmoothFitter):
    """The hybrid by the Hyvärinen score."""

    relative = HybridHyvarinen
