"""What the parameters of an operator may be, and coordinates in which they are free.

A fit searches over free coordinates z. A block of parameters x says how x follows from z, how
slopes are pulled back from one to the other, what the prior adds, and where to begin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from typing_extensions import override

from lockquack.jets import Array

Mask = NDArray[np.bool_]
#: Share of an interval, at its ends, where a parameter counts as at its bound.
_AT_BOUND = 5e-3
#: By which sums of weights, and weights that are zero, may be off.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Block(ABC):
    """Some parameters of one kind.

    ``slopes`` are derivatives along the first axis, one for each parameter: in the *logarithms*
    of parameters that must be positive, in the parameters themselves otherwise.
    """

    name: str
    size: int

    @abstractmethod
    def natural(self, z: Array) -> Array:
        """Return the parameters at free coordinates."""

    @abstractmethod
    def free(self, x: Array) -> Array:
        """Return free coordinates of parameters."""

    @abstractmethod
    def pull(self, z: Array, slopes: Array) -> Array:
        """Turn slopes in the parameters into slopes in the free coordinates."""

    def complaint(self, x: Array) -> str:
        """Say why numbers are no parameters of this kind; empty: they are."""
        return "" if np.isfinite(x).all() else f"{self.name} must be finite numbers"

    def log_prior(self, x: Array) -> float:
        """Log density of the prior, up to a constant."""
        return 0.0

    def prior_slopes(self, x: Array) -> Array:
        """Slopes of the log prior."""
        return np.zeros(self.size)

    def log_volume(self, z: Array) -> float:
        """Log of the volume that the parameters gain per volume of the coordinates."""
        return 0.0

    def volume_slopes(self, z: Array) -> Array:
        """Slopes of the log volume in the coordinates."""
        return np.zeros(self.size)

    @abstractmethod
    def starts(self, count: int, rng: np.random.Generator) -> Array:
        """Coordinates to begin from, (count, size), the most plausible one first."""

    #: Whether a common shift of the coordinates changes nothing.
    ignores_shifts: ClassVar[bool] = False
    #: Whether what one parameter gains others must lose.
    shares_out: ClassVar[bool] = False

    @property
    def comes_round(self) -> bool:
        """Whether coordinates that differ by whole turns are the same parameters."""
        return False

    def vanishing(self, x: Array, least: float) -> Mask:
        """Which parameters are below ``least`` and kept from zero by nothing."""
        return np.zeros(self.size, dtype=np.bool_)

    def active(self, x: Array, least: float) -> Mask:
        """Which parameters can vary around x; weights below a share of an equal one cannot."""
        return np.ones(self.size, dtype=np.bool_)

    def inside(self, x: Array, least: float) -> Array:
        """Move parameters at the edge to where their coordinates can move."""
        return x

    def at_bound(self, x: Array) -> bool:
        """Whether some parameter has ended at a bound of the search."""
        return False

    def at_cap(self, x: Array) -> bool:
        """Whether some parameter is held by a cap that keeps the pool from having zeros."""
        return False


@dataclass(frozen=True)
class Weights(Block, ABC):
    """Weights that are not negative, with prior Π x^(concentration − 1); z = log x."""

    concentration: Array  # (size,)

    @override
    def free(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(x)

    @override
    def complaint(self, x: Array) -> str:
        negative = (x < -_ROUNDING).any()
        return super().complaint(x) or (f"{self.name} must not be negative" if negative else "")

    @override
    def log_prior(self, x: Array) -> float:
        held = self.concentration != 1  # 0 · log 0 is 0
        return float((self.concentration[held] - 1.0) @ np.log(x[held]))

    def prior_slopes(self, x: Array) -> Array:
        """Slopes of the log prior in the log weights."""
        return self.concentration - 1.0

    def vanishing(self, x: Array, least: float) -> Mask:
        """Which weights are small and have a flat prior."""
        return (x < least) & (self.concentration == 1)


@dataclass(frozen=True)
class Simplex(Weights):
    """Weights that are not negative and sum to one, with a Dirichlet prior."""

    ignores_shifts = True
    shares_out = True

    @override
    def complaint(self, x: Array) -> str:
        whole = np.allclose(x.sum(axis=0), 1.0, rtol=0, atol=_ROUNDING)
        return super().complaint(x) or ("" if whole else f"{self.name} must sum to one")

    def active(self, x: Array, least: float) -> Mask:
        """Which weights are above a share of an equal one."""
        return x > least / self.size

    @override
    def natural(self, z: Array) -> Array:
        # What scipy's log_softmax does, in a third of the time: a search is here all the while.
        shifted = z - z.max(initial=-np.inf)
        return np.exp(shifted - np.log(np.exp(shifted).sum()))

    @override
    def pull(self, z: Array, slopes: Array) -> Array:
        x = self.natural(z).reshape(-1, *[1] * (slopes.ndim - 1))
        return slopes - x * slopes.sum(axis=0)

    def log_volume(self, z: Array) -> float:
        """Log of the product of the weights that are not zero."""
        inside = np.isfinite(z)
        return float(log_softmax(z[inside]).sum())

    @override
    def volume_slopes(self, z: Array) -> Array:
        return 1.0 - self.size * self.natural(z)

    def inside(self, x: Array, least: float) -> Array:
        """Give every weight at least a share of an equal one."""
        lifted = np.maximum(x, least / self.size)
        return lifted / lifted.sum()

    def starts(self, count: int, rng: np.random.Generator) -> Array:
        """Begin at equal weights, near each vertex, very close to it, and anywhere."""
        equal = np.zeros((1, self.size))
        near, close = (
            np.log(np.full((self.size, self.size), rest) + (1 - rest) * np.eye(self.size))
            for rest in (0.2 / self.size, 1e-4)
        )
        anywhere = np.log(rng.dirichlet(np.ones(self.size), size=count))
        return np.concatenate([equal, near, close, anywhere])[:count]


@dataclass(frozen=True)
class Positive(Weights):
    """Weights that are not negative, with any sum."""

    def inside(self, x: Array, least: float) -> Array:
        """Move weights of exactly zero to where their logarithm can move."""
        return np.maximum(x, least)

    @override
    def natural(self, z: Array) -> Array:
        return np.exp(z)

    def pull(self, z: Array, slopes: Array) -> Array:
        """Return the slopes in the log weights, which are the coordinates."""
        return slopes

    def log_volume(self, z: Array) -> float:
        """Log of the product of the weights that are not zero."""
        return float(z[np.isfinite(z)].sum())

    @override
    def volume_slopes(self, z: Array) -> Array:
        return np.ones(self.size)

    def starts(self, count: int, rng: np.random.Generator) -> Array:
        """Begin at weights that sum to one, then at other sums."""
        first = Simplex(self.name, self.size, self.concentration).starts(count, rng)
        total = np.concatenate([[0.0], rng.normal(size=count)])[: len(first), None]
        return first - np.log(np.exp(first).sum(axis=1, keepdims=True)) + total


@dataclass(frozen=True)
class Real(Block):
    """Parameters of any sign, with a Gaussian prior around equal shares of one."""

    sd: float

    def natural(self, z: Array) -> Array:
        """Return the parameters, which are free."""
        return z

    def free(self, x: Array) -> Array:
        """Return the parameters, which are free."""
        return x

    def pull(self, z: Array, slopes: Array) -> Array:
        """Return the slopes as they are."""
        return slopes

    @override
    def log_prior(self, x: Array) -> float:
        return float(-0.5 * np.square((x - 1.0 / self.size) / self.sd).sum())

    @override
    def prior_slopes(self, x: Array) -> Array:
        return (1.0 / self.size - x) / self.sd**2

    def starts(self, count: int, rng: np.random.Generator) -> Array:
        """Begin at the prior's mean, then at weights of some size."""
        anywhere = rng.dirichlet(np.ones(self.size), size=count)
        return np.concatenate([np.full((1, self.size), 1.0 / self.size), anywhere])[:count]


