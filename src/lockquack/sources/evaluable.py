"""Models whose density a probabilistic programming language can evaluate anywhere.

How to write an adapter with it: subclass :class:`DensityPredictive`, implement the one method
:meth:`~DensityPredictive.jets_at`, make an object with ``Likelihood(name)``, and return
``described(model, name)``, which finds out where the density ends and how::

    @dataclass(frozen=True, eq=False, repr=False)
    class MyPredictive(DensityPredictive):
        theta: Mapping[str, Array]  # (chain, draw, ...)

        def jets_at(self, y, chain, draws, obs, *, derivatives):
            ...  # y (point, obs, d) → Jet of (point, draws, obs) and (point, draws, obs, d)

    model = MyPredictive(observations, chains, draws, Likelihood("Gamma"), theta)
    return described(model, "Gamma")

Log densities, derivatives, densities at other outcomes and the places where quadrature begins to
look all follow from that method. ``draws`` may be a slice with a step; ``obs`` is a slice or an
array of positions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lockquack.errors import ShapeError, SupportError
from lockquack.families import Edge, Family, Range, find_family
from lockquack.families.refused import find_refused, plain
from lockquack.jets import Array, Jet, log_sum_exp
from lockquack.models.model import Likelihood, Predictive, Selection

#: Draws of a chain that are enough to see where a prediction is, and to see its extremes.
_VERY_FEW_DRAWS, _FEW_DRAWS, _MANY_DRAWS = 8, 32, 256
_SOME_OBSERVATIONS = 64
#: Modes that are followed, each with its own break points.
_MODES = 3
#: Numbers that are evaluated at once while looking around.
_AT_ONCE = 2**18
#: Log densities that a number between 0 and 1 can hardly hold.
_TOO_SMALL = -600.0
#: Rounds, each of which makes a grid eight times finer.
_ZOOMS = 16
#: Powers of ten of the outcomes' spread that are looked at, either side of an observation.
_REACH = np.linspace(-8.0, 8.0, 33)


@dataclass(frozen=True, eq=False, repr=False)
class DensityPredictive(Predictive):
    """Draws of a density that can be evaluated anywhere; subclasses say how, in one method."""

    #: Whether some single outcomes have positive probability, as censored ones do.
    has_atoms: bool = field(default=False, kw_only=True)
    #: Whether the source can differentiate its density twice.
    differentiable: bool = field(default=True, kw_only=True)
    #: Log likelihoods that came with the draws, (chain, draw, ...observations).
    stored: Any = field(default=None, kw_only=True)
    _last: dict[Any, Jet] = field(default_factory=dict, init=False, repr=False)

    @abstractmethod
    def jets_at(
        self, y: Array, chain: int, draws: slice, obs: Selection, *, derivatives: bool
    ) -> Jet:
        """Evaluate the density of some draws and observations at any outcomes.

        Parameters
        ----------
        y
            Outcomes, (point, obs, d).
        chain, draws, obs
            Which draws and observations; ``draws`` may have a step.
        derivatives
            Whether gradient and curvature are wanted; where not, they may be empty.

        Returns
        -------
        Jet
            Of shape (point, draws, obs), its derivatives (point, draws, obs, d). Outside the
            support the log density is −inf.
        """

    @property
    def evaluable(self) -> bool:
        """Whether :meth:`logp_at` gives a density, or probabilities of known outcomes."""
        return not self.has_atoms and bool(self.likelihood.edges or not self.likelihood.discrete)

    @property
    def has_derivatives(self) -> bool:
        """Whether the density has derivatives in the outcome."""
        return self.differentiable and not (self.likelihood.discrete or self.has_atoms)

    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        """Log densities of a tile, shape (draws, obs)."""
        return np.asarray(self._tile(chain, draws, obs, derivatives=False).logp[0])

    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        """First and second derivatives of a tile, each of shape (draws, obs, component)."""
        self.require_derivatives()
        jet = self._tile(chain, draws, obs, derivatives=True)
        return jet.grad[0], jet.curv[0]

    def logp_at(self, y: Array, chain: int, draws: slice, obs: Selection) -> Array:
        """Log densities at other outcomes ``y``, (point, obs, component) → (point, draws, obs)."""
        return self.jets_at(y, chain, draws, obs, derivatives=False).logp

    def stored_logp(self, chain: int, draws: slice) -> Array | None:
        """Log densities that came with the draws, (draws, obs), or None."""
        if self.stored is None:
            return None
        some = np.asarray(self.stored[chain, draws], dtype=np.float64)
        if some[0].size != self.n_obs:
            raise ShapeError(
                f"The log likelihood stored with the draws has {some[0].size} values in each "
                f"draw; the model has {self.n_obs} observations. Give the model that was sampled."
            )
        return some.reshape(len(some), self.n_obs)

    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        """Outcomes that many spreads from each mode of the prediction, (mode, multiple, obs).

        The modes are found by looking at the density on ever finer grids. In detail, each chain
        is looked at by itself, and so are its narrowest and its outermost draws.
        """
        bulks = _find_bulks(self, obs, range(self.n_chains))
        if detailed:
            for chain in range(self.n_chains):
                bulks += _find_bulks(self, obs, [chain]) + _extreme_draws(self, obs, chain)
        points = np.stack([place + multiples[:, None] * width for place, width in bulks])
        return np.clip(points, *(self.likelihood.support or (-np.inf, np.inf)))

    def _tile(self, chain: int, draws: slice, obs: slice, *, derivatives: bool) -> Jet:
        """Evaluate at the observed outcomes; a pass asks for one tile twice in a row."""
        place = (chain, draws.start, draws.stop, draws.step, obs.start, obs.stop)
        for key in ((place, True), (place, derivatives)):
            if key in self._last:
                return self._last[key]
        jet = self.jets_at(
            self.observations.values[None, obs], chain, draws, obs, derivatives=derivatives
        )
        self._last.clear()
        if jet.logp.size <= _AT_ONCE:
            self._last[place, derivatives] = jet
        return jet


def stored_log_likelihood(tree: Any, name: str) -> Any:
    """Find what a container has as the log likelihood of an outcome, draws first, or None."""
    if "log_likelihood" not in tree.children or name not in tree["log_likelihood"].data_vars:
        return None
    return tree["log_likelihood"].to_dataset()[name].transpose("chain", "draw", ...)


P = TypeVar("P", bound=DensityPredictive)


def described(model: P, name: str, parts: Sequence[str] = ()) -> P:
    """Return the model with what the name of its likelihood, and the density itself, tell.

    What :mod:`lockquack.families` knows by name is taken from there. Where a density ends, and
    how it behaves there, depends on parameters or is not known by name, the density is looked at
    near and far from the observations.

    Parameters
    ----------
    model
        The model, with any likelihood description.
    name
        What to call the likelihood in messages and tables, ``"Gamma"``.
    parts
        Names of the distributions that it is made of, such as those of a ``"Mixture"``. What is
        wrong with any of them is wrong with the whole.
    """
    names = [_spelt(part) for part in (name, *parts)]
    families = [find_family(each) for each in names]
    refused = [
        find_refused(each) for each, family in zip(names, families, strict=True) if family is None
    ]
    if (
        model.likelihood.discrete
        or any(family.discrete for family in families if family is not None)
        or any(why.discrete for why in refused if why is not None)
    ):
        ends = _outcomes(names, families)
        model = replace(model, likelihood=Likelihood(name, discrete=True, edges=ends))
        _require_possible(model, name)
        return model
    _require_possible(model, name)
    reasons = [why.not_smooth for why in refused if why is not None and why.not_smooth]
    reasons += [_NOT_SMOOTH[each] for each in names if each in _NOT_SMOOTH]
    if not model.differentiable:
        reasons.append("its derivatives in the outcome are not known to the library it comes from")
    edges: tuple[Edge, ...] = ()
    if not model.has_atoms:
        edges, problem = _edges(model, names[1:] if names[0] == "mixture" else names[:1])
        reasons += [problem] if problem else []
    likelihood = Likelihood(name, edges=edges, not_smooth=reasons[0] if reasons else "")
    return replace(model, likelihood=likelihood)


#: Likelihoods that :mod:`lockquack.families.refused` does not know.
_NOT_SMOOTH = {
    "dirichlet": "its outcomes lie on a simplex, where components cannot vary on their own",
    "interpolated": "its density is interpolated between points, with kinks there",
}
_ALIASES = {"t": "studentt", "multivariatenormal": "mvnormal", "multivariatestudentt": "mvstudentt"}


def _spelt(name: str) -> str:
    """Spell a name as the families' names are, without what only separates words."""
    return _ALIASES.get(plain(name), plain(name))


