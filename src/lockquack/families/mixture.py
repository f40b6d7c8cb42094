"""Finite mixtures of the other families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TypeVar

import numpy as np

from lockquack.errors import ParameterError
from lockquack.families.base import Edge, Family, Parameters, Range, worst_edges
from lockquack.jets import Array, Jet, log_sum_exp, power_pool, stack_jets

T = TypeVar("T")


class Mixture(Family):
    r"""Mixture of families of the same outcome, with ``weights`` that sum to one.

    .. math:: p(y) = \sum_k w_k\, p_k(y)

    The parameters of component k are called ``"k.name"``; components may be mixtures.

    Examples
    --------
    >>> import numpy as np
    >>> from lockquack.families import Mixture, get_family
    >>> family = Mixture([get_family("normal"), get_family("student_t")])
    >>> list(family.signatures[0])
    ['weights', '0.mu', '0.sigma', '1.nu', '1.mu', '1.sigma']
    """

    name = "mixture"

    def __init__(self, components: Sequence[Family]) -> None:
        if not components:
            raise ParameterError("A mixture needs at least one component.")
        names = ", ".join(family.name for family in components)
        if len({family.multivariate for family in components}) > 1:
            raise ParameterError(
                "A mixture needs components of the same outcome; got scalar and vector families: "
                f"{names}."
            )
        if len({family.discrete for family in components}) > 1:
            raise ParameterError(
                "A mixture needs components that are all discrete, or all continuous; got both: "
                f"{names}."
            )
        self.components = tuple(components)
        self.multivariate = components[0].multivariate
        self.discrete = components[0].discrete
        self.support = (
            min(family.support[0] for family in components),
            max(family.support[1] for family in components),
        )
        self.positive = frozenset(
            f"{k}.{name}" for k, family in enumerate(components) for name in family.positive
        )
        self.signatures = tuple(
            {"weights": 1}
            | {f"{k}.{name}": dims for k, part in enumerate(parts) for name, dims in part.items()}
            for parts in product(*(family.signatures for family in components))
        )

    def event_shape(self, name: str, d: int) -> tuple[int, ...]:
        if name == "weights":
            return (len(self.components),)
        component, _, inner = name.partition(".")
        return self.components[int(component)].event_shape(inner, d)

    def logp(self, y: Array, p: Parameters) -> Array:
        log_weights = _log_weights(p)
        terms = [
            log_weights[..., k] + family.logp(y, part)
            for k, (family, part) in enumerate(self._split(p))
        ]
        with _quiet():
            return log_sum_exp(np.stack(np.broadcast_arrays(*terms)))

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        jet = self.jet(y, p)
        if self.multivariate:
            return jet.grad, jet.curv
        return jet.grad[..., 0], jet.curv[..., 0]

    def jet(self, y: Array, p: Parameters) -> Jet:
        log_weights = _log_weights(p)
        jets = [family.jet(y, part) for family, part in self._split(p)]
        shape = np.broadcast_shapes(log_weights.shape[:-1], *(jet.logp.shape for jet in jets))
        log_weights = np.broadcast_to(log_weights, (*shape, len(jets)))
        with _quiet():
            pooled = power_pool(
                stack_jets([_broadcast(jet, shape) for jet in jets]),
                np.moveaxis(log_weights, -1, 0),
                1.0,
            )
        # Outside all supports no component has a share.
        outside = np.where(pooled.logp == -np.inf, np.nan, 0.0)[..., None]
        return Jet(pooled.logp, pooled.grad + outside, pooled.curv + outside)

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        # Where one component ends inside the support of another the density has a kink, which
        # is as smooth as the order of the component that ends: still an edge.
        return worst_edges(
            edge
            for k, family in enumerate(self.components)
            for edge in family.edges(_of_component(k, ranges))
        )

    def location(self, p: Parameters) -> Array:
        return np.asarray(sum(w * at for w, at, _ in self._bulks(p)))

    def spread(self, p: Parameters) -> Array:
        middle = self.location(p)
        squares = (
            w * (np.square(width) + np.square(at - middle)) for w, at, width in self._bulks(p)
        )
        return np.asarray(np.sqrt(sum(squares)))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        total = np.cumsum(p["weights"], axis=-1)
        chosen = (rng.random((*size, 1)) > total[..., :-1]).sum(axis=-1)
        each = np.stack([family.draw(part, rng, size) for family, part in self._split(p)])
        if self.multivariate:
            chosen = chosen[..., None]
        return np.take_along_axis(each, chosen[None], axis=0)[0]

    def bulks(self, p: Parameters) -> list[tuple[Array, Array]]:
        return [bulk for family, part in self._split(p) for bulk in family.bulks(part)]

    def check_domain(self, p: Parameters) -> None:
        weights = p["weights"]
        if weights.shape[-1] != len(self.components):
            raise self.invalid(
                "weights",
                f"must have one entry per component, {len(self.components)}; "
                f"its last axis has {weights.shape[-1]}",
            )
        lowest = float(weights.min())
        if lowest < 0:
            raise self.invalid("weights", f"must not be negative; its smallest value is {lowest:g}")
        total = weights.sum(axis=-1).ravel()
        worst = float(total[np.abs(total - 1.0).argmax()])
        if abs(worst - 1.0) > 1e-6:
            raise self.invalid("weights", f"must sum to 1; one sum is {worst:.9g}")
        for family, part in self._split(p):
            family.check_domain(part)

    def _split(self, p: Parameters) -> list[tuple[Family, Parameters]]:
        return [(family, _of_component(k, p)) for k, family in enumerate(self.components)]

    def _bulks(self, p: Parameters) -> list[tuple[Array, Array, Array]]:
        weights = np.moveaxis(p["weights"], -1, 0)
        if self.multivariate:
            weights = weights[..., None]
        return [
            (weights[k], family.location(part), family.spread(part))
            for k, (family, part) in enumerate(self._split(p))
        ]


def _log_weights(p: Parameters) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(p["weights"])


def _broadcast(jet: Jet, shape: tuple[int, ...]) -> Jet:
    shapes = shape, (*shape, jet.grad.shape[-1]), (*shape, jet.curv.shape[-1])
    return Jet(*map(np.broadcast_to, jet.parts, shapes))


def _of_component(k: int, values: Mapping[str, T]) -> dict[str, T]:
    prefix = f"{k}."
    return {name[len(prefix) :]: v for name, v in values.items() if name.startswith(prefix)}


def _quiet() -> np.errstate:
    # Where every component is zero the shares are 0/0, and a component whose derivatives
    # overflow has share 0: -inf and NaN, and silence, are the right answers.
    return np.errstate(divide="ignore", invalid="ignore", over="ignore")
