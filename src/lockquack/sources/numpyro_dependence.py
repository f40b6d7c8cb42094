"""How the log densities of a NumPyro model depend on the outcomes of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.errors import UnsupportedError
from lockquack.jets import Array, Numeric
from lockquack.numeric import and_more
from lockquack.sources.jax_precision import double_precision
from lockquack.sources.numpyro_entries import Entries
from lockquack.sources.numpyro_sites import Draw, is_factor, others, run
from lockquack.sources.probing import find_dependence, moved_outcomes

#: Observations that are looked at one by one; fewer where a model cannot be compiled.
_SOME, _FEW = 64, 16


@dataclass(frozen=True)
class Coupling:
    """On which other outcomes log densities depend, besides their own."""

    #: Those of earlier observations, as in a series.
    earlier: bool = False
    #: Those of earlier observations through the distribution of a site itself.
    inside: bool = False
    #: Those of earlier observations, which the model was handed as covariates.
    lagged: bool = False
    #: Other components of the same outcome: a mediator, and what it acts on.
    within: bool = False
    #: Factors with data of their own, which are no part of the outcomes.
    not_scored: tuple[str, ...] = ()


def find_coupling(entries: Entries, draw: Draw) -> Coupling:
    """Run the model with other outcomes, and see which distributions change.

    Raises
    ------
    UnsupportedError
        Where a density depends on its own outcome or on later ones, or where something else in
        the model depends on the outcomes.
    """
    probe = _Probe(entries, draw)
    rows = probe.rows
    moved = probe.moved
    before, other_before = probe(rows, rows)
    after, other_after = probe(rows, moved)
    _require_alone(entries, other_before, other_after)
    not_scored = _factors_with_data(entries, draw) if other_before else ()
    lagged = entries.has_lags()
    if _same(before, after).all():
        return Coupling(lagged=lagged, not_scored=not_scored)
    _require_not_itself(probe, before)
    dependence = find_dependence(probe.logp, probe.first_rows, discrete=probe.discrete)
    dependence.require_factors()
    within = entries.outcome.beside and _depends_within(probe, before)
    return Coupling(dependence.on_earlier, lagged=lagged, within=within, not_scored=not_scored)


class _Probe:
    """Log densities of a draw at outcomes, by a model that was run with others."""

    def __init__(self, entries: Entries, draw: Draw) -> None:
        self.entries, self.draw = entries, draw
        self.discrete = all(np.dtype(part.dtype).kind in "biu" for part in entries.outcome.parts)
        self.rows = np.asarray(entries.outcome.rows, dtype=np.float64)

    @cached_property
    def moved(self) -> Array:
        """Other outcomes, moved by different steps: what only shifts or rescales does not hide."""
        moved = moved_outcomes(self.rows, discrete=self.discrete)
        if self.discrete:
            return moved
        step = np.random.default_rng(0).uniform(0.5, 1.5, size=self.rows.shape)
        moved = self.rows + step * (moved - self.rows)
        for part in self.entries.outcome.parts:  # counts beside numbers
            if np.dtype(part.dtype).kind in "biu" and part.columns is not None:
                own = self.rows[:, part.columns]
                moved[:, part.columns] = moved_outcomes(own, discrete=True)
        return moved

    def __call__(self, at: Array, given: Array) -> tuple[Array, dict[str, list[Any]]]:
        """Log densities (n,) or (n, site), and what other sites and factors consist of."""
        with double_precision():
            terms, other = self._function(self.draw, at, given)
        return np.asarray(terms), other

    @cached_property
    def compiles(self) -> bool:
        """Whether the model runs with outcomes that are not known yet."""
        import jax

        try:
            with double_precision():
                jax.eval_shape(self._terms, self.draw, self.rows, self.rows)
        except Exception:  # whatever numpy does when it meets what is not known
            return False
        return True

    @cached_property
    def _function(self) -> Callable[..., Any]:
        import jax

        return jax.jit(self._terms) if self.compiles else self._terms

    def _terms(self, draw: Draw, at: Any, given: Any) -> tuple[Any, dict[str, list[Any]]]:
        trace = self.entries.run(draw, given)
        chosen = {part.site for part in self.entries.outcome.parts}
        return self.entries.terms_of(trace, at), others(trace, chosen)

    @property
    def first_rows(self) -> Array:
        """Outcomes (observation, component); only the first of them where each takes its time."""
        rows = self.rows.reshape(len(self.rows), -1)
        return rows if self.compiles else rows[:_FEW]

    def logp(self, y: Array) -> Array:
        """Log densities of the first observations, all outcomes being those that are given."""
        rows = self.rows.copy()
        rows[: len(y)] = y.reshape(len(y), *rows.shape[1:])
        return np.asarray(self.entries.total(self(rows, rows)[0]))[: len(y)]

    def some(self) -> list[int]:
        """Positions of some observations that are known."""
        known = self.entries.outcome.kept
        number = min(len(known), _SOME if self.compiles else _FEW)
        return sorted(set(known[np.linspace(0, len(known) - 1, number).astype(int)].tolist()))

    def with_moved(self, row: int, columns: slice | None) -> Array:
        """Return the outcomes with those of one observation moved, all or some components."""
        rows = self.rows.copy()
        which = row if columns is None else (row, columns)
        rows[which] = self.moved[which]
        return rows


def _require_not_itself(probe: _Probe, before: Array) -> None:
    """Refuse a density whose parameters are computed from its own outcome.

    The outcome at a site may be a parameter of sites that come later in the model.
    """
    parts = _in_order(probe)
    for row in probe.some():
        for k, (place, part) in enumerate(parts):
            after = probe(probe.rows, probe.with_moved(row, part.columns))[0]
            upto = [place for place, _ in parts[: k + 1]]
            here = (row, upto) if part.columns is not None else row
            if not _same(before[here], after[here]).all():
                raise UnsupportedError(
                    f"The distribution of an outcome at the site {part.site!r} is computed from "
                    "that outcome itself, as where a model centres by the mean of its outcomes, or "
                    "where one component of an outcome is a covariate of another. Compute such "
                    "numbers before, and hand them over as arguments; if it is a density all the "
                    "same, write it as a function of the outcome for lq.from_jax."
                )
            if part.columns is None:
                break


def _depends_within(probe: _Probe, before: Array) -> bool:
    """Whether a component's density depends on another component of the same outcome."""
    for row in probe.some():
        for _, part in _in_order(probe):
            after = probe(probe.rows, probe.with_moved(row, part.columns))[0]
            if not _same(before[row], after[row]).all():
                return True
    return False