def _outcomes(names: Sequence[str], families: Sequence[Family | None]) -> tuple[Edge, ...]:
    """First and last outcome of a discrete likelihood, where its name tells them."""
    if names[0] == "mixture":  # a zero-inflated one has a point mass at 0 beside its counts
        families = [
            family
            for name, family in zip(names[1:], families[1:], strict=True)
            if name != "diracdelta"
        ]
    else:
        families = families[:1]
    known = [family.support for family in families if family is not None]
    if not known or len(known) < len(families):
        return ()
    return Edge(min(low for low, _ in known), 0.0), Edge(max(high for _, high in known), 0.0)


class _Unknown(dict[str, Range]):
    """Ranges of parameters nobody has looked at: orders that depend on them become NaN."""

    def __missing__(self, name: str) -> Range:
        return Range(np.nan, np.nan)


def _require_possible(model: DensityPredictive, name: str) -> None:
    """Refuse outcomes that the model deems impossible, looking at its first draw."""
    logp = model.logp(0, slice(0, 1), slice(0, model.n_obs))[0]
    bad = np.flatnonzero(~np.isfinite(logp))
    if bad.size:
        at = int(bad[0])
        raise SupportError(
            f"The log density of {name} is {logp[at]} at {model.observations.describe(at)}, where "
            f"y is {model.observations.values[at].tolist()}, and at {bad.size - 1} more. Outcomes "
            "must lie inside the support of the model."
        )