@dataclass(frozen=True)
class Phases(Block):
    """Angles of any size or, with a cap, between 0 and the cap: then z moves on a circle."""

    cap: float | None = None
    ignores_shifts = True

    def at_cap(self, x: Array) -> bool:
        """Whether the angles differ by as much as the cap allows."""
        return self.cap is not None and bool(np.ptp(x) > 0.999 * self.cap)

    @override
    def natural(self, z: Array) -> Array:
        return z if self.cap is None else self.cap * np.square(np.sin(z / 2))

    def free(self, x: Array) -> Array:
        """Return free coordinates of angles; with a cap, of angles shifted into its range."""
        if self.cap is None:
            return x
        share = np.clip((x - x.min()) / self.cap, 1e-12, 1.0 - 1e-12)
        return 2 * np.arcsin(np.sqrt(share))

    @override
    def pull(self, z: Array, slopes: Array) -> Array:
        if self.cap is None:
            return slopes
        factor = self.cap * np.sin(z) / 2
        return factor.reshape(-1, *[1] * (slopes.ndim - 1)) * slopes

    def log_volume(self, z: Array) -> float:
        """Log of the slopes of the angles in the coordinates."""
        return 0.0 if self.cap is None else float(np.log(np.abs(np.sin(z)) + 1e-300).sum())

    @override
    def volume_slopes(self, z: Array) -> Array:
        return np.zeros(self.size) if self.cap is None else 1.0 / np.tan(z)

    @property
    @override
    def comes_round(self) -> bool:
        return self.cap is None

    def starts(self, count: int, rng: np.random.Generator) -> Array:
        """Begin with nearly equal phases, then with each model against the others."""
        width = np.pi if self.cap is None else self.cap
        turned = np.concatenate([np.zeros((1, self.size)), 0.8 * width * np.eye(self.size)])
        anywhere = width * rng.random((count, self.size))
        # Equal phases are a stationary point of every score, by symmetry: begin beside them.
        tilt = 0.05 * width * np.arange(self.size) / max(self.size - 1, 1)
        angles = np.concatenate([turned + tilt, anywhere])[:count]
        return np.stack([self.free(each) for each in angles])


