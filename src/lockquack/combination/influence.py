"""Which observations a combination rests on."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.arithmetic import methods_in_own_arithmetic
from lockquack.errors import ParameterError, UnsupportedError, unknown_name
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.influence import (
    Deletions,
    deciding,
    delete,
    delete_roughly,
    outstanding,
    to_leave_out_exactly,
)
from lockquack.fitting.resampling import Resampling
from lockquack.jets import Array
from lockquack.methods.examine import few_decide
from lockquack.methods.verdicts import error_if_enough
from lockquack.models.observations import Observations
from lockquack.numeric import cut
from lockquack.operators.base import Positions
from lockquack.operators.space import Mask
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.prediction.pictures import short_name
from lockquack.remarks import Remark
from lockquack.totals import total

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lockquack.combination.combination import Combination

#: Numbers that a group of observations to be left out may hold at once.
_NUMBERS_AT_ONCE = 2**22
#: Observations that are printed.
_SHOWN = 10


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Influence:
    """What a fit would be without each observation; printed, those that matter most.

    Attributes
    ----------
    names
        The models' names.
    label
        What the combination is called.
    against
        The model with which the combination is compared, by default the best by itself.
    observations
        The observations, with their labels.
    """

    names: tuple[str, ...]
    label: str
    against: str
    observations: Observations
    deletions: Deletions
    #: Weights with all observations, (K,), and the score of ``against`` at each, (n,).
    fitted: Array
    alone: Array
    #: How observations were left out that are exact, and how others, in words.
    left_out_by: tuple[str, str]

    @property
    def weights(self) -> xr.DataArray:
        """Weights without each observation."""
        return self._over_models(self.fitted[:, None] + self.deletions.changes, "weights")

    @property
    def changes(self) -> xr.DataArray:
        """Weights without each observation minus those with all."""
        return self._over_models(self.deletions.changes.copy(), "changes")

    @property
    def moved(self) -> xr.DataArray:
        """Weight that moves to other models without each observation, from 0 to 1."""
        return self.observations.label(self.deletions.moved, name="moved")

    @property
    def differences(self) -> xr.DataArray:
        """What each observation adds to the combination's score minus that of ``against``.

        Every observation is scored by weights that were fitted without it, so that their sum is
        not flattered as the totals of the combination's table are.
        """
        return self.observations.label(self._differences.copy(), name="differences")

    @property
    def exact(self) -> xr.DataArray:
        """Whether the weights were fitted again without it; otherwise they are so roughly."""
        return self.observations.label(self.deletions.exact.astype(float), name="exact").astype(
            bool
        )

    @property
    def total(self) -> tuple[float, float]:
        """Sum of the differences, and its standard error (NaN for fewer than ten observations)."""
        apart, counts = self.deletions.scores - self.alone, self.observations.weights
        return float(total(apart, counts)), float(error_if_enough(apart, counts))

    @property
    def reversing(self) -> int:
        """Fewest observations without which the sum of the differences has another sign."""
        towards = self._differences * np.sign(self._differences.sum())
        return int((np.cumsum(-np.sort(-towards)) < towards.sum()).sum()) + 1

    @property
    def effective(self) -> float:
        r"""Number of equal differences that are as even, :math:`(\sum |d|)^2 / \sum d^2`."""
        sizes = np.abs(self._differences)
        squares = float(np.square(sizes).sum())
        return float(sizes.sum()) ** 2 / squares if squares > 0 else float(sizes.size)

    @property
    def remarks(self) -> list[Remark]:
        """The remark that one or a few observations decide, if they do."""
        found = self.deciding
        if not found:
            return []
        change = self.deletions.changes[:, found[0]]
        return few_decide(self.names, self.fitted, change, found, self.observations)

    @property
    def deciding(self) -> list[int]:
        """Positions of the observations that decide the weights, the most important first."""
        return self.deletions.deciding.tolist()

    def to_dataset(self) -> xr.Dataset:
        """Return everything by its name, over observations and models.

        Returns
        -------
        xarray.Dataset
            ``weights``, ``changes``, ``moved``, ``differences`` and ``exact``.

        Examples
        --------
        >>> import lockquack as lq
        >>> found = lq.lock(lq.example_models()).influence()
        >>> dict(found.to_dataset().sizes)
        {'model': 2, 'obs_id': 40}
        """
        parts = (self.weights, self.changes, self.moved, self.differences, self.exact)
        return xr.Dataset({str(part.name): part for part in parts})

    def to_dataframe(self, n: int | None = None) -> pd.DataFrame:
        """Return a row for each observation, those that move most weight first.

        Parameters
        ----------
        n
            Number of rows; by default all.

        Returns
        -------
        pandas.DataFrame
            ``moved``; the weights without the observation; ``difference``, what it adds to the
            score difference, and its ``share`` in the sum; ``exact``. The index has the labels of
            the observations, or their positions.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.lock(lq.example_models()).influence().to_dataframe(2).round(3)
                     moved  weight[first]  weight[second]  difference  share  exact
        observation
        15           0.069          0.431           0.569      -4.919 -0.199   True
        18           0.042          0.404           0.596      -6.248 -0.252   True
        """
        order = np.argsort(-self.deletions.moved, kind="stable")[:n]
        weights = self.fitted[:, None] + self.deletions.changes
        names = [short_name(self.observations, int(i)) for i in order]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self._differences / self._differences.sum()
        return pd.DataFrame(
            {
                "moved": self.deletions.moved[order],
                **{f"weight[{name}]": weights[k, order] for k, name in enumerate(self.names)},
                "difference": self._differences[order],
                "share": share[order],
                "exact": self.deletions.exact[order],
            },
            index=pd.Index(names, name="observation"),
        )

    def plot(self, *, worst: int = 5, ax: Axes | None = None) -> Axes:
        """Draw how much each weight changes without each observation.

        Parameters
        ----------
        worst
            How many observations to label: those that move most weight.
        ax
            Axes to draw on, by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            A point per observation and model.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.lock(lq.example_models()).influence().plot().get_ylabel()
        'change of the weight without it'
        """
        from lockquack.plots import plot_influence

        return plot_influence(
            dict(zip(self.names, self.deletions.changes, strict=True)),
            labels=[short_name(self.observations, i) for i in range(self.observations.n)],
            weights=dict(zip(self.names, self.fitted.tolist(), strict=True)),
            worst=worst,
            ax=ax,
        )

    @property
    def lines(self) -> list[str]:
        """What there is to say besides the table."""
        n, (sum_, se) = self.observations.n, self.total
        count, (exactly, otherwise) = int(self.deletions.exact.sum()), self.left_out_by
        how = f"{count} of {n} observations: {exactly}; the others {otherwise}"
        if count in (0, n):
            how = f"All {n} observations: {exactly if count else otherwise}"
        error = "" if np.isnan(se) else f" ± {se:.1f}"
        most = "observation that adds" if self.reversing == 1 else "observations that add"
        even = (
            f"This difference depends on about {self.effective:.0f} of the {n} observations. "
            f"Without the {self.reversing} {most} most to it, its sign would be the other one."
        )
        return [
            f"{self.label} minus {self.against}, each observation scored by weights fitted without "
            f"it: {sum_:.1f}{error}. {even if self._differences.any() else ''}".rstrip(),
            f"{how}.",
            *(f"Note: {remark}" for remark in self.remarks),
        ]

    def __repr__(self) -> str:
        import textwrap

        table = self._rounded().to_string()
        below = (textwrap.fill(line, 88, subsequent_indent="  ") for line in self.lines)
        return "\n".join([self._title, "", table, "", *below])

    def _repr_html_(self) -> str:
        table = self._rounded().to_html(border=0, justify="right")
        below = "<br>".join(map(html.escape, self.lines))
        return f"<p>{html.escape(self._title)}</p>{table}<p>{below}</p>"

    @property
    def _title(self) -> str:
        most = min(_SHOWN, self.observations.n)
        return (
            f"Weights without one observation; the {most} of {self.observations.n} that move most"
        )

    def _rounded(self) -> pd.DataFrame:
        table = self.to_dataframe(_SHOWN).drop(columns="exact").round(3)
        with_all = {f"weight[{name}]": w for name, w in zip(self.names, self.fitted, strict=True)}
        first = pd.DataFrame([with_all], index=["none"]).round(3)
        return pd.concat([first, table])[list(table)].map(
            lambda value: "" if pd.isna(value) else f"{value:.3f}"
        )

    @cached_property
    def _differences(self) -> Array:
        apart, counts = self.deletions.scores - self.alone, self.observations.weights
        return apart if counts is None else apart * counts

    def _over_models(self, values: Array, name: str) -> xr.DataArray:
        return self.observations.label(values, {"model": list(self.names)}, name)


def influence(
    self: Combination,
    *,
    against: str | None = None,
    exact: bool | None = None,
    progressbar: bool | None = None,
) -> Influence:
    r"""Find out which observations decide, by fitting again without each.

    .. math:: w_{-i} = \arg\max_w \sum_{j \ne i} u_j\, \text{score}_j(w) + \log\text{prior}(w)

    with the case weights u, and the models as they are: their own posteriors still know
    observation i, but its leave-one-out prediction does not. One observation at a time is left
    out, so two that hide each other are not seen. Problems that are not convex are solved again
    from the best optima for all observations, and may miss a better one that only appears without
    an observation.

    Parameters
    ----------
    against
        Name of the model with which the combination's score is compared; by default the best one.
    exact
        Whether to fit again without every single observation. By default where that takes seconds:
        locking by the Hyvärinen score up to 100,000 observations (5,000 where its weights depend on
        covariates), other convex problems up to 2,000, the rest up to 200. Otherwise all
        observations are left out to first order (convex problems: by a whole Newton step), and
        those that then seem to matter exactly. The draws of a softmax gate are weighted by
        importance, and drawn again only where the Pareto k̂ of that is too high; with True, for
        every observation.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    Influence
        Printed, a table of the observations that move most weight, how many of them the score
        difference depends on, and whether one or a few decide. ``moved``, ``changes``, ``weights``
        and ``differences`` are labelled arrays, ``to_dataset()`` has all of them,
        ``to_dataframe()`` is sorted, ``plot()`` draws them.

    Examples
    --------
    >>> import lockquack as lq
    >>> found = lq.lock(lq.example_models()).influence()
    >>> found.moved.sizes["obs_id"], bool(found.exact.all()), found.deciding
    (40, True, [])
    >>> round(float(found.moved.max()), 3)
    0.069
    """
    if not self.fitter.resamples:
        raise UnsupportedError(
            "These weights do not depend on the observations one by one, so there is nothing to "
            "leave out."
        )
    if np.count_nonzero(self.objective.counts) < 2:
        raise ParameterError("Leaving one out takes at least two observations.")
    slow = not exact and self.observations.n > self.fitter.most_deletions
    if self.design is not None and slow and self.fitter.parameter_draws is None:
        raise UnsupportedError(
            f"Weights that depend on covariates are fitted again without each of "
            f"{self.observations.n} observations, which takes a while. Do so with exact=True."
        )
    against = self.names[_best(self)] if against is None else against
    if against not in self.names:
        raise unknown_name("model", against, self.names)
    return Influence(
        names=self.names,
        label=self.label,
        against=against,
        observations=self.observations,
        deletions=_delete_each(self, exact, progressbar),
        fitted=self._weights,
        alone=self._scored[1 + self.names.index(against)],
        left_out_by=_left_out_by(self),
    )


def _left_out_by(fit: Combination) -> tuple[str, str]:
    """Say how observations are left out exactly, and otherwise."""
    if fit.fitter.parameter_draws is not None:
        return "drawn again", "by Pareto-smoothed importance weights of the posterior's draws"
    from_optima = "" if fit.solution.starts is None else " from the optima for all"
    return f"each fitted again{from_optima}", "to first order"


def _best(fit: Combination) -> int:
    return int(total(fit._scored[1:], fit.observations.weights).argmax())


def _delete_each(fit: Combination, exact: bool | None, progressbar: bool | None) -> Deletions:
    fitter, x, n = fit.fitter, fit.solution.x, fit.observations.n
    if exact or (exact is None and n <= fitter.most_deletions) or not fitter.is_optimum:
        fitter, chosen = fitter.exactly() if exact else fitter, np.arange(n)
        found = _delete(fit, fitter, chosen, progressbar)
    else:
        found = delete_roughly(fitter, x)
        chosen = to_leave_out_exactly(found)
        closely = _delete(fit, fitter, chosen, progressbar)
        for part, values in zip(_parts(found), _parts(closely), strict=True):
            part[..., chosen] = values
    close = np.intersect1d(outstanding(found.moved), chosen)
    without = fitter.without_each(close, x) if close.size else np.empty((0, x.size))
    return replace(found, deciding=deciding(fitter, x, found.moved, close, without))


def _parts(found: Deletions) -> tuple[Array, Array, Mask]:
    return found.changes, found.scores, found.exact


def _delete(
    fit: Combination, fitter: Fitter, chosen: Positions, progressbar: bool | None
) -> Deletions:
    """Fit again without each of the chosen observations, in groups of these."""
    at_once = max(1, _NUMBERS_AT_ONCE // max(fit.observations.n, len(fit.names) ** 2))
    groups = cut(slice(0, chosen.size), at_once)
    again = Resampling(fitter, fit.solution.x)
    parts: list[Deletions] = []
    with progress_bar(chosen.size, "influence", progressbar) as advance:
        each = [chosen[group] for group in groups]
        for part in map_observations(_leave_out, (again,), groups, each):
            parts.append(part)
            advance(part.scores.size)
    changes, scores, exact = (
        np.concatenate(each, axis=-1) for each in zip(*map(_parts, parts), strict=True)
    )
    return Deletions(changes, scores, exact, np.empty(0, dtype=np.intp))


def _leave_out(resamplings: Sequence[Resampling], place: slice, chosen: Positions) -> Deletions:
    (again,) = resamplings
    return delete(again.fitter, again.x, chosen)
