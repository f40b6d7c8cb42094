r"""Weights that depend on covariates: what is minimised, and how.

.. math:: \min_V -\sum_i \mathrm{score}_i\Bigl(\sum_b \varphi_{ib} v_b\Bigr)
          - \sum_b \log \mathrm{prior}(v_b) + \lambda \sum_k v_k' P v_k

with the weights :math:`v_b` of each function of a :class:`~lockquack.fitting.basis.Basis` on the
simplex. What is convex in constant weights is convex in V; other parameters (phases, orders) are
the same at all observations.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.fitting.basis import Basis
from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.linear_log_score import LinearLogScore
from lockquack.fitting.locking_density import LockingDensity
from lockquack.fitting.locking_hyvarinen import LockingHyvarinen, triangles
from lockquack.fitting.objective import Objective
from lockquack.fitting.smooth import SmoothFitter
from lockquack.jets import Array
from lockquack.operators.pool import Pool
from lockquack.operators.space import Space
from lockquack.solvers.base import Solution
from lockquack.solvers.simplex_newton import simplices_newton
from lockquack.solvers.simplices_qp import Form, simplices_qp


@dataclass(frozen=True)
class VaryingObjective(Objective):
    """An objective whose weights are functions of covariates.

    The parameters are the weights of the functions, one function after the other, and then those
    of the operator that do not vary.
    """

    basis: Basis = field(kw_only=True)
    #: λ, in units of the score.
    shrinkage: float = field(kw_only=True)

    @cached_property
    def constant(self) -> Objective:
        """The same with weights that are the same everywhere."""
        return Objective(self.operator, self.rule, self.densities, self.concentration)

    @property
    def width(self) -> int:
        """Number of weights of a function: one for each model, or expert of the operator."""
        return self.constant.space.blocks[0].size

    @cached_property
    @override
    def space(self) -> Space:
        first, *rest = self.constant.space.blocks
        return Space((first,) * self.basis.size + tuple(rest))

    @override
    def at(self, chosen: NDArray[np.intp]) -> VaryingObjective:
        return replace(self, densities=self.densities.at(chosen), basis=self.basis.at(chosen))

    def functions(self, x: Array) -> Array:
        """Weights of the functions, (B, width)."""
        size = self.basis.size * self.width
        return x[:size].reshape(self.basis.size, self.width)

    def parameters(self, x: Array) -> Array:
        """Return the operator's parameters at each observation, (P, n)."""
        rest = x[self.basis.size * self.width :]
        same = np.broadcast_to(rest[:, None], (rest.size, self.n_obs))
        return np.concatenate([self.basis.spread(self.functions(x)), same])

    @override
    def pool(self, x: Array) -> Pool:
        return Pool(self.operator, self.parameters(x), self.K)

    @override
    def weights(self, x: Array) -> Array:
        return self.operator.weights(self.parameters(x), self.K)

    @override
    def scores(self, x: Array) -> Array:
        return self.constant.scores(self.parameters(x))

    @override
    def value(self, x: Array, counts: Array | None = None) -> float:
        return super().value(x, counts) + self.penalty(x)

    def penalty(self, x: Array) -> float:
        """Return λ times what shrinkage keeps small."""
        return self.shrinkage * self.basis.roughness(self.functions(x))

    @override
    def expand_free(self, z: Array, counts: Array | None = None) -> tuple[float, Array]:
        x = self.space.natural(z)
        scores, slopes = self.constant.expand(self.parameters(x))
        u = self.counts if counts is None else counts
        pulled = self._pulled(x, slopes, u) + self.space.prior_slopes(x)
        v = self.functions(x)
        shrunk = 2 * self.shrinkage * v * (self.basis.penalty @ v)
        pulled[: v.size] -= shrunk.ravel()
        value = -float(scores @ u) - self.space.log_prior(x) + self.penalty(x)
        return value, -self.space.pull(z, pulled)

    def _pulled(self, x: Array, slopes: Array, counts: Array) -> Array:
        """Sum slopes at the observations, (P, n), into those of the parameters.

        Slopes in log weights: function b has the share φ_ib v_bk / w_ik in that of observation i.
        """
        width, v = self.width, self.functions(x)
        w = self.basis.spread(v)
        by_weight = np.where(w > 0, slopes[:width] / np.where(w > 0, w, 1.0), 0.0)
        functions = v * self.basis.gather(by_weight, counts)
        return np.concatenate([functions.ravel(), slopes[width:] @ counts])


@dataclass(frozen=True)
class VaryingFitter(Fitter):
    """A way to weights that depend on covariates."""

    objective: VaryingObjective

    def with_shrinkage(self, shrinkage: float) -> VaryingFitter:
        """Return the same with another λ."""
        return replace(self, objective=replace(self.objective, shrinkage=shrinkage))