def _edges(model: DensityPredictive, names: Sequence[str]) -> tuple[tuple[Edge, ...], str]:
    """Where the density ends and how, and what is wrong with that."""
    families = [family for name in names if (family := find_family(name)) is not None]
    if names and len(families) == len(names):
        each = [family.edges(_Unknown()) for family in families]
        if len({tuple(edge.at for edge in of_part) for of_part in each}) > 1:
            return (), "its components end at different places, where it has kinks"
        edges = tuple(
            Edge(at_end[0].at, float(np.min([edge.order for edge in at_end])))  # NaN, if one is
            for at_end in zip(*each, strict=True)
        )
    elif len(set(names)) > 1:
        return (), "its components may end at different places, where it has kinks"
    elif model.observations.d > 1:
        return (), ""
    else:
        ends = [_find_end(model, side) for side in (-1.0, 1.0)]
        if None in ends:
            return (), "its support ends at a place that depends on its parameters"
        edges = tuple(Edge(end, np.nan) for end in ends if end is not None)
    is_power = len(families) > 0  # so are all whose order their parameters determine
    found = tuple(
        Edge(edge.at, _order(model, edge.at, side, is_power=is_power))
        if np.isnan(edge.order)
        else edge
        for edge, side in zip(edges, (-1.0, 1.0), strict=True)
    )
    unclear = [edge.at for edge in found if np.isnan(edge.order)]
    return found, f"its density near {unclear[0]:g} is not a number" if unclear else ""


def _find_end(model: DensityPredictive, side: float) -> float | None:
    """Find where the density ends on one side: ±inf, a number, or None where that varies.

    Distances from the observations are bisected between possible and impossible outcomes, for
    some draws at once.
    """
    obs = _some_observations(model)
    y, unit = model.observations.values[obs, 0], _unit(model)

    def possible(distance: Array) -> tuple[Array, Array]:
        """Whether outcomes at (point, obs) distances are possible in all, in any of the draws."""
        logp = np.concatenate(
            [part for _, part in _evaluate(model, y + side * distance, obs, _VERY_FEW_DRAWS)],
            axis=1,
        )
        inside = np.isfinite(logp)
        return inside.all(axis=1), inside.any(axis=1)

    reach = unit * 10.0 ** np.linspace(-2.0, 8.0, 21)[:, None] * np.ones(y.size)
    everywhere, somewhere = possible(reach)
    if everywhere.all():
        return side * np.inf
    ends = []
    for which, inside in ((0, everywhere), (1, somewhere)):
        first = np.argmin(inside, axis=0)
        high = np.where(inside.all(axis=0), np.inf, reach[first, np.arange(y.size)])
        low = np.where(first > 0, reach[first - 1, np.arange(y.size)], 0.0)
        for _ in range(60):
            half = np.where(np.isinf(high), low, (low + high) / 2)
            good = possible(half[None])[which][0]
            low, high = np.where(good, half, low), np.where(good, high, half)
        ends.append(y + side * low)
    place = np.concatenate(ends)
    meant = _meant(float(np.median(place)), unit)
    if np.ptp(place) < 1e-6 * unit and meant is not None:
        return meant
    # A density that only becomes too small for a number, as far out in a tail, does not end.
    deep = [part for _, part in _evaluate(model, ends[0][None], obs, _VERY_FEW_DRAWS)]
    if np.nanmin(np.concatenate(deep, axis=1)) < _TOO_SMALL:
        return side * np.inf
    return None if np.ptp(place) > 1e-6 * unit else float(np.median(place))


