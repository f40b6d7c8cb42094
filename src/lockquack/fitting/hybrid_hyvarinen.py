"""The hybrid by the Hyvärinen score: quadratic in its exponents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import cast

import numpy as np
from typing_extensions import override

from lockquack.fitting.forms import quadratic_form
from lockquack.fitting.smooth import SmoothFitter
from lockquack.jets import Array, Jet, join_jets, stack_jets
from lockquack.operators.hybrid import Hybrid
from lockquack.operators.linear import Linear
from lockquack.operators.space import Simplex
from lockquack.solvers.base import Solution
from lockquack.solvers.multistart import multistart, newton
from lockquack.solvers.simplex_qp import simplex_qp_near

_STARTS = 12
#: Concentration, in units of the objective's size, that keeps all exponents in use meanwhile.
_LIFT = 1e-3


class HybridHyvarinen(SmoothFitter):
    r"""Exponents and mixture of the hybrid by the Hyvärinen score.

    For a given mixture β the score is quadratic in the exponents, as for locking, with the
    mixture as one more expert. So the search is over β only; each trial solves a quadratic
    programme, and the slopes in β at its solution are those of the whole.

    Where the mixture has no weight, β makes no difference, and a search that begins there ends
    there. So it is done with a prior that leaves some weight to the mixture.
    """

    kind = "multi-start over β, quadratic in w"

    @cached_property
    def _mixture(self) -> Simplex:
        return Simplex("mixture", self.objective.K, self.objective.concentration)

    @override
    def _search(self) -> Sequence[Solution]:
        starts = self._mixture.starts(_STARTS, np.random.default_rng(0))
        scale = self._scale(self.objective.space.starts(1)[0])
        lift = 0.0 if self.objective.operator.signed else _LIFT * scale
        lifted = partial(self._profile, lift=lift)
        found = multistart(lifted, starts, scale=scale)
        polished = newton(self._profile, found.x, scale=scale)
        beta = self._mixture.natural(polished.x)
        z = self.objective.space.free(np.concatenate([self._exponents(self._experts(beta)), beta]))
        end = replace(polished, x=z, starts=found.starts)
        return [self._at(self._without_small(end, scale), end)]

    def _profile(self, z: Array, lift: float = 0.0) -> tuple[float, Array]:
        """Objective at the best exponents for a mixture, and its slopes."""
        beta = self._mixture.natural(z)
        w = self._exponents(self._experts(beta), lift)
        x = np.concatenate([w, beta])
        scores, slopes = self.objective.expand(x)
        value = -float(self.objective.total(scores)) - self.objective.space.log_prior(x)
        if lift > 0.0:
            value -= lift * float(np.log(w).sum())
        by_beta = self.objective.total(slopes[self.objective.K + 1 :])
        by_beta = by_beta + self._mixture.prior_slopes(beta)
        return value, -self._mixture.pull(z, by_beta)

    def _on_simplex(self, Q: Array, c: Array, alpha: Array) -> Array:
        """Best exponents; those of the trial before are a good guess."""
        equal = np.full(c.size, 1.0 / c.size)
        self._last[:] = [simplex_qp_near(Q, c, alpha, self._last[-1] if self._last else equal)]
        return self._last[-1]

    @cached_property
    def _last(self) -> list[Array]:
        return []

    def _experts(self, beta: Array) -> Jet:
        """Jets of the mixture and of the models, stacked."""
        jets = self.objective.jets
        return join_jets([stack_jets([Linear().pool(jets, beta)]), jets])

    def _exponents(self, experts: Jet, lift: float = 0.0) -> Array:
        """Best exponents of given experts."""
        operator = cast(Hybrid, self.objective.operator)
        concentration = self.objective.concentration
        Q, c = quadratic_form(experts, self.objective.case_weights)
        size = c.size
        if not operator.signed:
            outside = np.concatenate([[concentration.mean()], concentration])
            return self._on_simplex(Q, c, outside - 1.0 + lift)
        precision = 1.0 / operator.prior_sd**2
        matrix = 2.0 * Q + precision * np.eye(size)
        return np.asarray(np.linalg.solve(matrix, np.full(size, precision / size) - 2.0 * c))
