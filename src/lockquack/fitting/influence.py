r"""Which observations decide: the fit without each of them.

Leaving out observation i and fitting again gives weights :math:`w_{-i}`. What moves to other
models is

.. math:: m_i = \tfrac12 \sum_k |w_{-i,k} - w_k|,

between 0 and 1. The sum of the squares of these changes is about the squared standard error of the
weights (the jackknife), so an observation decides where its own square is a good part of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.uncertainty import expand_around, pseudo_inverse, weight_jacobian
from lockquack.jets import Array
from lockquack.numeric import cut
from lockquack.operators.base import Places
from lockquack.operators.space import Mask, contrasts

#: Weight that must move to other models without an observation that decides, and its share in the
#: sum of squares of all such moves. Of normal outcomes there is one in 1 of 30 fits to 40
#: observations, in none to 100; of outcomes with four moments, in 1 of 3 and 1 of 10.
_DECIDES, _SHARE = 0.25, 0.4
#: Observations that are looked at closely, by either of two rough measures.
_CLOSELY = 8
#: Rough moves from which an observation is left out in truth, when all are looked at and when
#: only those that may decide are.
_NOTICEABLE, _CONSIDERABLE = 0.01, 0.1
#: Most observations that are left out in truth where there are too many to leave out all.
_MOST = 50
#: Weight, in units of an equal one, below which a model is left aside roughly.
_INACTIVE = 1e-3
#: Observations for which a step is taken at once.
_AT_ONCE = 4096


@dataclass(frozen=True)
class Deletions:
    """What is found without each observation."""

    changes: Array  # (K, n): of the weights
    scores: Array  # (n,): of each observation by parameters that were fitted without it
    exact: Mask  # (n,): whether it was fitted again; otherwise it is so to first order

    @property
    def moved(self) -> Array:
        """Weight that moves to other models, (n,)."""
        return moves(self.changes)


def moves(changes: Array) -> Array:
    """Weight that moves to other models, from changes of the weights, (K, n) → (n,)."""
    return np.asarray(np.abs(changes).sum(axis=0) / 2)


def deciding(moved: Array) -> Places:
    """Return the observations that decide, from the moves of all, most important first."""
    squares = np.square(moved)
    decides = (moved >= _DECIDES) & (squares >= _SHARE * squares.sum())
    order = np.argsort(-moved, kind="stable")
    return order[decides[order]]


def changes_of(fitter: Fitter, x: Array, found: Array) -> Array:
    """Find the changes of the weights from x to other parameters, (m, P) → (K, m)."""
    weights = np.stack([fitter.objective.mean_weights(each) for each in found])
    return (weights - fitter.objective.mean_weights(x)).T


def which_exactly(rough: Deletions) -> Places:
    """Choose the observations that are worth being left out in truth."""
    moved = rough.moved
    order = np.argsort(-moved, kind="stable")
    return np.sort(order[: max(_CLOSELY, min(_MOST, int((moved >= _NOTICEABLE).sum())))])


def delete_roughly(fitter: Fitter, x: Array) -> Deletions:
    """Leave each observation out to first order; convex problems take a whole Newton step."""
    objective, n = fitter.objective, fitter.objective.n_obs
    exact = np.zeros(n, dtype=np.bool_)
    if not _on_simplex(fitter):
        return Deletions(rough_changes(fitter, x), objective.scores(x), exact)
    groups = (np.arange(part.start, part.stop) for part in cut(slice(0, n), _AT_ONCE))
    found = np.concatenate([fitter.step_without_each(group, x) for group in groups])
    return Deletions((found - x).T, objective.scores_each(found.T), exact)


def rough_changes(fitter: Fitter, x: Array) -> Array:
    """Find the changes of the weights without each observation to first order, (K, n).

    Models without weight stay without.
    """
    objective = fitter.objective
    if _on_simplex(fitter):
        return _face_inverse(fitter, x) @ fitter.slopes_each(x) * objective.counts
    around = expand_around(objective, x)
    jacobian = weight_jacobian(objective, x) @ around.jacobian @ pseudo_inverse(around.hessian)
    return -jacobian @ around.slopes * objective.counts


def look_closely(fitter: Fitter, x: Array) -> tuple[Array, Places, Array]:
    """Find the observations that may decide, at little cost next to the fit itself.

    Returns what each moves, (n,), roughly but for those that seem to move much, the m positions
    of these, and the changes of the weights without them, (K, m).
    """
    every = np.arange(fitter.objective.n_obs)
    if not fitter.is_optimum:
        changes = changes_of(fitter, x, fitter.without_each(every, x))
        return moves(changes), every, changes
    if _on_simplex(fitter):
        moved, gains = _screen(fitter, x)
        close = np.union1d(_largest(moved), _largest(gains))
        moved[close] = moves((fitter.step_without_each(close, x) - x).T)
    else:
        moved = moves(rough_changes(fitter, x))
        close = _largest(moved)
    close = close[moved[close] >= _CONSIDERABLE]
    if not close.size:
        return moved, close, np.empty((fitter.objective.K, 0))
    changes = changes_of(fitter, x, fitter.without_each(close, x))
    moved[close] = moves(changes)
    return moved, close, changes


def _screen(fitter: ConvexFitter, weights: Array) -> tuple[Array, Array]:
    """Find two rough measures of what each observation moves, (n,) each.

    To first order among the models with weight; and the slope of the objective without it towards
    the best model then, which sees models that have no weight and would get some.
    """
    back, total = _face_inverse(fitter, weights), fitter.weight_slopes(weights)
    behind = (weights @ total - total)[:, None]
    moved, gains = [], []
    for part in _parts(fitter):
        each = part.slopes_each(weights) * part.objective.counts
        moved.append(moves(back @ each))
        gains.append((behind + each - weights @ each).max(axis=0))
    return np.concatenate(moved), np.concatenate(gains)


def _parts(fitter: ConvexFitter) -> Iterator[ConvexFitter]:
    """Go through the observations in groups, so that little is held of many of them."""
    objective = fitter.objective
    if objective.n_obs <= _AT_ONCE or objective.densities.tables:
        yield fitter
        return
    for part in cut(slice(0, objective.n_obs), _AT_ONCE):
        yield replace(fitter, objective=objective.at(np.arange(part.start, part.stop)))


def _on_simplex(fitter: Fitter) -> TypeGuard[ConvexFitter]:
    return isinstance(fitter, ConvexFitter) and fitter.objective.operator.on_simplex


def _face_inverse(fitter: ConvexFitter, weights: Array) -> Array:
    """Invert the Hessian among the models with weight, (K, K); zero for the others."""
    objective = fitter.objective
    members = np.flatnonzero(weights > _INACTIVE / objective.K)
    basis = contrasts(members.size)
    prior = np.diag((objective.concentration - 1.0)[members] / np.square(weights[members]))
    bend = 2.0 * fitter.half_hessian(weights)[np.ix_(members, members)] + prior
    inverse = np.zeros((objective.K, objective.K))
    inverse[np.ix_(members, members)] = basis @ pseudo_inverse(basis.T @ bend @ basis) @ basis.T
    return inverse


def _largest(values: Array) -> Places:
    count = min(_CLOSELY, values.size)
    return np.argpartition(-values, count - 1)[:count]
