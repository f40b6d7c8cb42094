"""Where the outcomes enter a NumPyro model: its arguments, the arrays that it uses, its sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from lockquack.jets import Numeric
from lockquack.sources.jax_precision import double_precision, with_arrays
from lockquack.sources.numpyro_outcomes import Outcome
from lockquack.sources.numpyro_sites import Draw, Program, run
from lockquack.sources.probing import is_lagged, moved_outcomes

#: Arrays of more axes are not looked through for outcomes in another order of axes.
_MOST_AXES = 3


@dataclass(frozen=True)
class Entries:
    """A model that can be run with other outcomes than it was told.

    They are put wherever the observed ones are: in its arguments and in arrays that it uses from
    outside, whole or as consecutive rows (``y[2:]``), and at its sites.
    """

    model: Program
    kwargs: Mapping[str, Any]
    outcome: Outcome
    #: Arguments in which outcomes may be, and nowhere else; None: anywhere. A few new outcomes are
    #: easily found where they are not, such as 0 and 1 among covariates.
    places: frozenset[str] | None = None

    def run(self, theta: Draw, rows: Any = None) -> Mapping[str, Any]:
        """Trace the model with a draw and, if they are given, other outcomes, (n,) or (n, d)."""
        if rows is None:
            return run(self.model, theta, self.kwargs)

        model, kwargs = self._changed(lambda array: self._put(array, rows), self.places)
        return run(model, theta, kwargs, self.outcome.at_sites(rows))

    @cached_property
    def holders(self) -> frozenset[str]:
        """Arguments in which the outcomes were found."""
        found = set()
        for name in self.kwargs:

            def note(array: Any, name: str = name) -> Any:
                if any(_find(block, array) is not None for block, _ in self._blocks):
                    found.add(name)
                return array

            self._changed(note, frozenset([name]))
        return frozenset(found)

    def told_from_covariates(self, theta: Draw) -> Entries:
        """Tell whole numbers from covariates that are the same, such as 0, 1, 0, 1.

        Only those count that the model observes. Real numbers are the same only if they are meant.
        """
        outcome = self.outcome
        if any(np.dtype(part.dtype).kind not in "biu" for part in outcome.parts):
            return self
        moved = moved_outcomes(np.asarray(outcome.rows), discrete=True)
        observed = {
            name
            for name in (self.holders if len(self.holders) > 1 else ())
            if self._is_observed(name, theta, moved)
        }
        return replace(self, places=frozenset(observed)) if observed else self

    def _is_observed(self, name: str, theta: Draw, moved: Any) -> bool:
        """Whether other outcomes in an argument are observed at a site."""
        _, kwargs = self._changed(lambda array: self._put(array, moved), frozenset([name]))
        trace, old = run(self.model, theta, kwargs), self.outcome.at_sites(self.outcome.rows)
        return any(
            not np.array_equal(trace[site]["value"], value, equal_nan=True)
            for site, value in old.items()
        )

    def has_lags(self) -> bool:
        """Whether a covariate holds the outcomes of earlier observations beside later ones."""
        rows = np.asarray(self.outcome.rows, dtype=np.float64).reshape(len(self.outcome.rows), -1)
        grid, found = self.outcome.grid, []

        def note(array: Any) -> Any:
            shape = np.shape(array)
            if shape[: len(grid)] == grid:
                flat = np.asarray(array).reshape(len(rows), *shape[len(grid) :])
                found.append(is_lagged(flat, rows))
            return array

        self._changed(note)
        return any(found)

    def _changed(
        self, change: Callable[[Any], Any], places: frozenset[str] | None = None
    ) -> tuple[Program, dict[str, Any]]:
        """Put other arrays in place of those of the model and of its arguments, or of some."""
        import jax

        def changed(value: Any) -> Any:
            return jax.tree.map(lambda leaf: _in_tables(leaf, change), value)

        with double_precision():
            model = with_arrays(self.model, change) if places is None else self.model
            return model, {
                name: changed(value) if places is None or name in places else value
                for name, value in self.kwargs.items()
            }

    def terms(self, theta: Draw, at: Any, given: Any = None) -> Any:
        """Log densities at outcomes ``at``, (n,), or (n, site) where they are side by side.

        The model is run with the outcomes ``given``, or those that it was told.
        """
        return self.terms_of(self.run(theta, given), at)

    def terms_of(self, trace: Mapping[str, Any], at: Any) -> Any:
        """Log densities at outcomes by the distributions of a trace."""
        import jax.numpy as jnp

        values = self.outcome.at_sites(jnp.asarray(at))
        each = [
            log_density(part.distribution(trace), values[part.site]).reshape(-1)
            for part in self.outcome.parts
        ]
        return jnp.stack(each, axis=1) if self.outcome.beside else jnp.concatenate(each)

    def total(self, terms: Any) -> Any:
        """Log density of each outcome, (n,): the sum over its components."""
        return terms.sum(axis=1) if self.outcome.beside else terms

    def _put(self, array: Any, rows: Any) -> Any:
        for block, take in self._blocks:
            place = _find(block, array)
            if place is not None:
                return place(array, take(rows))
        return array

    @cached_property
    def _blocks(self) -> list[tuple[Numeric, Callable[[Any], Any]]]:
        """Arrays of outcomes that a model may have, and how to make them of all outcomes."""
        outcome = self.outcome
        parts = [(lambda rows, part=part: outcome.at_site(part, rows)) for part in outcome.parts]
        whole: list[Callable[[Any], Any]] = [] if len(parts) == 1 else [lambda rows: rows]
        columns = [(lambda rows, j=j: rows[:, j]) for j in range(outcome.d or 0)]
        takes = (*whole, *parts, *(() if outcome.beside else columns))
        blocks = [(np.asarray(take(outcome.rows)), take) for take in takes]
        return [(block, take) for block, take in blocks if block.size > 1]


def log_density(fn: Any, y: Any) -> Any:
    """Log density of a distribution, −inf outside its support."""
    import jax.numpy as jnp
    from numpyro import validation_enabled
    from numpyro.distributions import constraints

    # What lies outside is asked for on purpose, and no reason for NumPyro to warn.
    with validation_enabled(is_validate=False):
        logp = fn.log_prob(y)
    if fn.support is constraints.circular:  # π in single precision is none of its angles
        return logp
    return jnp.where(fn.support(y), logp, -jnp.inf)


def _in_tables(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change arrays, and the columns of a table that are."""
    if isinstance(value, pd.Series):
        return pd.Series(change(value.to_numpy()), index=value.index, name=value.name)
    if isinstance(value, pd.DataFrame):
        changed = {name: change(value[name].to_numpy()) for name in value.select_dtypes("number")}
        return value.assign(**{str(name): column for name, column in changed.items()})
    return with_arrays(value, change)


