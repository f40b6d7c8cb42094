"""Models that were fitted to parts of the data: their predictions of the other parts, as one model.

Each part, a fold, was predicted by a fit of its own that had not seen it. Side by side, in the
order of the data, these are the held-out predictions of one model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import (
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    UnsupportedError,
    naming,
)
from lockquack.jets import Array, Jet, join_jets
from lockquack.models.leaving_out import counted_by_way
from lockquack.models.model import Model
from lockquack.models.observations import COMPONENT_DIM, OBS_DIM, Observations, as_observations
from lockquack.models.source import Abilities, FixedWeights, Source, Subset
from lockquack.sources.reading import as_model
from lockquack.sources.splits import Index, Split, are_from_the_past, are_one_step_ahead

#: Rows that are not wanted but read all the same, between two that are.
_FAR = 16


@own_arithmetic
def from_folds(folds: Sequence[tuple[Any, Any]]) -> Model:
    r"""Put the predictions of several fits, each of a part of the data, side by side as one model.

    .. math:: p(y_i \mid y_{-\kappa(i)}) \approx
              \frac1S \sum_s f(y_i \mid \theta_s^{\kappa(i)}),

    with the draws :math:`\theta^k` of the fit that was made without fold k. The result is a model
    of held-out predictions in the order of the data: scores are these, nothing is left out a
    second time, and no Pareto k̂ is needed. :func:`cross_validate` makes the folds and the fits
    too.

    Do not put predictions of observations into it that the same fit was made with: nobody can see
    that from outside.

    Parameters
    ----------
    folds
        Pairs of positions in the data, and a model of the observations at these positions in this
        order, made from a fit to others. No position may come twice; those that do not come, such
        as the beginning of a series, are not part of the result, whose observations then are
        labelled by their positions. All fits need the same number of chains and of draws.

    Returns
    -------
    Model
        A model for :func:`lockquack.stack` and its relatives.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.array([0.3, 1.2, -0.4, 0.9])
    >>> rng = np.random.default_rng(1)
    >>> folds = []
    >>> for test in ([0, 2], [1, 3]):
    ...     train = np.setdiff1d(np.arange(4), test)
    ...     mu = rng.normal(y[train].mean(), 0.5, size=(4, 100))
    ...     folds.append((test, lq.from_family("normal", y=y[test], mu=mu, sigma=1.0)))
    >>> lq.from_folds(folds)
    <Model normal; chain: 4, draw: 100, obs_id: 4, components: 1>
    """
    each = []
    for k, (index, given) in enumerate(_pairs(folds)):
        with naming(f"Fold {k}"):
            source = as_model(given).source
            each.append(Fold(positions(index, source), source, np.arange(source.n_obs)))
    return side_by_side(each)


@dataclass(frozen=True)
class Fold:
    """Observations that one fit predicts, which may be some of several that it could."""

    places: Index  # positions in the data
    source: Source
    rows: Index  # where in the source these are


def side_by_side(folds: Sequence[Fold], splits: Sequence[Split] = ()) -> Model:
    """Put the predictions of several fits into one model, in the order of the data.

    The splits, where they are known, tell what is predicted from what.
    """
    sources = [each.source for each in folds]
    require_alike(sources)
    order = np.concatenate([each.places for each in folds])
    _require_once(order)
    sorting = np.argsort(order)
    fold = np.repeat(np.arange(len(folds)), [len(each.places) for each in folds])
    first = sources[0]
    observations = _observations(folds, order, sorting)
    return Model(
        FoldedSource(
            observations,
            first.n_chains,
            first.n_draws,
            # Of predictions from the past, terms given earlier outcomes are just what is wanted.
            replace(first.likelihood, given_earlier=False)
            if are_from_the_past(splits)
            else first.likelihood,
            held_out=True,
            outcome_draws=_outcome_draws(folds, observations, sorting),
            is_split=all(source.is_split for source in sources),
            sources=tuple(sources),
            fold=fold[sorting],
            row=np.concatenate([each.rows for each in folds])[sorting],
            hows=tuple(_how(source) for source in sources),
            one_step_ahead=are_one_step_ahead(splits),
        )
    )


@dataclass(frozen=True, eq=False, repr=False)
class FoldedSource(Source):
    """The sources of several fits, each asked about the observations that it predicts."""

    sources: tuple[Source, ...]
    fold: Index  # (n,): which source predicts the observation
    row: Index  # (n,): at which place of it
    hows: tuple[str, ...]  # how each source came by its predictions
    #: Whether the first source was fitted to what it predicts, so that its draws are weighted.
    first_saw: bool = False
    #: Whether each observation is predicted from all before it, and from no others.
    one_step_ahead: bool = False

    @property
    @override
    def can(self) -> Abilities:
        each = [source.can for source in self.sources]
        return Abilities(
            know_density=all(can.know_density for can in each),
            differentiate=all(can.differentiate for can in each),
            evaluate=all(can.evaluate for can in each),
            integrate_to_one=all(can.integrate_to_one for can in each),
            predict_alone=all(can.predict_alone for can in each),
            be_shared=all(can.be_shared for can in each),
            be_sent=all(can.be_sent for can in each),
            has_generator=lambda: all(can.draw for can in each),
        )

    @property
    @override
    def known_where(self) -> str:
        unknown = [source for source in self.sources if not source.can.evaluate]
        return unknown[0].known_where if unknown else super().known_where

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        parts = [
            (places, self.sources[k].logp(chain, draws, span)[:, rows])
            for k, places, span, rows in self._by_fold(obs)
        ]
        return _joined(parts, axis=1)

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        grads, curvs = [], []
        for k, places, span, rows in self._by_fold(obs):
            grad, curv = self.sources[k].derivatives(chain, draws, span)
            grads.append((places, grad[:, rows]))
            curvs.append((places, curv[:, rows]))
        return _joined(grads, axis=1), _joined(curvs, axis=1)

    @override
    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        jets, found = [], []
        for k, places, span, rows in self._by_fold(obs):
            jet = self.sources[k].jets_at(
                y[:, places], chain, draws, span.start + rows, derivatives=derivatives
            )
            jets.append(jet)
            found.append(places)
        return join_jets(jets, axis=2)[:, :, np.argsort(np.concatenate(found))]

    @override
    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        parts = [
            (places, self.sources[k].bulks(span, multiples, detailed=detailed)[..., rows])
            for k, places, span, rows in self._by_fold(obs)
        ]
        most = max(len(found) for _, found in parts)
        # A mode that one fit has more than another is looked at twice there.
        padded = [
            (places, found[np.minimum(np.arange(most), len(found) - 1)]) for places, found in parts
        ]
        return _joined(padded, axis=2)

    @override
    def draw_outcomes(
        self, chain: int, draws: Index, obs: Subset, rng: np.random.Generator
    ) -> Array:
        parts = [
            (places, self.sources[k].draw_outcomes(chain, draws, span.start + rows, rng))
            for k, places, span, rows in self._by_fold(obs)
        ]
        return _joined(parts, axis=1)

    @override
    def one_chain(self, chain: int) -> Source | None:
        self._require_equal_weights("be split into chains; split each fit first")
        return None

    @override
    def dask_draws(self, dtype: str | None = None) -> Mapping[str, Any] | None:
        self._require_equal_weights("be written; keep its fits in a folder")
        return None

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        raise UnsupportedError(
            f"{self.likelihood.description} is made of {len(self.sources)} fits to parts of the "
            "data, none of which is the one for new data. Fit the model to all data and give what "
            "predicts the new ones: fit.predict(models={name: new_model, ...})."
        )

    @property
    @override
    def fixed_weights(self) -> FixedWeights | None:
        return self.sources[0].fixed_weights if len(self.sources) == 1 else None

    @property
    @override
    def left_out_by(self) -> str:
        return self.hows[0]

    @property
    @override
    def is_one_step_ahead(self) -> bool:
        return self.one_step_ahead

    @property
    @override
    def each_left_out_by(self) -> NDArray[np.str_]:
        return np.array(self.hows)[self.fold]

    @override
    def describe(self) -> str:
        ways = self.each_left_out_by
        more = "" if np.unique(ways).size == 1 else f", left out by: {counted_by_way(ways)}"
        return super().describe() + more

    @property
    @override
    def is_sample(self) -> bool:
        return all(source.is_sample for source in self.sources)

    @override
    def require_density(self) -> None:
        for source in self.sources:
            source.require_density()

    @override
    def pieces(self) -> Sequence[tuple[Index, Source]] | None:
        # Those without weights of their own are averaged in one pass, if in the same way.
        ways = [
            (how, self._saw(k), -1 if source.fixed_weights is None else k)
            for k, (source, how) in enumerate(zip(self.sources, self.hows, strict=True))
        ]
        kinds = {way: number for number, way in enumerate(dict.fromkeys(ways))}
        if len(kinds) == 1:
            return None
        kind = np.array([kinds[way] for way in ways])[self.fold]
        each = [np.flatnonzero(kind == number) for number in range(len(kinds))]
        return [(places, self.some(places)) for places in each if places.size]

    def some(self, places: Index) -> FoldedSource:
        """Return the same at some of the observations, without the sources of others."""
        used, fold = np.unique(self.fold[places], return_inverse=True)
        saw = self._saw(int(used[0]))
        return replace(
            self,
            observations=self.observations.restrict(places),
            outcome_draws=None,
            held_out=not saw,
            sources=tuple(self.sources[k] for k in used),
            fold=fold,
            row=self.row[places],
            hows=tuple(self.hows[k] for k in used),
            first_saw=saw,
        )

    @override
    def draw_weights(self, obs: slice, *, loo: bool) -> tuple[Array | None, Array]:
        parts, k_hat = [], np.empty(obs.stop - obs.start)
        for k, places, span, rows in self._by_fold(obs):
            weights, found = self.sources[k].draw_weights(span, loo=loo and self._saw(k))
            k_hat[places] = found[rows]
            parts.append((places, None if weights is None else weights[..., rows]))
        if all(weights is None for _, weights in parts):
            return None, k_hat
        equal = np.full((self.n_chains, self.n_draws, 1), -np.log(self.n_samples))
        known = [
            (at, np.repeat(equal, len(at), axis=2) if weights is None else weights)
            for at, weights in parts
        ]
        return _joined(known, axis=2), k_hat

    def _require_equal_weights(self, what: str) -> None:
        if any(source.fixed_weights is not None for source in self.sources):
            raise UnsupportedError(
                f"{self.likelihood.description} has draws with weights of their own at some "
                f"observations, so it cannot {what}."
            )

    def _saw(self, k: int) -> bool:
        """Whether a source was fitted to what it predicts."""
        return self.first_saw and k == 0

    def _by_fold(self, obs: Subset) -> Iterator[tuple[int, Index, slice, Index]]:
        """Say who predicts some observations.

        Yields the number of a source, the places among these observations, a slice of the
        source's own that holds them, and where in it they are.
        """
        folds, rows = self.fold[obs], self.row[obs]
        order = np.lexsort((rows, folds))
        apart = (np.diff(folds[order]) != 0) | (np.diff(rows[order]) > _FAR)
        for places in np.split(order, np.flatnonzero(apart) + 1):
            own = rows[places]
            span = slice(int(own[0]), int(own[-1]) + 1)
            yield int(folds[places[0]]), places, span, own - span.start


def _joined(parts: Sequence[tuple[Index, Array]], axis: int) -> Array:
    """Put arrays of some observations each, along an axis, into one of all."""
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    return np.concatenate([each for _, each in parts], axis=axis).take(order, axis=axis)


def _pairs(folds: Any) -> list[tuple[Any, Any]]:
    """Read pairs of positions and a model."""
    try:
        listed = [(index, given) for index, given in folds]
    except (TypeError, ValueError):
        listed = []
    if not listed:
        raise ParameterError(
            "folds must be pairs of positions and a model, [(index, model), ...], at least one; "
            f"got a {type(folds).__name__}."
        )
    return listed


def _how(source: Source) -> str:
    """Say how a fit came by its predictions: it was made without them, whatever it is of."""
    return "held out" if source.fixed_weights is None else source.left_out_by


def positions(index: Any, source: Source) -> Index:
    """Read the positions of a fold, of which there is one for each observation of its model."""
    places = np.asarray(index)
    if places.dtype.kind not in "iu" or places.ndim != 1 or (places < 0).any():
        raise ParameterError(
            "The positions of a fold must be whole numbers from 0, one for each observation; got "
            f"{places.dtype} of the shape {places.shape}."
        )
    if len(places) != source.n_obs:
        raise ShapeError(
            f"There are {len(places)} positions, and its model is of {source.n_obs} observations. "
            "Give a model of the observations that were left out, in the order of their positions."
        )
    return places.astype(np.intp)


def require_alike(sources: Sequence[Source]) -> None:
    """Refuse fits of different sizes, or of different kinds of outcomes."""
    first = sources[0]
    expected = first.n_chains, first.n_draws, first.n_components
    for source in sources:
        sizes = source.n_chains, source.n_draws, source.n_components
        if sizes != expected:
            raise ShapeError(
                f"Fits differ in their chains, draws and components: {expected} and {sizes}. Draw "
                "as many of each fit, or thin them to the same number."
            )
        if source.likelihood.discrete != first.likelihood.discrete:
            raise ObservationMismatchError(
                f"One fit is of a {first.likelihood.description} likelihood, one of a "
                f"{source.likelihood.description} one: they are not the same model."
            )


def _require_once(order: Index) -> None:
    positions, counts = np.unique(order, return_counts=True)
    if (counts > 1).any():
        twice = positions[counts > 1]
        raise ParameterError(
            f"Observation {twice[0]} is in {counts.max()} folds ({twice.size} such observations). "
            "Each must be predicted once."
        )


def _observations(folds: Sequence[Fold], order: Index, sorting: Index) -> Observations:
    """Put the outcomes side by side, with the labels that all of them have."""
    each = [(fold.source.observations, fold.rows) for fold in folds]
    first = each[0][0]
    dim = first.dims[0] if len(first.dims) == 1 else OBS_DIM
    coords: dict[str, Any] = {}
    if all(len(given.dims) == 1 and dim in given.coords for given, _ in each):
        coords[dim] = np.concatenate([given.coords[dim][rows] for given, rows in each])[sorting]
    elif len(order) <= order.max():
        coords[dim] = order[sorting]
    component_dim = first.component_dim or (COMPONENT_DIM if first.d > 1 else None)
    dims = [dim] if component_dim is None else [dim, component_dim]
    if component_dim is not None and first.components is not None:
        coords[component_dim] = first.components
    values = np.concatenate([given.values[rows] for given, rows in each])[sorting]
    y = xr.DataArray(values if len(dims) == 2 else values[:, 0], dims=dims, coords=coords)
    joined = as_observations(y.rename(first.name), component_dim)
    known = [given.weights[rows] for given, rows in each if given.weights is not None]
    if not known:
        return joined
    if len(known) < len(each):
        raise ParameterError("Some folds have case weights and some have none. Give all or none.")
    return joined.weighted(np.concatenate(known)[sorting])


def _outcome_draws(
    folds: Sequence[Fold], observations: Observations, sorting: Index
) -> xr.DataArray | None:
    """Put outcomes that came with the draws side by side, where all fits have some."""
    parts = []
    for fold in folds:
        source, drawn = fold.source, fold.source.outcome_draws
        if drawn is None:
            return None
        shape = (source.n_chains, source.n_draws, source.n_obs, source.n_components)
        parts.append(np.asarray(drawn.values).reshape(shape)[:, :, fold.rows])
    joined = np.concatenate(parts, axis=2)[:, :, sorting]
    sample = {"chain": np.arange(joined.shape[0]), "draw": np.arange(joined.shape[1])}
    return observations.label_components(joined, sample)