def _meant(place: float, unit: float) -> float | None:
    """Round to a number at which a support is likely to end, if one is near."""
    for end in (round(place), np.copysign(np.pi, place)):
        if abs(place - end) < 1e-9 * max(unit, abs(place)):
            return float(end)
    return None


def _order(model: DensityPredictive, end: float, side: float, *, is_power: bool) -> float:
    """Lowest order of the density at an end of its support, over all draws and observations.

    At a finite end it is the slope of the log density over the log distance, infinite where that
    keeps growing, unless it is known not to; at an infinite one, where less depends on it, the
    rate of decay in some draws.
    """
    unit = _unit(model)
    n_draws = model.n_draws
    if np.isinf(end):
        n_draws = _FEW_DRAWS
        distances = unit * np.array([1e3, 1e4, 1e5])
        points = np.median(model.observations.values) + side * distances
    else:
        depth = np.array([1e-8, 1e-16, 1e-32]) if end == 0 else np.array([1e-4, 1e-7, 1e-10])
        distances = max(unit, abs(end)) * (depth[:2] if is_power else depth)
        points = end - side * distances
    y = np.repeat(points[:, None], model.n_obs, axis=1)
    lowest = np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        for _, logp in _evaluate(model, y, slice(0, model.n_obs), n_draws):
            step = np.diff(logp, axis=0)
            if np.isinf(end):
                near, far = -step / np.diff(distances)[:, None, None]
                order = np.where(far > 1.5 * near, np.inf, np.where(1.5 * far < near, 0.0, far))
            else:
                slope = step / np.diff(np.log(distances))[:, None, None]
                near, far = slope[0], slope[-1]
                order = np.where(far > near + 0.1 * np.maximum(1.0, np.abs(near)), np.inf, far)
            order = np.where(np.isneginf(logp[-1]), np.inf, order)
            lowest = float(np.minimum(lowest, order.min()))  # NaN, if there is one
    return lowest


def _evaluate(
    model: DensityPredictive, y: Array, obs: Selection, n_draws: int, chains: Sequence[int] = ()
) -> Iterator[tuple[int, Array]]:
    """Go through log densities (point, draws, obs) of up to so many draws of each chain."""
    if model.likelihood.discrete:
        y = np.round(y)
    step = -(-model.n_draws // n_draws)
    length = step * max(1, _AT_ONCE // y.size)
    for chain in chains or range(model.n_chains):
        for start in range(0, model.n_draws, length):
            draws = slice(start, min(start + length, model.n_draws), step)
            with np.errstate(all="ignore"):  # far out, and outside the support
                yield chain, model.logp_at(y[..., None], chain, draws, obs)


def _unit(model: DensityPredictive) -> float:
    y = model.observations.values
    return float(y.std() or np.abs(y).max() or 1.0)


def _some_observations(model: DensityPredictive) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, model.n_obs - 1, _SOME_OBSERVATIONS).astype(np.intp))


#: Location and width of some part of a prediction, each (obs,).
Bulk = tuple[Array, Array]


def _find_bulks(model: DensityPredictive, obs: slice, chains: Sequence[int]) -> list[Bulk]:
    """Locate the modes of the prediction, and its mass as a whole, from some draws."""
    support = model.likelihood.support or (-np.inf, np.inf)

    def prediction(y: Array) -> Array:
        """Log density up to a constant, (point, obs); −inf where it is no number."""
        parts = [
            log_sum_exp(np.where(logp < np.inf, logp, -np.inf), axis=1)
            for _, logp in _evaluate(model, y, obs, _FEW_DRAWS, chains)
        ]
        return log_sum_exp(np.stack(parts))

    y = model.observations.values[obs, 0]
    grid = _around(y, _unit(model) * 10.0**_REACH, support)
    peaks = [_zoom(prediction, low, high) for low, high in _brackets(grid, prediction(grid))]
    whole = _either(peaks[0], (y, np.full(y.shape, _unit(model))))
    grid = _around(whole[0], whole[1] * 10.0 ** np.linspace(-1.0, 9.0, 61)[:, None], support)
    whole = _mass(grid, prediction(grid), whole)
    grid = np.clip(whole[0] + whole[1] * np.linspace(-5.0, 5.0, 65)[:, None], *support)
    whole = _mass(grid, prediction(grid), whole)
    return [whole, *(_either(peak, whole) for peak in peaks)]


def _either(bulk: Bulk, fallback: Bulk) -> Bulk:
    """Put the fallback where a bulk has no width."""
    known = np.isfinite(bulk[1])
    return np.where(known, bulk[0], fallback[0]), np.where(known, bulk[1], fallback[1])