def _find(block: Numeric, array: Any) -> Callable[[Any, Any], Any] | None:
    """Find outcomes in an array, as they are or as consecutive rows; return how to replace them."""
    if np.ndim(array) != block.ndim or block.ndim > _MOST_AXES:
        return None
    try:
        known = np.asarray(array)
    except Exception:  # a value that is only computed, or not made of numbers
        return None
    if known.dtype.kind not in "biuf":
        return None
    for axes in permutations(range(block.ndim)):
        view = known.transpose(axes)
        start = _offset(block, view)
        if start is not None:
            return _replacing(axes, slice(start, start + len(block)))
    return None


def _offset(block: Numeric, view: Numeric) -> int | None:
    """Find the first row from which an array is the block."""
    if view.shape[1:] != block.shape[1:] or len(view) < len(block):
        return None
    room = len(view) - len(block) + 1
    missing = (view[:room] != view[:room]) & (block[0] != block[0])
    first = ((view[:room] == block[0]) | missing).reshape(room, -1).all(axis=1)
    for start in np.flatnonzero(first):
        if np.array_equal(view[start : start + len(block)], block, equal_nan=True):
            return int(start)
    return None


def _replacing(axes: tuple[int, ...], rows: slice) -> Callable[[Any, Any], Any]:
    def replace(array: Any, values: Any) -> Any:
        import jax.numpy as jnp

        turned = jnp.asarray(array).transpose(axes)
        turned = turned.at[rows].set(values.astype(turned.dtype))
        return turned.transpose(np.argsort(axes))

    return replace