class VaryingConvexFitter(VaryingFitter):
    """A problem that is convex in the weights of the functions."""

    kind = "convex, certified"
    refits_cheaply = False
    #: How constant weights are fitted, which knows the slopes and Hessians of each score.
    relative: type[ConvexFitter]

    @cached_property
    def constant(self) -> ConvexFitter:
        """The fitter of constant weights."""
        return self.relative(self.objective.constant)

    @override
    def solve(self) -> Solution:
        return self.solve_for(self.objective.counts)

    @override
    def refit(self, counts: Array, x: Array) -> Array:
        return self.solve_for(counts, x).x

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        return np.stack([self.refit(each, x) for each in counts])

    @abstractmethod
    def expansions(self, weights: Array) -> tuple[Array, Array]:
        """Expand minus each score in the weights, (K, n).

        Slopes, (K, n), and the upper triangles of half the Hessians, (K (K + 1) / 2, n).
        """

    def solve_for(self, counts: Array, start: Array | None = None) -> Solution:
        """Fit to observations that count as often as that."""
        objective, K = self.objective, self.objective.K
        basis, shrinkage = objective.basis, objective.shrinkage

        def expand(v: Array) -> tuple[float, Array, Form]:
            weights = basis.spread(v)
            scores = objective.constant.scores(weights)
            slopes, bends = self.expansions(weights)
            form = basis.form(lambda obs: bends[:, obs] * counts[obs], K, shrinkage)
            value = -float(scores @ counts) + shrinkage * basis.roughness(v)
            gradient = basis.gather(slopes, counts) + 2 * shrinkage * (basis.penalty @ v)
            return value, gradient, form

        alpha = np.broadcast_to(objective.concentration - 1.0, (basis.size, K))
        equal = np.full((basis.size, K), 1.0 / K)
        v = equal if start is None else 0.9 * objective.functions(start) + 0.1 * equal
        scores = objective.constant.scores(basis.spread(equal))
        scale = float(np.abs(scores - np.median(scores)) @ counts + counts.sum())
        found = simplices_newton(expand, v, alpha, scale=scale)
        return replace(found, x=found.x.ravel())


class VaryingLockingHyvarinen(VaryingConvexFitter):
    """Locking by the Hyvärinen score: a quadratic programme in the weights of the functions."""

    kind = "quadratic programme, certified"
    relative = LockingHyvarinen

    @override
    def expansions(self, weights: Array) -> tuple[Array, Array]:
        jets = self.objective.jets
        along = np.einsum("kn,knj->nj", weights, jets.grad)
        slopes = 2 * (np.einsum("knj,nj->kn", jets.grad, along) + jets.curv.sum(axis=2))
        return slopes, triangles(jets.grad)

    @override
    def solve_for(self, counts: Array, start: Array | None = None) -> Solution:
        return self.solve_quadratic(*self.quadratic(counts))

    def quadratic(self, counts: Array) -> tuple[Array, Array]:
        """Sum the products of gradients, by pairs of functions, and the curvatures, (B, K)."""
        jets, basis = self.objective.jets, self.objective.basis
        sums = basis.sums(lambda obs: triangles(jets.grad[:, obs]) * counts[obs])
        return sums, basis.gather(jets.curv.sum(axis=2), counts)

    def solve_quadratic(self, sums: Array, c: Array) -> Solution:
        """Solve the programme of such sums."""
        objective = self.objective
        alpha = np.broadcast_to(objective.concentration - 1.0, c.shape)
        form = objective.basis.assembled(sums, objective.K, objective.shrinkage)
        found = simplices_qp(form, c, alpha)
        return replace(found, x=found.x.ravel())


class VaryingLinearLogScore(VaryingConvexFitter):
    """Stacking: concave in the weights of the functions."""

    kind = "concave, certified"
    relative = LinearLogScore

    @override
    def expansions(self, weights: Array) -> tuple[Array, Array]:
        logp = self.objective.jets.logp
        ratios = np.exp(logp - self.objective.operator.pool_density(logp, weights))
        return -ratios, triangles(ratios[:, :, None]) / 2


class VaryingLockingDensity(VaryingConvexFitter):
    """Locking by a rule whose scores are concave in the log density."""

    relative: type[LockingDensity]

    @override
    def expansions(self, weights: Array) -> tuple[Array, Array]:
        slopes, hessians = self.constant.expansions(weights)  # type: ignore[attr-defined]
        row, column = np.triu_indices(self.objective.K)
        return slopes, hessians[row, column] / 2


class VaryingSmoothFitter(VaryingFitter, SmoothFitter):
    """Any operator by any rule, from the constant solution and a few other starts."""
