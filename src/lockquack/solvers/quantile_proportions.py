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

import numpy as np
from scipy.optimize import linprog

from lockquack.solvers.base import Array, Solution, with_rounding

#: Gap, in units of the scale, below which a problem counts as solved.
_TOLERANCE = 1e-7


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
    m, K = x.shape
    # Outcomes far from zero would take digits: only differences matter.
    middle = np.median(y)
    spread = max(float(np.abs(y - middle).max()), float(np.abs(x - middle).max()), 1e-300)
    x, z = (x - middle) / spread, (y - middle) / spread
    bounds = np.column_stack([counts * (level - 1.0), counts * level])
    found = linprog(
        -np.append(z, 1.0),
        A_ub=np.column_stack([x.T, np.ones(K)]),
        b_ub=np.zeros(K),
        bounds=[*map(tuple, bounds.tolist()), (None, None)],
        method="highs",
    )
    if found.x is None:
        w, bound = np.full(K, 1.0 / K), -np.inf
    else:
        w = np.maximum(-found.ineqlin.marginals, 0.0)
        w, bound = w / w.sum(), spread * _lowest(x, z, level, counts, found.x[:m])
    objective = spread * float(counts @ pinball(z - x @ w, level))
    gap = float(with_rounding(objective - bound, objective))
    return Solution.of_one(
        w, objective, gap, objective, int(found.nit), tol=_TOLERANCE, max_iter=np.iinfo(int).max
    )


def _lowest(x: Array, y: Array, level: Array, counts: Array, a: Array) -> float:
    """Value of the dual at a point, made feasible: the best λ for given a."""
    a = np.clip(a, counts * (level - 1.0), counts * level)
    return float(a @ y - (a @ x).max())