@dataclass(frozen=True)
class Interval(Block):
    """Numbers between two bounds."""

    low: float
    high: float
    first: tuple[float, ...] = ()

    def at_bound(self, x: Array) -> bool:
        """Whether a number is at a bound: a search hardly gets to the bound itself."""
        distance = np.minimum(x - self.low, self.high - x)
        return bool((distance < _AT_BOUND * (self.high - self.low)).any())

    @override
    def natural(self, z: Array) -> Array:
        return self._middle + self._half * np.tanh(z / self._half)

    @override
    def free(self, x: Array) -> Array:
        share = np.clip((x - self._middle) / self._half, -1 + 1e-12, 1 - 1e-12)
        return self._half * np.arctanh(share)

    @override
    def pull(self, z: Array, slopes: Array) -> Array:
        factor = 1.0 - np.square(np.tanh(z / self._half))
        return factor.reshape(-1, *[1] * (slopes.ndim - 1)) * slopes

    def log_volume(self, z: Array) -> float:
        """Log of the slopes of the numbers in the coordinates."""
        return float(-2 * np.log(np.cosh(z / self._half)).sum())

    @override
    def volume_slopes(self, z: Array) -> Array:
        return -2.0 * np.tanh(z / self._half) / self._half

    def starts(self, count: int, rng: np.random.Generator) -> Array:
        """Begin at given numbers, then within them."""
        ends = self.first or (self.low, self.high)
        anywhere = rng.uniform(min(ends), max(ends), size=(count, self.size))
        given = np.repeat(np.array(self.first)[:, None], self.size, axis=1)
        return np.stack([self.free(x) for x in np.concatenate([given, anywhere])[:count]])

    @property
    def _middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def _half(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Space:
    """All parameters of an operator, one block after another in a flat vector."""

    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(block.size for block in self.blocks)

    def parts(self, x: Array) -> Iterator[tuple[Block, Array]]:
        """Go through the blocks with their parts of the first axis of an array."""
        start = 0
        for block in self.blocks:
            yield block, x[start : start + block.size]
            start += block.size

    def complaint(self, x: Array) -> str:
        """Say why numbers are no parameters; empty: they are."""
        if len(x) != self.size:
            return f"there must be {self.size} of them, not {len(x)}"
        complaints = [block.complaint(part) for block, part in self.parts(x)]
        return ", ".join(filter(None, complaints))

    def natural(self, z: Array) -> Array:
        """Return the parameters at free coordinates."""
        return _joined([block.natural(part) for block, part in self.parts(z)])

    def free(self, x: Array) -> Array:
        """Return free coordinates of parameters."""
        return _joined([block.free(part) for block, part in self.parts(x)])

    def pull(self, z: Array, slopes: Array) -> Array:
        """Turn slopes in the parameters, along the first axis, into slopes in coordinates."""
        pairs = zip(self.parts(z), self.parts(slopes), strict=True)
        return _joined([block.pull(part, slope) for (block, part), (_, slope) in pairs])

    def log_prior(self, x: Array) -> float:
        """Log density of the prior, up to a constant."""
        return sum(block.log_prior(part) for block, part in self.parts(x))

    def log_volume(self, z: Array) -> float:
        """Log of the volume that the parameters gain per volume of the coordinates."""
        return sum(block.log_volume(part) for block, part in self.parts(z))

    def volume_slopes(self, z: Array) -> Array:
        """Slopes of the log volume in the coordinates."""
        return _joined([block.volume_slopes(part) for block, part in self.parts(z)])

    def inside(self, x: Array, least: float) -> Array:
        """Move parameters at the edge to where their coordinates can move."""
        return _joined([block.inside(part, least) for block, part in self.parts(x)])

    def prior_slopes(self, x: Array) -> Array:
        """Slopes of the log prior, as for :class:`Block`."""
        return _joined([block.prior_slopes(part) for block, part in self.parts(x)])

    def starts(self, count: int, seed: int = 0) -> Array:
        """Coordinates to begin from, (count, size); the same every time.

        The first combines what is most plausible in every block. The others pair the blocks'
        own starts in shuffled order.
        """
        rng = np.random.default_rng(seed)
        columns = []
        for block in self.blocks:
            column = block.starts(count, rng)
            order = np.concatenate([[0], 1 + rng.permutation(len(column) - 1)])
            columns.append(column[order])
        return np.concatenate(columns, axis=1)


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0)


def contrasts(size: int) -> Array:
    """Orthonormal directions that change no sum, (size, size − 1)."""
    return np.linalg.qr(np.eye(size) - 1.0 / size)[0][:, : size - 1]
