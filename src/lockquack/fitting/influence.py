r"""Which observations decide: the fit without each of them.

Leaving out observation i and fitting again gives weights :math:`w_{-i}`. What moves to other
models is

.. math:: m_i = \tfrac12 \sum_k |w_{-i,k} - w_k|,

between 0 and 1. The sum of the squares of these changes is about the squared standard error of the
weights (the jackknife), so an observation stands out where its own square is a good part of that.
Where the score hardly depends on the weights that means little. An observation decides where all
others together contradict it: by their scores alone,

.. math:: \sum_{j \ne i} d_j \ge \mathrm{se}\Big(\sum_{j \ne i} d_j\Big), \qquad
    d_j = \mathrm{score}_j(w_{-i}) - \mathrm{score}_j(w).

Of a single weight this says that the observation moves it by two of the standard errors that the
others give: to second order the sum is :math:`\delta^2 J/2` and its error :math:`\delta \sqrt I`,
and the standard error of the weight is :math:`\sqrt I / J`.
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
from lockquack.operators.base import Positions
from lockquack.operators.space import Mask, contrasts
from lockquack.totals import error_of_total, total

#: Weight that must move to other models without an observation that decides, its share in the sum
#: of squares of all such moves, and standard errors by which the others contradict it. How
#: often one is found among ordinary outcomes is counted by ``benchmarks/remarks.py``.
_MOVES, _SHARE, _CONTRADICTED = 0.25, 0.4, 1.0
#: Observations that are looked at closely, by either of two rough measures.
_CLOSELY = 8
#: Rough moves from which an observation is left out by fitting again: when all are looked at, and
#: when only those that may decide are.
_NOTICEABLE, _CONSIDERABLE = 0.01, 0.1
#: Most observations that are left out by fitting again where there are too many to leave out all.
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
    deciding: Positions  # those that decide, the most important first

    @property
    def moved(self) -> Array:
        """Weight that moves to other models, (n,)."""
        return moves(self.changes)


def moves(changes: Array) -> Array:
    """Weight that moves to other models, from changes of the weights, (K, n) → (n,)."""
    return np.asarray(np.abs(changes).sum(axis=0) / 2)


def outstanding(moved: Array) -> Positions:
    """Return the observations that stand out, from the moves of all, most important first."""
    squares = np.square(moved)
    stands_out = (moved >= _MOVES) & (squares >= _SHARE * squares.sum())
    order = np.argsort(-moved, kind="stable")
    return order[stands_out[order]]


def deciding(
    fitter: Fitter, x: Array, moved: Array, left_out: Positions, found: Array
) -> Positions:
    """Return the observations that decide, most important first.

    Of those that stand out by what they move, (n,), the ones that the others contradict;
    ``found`` holds the parameters without each of those that were left out, (m, P).
    """
    row = {int(i): each for i, each in zip(left_out, found, strict=True)}
    chosen = [i for i in outstanding(moved).tolist() if i in row]
    return np.array([i for i in chosen if _contradicted(fitter, x, i, row[i])], dtype=np.intp)


def _contradicted(fitter: Fitter, x: Array, i: int, without: Array) -> bool:
    """Whether all others are clearly better predicted by the fit without an observation."""
    objective = fitter.objective
    others = objective.counts.copy()
    others[i] = 0.0
    gains = objective.scores(without) - objective.scores(x)
    gain, error = total(gains, others), error_of_total(gains, others)
    return bool(gain > 0 and gain >= _CONTRADICTED * error)


def changes_of(fitter: Fitter, x: Array, found: Array) -> Array:
    """Find the changes of the weights from x to other parameters, (m, P) → (K, m)."""
    before = fitter.objective.mean_weights(x)
    changes = [fitter.objective.mean_weights(each) - before for each in found]
    return np.reshape(changes, (len(found), before.size)).T


def delete(fitter: Fitter, x: Array, chosen: Positions) -> Deletions:
    """Fit again without each of the chosen observations; which of them decide is not known yet."""
    found = fitter.without_each(chosen, x)
    scores, exact = fitter.scores_without(chosen, found), fitter.is_exact(chosen)
    return Deletions(changes_of(fitter, x, found), scores, exact, np.empty(0, dtype=np.intp))


def to_leave_out_exactly(rough: Deletions) -> Positions:
    """Choose the observations that are worth fitting again without."""
    moved = rough.moved
    order = np.argsort(-moved, kind="stable")
    return np.sort(order[: max(_CLOSELY, min(_MOST, int((moved >= _NOTICEABLE).sum())))])


def delete_roughly(fitter: Fitter, x: Array) -> Deletions:
    """Leave each observation out to first order; convex problems take a whole Newton step."""
    objective, n = fitter.objective, fitter.objective.n_obs
    exact, none = np.zeros(n, dtype=np.bool_), np.empty(0, dtype=np.intp)
    if not _on_simplex(fitter):
        return Deletions(rough_changes(fitter, x), objective.scores(x), exact, none)
    groups = (np.arange(part.start, part.stop) for part in cut(slice(0, n), _AT_ONCE))
    found = np.concatenate([fitter.step_without_each(group, x) for group in groups])
    return Deletions((found - x).T, objective.scores_each(found.T), exact, none)


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


def shortlist(fitter: Fitter, x: Array) -> tuple[Array, Positions, Array]:
    """Find the observations that may decide, at little cost next to the fit itself.

    Returns what each moves, (n,), roughly but for those that seem to move much, the m positions
    of these, and the parameters without each of them, (m, P).
    """
    every = np.arange(fitter.objective.n_obs)
    if not fitter.is_optimum:
        found = fitter.without_each(every, x)
        return moves(changes_of(fitter, x, found)), every, found
    if _on_simplex(fitter):
        moved, gains = _screen(fitter, x)
        close = np.union1d(_largest(moved), _largest(gains))
        moved[close] = moves((fitter.step_without_each(close, x) - x).T)
    else:
        moved = moves(rough_changes(fitter, x))
        close = _largest(moved)
    close = close[moved[close] >= _CONSIDERABLE]
    if not close.size:
        return moved, close, np.empty((0, x.size))
    found = fitter.without_each(close, x)
    moved[close] = moves(changes_of(fitter, x, found))
    return moved, close, found


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


def _largest(values: Array) -> Positions:
    count = min(_CLOSELY, values.size)
    return np.argpartition(-values, count - 1)[:count]
