r"""Proportions in which quantiles are averaged: a linear programme.

.. math:: \min_{w \in \Delta} \; \sum_i u_i\, \rho_{\tau_i}\Bigl(y_i - \sum_k w_k x_{ik}\Bigr),
   \qquad \rho_\tau(r) = \max\{\tau r, (\tau - 1) r\}

is quantile regression on the simplex. Its dual has a bounded variable for each term and a row for
each model,

.. math:: \max_{a, \lambda} \; \sum_i a_i y_i + \lambda, \qquad
   \sum_i a_i x_{ik} + \lambda \le 0, \quad u_i (\tau_i - 1) \le a_i \le u_i \tau_i,

so that it is solved in no time however many terms there are, and its value bounds the primal one
from below: their difference proves the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from lockquack.solvers.base import Array, Solution, with_rounding

#: Gap, in units of the scale, below which a problem counts as solved.
_TOLERANCE = 1e-7
#: Terms from which a solution for some of them is the beginning, how many these are, and the
#: weight that is then taken to move at most.
_MANY, _SOME, _NEARBY = 20_000, 5_000, 0.05


def pinball(residual: Array, level: Array) -> Array:
    """Check function of quantile regression.

    Examples
    --------
    >>> pinball(np.array([2.0, -2.0]), np.array([0.9, 0.9])).round(3)
    array([1.8, 0.2])
    """
    return np.maximum(level * residual, (level - 1.0) * residual)


def quantile_proportions(x: Array, y: Array, level: Array, counts: Array) -> Solution:
    """Minimise the pinball loss of averages of quantiles over the simplex.

    Parameters
    ----------
    x
        Quantiles of the K models, (m, K).
    y
        Outcomes, (m,).
    level
        Levels of the quantiles, (m,).
    counts
        How often each term counts, (m,).

    Returns
    -------
    Solution
        Proportions, (K,), and the duality gap.

    Examples
    --------
    The median of 0, 1 and 5 is 1, halfway between predictions of 0 and 2:

    >>> x = np.tile([0.0, 2.0], (3, 1))
    >>> found = quantile_proportions(x, np.array([0.0, 1.0, 5.0]), np.full(3, 0.5), np.ones(3))
    >>> found.x, bool(found.converged)
    (array([0.5, 0.5]), True)
    """
    # Outcomes far from zero would take digits: only differences matter.
    middle = np.median(y)
    spread = max(float(np.abs(y - middle).max()), float(np.abs(x - middle).max()), 1e-300)
    terms = _Terms((x - middle) / spread, (y - middle) / spread, level, counts)
    many = len(y) > _MANY
    w, a, steps = _solve_many(terms) if many else terms.solve(terms.undecided)
    objective, bound = spread * terms.loss(w), spread * terms.lowest(a)
    gap = float(with_rounding(objective - bound, objective))
    return Solution.of_one(
        w, objective, gap, objective, steps, tol=_TOLERANCE, max_iter=np.iinfo(int).max
    )


def _solve_many(terms: _Terms) -> tuple[Array, Array, int]:
    """Solve with those terms only whose sign may change near the solution for some of them.

    Whatever the dual variables of the others are taken to be, the bound holds: where it is not
    tight, more of them are let free.
    """
    some = np.random.default_rng(0).choice(len(terms.y), _SOME, replace=False)
    few = terms.at(some)
    w, a, steps = few.solve(few.undecided)
    nearby = _NEARBY
    while nearby < 1.0:
        w, a, steps = terms.solve(terms.undecided & terms.near(w, nearby), w)
        loss = terms.loss(w)
        if loss - terms.lowest(a) <= _TOLERANCE / 10 * loss:
            return w, a, steps
        nearby *= 4.0
    return terms.solve(terms.undecided)


@dataclass(frozen=True)
class _Terms:
    """Quantiles of K models, (m, K), outcomes, levels and counts, (m,)."""

    x: Array
    y: Array
    level: Array
    counts: Array

    def at(self, chosen: NDArray[np.intp]) -> _Terms:
        return _Terms(self.x[chosen], self.y[chosen], self.level[chosen], self.counts[chosen])

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Which outcomes lie among their quantiles: beside all of them, the loss is linear."""
        return (self.x.min(axis=1) < self.y) & (self.y < self.x.max(axis=1))

    def near(self, w: Array, moved: float) -> NDArray[np.bool_]:
        """Which residuals may change their sign where that much weight is moved."""
        return np.asarray(np.abs(self.x @ w - self.y) <= moved * np.ptp(self.x, axis=1))

    def loss(self, w: Array) -> float:
        return float(self.counts @ pinball(self.y - self.x @ w, self.level))

    def lowest(self, a: Array) -> float:
        """Value of the dual at a point, made feasible: the best λ for given a."""
        a = np.clip(a, self.counts * (self.level - 1.0), self.counts * self.level)
        return float(a @ self.y - (a @ self.x).max())

    def solve(self, free: NDArray[np.bool_], at: Array | None = None) -> tuple[Array, Array, int]:
        """Weights and dual variables; those that are not free are as the weights given have them.

        Without weights, as any have them.
        """
        K = self.x.shape[1]
        around = self.x @ (np.full(K, 1.0 / K) if at is None else at)
        a = self.counts * np.where(self.y > around, self.level, self.level - 1.0)
        rest = a[~free] @ self.x[~free]
        bounds = np.column_stack([self.counts * (self.level - 1.0), self.counts * self.level])
        found = linprog(
            -np.append(self.y[free], 1.0),
            A_ub=np.column_stack([self.x[free].T, np.ones(K)]),
            b_ub=-rest,
            bounds=[*map(tuple, bounds[free].tolist()), (None, None)],
            method="highs",
        )
        if found.x is None:
            return np.full(K, 1.0 / K), a, int(found.nit)
        w = np.maximum(-found.ineqlin.marginals, 0.0)
        a[free] = found.x[:-1]
        return w / w.sum(), a, int(found.nit)
