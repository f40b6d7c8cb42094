"""The hybrid by the Hyvärinen score: quadratic in its exponents."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lockquack.fitting.smooth import SmoothProblem
from lockquack.jets import Array, Jet, join_jets, stack_jets
from lockquack.operators.hybrid import Hybrid
from lockquack.operators.linear import Linear
from lockquack.operators.space import Simplex
from lockquack.solvers.base import Solution
from lockquack.solvers.multistart import multistart
from lockquack.solvers.simplex_qp import simplex_qp

_STARTS = 12


class HybridHyvarinen(SmoothProblem):
    r"""Exponents and mixture of the hybrid by the Hyvärinen score.

    For a given mixture β the score is quadratic in the exponents, as for locking, with the
    mixture as one more expert. So the search is over β only; each trial solves a quadratic
    programme, and the slopes in β at its solution are those of the whole.
    """

    kind = "multi-start over β, quadratic in w"

    @cached_property
    def _mixture(self) -> Simplex:
        return Simplex("mixture", self.K, self.concentration)

    def solve(self) -> Solution:
        """Fit the parameters, every observation counting once."""
        starts = self._mixture.starts(_STARTS, np.random.default_rng(0))
        scale = self._scale(self.space.starts(1)[0])
        found = multistart(self._profile, starts, scale=scale)
        beta = self._mixture.natural(found.x)
        x = np.concatenate([self._exponents(self._experts(beta)), beta])
        return self._solution(self.space.free(x), found, scale)

    def _profile(self, z: Array) -> tuple[float, Array]:
        """Objective at the best exponents for a mixture, and its slopes."""
        beta = self._mixture.natural(z)
        w = self._exponents(self._experts(beta))
        x = np.concatenate([w, beta])
        scores, slopes = self.expand(x)
        value = -float(scores.sum()) - self.space.log_prior(x)
        by_beta = slopes[self.K + 1 :].sum(axis=1) + self._mixture.prior_slopes(beta)
        return value, -self._mixture.pull(z, by_beta)

    def _experts(self, beta: Array) -> Jet:
        """Jets of the mixture and of the models, stacked."""
        jets = self.evidence.jets
        return join_jets([stack_jets([Linear().pool(jets, beta)]), jets])

    def _exponents(self, experts: Jet) -> Array:
        """Best exponents of given experts."""
        assert isinstance(self.operator, Hybrid)
        flat = experts.grad.reshape(len(experts.grad), -1)
        Q, c = flat @ flat.T, experts.curv.sum(axis=(1, 2))
        size = c.size
        if not self.operator.signed:
            outside = np.concatenate([[self.concentration.mean()], self.concentration])
            return simplex_qp(Q, c, outside - 1.0).x
        precision = 1.0 / self.operator.prior_sd**2
        matrix = 2.0 * Q + precision * np.eye(size)
        return np.linalg.solve(matrix, np.full(size, precision / size) - 2.0 * c)