def _around(y: Array, distances: Array, support: tuple[float, float]) -> Array:
    """Points at given distances from y and, near ends of the support, from these; sorted."""
    distances = distances.reshape(len(distances), -1)
    points = [y[None], y - distances, y + distances]
    for end in support:
        if np.isfinite(end):
            points = [np.clip(part, *support) for part in points]
            points.append(end + (y - end) * 10.0 ** -np.linspace(0.5, 8.0, 16)[:, None])
    return np.sort(np.concatenate(points), axis=0)


def _brackets(grid: Array, logp: Array) -> list[tuple[Array, Array]]:
    """Neighbours in the grid of its highest local maxima, the highest first."""
    padded = np.pad(logp, ((1, 1), (0, 0)), constant_values=-np.inf)
    is_peak = (logp >= padded[:-2]) & (logp > padded[2:])
    order = np.argsort(np.where(is_peak, -logp, np.inf), axis=0, kind="stable")[:_MODES]
    column = np.arange(grid.shape[1])
    order = np.where(is_peak[order, column], order, order[0])
    last = len(grid) - 1
    return [
        (grid[np.maximum(at - 1, 0), column], grid[np.minimum(at + 1, last), column])
        for at in order
    ]


def _zoom(prediction: Callable[[Array], Array], low: Array, high: Array) -> Bulk:
    """Narrow brackets of a maximum until the grid resolves it; return its place and width.

    Where the density has a pole, which no grid resolves, the width is NaN.
    """
    column = np.arange(low.size)
    for _ in range(_ZOOMS):
        points = low + np.linspace(0.0, 1.0, 17)[:, None] * (high - low)
        logp = prediction(points)
        at = np.clip(np.argmax(logp, axis=0), 1, len(points) - 2)
        left, middle, right = (logp[at + k, column] for k in (-1, 0, 1))
        with np.errstate(invalid="ignore"):
            drop = np.maximum(middle - left, middle - right)
        coarse = ~(drop < 1.0) & (high > low)
        if not coarse.any():
            break
        low = np.where(coarse, points[at - 1, column], low)
        high = np.where(coarse, points[at + 1, column], high)
    width = _width(left, middle, right, points[1] - points[0], high - low)
    return points[at, column], np.where(coarse, np.nan, width)


def _width(left: Array, middle: Array, right: Array, step: Array, fallback: Array) -> Array:
    """Width of a peak from its bend, or a fallback where it has none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        width = step / np.sqrt(2.0 * middle - left - right)
    return np.where(np.isfinite(width) & (width > 0), width, fallback)


def _mass(grid: Array, logp: Array, fallback: Bulk) -> Bulk:
    """Median and half the central two thirds of what lies under the points of a grid."""
    peak = logp.max(axis=0)
    density = np.exp(logp - np.where(np.isfinite(peak), peak, 0.0))
    pieces = np.diff(grid, axis=0) * (density[1:] + density[:-1]) / 2
    total = np.concatenate([np.zeros((1, grid.shape[1])), np.cumsum(pieces, axis=0)])
    places, widths = fallback[0].copy(), fallback[1].copy()
    for i in np.flatnonzero(total[-1] > 0):
        low, middle, high = np.interp([1 / 6, 1 / 2, 5 / 6], total[:, i] / total[-1, i], grid[:, i])
        if high > low:
            places[i], widths[i] = middle, (high - low) / 2
    return places, widths


def _extreme_draws(model: DensityPredictive, obs: slice, chain: int) -> list[Bulk]:
    """Locate the narrowest and the outermost single draws of a chain."""
    place, width = _find_bulks(model, obs, [chain])[0]
    points = place + width * np.linspace(-6.0, 6.0, 49)[:, None]
    places, widths = [], []
    for _, logp in _evaluate(model, points, obs, _MANY_DRAWS, [chain]):
        at = np.clip(np.argmax(logp, axis=0), 1, len(points) - 2)[None]  # (1, draws, obs)
        left, middle, right = (np.take_along_axis(logp, at + k, axis=0)[0] for k in (-1, 0, 1))
        places.append(np.take_along_axis(points[:, None], at, axis=0)[0])
        widths.append(_width(left, middle, right, points[1] - points[0], width))
    location, spread = np.concatenate(places), np.concatenate(widths)  # (draws, obs)
    column = np.arange(place.size)
    chosen = (spread.argmin(axis=0), location.argmin(axis=0), location.argmax(axis=0))
    return [(location[draw, column], spread[draw, column]) for draw in chosen]
