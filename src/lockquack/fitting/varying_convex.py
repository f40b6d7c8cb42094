"""Weights that depend on covariates where the problem is convex: certified, many at once."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.fitting.basis import Products
from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.forms import symmetric, triangles
from lockquack.fitting.linear_log_score import LinearLogScore, density_ratios
from lockquack.fitting.locking_density import LockingDensity, LockingLogScore, LockingPairwise
from lockquack.fitting.quadratic import LinearEnergy, LockingHyvarinen, QuadraticFitter
from lockquack.fitting.varying import VaryingFitter
from lockquack.jets import Array
from lockquack.numeric import cut
from lockquack.operators.space import contrasts
from lockquack.solvers.base import Solution
from lockquack.solvers.simplex_newton import simplices_newton
from lockquack.solvers.simplex_qp import simplex_qp
from lockquack.solvers.simplices_qp import Form, simplices_qp

#: Most Newton steps of problems that are solved together, and the change of a weight at which one
#: has settled: the next change would be about the square of it.
_STEPS, _SETTLED = 12, 1e-5
#: Gap, in units of the scale, of problems of which only the scores or the spread matter.
_ROUGH = 1e-8
#: Numbers of a batch of problems that are held at once.
_NUMBERS_AT_ONCE = 2**22


class VaryingConvexFitter(VaryingFitter):
    """A problem that is convex in the weights of the functions."""

    kind = "convex, certified"
    is_convex = True
    constant: ConvexFitter
    most_deletions = 2_000

    @override
    def varying_solutions(self) -> Sequence[Solution]:
        return [self.solve_for(self.objective.counts)]

    @override
    def varying_again(self, counts: Array, x: Array) -> Array:
        return self.solve_for(counts, x).x

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        if self.objective.is_constant or not self.objective.basis.is_small(self.objective.K):
            return super().refit_many(counts, x)
        starts = np.repeat(x[None], len(counts), axis=0)
        return self.solve_many(counts, starts, np.full(len(counts), self.objective.shrinkage))

    def solve_many(self, counts: Array, starts: Array, shrinkages: Array) -> Array:
        """Fit for many sets of counts, (problem, n), and as many λ, from starts, (problem, P).

        Newton's method without a line search, each step of all problems at once; what does not
        settle is solved by itself.
        """
        objective, found = self.objective, starts.copy()
        moving = np.arange(len(counts))
        for _ in range(_STEPS):
            moved = np.concatenate(
                [
                    self._newton_step(counts[part], found[part], shrinkages[part])
                    for part in self._batches(moving)
                ]
            )
            settled = np.abs(moved - found[moving]).max(axis=1) < _SETTLED
            usable = np.isfinite(moved).all(axis=1)
            found[moving[usable]] = moved[usable]
            moving = moving[~(settled & usable)]
            if not moving.size:
                return found
        for each in moving.tolist():
            alone = self.with_shrinkage(float(shrinkages[each]))
            found[each] = alone.solve_for(counts[each], objective.same_everywhere(self._equal)).x
        return found

    @property
    def _equal(self) -> Array:
        return np.full(self.objective.K, 1.0 / self.objective.K)

    def _batches(self, moving: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Divide problems into batches that are small enough to be held at once."""
        K, B = self.objective.K, self.objective.basis.size
        grouped = self.objective.basis.group is not None
        numbers = B * (K + 1) ** 2 if grouped else (B * (K + 1)) ** 2
        length = max(1, _NUMBERS_AT_ONCE // numbers)
        return [moving[part] for part in cut(slice(0, moving.size), length)]

    def _newton_step(self, counts: Array, x: Array, shrinkages: Array) -> Array:
        """Minimise the quadratic models of some problems at x."""
        basis, K = self.objective.basis, self.objective.K
        v = x.reshape(len(x), basis.size, K)
        expanded = [self._expand(each, u) for each, u in zip(v, counts, strict=True)]
        gradient, sums = (np.stack(each) for each in zip(*expanded, strict=True))
        form = basis.assembled(sums, K, shrinkages)
        pull = np.stack([basis.penalty @ each for each in v]) * shrinkages[:, None, None]
        linear = gradient / 2 + pull - form.times(v)
        return simplices_qp(form, linear, self._alpha, tol=_ROUGH, refine=False).x.reshape(x.shape)

    def _expand(self, v: Array, counts: Array) -> tuple[Array, Array]:
        """Slopes, (B, K), and sums of half the Hessians, of minus the total score alone."""
        basis = self.objective.basis
        slopes, bends = self.expansions(basis.spread(v))
        return basis.gather(slopes, counts), basis.sums(lambda obs: bends(obs) * counts[obs])

    @property
    def _alpha(self) -> Array:
        K = self.objective.K
        return np.broadcast_to(self.objective.concentration - 1.0, (self.objective.basis.size, K))

    @override
    def held_out_scores(
        self, grid: Array, folds: Sequence[NDArray[np.intp]], counts: Array, start: Array
    ) -> Array:
        if not self.objective.basis.is_small(self.objective.K):
            return super().held_out_scores(grid, folds, counts, start)
        within = np.repeat(counts[None], len(folds), axis=0)
        for row, fold in zip(within, folds, strict=True):
            row[fold] = 0.0
        some = grid[np.isfinite(grid)]
        found = self._solve_folds(within, counts, some, start)
        constant = self.with_shrinkage(np.inf)
        scores = np.empty((2, grid.size, self.objective.n_obs))
        for at, fold in enumerate(folds):
            held_out, others = self.objective.at(fold), self.known_without(fold, counts)
            x = [*found[:, at], constant.again(within[at], start)]
            for row, each in enumerate(x):
                scores[:, row, fold] = held_out.held_out(each, others)
        return scores

    def _solve_folds(self, within: Array, counts: Array, grid: Array, start: Array) -> Array:
        """Fit without each fold for each λ, (λ, fold, P), from the solutions for all of them."""
        starts = np.repeat(start[None], grid.size, axis=0)
        whole = self.solve_many(np.repeat(counts[None], grid.size, axis=0), starts, grid)
        found = self.solve_many(
            np.tile(within, (grid.size, 1)),
            np.repeat(whole, len(within), axis=0),
            np.repeat(grid, len(within)),
        )
        return found.reshape(grid.size, len(within), -1)

    @override
    def stiffness(self, counts: Array, constant: Array) -> float:
        K, B = self.objective.K, self.objective.basis.size
        across = contrasts(K)
        half = self.constant.half_hessian(constant)
        return float(np.trace(across.T @ half @ across)) / (max(K - 1, 1) * B)

    @abstractmethod
    def expansions(self, weights: Array) -> tuple[Array, Products]:
        """Expand minus each score in the weights, (K, n).

        Slopes, (K, n), and the upper triangles of half the Hessians.
        """

    def jumps(self, weights: Array) -> bool:
        """Whether the score is not continuous at weights, (K, n), of which some are zero."""
        return False

    def solve_for(self, counts: Array, start: Array | None = None) -> Solution:
        """Fit to observations that count as often as that."""
        objective, K = self.objective, self.objective.K
        basis, shrinkage = objective.basis, objective.shrinkage

        def expand(v: Array) -> tuple[float, Array, Form]:
            weights = basis.spread(v)
            scores = objective.constant.scores(weights)
            slopes, bends = self.expansions(weights)
            form = basis.form(lambda obs: bends(obs) * counts[obs], K, shrinkage)
            value = -float(scores @ counts) + shrinkage * basis.roughness(v)
            value = np.nan if self.jumps(weights) else value
            gradient = basis.gather(slopes, counts) + 2 * shrinkage * (basis.penalty @ v)
            return value, gradient, form

        equal = np.broadcast_to(self._equal, (basis.size, K))
        v = equal if start is None else 0.9 * objective.functions(start) + 0.1 * equal
        scores = objective.constant.scores(basis.spread(equal))
        scale = float(np.abs(scores - np.median(scores)) @ counts + counts.sum())
        found = simplices_newton(expand, v, self._alpha, scale=scale)
        return replace(found, x=found.x.ravel())


class VaryingQuadraticFitter(VaryingConvexFitter):
    """A quadratic programme in the weights of the functions."""

    kind = "quadratic programme, certified"
    constant: QuadraticFitter

    @override
    def expansions(self, weights: Array) -> tuple[Array, Products]:
        forms = self.constant.forms
        return forms.slopes(weights), forms.triangles

    #: All that is done more than once is done with sums.
    most_for_choice: ClassVar[int] = sys.maxsize
    most_deletions = 5_000

    @override
    def solve_for(self, counts: Array, start: Array | None = None) -> Solution:
        return self._solve_quadratic(*self._quadratic(counts))

    @override
    def solve_many(self, counts: Array, starts: Array, shrinkages: Array) -> Array:
        found = [
            self._solve_batch([self._quadratic(each) for each in counts[part]], shrinkages[part])
            for part in self._batches(np.arange(len(counts)))
        ]
        return np.concatenate(found)

    @override
    def held_out_scores(
        self, grid: Array, folds: Sequence[NDArray[np.intp]], counts: Array, start: Array
    ) -> Array:
        scores = np.empty((2, grid.size, self.objective.n_obs))
        parts = [self._quadratic(counts, fold) for fold in folds]
        whole = [sum(each, np.zeros_like(each[0])) for each in zip(*parts, strict=True)]
        for fold, (sums, c) in zip(folds, parts, strict=True):
            held_out, others = self.objective.at(fold), self.known_without(fold, counts)
            found = self._solve_path(whole[0] - sums, whole[1] - c, grid)
            for row, x in enumerate(found):
                scores[:, row, fold] = held_out.held_out(x, others)
        return scores

    def _solve_path(self, sums: Array, c: Array, grid: Array) -> Array:
        """Solve the programme of such sums for every λ of a grid, (λ, P); the last is infinite."""
        some = grid[:-1]
        if self.objective.basis.is_small(self.objective.K):
            found = np.concatenate(
                [
                    self._solve_batch([(sums, c)] * part.size, some[part])
                    for part in self._batches(np.arange(some.size))
                ]
            )
        else:
            each = [self.with_shrinkage(one)._solve_quadratic(sums, c).x for one in some.tolist()]
            found = np.stack(each)
        return np.concatenate([found, self._solve_constant(sums, c).x[None]])

    def _solve_batch(self, sums: Sequence[tuple[Array, Array]], shrinkages: Array) -> Array:
        """Solve programmes of such sums, (problem, P)."""
        pairs, c = (np.stack(each) for each in zip(*sums, strict=True))
        form = self.objective.basis.assembled(pairs, self.objective.K, shrinkages)
        found = simplices_qp(form, c, self._alpha, tol=_ROUGH, refine=False)
        return found.x.reshape(len(c), -1)

    def _quadratic(
        self, counts: Array, chosen: NDArray[np.intp] | None = None
    ) -> tuple[Array, Array]:
        """Sum the quadratic forms, by pairs of functions, and their linear parts, (B, K)."""
        forms, basis = self.constant.forms, self.objective.basis
        sums = basis.sums(lambda obs: forms.triangles(obs) * counts[obs], chosen)
        linear = forms.linear
        if chosen is not None:
            linear, counts, basis = linear[:, chosen], counts[chosen], basis.at(chosen)
        return sums, basis.gather(linear, counts)

    def _solve_quadratic(self, sums: Array, c: Array) -> Solution:
        """Solve the programme of such sums."""
        objective = self.objective
        form = objective.basis.assembled(sums, objective.K, objective.shrinkage)
        found = simplices_qp(form, c, self._alpha)
        return replace(found, x=found.x.ravel())

    def _solve_constant(self, sums: Array, c: Array) -> Solution:
        """Solve the programme of constant weights, whose sums are sums of these."""
        Q = symmetric(self.objective.basis.over_pairs(sums), self.objective.K)
        found = simplex_qp(Q, c.sum(axis=0), self.objective.concentration - 1.0)
        return replace(found, x=self.objective.same_everywhere(found.x))


class VaryingLockingHyvarinen(VaryingQuadraticFitter):
    """Locking by the Hyvärinen score."""

    relative = LockingHyvarinen


class VaryingLinearEnergy(VaryingQuadraticFitter):
    """Mixtures by CRPS or energy score."""

    relative = LinearEnergy


class VaryingLinearLogScore(VaryingConvexFitter):
    """Stacking: concave in the weights of the functions."""

    kind = "concave, certified"
    relative = LinearLogScore

    @override
    def expansions(self, weights: Array) -> tuple[Array, Products]:
        ratios = density_ratios(self.objective, weights)
        return -ratios, lambda obs: triangles(ratios[:, obs, None]) / 2


class VaryingLockingDensity(VaryingConvexFitter):
    """Locking by a rule whose scores are concave in the log density."""

    constant: LockingDensity

    @override
    def jumps(self, weights: Array) -> bool:
        return self.constant.jumps(weights)

    @override
    def expansions(self, weights: Array) -> tuple[Array, Products]:
        slopes, hessians = self.constant.expansions(weights)
        row, column = np.triu_indices(self.objective.K)
        return slopes, lambda obs: hessians[row, column][:, obs] / 2


class VaryingLockingLogScore(VaryingLockingDensity):
    """Locking by the log score."""

    relative = LockingLogScore


class VaryingLockingPairwise(VaryingLockingDensity):
    """Locking by the pairwise conditional score."""

    relative = LockingPairwise
