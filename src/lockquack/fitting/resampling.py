"""A problem solved again with other counts of its observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lockquack.fitting.fitter import Fitter
from lockquack.jets import Array


@dataclass(frozen=True)
class _Anywhere:
    """It may be solved by several threads at once, and is worth sending elsewhere."""

    be_shared: bool = True
    be_sent: bool = True


@dataclass(frozen=True)
class Resampling:
    """A problem to be solved again, many times; replicates take the place of observations.

    So they are divided as observations are, by :func:`lockquack.parallel.map_observations`.
    """

    fitter: Fitter
    x: Array  # where to begin
    can: ClassVar[_Anywhere] = _Anywhere()

    @property
    def n_samples(self) -> int:
        """Numbers that tell a replicate from another: how often each observation counts."""
        return self.fitter.objective.n_obs

    def restrict(self, obs: slice) -> None:
        """Return None: every replicate needs all observations, so nothing can be cut off."""
