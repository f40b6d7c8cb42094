r"""Weights that depend on covariates: what is minimised, and how.

.. math:: \min_V -\sum_i \mathrm{score}_i\Bigl(\sum_b \varphi_{ib} v_b\Bigr)
          - \sum_b \log \mathrm{prior}(v_b) + \lambda \sum_k v_k' P v_k

with the weights :math:`v_b` of each function of a :class:`~lockquack.fitting.basis.Basis` on the
simplex. What is convex in constant weights is convex in V; other parameters (phases, orders) are
the same at all observations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.fitting.basis import Basis, groups
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.objective import Objective
from lockquack.fitting.posterior import Target
from lockquack.fitting.shrinkage import (
    FEWEST,
    MOST_GROUPS,
    NOTHING_HELD_OUT,
    Choice,
    HeldOut,
    beyond_constant,
    deal_folds,
    shrinkages,
)
from lockquack.jets import Array
from lockquack.operators.space import Space
from lockquack.solvers.base import Solution


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

    @override
    def of(self, models: NDArray[np.intp]) -> tuple[VaryingObjective, NDArray[np.intp]]:
        objective, chosen = self.constant.of(models)
        first, rest = chosen[chosen < self.width], chosen[chosen >= self.width]
        places = [b * self.width + first for b in range(self.basis.size)]
        behind = (self.basis.size - 1) * self.width + rest
        return replace(self, **objective.common_fields()), np.concatenate([*places, behind])

    @property
    def is_constant(self) -> bool:
        """Whether weights that are the same everywhere are all that is allowed."""
        return bool(np.isinf(self.shrinkage))

    def same_everywhere(self, x: Array) -> Array:
        """Give all functions the weights of these parameters, (..., P)."""
        first, rest = x[..., : self.width], x[..., self.width :]
        return np.concatenate([first] * self.basis.size + [rest], axis=-1)

    def average(self, x: Array) -> Array:
        """Return parameters with the average of the weights of all functions."""
        size = self.basis.size * self.width
        return np.concatenate([self.functions(x).mean(axis=0), x[size:]])

    def functions(self, x: Array) -> Array:
        """Weights of the functions, (B, width)."""
        size = self.basis.size * self.width
        return x[:size].reshape(self.basis.size, self.width)

    @override
    def parameters(self, x: Array, basis: Basis | None = None) -> Array:
        """Return the operator's parameters at each observation, (P, n), or at others."""
        basis = self.basis if basis is None else basis
        rest = x[self.basis.size * self.width :]
        same = np.broadcast_to(rest[:, None], (rest.size, basis.share.shape[0]))
        return np.concatenate([basis.spread(self.functions(x)), same])

    @override
    def scores(self, x: Array) -> Array:
        return self.constant.scores(self.parameters(x))

    def held_out(self, x: Array, others: Array) -> Array:
        """Score by weights fitted to other observations, and by the average of these, (2, n).

        ``others`` is how many observations each function is known from, (B,). Where that is none,
        the average is all there is.
        """
        v = self.functions(x)
        average = np.concatenate([others / others.sum() @ v, x[v.size :]])
        known = self.basis.share @ (others > 0) > 0
        there = np.where(known, self.parameters(x), average[:, None])
        return np.stack([self.constant.scores(there), self.constant.scores(average)])

    @override
    def scores_each(self, x: Array) -> Array:
        size = self.basis.size * self.width
        v = x[:size].reshape(self.basis.size, self.width, -1)
        weights = np.einsum("nb,bkn->kn", self.basis.share.toarray(), v)
        return self.constant.scores_each(np.concatenate([weights, x[size:]]))

    @override
    def value(self, x: Array, counts: Array | None = None) -> float:
        if self.is_constant:
            return self.constant.value(self.average(x), counts)
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
    """A way to weights that depend on covariates.

    Where λ is infinite they do not, and the problem is that of constant weights.
    """

    objective: VaryingObjective
    #: Seed of the folds by which λ is chosen; None: it is given.
    folds_seed: int | None = None
    #: What λ was chosen by, once it is.
    held_out: HeldOut | None = None

    wants = ("folds_seed",)
    refits_cheaply = False
    #: Whether it is convex in the weights of the functions.
    is_convex: ClassVar[bool] = False
    #: How constant weights are fitted.
    relative: ClassVar[type[Fitter]]

    @cached_property
    def constant(self) -> Fitter:
        """The fitter of constant weights."""
        return self.relative(self.objective.constant)

    @property
    @override
    def basis(self) -> Basis:
        return self.objective.basis

    @property
    @override
    def record(self) -> dict[str, Any]:
        return {"shrinkage": self.objective.shrinkage}

    @property
    @override
    def arrays(self) -> dict[str, Array]:
        return {} if self.held_out is None else self.held_out.arrays

    @cached_property
    def choice(self) -> Choice | None:
        """How λ was chosen, once it is."""
        counts = self.objective.counts
        return None if self.held_out is None else self.held_out.choose(counts, counts)

    def parameters_at(self, x: Array, basis: Basis) -> Array:
        """Return the operator's parameters at other observations, (P, n)."""
        return self.objective.parameters(x, basis)

    def spread_draws(self, draws: Array, basis: Basis | None = None) -> Iterator[Array]:
        """Go through the operator's parameters, (P, n), at some observations."""
        return (self.objective.parameters(x, basis) for x in draws)

    @property
    def worth_in_words(self) -> str:
        """Say whether the data ask for weights that vary."""
        choice = self.choice
        if choice is None:
            return f"shrinkage {self.objective.shrinkage:.4g}, as given."
        if not choice.n_obs:
            return "too few observations to tell, so they are the same everywhere."
        if self.objective.is_constant:
            gain, se = choice.best
            return (
                "the data do not ask for it. Cross-validation chose constant weights; the best "
                f"others are worth {gain:+.1f} ± {se:.1f} (total score)."
            )
        all_of_them = choice.n_obs == self.objective.n_obs
        some = "" if all_of_them else f" of {choice.n_obs} observations"
        return (
            f"shrinkage {choice.shrinkage:.3g}, chosen by cross-validation{some}, where it is "
            f"worth {choice.gain:+.1f} ± {choice.gain_se:.1f} (total score) over constant weights."
        )

    def with_shrinkage(self, shrinkage: float) -> Self:
        """Return the same with another λ."""
        return replace(self, objective=replace(self.objective, shrinkage=shrinkage))

    @override
    def learning_rate(self, x: Array) -> float:
        """Return η of constant weights: a score is as far from a likelihood with other weights."""
        return self.constant.learning_rate(self.constant.solve().x)

    @override
    def posterior(self, learning_rate: float, x: Array) -> Target:
        objective = self.objective
        if not objective.is_constant:
            return super().posterior(learning_rate, x)
        found = self.constant.posterior(learning_rate, objective.average(x))
        return replace(found, natural=lambda t: objective.same_everywhere(found.natural(t)))

    @override
    def settled(self) -> Self:
        if self.folds_seed is None or self.held_out is not None:
            return self
        counts = self.objective.counts
        held_out = self.hold_out(counts)
        shrinkage = held_out.choose(counts, counts).shrinkage
        return replace(self.with_shrinkage(shrinkage), held_out=held_out)

    def hold_out(self, counts: Array) -> HeldOut:
        """Cross-validate the weights for each λ, with these counts of the observations."""
        rng = np.random.default_rng(self.folds_seed)
        chosen, some = self._for_choice(np.flatnonzero(counts > 0), rng)
        if chosen.size < FEWEST:
            return NOTHING_HELD_OUT
        counts = counts[chosen]
        constant = some.constant.refit(counts, some.constant.solve().x)
        grid = shrinkages(some.stiffness(counts, constant))
        folds = deal_folds(rng, chosen.size)
        scores = some.held_out_scores(grid, folds, counts, some.objective.same_everywhere(constant))
        return HeldOut(grid, beyond_constant(scores[0], scores[1], counts), chosen)

    def _for_choice(
        self, chosen: NDArray[np.intp], rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], Self]:
        """Take some observations, of some groups, where there are very many."""
        objective, group = self.objective, self.objective.basis.group
        basis = objective.basis
        if group is not None and basis.size > MOST_GROUPS:
            kept = np.sort(rng.choice(basis.size, MOST_GROUPS, replace=False))
            chosen = chosen[np.isin(group[chosen], kept)]
            basis = groups(np.minimum(np.searchsorted(kept, group), kept.size - 1), kept.size)
        if chosen.size > self.most_for_choice:
            chosen = np.sort(rng.choice(chosen, self.most_for_choice, replace=False))
        varying = replace(objective.at(chosen), basis=basis.at(chosen))
        return chosen, replace(self, objective=varying)

    #: Observations that λ is chosen by at most: it does not depend on how many there are.
    most_for_choice: ClassVar[int] = 20_000

    def stiffness(self, counts: Array, constant: Array) -> float:
        """Curvature of the score in the weights of a function, on average over all functions."""
        objective = self.objective.constant
        width = self.objective.width
        slopes = objective.expand(constant)[1][:width] / np.maximum(constant[:width], 0.05)[:, None]
        squares = np.square(slopes - slopes.mean(axis=0)).sum(axis=0)
        return float(squares @ counts) / (2.0 * max(width - 1, 1) * self.objective.basis.size)

    def held_out_scores(
        self, grid: Array, folds: Sequence[NDArray[np.intp]], counts: Array, start: Array
    ) -> Array:
        """Score each fold by weights fitted to the others, and by their average, (2, λ, n)."""
        scores = np.empty((2, grid.size, self.objective.n_obs))
        fitters = [self.with_shrinkage(each) for each in grid]
        for fold in folds:
            held_out, within = self.objective.at(fold), counts.copy()
            within[fold] = 0.0
            others = self.known_without(fold, counts)
            x = start
            for row in reversed(range(grid.size)):  # from constant weights on
                x = fitters[row].again(within, x)
                scores[:, row, fold] = held_out.held_out(x, others)
        return scores

    def known_without(self, fold: NDArray[np.intp], counts: Array) -> Array:
        """Say from how many observations each function is known without a fold, (B,)."""
        within = counts.copy()
        within[fold] = 0.0
        return np.asarray(self.objective.basis.share.T @ within)

    @override
    def solve(self) -> Solution:
        return self.solutions()[0]

    @override
    def solutions(self) -> Sequence[Solution]:
        if not self.objective.is_constant:
            return self.varying_solutions()
        return self._same_everywhere(self.constant.solutions())

    @override
    def solve_near(self, found: Sequence[Solution]) -> Sequence[Solution]:
        if not self.objective.is_constant:
            return super().solve_near(found)
        before = [replace(each, x=self.objective.average(each.x)) for each in found]
        return self._same_everywhere(self.constant.solve_near(before))

    def _same_everywhere(self, found: Sequence[Solution]) -> list[Solution]:
        return [replace(each, x=self.objective.same_everywhere(each.x)) for each in found]

    @abstractmethod
    def varying_solutions(self) -> Sequence[Solution]:
        """Return every local optimum for a finite λ, the best first."""

    @override
    def refit(self, counts: Array, x: Array) -> Array:
        """Fit again for one set of counts; λ is chosen again, if it was chosen."""
        if self.folds_seed is None:
            return self.again(counts, x)
        shrinkage = self.hold_out(counts).choose(counts, self.objective.counts).shrinkage
        return self.with_shrinkage(shrinkage).again(counts, x)

    @override
    def replicates(self, counts: Array, x: Array) -> Array:
        """Fit replicates of the observations; λ is chosen again, if it was chosen.

        It is chosen by the held-out scores of the fit: no fold is fitted again.
        """
        if self.held_out is None:
            return self.refit_many(counts, x)
        before = self.objective.counts
        chosen = np.array([self.held_out.choose(each, before).shrinkage for each in counts])
        found = np.empty((len(counts), x.size))
        for shrinkage in np.unique(chosen):
            rows, fitter = chosen == shrinkage, self.with_shrinkage(float(shrinkage))
            is_own = shrinkage == self.objective.shrinkage
            start = x if is_own else fitter.again(self.objective.counts, x)
            found[rows] = fitter.refit_many(counts[rows], start)
        return found

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        """Fit again for many sets of counts, with the same λ."""
        if self.objective.is_constant:
            found = self.constant.refit_many(counts, self.objective.average(x))
            return self.objective.same_everywhere(found)
        return np.stack([self.varying_again(each, x) for each in counts])

    def again(self, counts: Array, x: Array) -> Array:
        """Fit again for one set of counts, with the same λ."""
        if not self.objective.is_constant:
            return self.varying_again(counts, x)
        return self.objective.same_everywhere(
            self.constant.refit(counts, self.objective.average(x))
        )

    @abstractmethod
    def varying_again(self, counts: Array, x: Array) -> Array:
        """Fit again with a finite λ."""
