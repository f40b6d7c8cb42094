"""Observed variables of a PyMC model as outcomes: one, or several as the components of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.jets import Numeric
from lockquack.models.observations import COMPONENT_DIM, OBS_DIM
from lockquack.sources.pymc_outcomes import Outcome
from lockquack.sources.pytensor_rewriting import Variable, rebuilt


@dataclass(frozen=True)
class Arranged:
    """Outcomes as models have them: a grid of observations, each a number or a vector."""

    y: Variable  # grid, then components if there are any
    logp: Variable  # grid
    #: None if outcomes cannot be drawn.
    random: Variable | None
    observed: Numeric
    dims: tuple[str, ...]
    #: Names of the components, where these are several variables.
    components: list[str] | None


def arranged(outcomes: Sequence[Outcome], drawn: Sequence[Variable] | None) -> Arranged:
    """Take one variable as it is, several as the components of one outcome."""
    if len(outcomes) == 1:
        (only,) = outcomes
        dims = tuple(given or f"{only.name}_dim_{i}" for i, given in enumerate(only.dims))
        if only.logp.ndim == 1 and not any(only.dims):
            dims = (OBS_DIM, COMPONENT_DIM)[: only.y.ndim]
        random = None if drawn is None else drawn[0]
        return Arranged(only.y, only.logp, random, only.observed, dims, None)
    together = Together.of(outcomes)
    y, logp = together.graph()
    own = [OBS_DIM] if together.n_common == 1 else [f"dim_{i}" for i in range(together.n_common)]
    named = [given or other for given, other in zip(together.dims, own, strict=True)]
    random = together.random(drawn)
    names = together.components
    return Arranged(y, logp, random, together.observed, (*named, COMPONENT_DIM), names)


@dataclass(frozen=True)
class Together:
    """Variables side by side: the axes that they have in common, and all components in a row.

    The log density of an observation is the sum of those of the variables. That is their joint
    density, also where one variable depends on another.
    """

    outcomes: tuple[Outcome, ...]
    #: Number of axes in common, those of the observations.
    n_common: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Together:
        """Find the axes that all variables have first."""
        n = 0
        while n < min(each.logp.ndim for each in outcomes) and _agree(outcomes, n):
            n += 1
        if n == 0:
            shapes = " and ".join(f"{o.name!r}, {o.observed.shape}" for o in outcomes)
            raise UnsupportedError(
                f"The variables {shapes}, have no observations in common: their first dimensions "
                "differ in name or length. Where these are the same observations, name them alike "
                "by dims=; where not, take one variable."
            )
        return cls(tuple(outcomes), n)

    @property
    def grid(self) -> tuple[int, ...]:
        """Shape of the observations."""
        return tuple(self.outcomes[0].observed.shape[: self.n_common])

    @property
    def dims(self) -> tuple[str | None, ...]:
        """Names of the observations' axes, where any of the variables has them."""
        each = ([o.dims[axis] for o in self.outcomes] for axis in range(self.n_common))
        return tuple(next((name for name in names if name is not None), None) for names in each)

    @property
    def observed(self) -> Numeric:
        """Observed components, (grid, component)."""
        rows = [np.asarray(o.observed, np.float64).reshape(*self.grid, -1) for o in self.outcomes]
        return np.concatenate(rows, axis=-1)

    @property
    def components(self) -> list[str]:
        """Names of the components: that of the variable, and the place in it if it has several."""
        return [
            outcome.name + (f"[{','.join(map(str, at))}]" if at else "")
            for outcome in self.outcomes
            for at in np.ndindex(self._tail(outcome))
        ]

    def graph(self) -> tuple[Variable, Variable]:
        """Return all components as one variable, and the sum of the log densities."""
        from pytensor.tensor import TensorType

        y = TensorType("float64", (*(None,) * self.n_common, len(self.components)))("y")
        parts, start = {}, 0
        for outcome in self.outcomes:
            tail = self._tail(outcome)
            parts[outcome.y] = _part(y, start, tail).astype(outcome.y.dtype)
            start += prod(tail)
        terms = [rebuilt(outcome.logp, parts) for outcome in self.outcomes]
        summed = [term.sum(axis=tuple(range(self.n_common, term.ndim))) for term in terms]
        return y, sum(summed[1:], start=summed[0])

    def random(self, drawn: Sequence[Variable] | None) -> Variable | None:
        """Put random outcomes of all variables side by side."""
        import pytensor.tensor as pt

        if drawn is None:
            return None
        try:
            rows = [
                each[..., None] if each.ndim == self.n_common else each.flatten(self.n_common + 1)
                for each in drawn
            ]
            return pt.concatenate([row.astype("float64") for row in rows], axis=-1)
        except Exception:  # whatever PyTensor does; densities do not depend on it
            return None

    def _tail(self, outcome: Outcome) -> tuple[int, ...]:
        """Shape of what one observation has of a variable."""
        return tuple(outcome.observed.shape[self.n_common :])


def _agree(outcomes: Sequence[Outcome], axis: int) -> bool:
    """Whether an axis is the same for all variables: by name where they have one, and length."""
    names = {o.dims[axis] for o in outcomes} - {None}
    return len(names) < 2 and len({o.observed.shape[axis] for o in outcomes}) == 1


def _part(y: Variable, start: int, tail: tuple[int, ...]) -> Variable:
    """Take the components of one variable, in its shape."""
    import pytensor.tensor as pt

    if not tail:
        return y[..., start]
    if len(tail) == 1:
        return y[..., start : start + tail[0]]
    step = prod(tail[1:])
    rows = [_part(y, start + k * step, tail[1:]) for k in range(tail[0])]
    return pt.stack(rows, axis=-len(tail))
