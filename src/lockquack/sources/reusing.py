r"""Fits that predict more than the next fold: their draws, weighted, as long as Pareto k̂ allows.

Where each fold is fitted to all rows of the one before and to more, as in leave-future-out, the
draws of a fit to the rows :math:`A` are draws of the posterior of :math:`B \supset A` with weights

.. math:: \frac{p(\theta \mid y_B)}{p(\theta \mid y_A)} \propto
          \prod_{j \in B \setminus A} f(y_j \mid \theta) .
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from lockquack.draws.psis import psis
from lockquack.errors import ParameterError, UnsupportedError, naming
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.source import FixedWeights, Source
from lockquack.numeric import as_positive, cut
from lockquack.parallel.progress import progress_bar
from lockquack.sources.folds import Fold, require_alike, side_by_side
from lockquack.sources.left_out import ReweightedSource
from lockquack.sources.splits import Index, Split

_HOW = "PSIS from an earlier fit"
#: Observations whose draws are held at once.
_AT_ONCE = 256


def read_limit(reuse: Any) -> float | None:
    """Read the largest k̂ that is relied on; None: what the number of draws allows."""
    return None if reuse is True else as_positive("reuse", reuse)


def with_all_that_follow(splits: Sequence[Split]) -> list[Split]:
    """Let each fit predict all rows that come after those it is fitted to, not only its own."""
    if not splits or any(
        not np.isin(before, after).all() for (before, _), (after, _) in pairwise(splits)
    ):
        raise ParameterError(
            "reuse= is for folds of which each is fitted to all rows of the one before and to "
            "more, such as those of leave_future_out; these are others. Leave reuse= out."
        )
    n = 1 + max(int(rows.max(initial=-1)) for split in splits for rows in split)
    joins, wanted = np.full(n, len(splits)), np.full(n, -1)  # when fitted to, last needed when
    for k, (train, _) in reversed(list(enumerate(splits))):
        joins[train] = k
    for k, (_, test) in enumerate(splits):
        wanted[test] = k
    wanted = np.maximum(wanted, np.where(joins < len(splits), joins, -1))
    return [
        (train, np.flatnonzero((joins > k) & (wanted >= k))) for k, (train, _) in enumerate(splits)
    ]


@dataclass
class LastFit:
    """The last fit that was made, and how likely its draws find the rows that came since."""

    source: Source
    rows: Index  # positions in the data that it predicts, sorted
    left: Index  # those that no fold was fitted to so far
    log_ratio: Array = field(init=False)  # (chain, draw)

    def __post_init__(self) -> None:
        self.log_ratio = np.zeros((self.source.n_chains, self.source.n_draws))

    def grow(self, train: Index) -> FixedWeights | None:
        """Weight the draws as if the model had been fitted to these rows; None: it was."""
        new = np.intersect1d(self.left, train)
        for obs in _runs(np.searchsorted(self.rows, new)):
            self.log_ratio += self.source.all_logp(obs).sum(axis=2)
        self.left = np.setdiff1d(self.left, new)
        if self.left.size == self.rows.size:
            return None
        log_weights, pareto_k = psis(-self.log_ratio[..., None])
        return FixedWeights(log_weights[..., 0], float(pareto_k[0]))

    def predict(self, test: Index, weights: FixedWeights | None) -> Fold:
        """Predict some rows, by weighted draws or as they are."""
        source = self.source
        if weights is not None:
            source = ReweightedSource.of(source, weights, _HOW)
        return Fold(test, source, np.searchsorted(self.rows, test))


def fit_where_needed(
    fit_fold: Callable[[int], Model],
    splits: Sequence[Split],
    later: Sequence[Split],
    limit: float | None,
    progressbar: bool | None,
) -> Model:
    """Predict fold after fold; make a new fit where the draws of the last one do not do.

    ``fit_fold(k)`` makes the fit of a fold, at all rows that follow, which ``later`` has.
    """
    folds: list[Fold] = []
    last: LastFit | None = None
    with progress_bar(len(splits), "cross-validation", progressbar) as advance:
        for k, (train, test) in enumerate(splits):
            weights = None if last is None else last.grow(train)
            if last is None or _is_too_high(weights, last.source, limit):
                source = fit_fold(k).source
                with naming(f"Fold {k}"):
                    require_alike([source if last is None else last.source, source])
                    _require_draws(source)
                last, weights = LastFit(source, later[k][1], later[k][1]), None
            folds.append(last.predict(test, weights))
            advance(1)
    return side_by_side(folds, splits)


def _is_too_high(weights: FixedWeights | None, source: Source, limit: float | None) -> bool:
    most = source.pareto_limit if limit is None else limit
    return weights is not None and not weights.pareto_k <= most


def _require_draws(source: Source) -> None:
    if source.is_exact or not source.n_samples:
        raise UnsupportedError(
            f"{source.likelihood.description} has no draws that could be weighted, so its fits "
            "cannot be used again. Leave reuse= out."
        )


def _runs(rows: Index) -> Iterator[slice]:
    """Cut rows into runs of consecutive ones, none of them long."""
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        if run.size:
            yield from cut(slice(int(run[0]), int(run[-1]) + 1), _AT_ONCE)
