"""What a family of likelihoods must say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lockquack.arithmetic import LARGEST
from lockquack.errors import ParameterError
from lockquack.jets import Array, Jet, transpose_into

#: The values of a family's parameters by name, broadcastable against the observations.
Parameters = Mapping[str, Array]


@dataclass(frozen=True)
class Edge:
    """How a density behaves where its support ends.

    At a finite edge the density goes to zero like distance^order (``inf``: faster than any
    power; 0: it does not vanish; negative: it diverges). At an infinite edge it falls like
    exp(-order · distance) (``inf``: faster, 0: slower, like a power).
    """

    at: float
    order: float
    #: Whether the density goes on smoothly at the other end, as on a circle: then it has no edge.
    joined: bool = False


@dataclass(frozen=True)
class Range:
    """The smallest and largest value that a parameter takes over all draws and observations."""

    min: float
    max: float


@dataclass(frozen=True)
class Split:
    """A log density as what depends on the outcome, on the parameters, and a formula of both.

    Sums over draws by :mod:`lockquack.kernels.predictive` know the formulas:

    - ``square``: base(y) + constant + bend (u(y) − mean)²
    - ``linear``: base(y) + constant + first u(y) + second v(y)
    - ``student``: base(y) + constant − power log(1 + width (u(y) − mean)²)
    - ``skew``: base(y) + constant + bend (u(y) − mean)² + log Φ(slope (u(y) − mean))
    """

    formula: str
    constant: Array
    parameters: tuple[Array, ...]  # in the order above

    #: From outcomes to base, u and, where there is one, v. Outside the support, base is −inf.
    of_outcome: Callable[[Array], tuple[Array, ...]]


def join_splits(chains: Sequence[Split], n_draws: int) -> Split:
    """Put the parameters of chains, (draw or 1, obs or 1), side by side: (obs or 1, sample)."""
    constant, *parameters = (
        _by_observation(each, n_draws)
        for each in zip(*((part.constant, *part.parameters) for part in chains), strict=True)
    )
    return replace(chains[0], constant=constant, parameters=tuple(parameters))


def _by_observation(chains: Sequence[Array], n_draws: int) -> Array:
    n_obs = np.shape(chains[0])[-1] if np.ndim(chains[0]) else 1
    rows = np.empty((n_obs, len(chains), n_draws))
    for chain, each in enumerate(chains):
        transpose_into(rows[:, chain], each)
    return rows.reshape(n_obs, -1)


def identity(y: Array) -> tuple[Array, Array]:
    """Take the outcome as it is, on the whole line."""
    return np.zeros_like(y), y


def on_support(
    interval: tuple[float, float], terms: Callable[[Array], tuple[Array, ...]]
) -> Callable[[Array], tuple[Array, ...]]:
    """Take terms of the outcome, base first, where it lies in an interval."""

    def split(y: Array) -> tuple[Array, ...]:
        base, *others = terms(confine(y, interval))
        return mask_outside(base, y, interval), *others

    return split


def worst_edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Keep the worst, lowest, order at each place; one that is not known (NaN) is the worst.

    Of densities that meet their other end and such that vanish with all derivatives, the sum
    meets it too.
    """
    places: dict[float, list[Edge]] = {}
    for edge in edges:
        places.setdefault(edge.at, []).append(edge)
    return tuple(
        Edge(
            at,
            float(np.min([edge.order for edge in here])),
            joined=all(edge.joined or edge.order == np.inf for edge in here)
            and any(edge.joined for edge in here),
        )
        for at, here in sorted(places.items())
    )


def outside(y: Array, interval: tuple[float, float]) -> NDArray[np.bool_]:
    """Mark the values that are not in the open interval; NaN is not marked."""
    return np.asarray((y <= interval[0]) | (y >= interval[1]))


def exp(x: Array) -> Array:
    """Exponentiate; where that overflows a density is 0 in floats, which is worth no warning."""
    with np.errstate(over="ignore"):
        return np.exp(x)


def confine(y: Array, interval: tuple[float, float]) -> Array:
    """Put NaN outside the open interval: it runs through every formula without a warning."""
    out = outside(y, interval)
    return np.where(out, np.nan, y) if out.any() else y


def mask_outside(logp: Array, y: Array, interval: tuple[float, float]) -> Array:
    """Put −inf in the log density where y is not in the open interval."""
    out = outside(y, interval)
    return np.where(out, -np.inf, logp) if out.any() else logp