def _in_order(probe: _Probe) -> list[tuple[int, Any]]:
    """Sites and their places among the outcomes, in the order in which the model has them."""
    trace = list(run(probe.entries.model, probe.draw, probe.entries.kwargs))
    places = enumerate(probe.entries.outcome.parts)
    return sorted(places, key=lambda each: trace.index(each[1].site))


def _require_alone(
    entries: Entries, before: dict[str, list[Any]], after: dict[str, list[Any]]
) -> None:
    """Refuse a model in which a factor, or the distribution of another outcome, depends on y."""
    for name, numbers in before.items():
        if all(map(_equal, numbers, after.get(name, ()))):
            continue
        sites = [part.site for part in entries.outcome.parts]
        listed = ", ".join(map(repr, sites[:3])) + and_more(max(len(sites) - 3, 0))
        raise UnsupportedError(
            f"{name!r} depends on the outcomes at the site {listed}, so the density of an outcome "
            f"is not that of this site alone. If {name!r} is another outcome, score them together "
            f"by site={[*sites[:3], name]}; otherwise write all that involves the outcome as one "
            "distribution, or use lq.from_jax."
        )


def _factors_with_data(entries: Entries, draw: Draw) -> tuple[str, ...]:
    """Find factors that change with the numbers among the arguments: they hold data."""
    import jax

    outcomes = np.ravel(entries.outcome.rows[entries.outcome.kept])

    def jitter(value: Any) -> Any:
        if not isinstance(value, np.ndarray | jax.Array):
            return value
        if value.dtype.kind == "f":
            return value * 1.01 + 0.01
        # Other whole numbers may be indices of groups, which must stay as they are.
        return value + 1 if _are_among(outcomes, np.ravel(np.asarray(value))) else value

    moved = {name: jax.tree.map(jitter, value) for name, value in entries.kwargs.items()}
    try:
        here, there = (run(entries.model, draw, kwargs) for kwargs in (entries.kwargs, moved))
    except Exception:  # arguments that must be what they are
        return ()
    return tuple(
        name
        for name, site in here.items()
        if is_factor(site)
        and name in there
        and not all(map(_equal, jax.tree.leaves(site["fn"]), jax.tree.leaves(there[name]["fn"])))
    )


def _are_among(some: Numeric, numbers: Numeric) -> bool:
    """Whether some of the numbers are these, in this order, and others are not.

    Examples
    --------
    >>> _are_among(np.array([3, 1]), np.array([3, 2, 1])), _are_among(np.array([1]), np.array([1]))
    (True, False)
    """
    if numbers.dtype.kind not in "iu" or numbers.size <= some.size:
        return False
    left = iter(numbers.tolist())
    return all(each in left for each in some.tolist())


def _equal(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and bool(_same(np.asarray(a), np.asarray(b)).all())


def _same(a: Array, b: Array) -> NDArray[np.bool_]:
    return np.isclose(a, b, rtol=1e-10, atol=1e-10, equal_nan=True)
