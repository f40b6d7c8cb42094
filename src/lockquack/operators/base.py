"""What an operator must say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.jets import Array, Jet, bare, softmax
from lockquack.operators.space import Mask, Space
from lockquack.quadrature.nodes import Nodes

#: Positions of models, or of parameters.
Positions = NDArray[np.intp]


class Operator(ABC):
    """A way to combine K predictive densities into one, given its parameters.

    The parameters are a flat vector x, (P,), laid out as :meth:`space` says. Where there are
    weights of the models, they come first. Weights may differ between observations: x is then
    (P, n), and the last axis of jets and log densities belongs to the same n observations.
    """

    name: ClassVar[str]
    #: What is done to models by it, in a word; by default its name.
    verb: ClassVar[str]
    _by_name: ClassVar[dict[str, type[Operator]]] = {}
    #: Whether the derivatives of the pool depend on the members' densities, not only on theirs.
    needs_density: bool
    #: Whether the pool of densities is itself a density, without a normaliser.
    normalised: bool
    #: Whether it pools densities; or what it makes of distributions cannot be told from these.
    of_densities: bool = True
    #: Whether the pool is zero wherever one of its members with weight is.
    vanishes_with_any: bool = False
    #: Whether every pool of densities has a normaliser, whatever the parameters.
    always_integrable: bool = True
    #: Whether the Hyvärinen score hardly sees the proportions of well separated modes.
    mixes: bool = False
    #: Whether the weights sum to one.
    on_simplex: bool = True
    #: Whether exponents of any sign are allowed, so that the pool may grow without bound.
    signed: bool = False
    #: Names of the parameters that belong to the models, one for each.
    of_models: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            cls._by_name[cls.name] = cls
            cls.verb = cls.__dict__.get("verb", cls.name)

    @abstractmethod
    def space(self, concentration: Array) -> Space:
        """Lay out the parameters for K models whose Dirichlet prior has these concentrations."""

    @property
    def needs_normaliser(self) -> bool:
        """Whether its pools are densities only once they are divided by a normaliser."""
        return self.of_densities and not self.normalised

    @abstractmethod
    def pool(self, jets: Jet, x: Array) -> Jet:
        """Pool jets stacked over models, (K, ...) and (K, ..., d), into one, not normalised."""

    @abstractmethod
    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate :meth:`pool` in the parameters, which are then the first axis.

        As :class:`~lockquack.operators.space.Block` has it: in the logarithms of parameters that
        must be positive.
        """

    def expand(self, jets: Jet, x: Array) -> tuple[Jet, Jet]:
        """Return :meth:`pool` and :meth:`tangents`, which may share their work."""
        return self.pool(jets, x), self.tangents(jets, x)

    @abstractmethod
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        """Carry derivatives of one member's jet, along a leading axis, through the pool."""

    def weights(self, x: Array, K: int) -> Array:
        """Share of each model in the pool, (K,), or (K, n) where it differs."""
        return x[:K]

    def mixture_above(self, x: Array, K: int) -> Array | None:
        r"""Coefficients c of a mixture above the pool, (K,), where such a bound is known.

        :math:`q(y) \le \sum_k c_k \pi_k(y)` everywhere makes rejection sampling exact.
        """
        return None

    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """Bound the log of the pool's integral, without evaluating anything.

        The integrals of the pooled functions lie between exp(low) and exp(high), (K,) or (K, n):
        both are one for densities. Where nothing is known, the bounds are infinite.
        """
        shape = np.broadcast_shapes(x.shape[1:], low.shape[1:])
        return np.full(shape, -np.inf), np.full(shape, np.inf)

    def parameters(self, x: Array, K: int) -> dict[str, Array]:
        """Parameters besides the weights, by name; those of length K belong to the models."""
        return {}

    def left_out(self, K: int) -> Positions:
        """Positions of the models that it leaves out."""
        return np.zeros(0, dtype=np.intp)

    def select(self, models: Positions, K: int) -> tuple[Operator, Positions]:
        """Return the operator of some of K models, in this order, and which parameters it has."""
        return self, models

    def restrict(self, x: Array, keep: Mask) -> tuple[Operator, Array]:
        """Return what is left for some of the models, where the others have no weight."""
        operator, chosen = self.select(np.flatnonzero(keep), keep.size)
        return operator, x[chosen]

    def bind(self, names: tuple[str, ...]) -> Operator:
        """Return the operator for models of these names, where it speaks of models by name."""
        return self

    def without_zeros(self) -> Operator:
        """Return the operator confined to pools without zeros inside the support."""
        return self

    def pool_density(self, logp: Array, x: Array) -> Array:
        """Pool log densities stacked over models, (K, ...), into one, not normalised."""
        return self.pool(bare(logp), x).logp

    def expand_density(self, logp: Array, x: Array) -> tuple[Array, Array]:
        """Return :meth:`pool_density` and its derivatives in the parameters, (P, ...)."""
        pooled, tangents = self.expand(bare(logp), x)
        return pooled.logp, tangents.logp

    def normaliser(self, nodes: Nodes) -> Normaliser:
        """Prepare the normalising of pools of the densities at some nodes."""
        return SumOverNodes(self, nodes)

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, as JSON can hold it."""
        return {}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Operator:
        """Make it again from its options."""
        return cls(**options)

    @property
    def title(self) -> str:
        """What it is called at the beginning of a line."""
        return self.name.capitalize()

    def describe(self) -> dict[str, Any]:
        """Name and options, as JSON can hold them."""
        return {"name": self.name, "options": self.options}

    @staticmethod
    def from_description(description: Mapping[str, Any]) -> Operator:
        """Make an operator again from its name and options."""
        return Operator._by_name[description["name"]].from_options(description["options"])

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({listed})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Normaliser(ABC):
    """The normaliser of a pool at each observation, as a function of the parameters."""

    n_obs: int

    @abstractmethod
    def log_norm(self, x: Array) -> Array:
        """Log of the integral of the pool, (n,)."""

    @abstractmethod
    def tangents(self, x: Array) -> tuple[Array, Array]:
        """Return the same, and its derivatives in the parameters, (P, n)."""


class SumOverNodes(Normaliser):
    """A normaliser as the sum over quadrature nodes, or over all outcomes of a discrete one."""

    def __init__(self, operator: Operator, nodes: Nodes) -> None:
        self.operator, self.nodes = operator, nodes
        self.n_obs = nodes.logp.shape[-1]

    @override
    def log_norm(self, x: Array) -> Array:
        return np.asarray(self._shares(self.operator.pool_density(self.nodes.logp, x))[1])

    @override
    def tangents(self, x: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore"):
            logq, slopes = self.operator.expand_density(self.nodes.logp, x)
        share, log_norm = self._shares(logq)
        # Where the pool is zero, so is its share, whatever its logarithm does.
        slopes = np.where(share > 0, slopes, 0.0)
        return log_norm, np.einsum("mn,pmn->pn", share, slopes)

    def _shares(self, logq: Array) -> tuple[Array, Array]:
        """Share of each node in the integral, (m, n), and the log of the integral."""
        return softmax(logq + self.nodes.log_measure)


def common(values: Array) -> float:
    """Return a parameter that is the same at all observations."""
    return float(values.flat[0])