class Family(ABC):
    """A parametric likelihood, with exact derivatives in the observation unless it is discrete.

    Parameters and observations are arrays that broadcast against each other; a parameter with
    event dimensions (the mean vector, the covariance matrix) carries them last.
    """

    name: ClassVar[str]
    #: Parameter name → number of event dimensions; alternatives for families that take several.
    signatures: tuple[Mapping[str, int], ...]
    #: Parameters that must be positive.
    positive: frozenset[str] = frozenset()
    #: The open interval of possible outcomes; for discrete families the smallest and the largest.
    support: tuple[float, float] = (-np.inf, np.inf)
    multivariate: bool = False
    #: Whether outcomes are whole numbers, of which the density is a probability.
    discrete: bool = False
    #: Edges that are the same whatever the parameters: what the name alone tells.
    fixed_edges: tuple[Edge, ...] = ()
    #: Orders of the edges, at both ends of the support, where no parameter changes them.
    orders: tuple[float, float]
    #: How far beyond an end of the support an outcome may lie; 0: not even at it.
    slack: float = 0.0
    #: What to do about outcomes outside the support.
    outside_advice: str = ""

    @property
    def outcomes(self) -> tuple[float, float]:
        """The open interval that outcomes must lie in."""
        return self.support[0] - self.slack, self.support[1] + self.slack

    @abstractmethod
    def logp(self, y: Array, p: Parameters) -> Array:
        """Log density of y, −inf outside the support."""

    @abstractmethod
    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        """First and second derivatives of the log density in y, NaN outside the support.

        Scalar families return the broadcast shape; vector families (..., d).
        """

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        """Worst behaviour at each edge of the support, over the ranges of the parameters."""
        return tuple(Edge(at, order) for at, order in zip(self.support, self.orders, strict=True))

    def split(self, p: Parameters) -> Split | None:
        """Split the log density, for compiled sums over draws; None where these do not know it."""
        return None

    def from_derivatives(self, y: Array, grad: Array, curv: Array) -> Parameters | None:
        """Return the parameters with these derivatives of the log density at y, where two do."""
        return None

    def location(self, p: Parameters) -> Array:
        """Middle of the bulk of the density; unless it says otherwise, ``mu``."""
        return p["mu"]

    def spread(self, p: Parameters) -> Array:
        """Width of the bulk, in the units of y: a standard deviation or alike; here, ``sigma``."""
        return p["sigma"]

    @abstractmethod
    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        """Draw outcomes, of a shape that the parameters broadcast to; components come last."""

    def bulks(self, p: Parameters) -> list[tuple[Array, Array]]:
        """Location and spread of each part of the density that may be a mode of its own."""
        return [(self.location(p), self.spread(p))]

    def jet(self, y: Array, p: Parameters) -> Jet:
        """Log density and derivatives together, with the component axis of :class:`Jet`."""
        grad, curv = self.derivatives(y, p)
        if not self.multivariate:
            grad, curv = grad[..., None], curv[..., None]
        return Jet(self.logp(y, p), grad, curv)

    def validate(self, p: Parameters) -> None:
        """Raise :class:`ParameterError` for a value that no density of this family has."""
        limit = LARGEST["parameter"]
        for name, value in p.items():
            low, high = float(np.min(value)), float(np.max(value))
            if not (np.isfinite(low) and np.isfinite(high)):
                worst = high if np.isfinite(low) else low
                raise self.invalid(name, f"must be finite; it takes the value {worst:g}")
            if max(-low, high) > limit:
                worst = high if high > -low else low
                at_most = f"at most {limit:g} in size"
                raise self.invalid(name, f"must be {at_most}; it takes the value {worst:g}")
            if name in self.positive and low <= 0:
                raise self.invalid(name, f"must be positive; its smallest value is {low:g}")
            if name in self.positive and low < 1 / limit:
                at_least = f"at least {1 / limit:g}"
                raise self.invalid(name, f"must be {at_least}; its smallest value is {low:g}")
        self.check_domain(p)

    def check_domain(self, p: Parameters) -> None:  # noqa: B027 (most families need no more)
        """Check finite parameters for what their signs do not say."""

    def invalid(self, name: str, problem: str) -> ParameterError:
        """Build the error for a parameter outside its domain."""
        return ParameterError(f"Parameter {name!r} of family {self.name!r} {problem}.")

    def event_shape(self, name: str, d: int) -> tuple[int, ...]:
        """Shape of one value of a parameter, for outcomes of d components."""
        event_dims = next(known[name] for known in self.signatures if name in known)
        return (d,) * event_dims

    def signature(self, given: Mapping[str, Any]) -> Mapping[str, int]:
        """Find the signature that the given parameter names make up, or say what is wrong."""
        for signature in self.signatures:
            if signature.keys() == given.keys():
                return signature
        expected = " or ".join(", ".join(signature) for signature in self.signatures)
        raise ParameterError(
            f"Family {self.name!r} takes the parameters {expected}; "
            f"got {', '.join(given) or 'none'}.{self._missing(given)}{self._near_misses(given)}"
        )

    def _missing(self, given: Mapping[str, Any]) -> str:
        """Say which parameters are missing and which unknown, by the nearest signature."""
        nearest = max(self.signatures, key=lambda each: len(each.keys() & given.keys()))
        missing = [name for name in nearest if name not in given]
        known = {name for signature in self.signatures for name in signature}
        unknown = [name for name in given if name not in known]
        return "".join(
            f" {what}: {', '.join(names)}."
            for what, names in (("Missing", missing), ("Unknown", unknown))
            if names
        )

    def _near_misses(self, given: Iterable[str]) -> str:
        known = {name for signature in self.signatures for name in signature}
        near = {name: get_close_matches(name, known, n=1) for name in given if name not in known}
        return "".join(
            f" Did you mean {match[0]!r} by {name!r}?" for name, match in near.items() if match
        )
