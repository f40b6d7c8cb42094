r"""Quadrature of smooth densities by equally spaced nodes.

For a density that is analytic around the whole line the trapezoidal rule converges geometrically:
with spacing h its error is the Fourier transform of the integrand at :math:`2\pi/h` [1]_. A third
of the nodes that panels need is enough. Half-lines and intervals are made whole lines as for
panels (:class:`.Line`); where tails may be heavy, :math:`z = c + s \sinh(x)` makes them light.

How fast the transform falls is seen from the nodes themselves, and what lies beyond the last of
them from their values there. Between nodes, log densities are polynomials through the nearest.

References
----------
.. [1] Trefethen and Weideman (2014). The exponentially convergent trapezoidal rule. SIAM Review
   56(3), 385–458.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import comb

import numpy as np

from lockquack.jets import Array, log_sum_exp
from lockquack.quadrature.grid import Components, Grid, Integral, Integrand, Line, Rows
from lockquack.quadrature.nodes import Nodes

#: Distance of the nodes in spreads of the narrowest mode, also where tails are bent, and how
#: often it may be halved.
_SPACING, _BENT_SPACING, _MAX_HALVINGS = 0.6, 0.5, 2
#: Estimate of a relative error that is accepted; the error itself is mostly much smaller.
TOLERANCE = 5e-9
#: Spreads beyond the outermost places of modes where the nodes begin: there, a normal density is
#: negligible.
_BEYOND = 1.2
#: Nodes that are added at either end where these are not yet far enough out, and how often.
_EXTENSION, _MAX_EXTENSIONS = 4, 10
#: Share in an integral that the outermost node may have.
_NEGLIGIBLE = 1e-13
#: Ratio of the extent of all modes to that of the narrowest from which nodes would be too many.
_MOST_UNEQUAL = 3.0
#: Spreads from the middle at which the sinh begins to bend.
_BEND = 4.0
#: Frequencies, as shares of the highest that the nodes know, at which the fall is looked at: the
#: largest of each few counts, because transforms of several modes have zeros.
_LOW, _HIGH = np.array([0.4, 0.45, 0.5]), np.array([0.7, 0.75, 0.8])
#: Nodes that a polynomial goes through, and what it gains at least when spacing is halved.
_NEAREST, _GAIN = 14, 1e-3
_BARYCENTRIC = np.array([(-1.0) ** k * comb(_NEAREST - 1, k) for k in range(_NEAREST)])
#: Weights of as many nodes in the polynomial half-way between two of them, (place, node).
_MIDWAY = _BARYCENTRIC / (np.arange(0.5, _NEAREST - 1)[:, None] - np.arange(_NEAREST))
_MIDWAY /= _MIDWAY.sum(axis=1, keepdims=True)
#: How much an error at a node is in the polynomial that many nodes further, next to it being 1.
_SPREAD = np.abs(_MIDWAY[_NEAREST // 2 - 1, _NEAREST // 2 :] / _MIDWAY[_NEAREST // 2 - 1].max())
#: How far a log density may leave the range between two nodes.
_SWING = 0.5
#: Error of log densities between nodes, times their share, that is accepted, and the same where
#: they become nodes.
_SMOOTH, _AS_GOOD = 2e-9, 1e-10
#: Most nodes that are halved for it: panels would be as many.
_FEW = 128
#: Distance of break points where nodes become panels, in spreads, and in nodes at least.
_STRIDE, _LEAST_STRIDE = 1.8, 4


@dataclass(frozen=True)
class Spaced:
    """Equally spaced nodes at which the components of every row are known."""

    line: Line  # break points, for panels where these nodes are not enough
    middle: Array  # (row,), of all modes, in z
    spread: Array  # (row,), of the narrowest, in z
    heavy: bool  # whether tails are bent
    start: Array  # (row,): first node, in x
    step: Array  # (row,)
    log_components: Array  # (K, node, row)
    #: Error of those that are interpolated, the largest of all components, (node, row).
    doubt: Array = field(default_factory=lambda: np.zeros((1, 1)))

    @classmethod
    def lay(
        cls,
        components: Components,
        line: Line,
        modes: Array,
        pools: Sequence[Integrand],
        *,
        heavy: bool,
        tolerance: float = TOLERANCE,
    ) -> Spaced | None:
        """Put nodes where the modes (mode, multiple, row) are, in z; None if that does not do."""
        low, high = modes.min(axis=(0, 1)), modes.max(axis=(0, 1))
        widths = np.ptp(modes, axis=1).min(axis=0)
        if not (np.isfinite(widths).all() and (widths > 0).all()):
            return None
        if ((high - low) / widths).max() > _MOST_UNEQUAL or np.isfinite(line.inner).any():
            return None
        middle, spread = (low + high) / 2, widths / (2 * _OUTERMOST)
        reach = _straighten((high - low) / 2 / spread + _BEYOND, heavy)
        spacing = _BENT_SPACING if heavy else _SPACING
        n_nodes = int(np.ceil(2 * reach.max() / spacing)) + 1
        step = 2 * reach / (n_nodes - 1)
        nodes = cls(line, middle, spread, heavy, -reach, step, np.empty((0, 0, reach.size)))
        extended = nodes._evaluated(components, n_nodes)._extended(components, pools)
        if extended is None:
            return None
        found = extended.refined(components, *pools, tolerance=tolerance)
        return found if isinstance(found, Spaced) else None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.step.size

    @property
    def n_nodes(self) -> int:
        """Number of nodes of each row."""
        return self.log_components.shape[1]

    @property
    def is_light(self) -> bool:
        """Whether outcomes beyond the nodes are too few to matter for moments too."""
        return not self.heavy and self.line.scale is None

    def integrate(self, *pools: Integrand) -> Integral:
        """Integrate pools of the components over each row."""
        share, total = self._shares(pools)
        error = np.maximum(_fall(share), self._seen_between(pools, total))
        error += (share * self.doubt).sum(axis=1)
        return Integral(total, error + 10.0 * (share[:, 0] + share[:, -1]))

    def refined(
        self, components: Components, *pools: Integrand, tolerance: float = TOLERANCE
    ) -> Spaced | Grid:
        """Halve the spacing until the integrals of all pools have this relative error.

        Where that does not come about, lay panels. Halving squares the error of a smooth density,
        so where that would not be enough, it is not tried.
        """
        nodes = self
        for left in range(_MAX_HALVINGS, -1, -1):
            error = nodes.integrate(*pools).relative_error.max()
            if error <= tolerance:
                return nodes
            if not error <= tolerance ** (0.5**left):  # NaN too
                break
            nodes = nodes.halved(components, *pools)
        return Grid.lay(components, self.line).refined(components, *pools, tolerance=tolerance)

    def nodes(self) -> Nodes:
        """Return the nodes with their log quadrature weights."""
        return Nodes(self.log_components, self._log_places)

    def can_be_halved(self) -> bool:
        """Whether halving the spacing takes no more nodes than panels would."""
        return self.n_nodes <= _FEW

    def moments(self, pool: Integrand) -> tuple[Array, Array, Array]:
        """Mean and variance of a pool, and the relative error of the latter at most, (row,)."""
        y = self._outcomes
        share, _ = self._share(pool)
        middle = y[len(y) // 2]
        mean = (share * (y - middle)).sum(axis=0)
        squares = share * np.square(y - middle - mean)
        var = squares.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = squares / var
            error = _fall(spread[None])[0] + 10.0 * (spread[0] + spread[-1])
        return middle + mean, var, error

    def is_smooth(self, pool: Integrand) -> bool:
        """Whether log densities between the nodes are known as well as those at them.

        Every second node is predicted from the others.
        """
        if not self._has_many:
            return False
        share, _ = self._share(pool)
        with np.errstate(invalid="ignore"):  # of two densities of zero nothing is known
            wrong = _GAIN * self._wrong * share[1 : 2 * len(self._wrong) : 2]
            doubt = self.doubt * _around(share, _SPREAD)
            return bool((wrong < _SMOOTH).all() and (doubt < _SMOOTH).all())

    def interpolate(self, y: Array, rows: Rows) -> Array:
        """Log densities of the components between nodes, (point, row) → (K, point, row)."""
        z = y if self.line.scale is None else self.line.scale.forward(y)
        x = _straighten((z - self.middle[rows]) / self.spread[rows], self.heavy)
        return self._at((x - self.start[rows]) / self.step[rows], rows)

    def ends(self) -> tuple[Array, Array]:
        """Return the outermost outcomes, (row,)."""
        return self._outcomes[0], self._outcomes[-1]

    @property
    def _has_many(self) -> bool:
        """Whether polynomials through every second node have as many as they want."""
        return (self.n_nodes + 1) // 2 >= _NEAREST

    @cached_property
    def _wrong(self) -> Array:
        """How far every second node is from what the others predict, (node, row)."""
        known = _midway(self.log_components[:, ::2])
        with np.errstate(invalid="ignore"):
            return np.abs(known - self.log_components[:, 1 : 2 * known.shape[1] : 2]).max(axis=0)

    @cached_property
    def panels(self) -> Grid:
        """Panels between the outermost nodes, with interpolated components."""
        return Grid.lay(self.interpolate, self.panel_line(), tails=False)

    def panel_line(self) -> Line:
        """Return break points between which panels resolve what these nodes do."""
        count = self.n_nodes
        stride = max(_LEAST_STRIDE, round(_STRIDE / self.step.max()))
        at = np.unique(np.append(np.arange(0, count - 1, stride), count - 1))
        x = self.start[:, None] + self.step[:, None] * at
        breaks = self.middle[:, None] + self.spread[:, None] * _bend(x, self.heavy)[0]
        return Line(breaks, self.line.support)

    @property
    def _outcomes(self) -> Array:
        """Outcomes at the nodes, (node, row)."""
        return self._places[0]

    @property
    def _log_places(self) -> Array:
        """Logs of what the nodes stand for, (node, row)."""
        return self._places[1]

    @cached_property
    def _places(self) -> tuple[Array, Array]:
        x = self.start + self.step * np.arange(self.n_nodes)[:, None]
        bent, log_slope = _bend(x, self.heavy)
        y, log_stretch = self.line.outcomes(self.middle + self.spread * bent)
        return y, log_stretch + log_slope + np.log(self.spread * self.step)

    def _evaluated(self, components: Components, count: int) -> Spaced:
        empty = replace(self, log_components=np.empty((0, count, self.n_rows)))
        logs = components(empty._outcomes, np.arange(self.n_rows))
        return replace(self, log_components=logs)

    def is_half_of(self, nodes: Spaced) -> bool:
        """Whether these nodes are others at half their distance."""
        return self.n_nodes == 2 * nodes.n_nodes - 1

    def halved(self, components: Components, *pools: Integrand) -> Spaced:
        """Return nodes at half the distance.

        Where polynomials know the components as well, they are not evaluated: that is so far out,
        or where a pool bends and they do not.
        """
        between = replace(self, start=self.start + self.step / 2)
        if not self._has_many:
            between = between._evaluated(components, self.n_nodes - 1)
            return self._with(between, np.zeros((1, 1)))
        between = replace(between, log_components=_midway(self.log_components))
        doubt = self._doubt_between()
        share = self._shares([*pools, *map(_component, range(len(self.log_components)))])[0]
        share = _around(np.maximum(share[:, :-1], share[:, 1:]).max(axis=0), _SPREAD[::2])
        with np.errstate(invalid="ignore"):
            rough = np.flatnonzero(~(doubt * share < _AS_GOOD).all(axis=1))
        if rough.size:
            some = slice(rough[0], rough[-1] + 1)  # equally spaced still
            y = between._outcomes[some]
            between.log_components[:, some] = components(y, np.arange(self.n_rows))
            doubt[some] = 0.0
        return self._with(between, doubt)

    def _with(self, between: Spaced, doubt: Array) -> Spaced:
        """Join nodes half-way between these, and the doubt about them."""
        shape = 2 * self.n_nodes - 1, self.n_rows
        logs, doubts = np.empty((len(self.log_components), *shape)), np.empty(shape)
        logs[:, ::2], logs[:, 1::2] = self.log_components, between.log_components
        doubts[::2], doubts[1::2] = self.doubt, doubt
        return replace(self, step=self.step / 2, log_components=logs, doubt=doubts)

    def _doubt_between(self) -> Array:
        """Error of log densities that are interpolated half-way, (node − 1, row).

        As much less than that of every second node as halving gains, at the worst of those near.
        """
        wrong = np.pad(self._wrong, ((1, 2), (0, 0)), mode="edge")
        wrong = np.maximum(np.maximum(wrong[:-2], wrong[1:-1]), wrong[2:])
        known = np.broadcast_to(self.doubt, (self.n_nodes, self.n_rows))
        nearest = np.arange(self.n_nodes - 1) // 2  # of the odd nodes, which end or begin places
        return _GAIN * wrong[nearest] + np.maximum(known[:-1], known[1:])

    def _extended(self, components: Components, pools: Sequence[Integrand]) -> Spaced | None:
        """Add nodes at either end until what lies beyond is negligible; None if it never is."""
        nodes = self
        for _ in range(_MAX_EXTENSIONS):
            share, _ = nodes._shares(pools)
            if not np.isfinite(share).all():
                return None
            more = [share[:, end].max() > _NEGLIGIBLE for end in (0, -1)]
            if not any(more):
                return nodes
            count = nodes.n_nodes
            first = nodes.start - _EXTENSION * nodes.step
            places = (first, nodes.start + count * nodes.step)
            below, above = (
                replace(nodes, start=start)._evaluated(components, _EXTENSION * wanted)
                for start, wanted in zip(places, more, strict=True)
            )
            parts = [below.log_components, nodes.log_components, above.log_components]
            logs = np.concatenate([part for part in parts if part.shape[1]], axis=1)
            nodes = replace(nodes, start=first if more[0] else nodes.start, log_components=logs)
        return None

    def _shares(self, pools: Sequence[Integrand]) -> tuple[Array, Array]:
        """Shares of the nodes in the integrals, (pool, node, row), and the logs of these."""
        share, total = zip(*map(self._share, pools), strict=True)
        return np.stack(share), np.stack(total)

    def _share(self, pool: Integrand) -> tuple[Array, Array]:
        """Find them for one pool, (node, row) and (row,); kept for the next question about it."""
        found = next((kept for kept in self._kept if kept[0] is pool), None)
        if found is None:
            with np.errstate(invalid="ignore"):
                logs = pool(self.log_components, np.arange(self.n_rows)) + self._log_places
                total = log_sum_exp(logs)
                found = pool, np.exp(logs - total), total
            self._kept[:] = [found]
        return found[1:]

    @cached_property
    def _kept(self) -> list[tuple[Integrand, Array, Array]]:
        return []

    def _seen_between(self, pools: Sequence[Integrand], total: Array) -> Array:
        """Relative error of the integrals that is seen at interpolated nodes, (pool, row).

        The fall of the transform does not tell of a pool that bends where two components cross:
        it falls fast first. Half of what nodes between these differ by is the error, but for that
        of the interpolation, which the integrals of the components show.
        """
        if self.n_nodes < _NEAREST:
            return np.zeros(total.shape)
        rows = np.arange(self.n_rows)
        between, interpolated = self._between
        with np.errstate(invalid="ignore", over="ignore"):
            logs = np.stack([pool(between.log_components, rows) for pool in pools])
            pooled = np.exp(logs + between._log_places - total[:, None]).sum(axis=1)
            return np.nan_to_num(np.maximum(np.abs(pooled - 1) - interpolated, 0)) / 2

    @cached_property
    def _between(self) -> tuple[Spaced, Array]:
        """Interpolated nodes between these, and the error of integrals by them, (row,)."""
        between = replace(
            self, start=self.start + self.step / 2, log_components=_midway(self.log_components)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            here, known = (
                np.exp(nodes.log_components + nodes._log_places).sum(axis=1)
                for nodes in (self, between)
            )
            return between, np.nan_to_num(np.abs(known / here - 1)).max(axis=0)

    def _at(self, place: Array, rows: Rows) -> Array:
        """Components at places counted in nodes, (point, row) → (K, point, row)."""
        count = self.n_nodes
        first = np.clip(np.floor(place) - (_NEAREST // 2 - 1), 0, count - _NEAREST)
        near = np.where(np.isnan(first), 0, first).astype(np.intp)
        weights = np.empty((_NEAREST, *place.shape))
        for k in range(_NEAREST):
            offset = place - near - k
            weights[k] = _BARYCENTRIC[k] / np.where(offset == 0, 1e-300, offset)
        weights /= weights.sum(axis=0)
        result = np.zeros((len(self.log_components), *place.shape))
        left = np.clip(np.nan_to_num(np.floor(place)), 0, count - 2).astype(np.intp)
        ends = self.log_components[:, left, rows], self.log_components[:, left + 1, rows]
        low, high = np.fmin(*ends), np.maximum(*ends)
        with np.errstate(invalid="ignore"):
            for k in range(_NEAREST):
                result += weights[k] * self.log_components[:, near + k, rows]
            # Far out, polynomials through logs that fall ever faster swing.
            result = np.clip(np.where(np.isnan(result), low, result), low - _SWING, high + _SWING)
        return np.where(np.isnan(place), np.nan, result)


#: Multiples of the spread between which modes are given.
_OUTERMOST = 7.0


def _bend(x: Array, heavy: bool) -> tuple[Array, Array]:
    """Return (z − middle) / spread at x, and the log of its slope."""
    if not heavy:
        return x, np.zeros_like(x)
    return _BEND * np.sinh(x / _BEND), np.log(np.cosh(x / _BEND))


def _straighten(bent: Array, heavy: bool) -> Array:
    """Return x, inverse to :func:`_bend`."""
    return _BEND * np.arcsinh(bent / _BEND) if heavy else bent


def _component(k: int) -> Integrand:
    return lambda logs, rows: logs[k]


def _around(share: Array, weights: Array) -> Array:
    """Largest share of the nodes near each, (node, row), weighted by how far they are."""
    near = share.copy()
    for far, weight in enumerate(weights[1:], 1):
        near[far:] = np.maximum(near[far:], weight * share[:-far])
        near[:-far] = np.maximum(near[:-far], weight * share[far:])
    return near


def _midway(logs: Array) -> Array:
    """Interpolate half-way between neighbouring nodes, (K, node, row) → (K, node − 1, row)."""
    count, side = logs.shape[1], _NEAREST // 2 - 1  # places at either end with other neighbours
    with np.errstate(invalid="ignore"):
        inner = sum(
            weight * logs[:, k : count - _NEAREST + 1 + k] for k, weight in enumerate(_MIDWAY[side])
        )
        below = np.einsum("pk,akr->apr", _MIDWAY[:side], logs[:, :_NEAREST])
        above = np.einsum("pk,akr->apr", _MIDWAY[side + 1 :], logs[:, -_NEAREST:])
        result = np.concatenate([below, inner, above], axis=1)
        low, high = np.minimum(logs[:, :-1], logs[:, 1:]), np.maximum(logs[:, :-1], logs[:, 1:])
        return np.clip(result, low - _SWING, high + _SWING)


def _fall(share: Array) -> Array:
    """Transform of the shares (pool, node, row) at the spacing's own frequency, from lower ones.

    Its logarithm is taken to fall on at the same rate, or faster, as it does for poles and for
    normal densities.
    """
    node = np.arange(share.shape[1])
    sizes = []
    for frequencies in (_LOW, _HIGH):
        waves = np.exp(1j * np.pi * np.outer(frequencies, node))
        sizes.append(np.abs(np.einsum("fm,pmr->pfr", waves, share)).max(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.log(np.maximum(sizes, 1e-17))
        rate = (high - low) / (_HIGH[0] - _LOW[0])
        known = np.exp(high + rate * (2.0 - _HIGH[0]))
    return np.where(rate < 0, np.maximum(known, 1e-15), 1.0)
