"""What a scoring rule must say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from lockquack.draws.collapse import Collapsed
from lockquack.errors import UnsupportedError
from lockquack.families.base import Edge
from lockquack.jets import Array, Jet
from lockquack.operators.base import Operator
from lockquack.rules.wishes import Wish
from lockquack.transforms import Transform


@dataclass(frozen=True)
class Pooled:
    """A pool at n observations, or its derivatives with the parameters along a first axis."""

    jet: Jet
    known: Mapping[Wish, Array]  # what each wish of the rule has come to, (..., n)


class Rule(ABC):
    """A proper score of a predictive density at the value that was observed; larger is better."""

    name: ClassVar[str]
    #: Its name in a sentence, and its name in that of a method.
    label: ClassVar[str]
    short: ClassVar[str]
    #: What it wants to know besides the jet.
    wishes: ClassVar[tuple[Wish, ...]] = ()
    #: Whether it needs derivatives in the outcome.
    needs_derivatives: ClassVar[bool] = False
    #: Whether it needs the value of the density itself.
    needs_density: ClassVar[bool] = False
    #: Whether its total is a log likelihood, so that Bayes' rule takes it as it is.
    is_log_likelihood: ClassVar[bool] = False
    #: Whether it is for discrete outcomes only.
    is_for_discrete: ClassVar[bool] = False
    #: Whether it is for mixtures only: it is known from draws, and those tell of no other pool.
    is_for_mixtures: ClassVar[bool] = False
    #: Whether it is a distance of distributions to the outcome, for which draws are enough.
    is_by_distance: ClassVar[bool] = False
    #: Whether quantiles are enough for it.
    takes_quantiles: ClassVar[bool] = False
    #: Whether it measures the outcome in a unit.
    has_unit: ClassVar[bool] = False

    @property
    def needs_normaliser(self) -> bool:
        """Whether it needs the normalised density, or any multiple of it will do."""
        return any(wish.normalises for wish in self.wishes)

    def wishes_for(self, operator: Operator) -> tuple[Wish, ...]:
        """Say what it wants to know of pools by an operator."""
        return self.wishes

    def with_scale(self, scale: Any) -> Rule:
        """Return the rule with another unit of the outcome, where it has one."""
        raise UnsupportedError(f"{self!r} has no scale. Leave scale out.")

    def suited_to(self, supports: Sequence[tuple[float, float] | None]) -> Self:
        """Return the rule for models of these supports; None: not known."""
        return self

    @property
    def of_what(self) -> str:
        """Name what is scored: the outcome, or the function of it that the rule looks at."""
        return "y"

    @property
    def knows_support(self) -> bool:
        """Whether it need not know where the models' supports end, or has been told."""
        return True

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, as JSON can hold it."""
        return {}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Rule:
        """Make it again from its options."""
        return cls(**options)

    def unit(self, y: Array, case_weights: Array | None = None) -> Array:
        """Units of the outcome, one per component, from outcomes of shape (n, d)."""
        return np.ones(y.shape[1])

    @property
    def coordinates(self) -> Transform | None:
        """The coordinates z = t(y) in which derivatives are scored; None: y itself."""
        return None

    def is_proper_at(self, edge: Edge) -> bool:
        """Whether the rule is proper for a density with such an edge."""
        return True

    def has_variance(self, edge: Edge) -> bool:
        """Whether its score has a variance near such an edge."""
        return True

    @abstractmethod
    def score(self, pooled: Pooled) -> Array:
        """Score each observation, (n,)."""

    @abstractmethod
    def slopes(self, pooled: Pooled, tangent: Pooled) -> Array:
        """Slopes of the scores in the parameters, (P, n)."""

    @abstractmethod
    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        """Monte Carlo standard error of the total score of a model; NaN where it is not known."""
