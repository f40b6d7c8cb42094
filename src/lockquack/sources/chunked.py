"""Models whose draws lie in chunks that are read when they are needed: on disk, on a cluster.

The chunks are those of dask arrays. A pass over draws makes one task of each: it reads the chunk
and pools its draws within blocks, which leaves a few percent of it. The parts of a group of
observations are pooled further as the branches of a tree, and only averages come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Self, TypeVar

import numpy as np
from typing_extensions import override

from lockquack.draws.blocks import Average, BlockGrid, Blocks, Kind, complete_blocks, pool_blocks
from lockquack.draws.collapse import Collapsed, join, merge_blocks
from lockquack.jets import Array, Numeric
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import SAMPLE_DIMS, Observations
from lockquack.models.source import Abilities, Source
from lockquack.numeric import cut
from lockquack.parallel.cluster import compute_in_order
from lockquack.parallel.threads import reuse_memory
from lockquack.sources.in_memory import ArraySource, first_unusable, unusable
from lockquack.transforms import Change

R = TypeVar("R")
#: Where a chunk begins and ends, axis by axis.
Place = Sequence[tuple[int, int]]

#: Bytes of a chunk.
_CHUNK = 2**25
#: Observations that are pooled at once, so that they stay in a core's cache.
_TILE_OBS = 2500
#: Observations whose numbers are read at once, draw by draw, from a file without chunks.
_ROW = 2**10
#: Numbers that the blocks of some observations, merged at once, may be.
_NUMBERS_AT_ONCE = 2**23
#: What case weights are called among the arrays of a chunk.
_WEIGHTS = "weights"
#: Parts of blocks that a step of the tree pools.
_FAN_IN = 16


@dataclass(frozen=True, eq=False, repr=False)
class ChunkedSource(Source):
    """Draws held as dask arrays that are chunked alike."""

    #: ``logp``, (chain, draw, obs), and where there are any ``grad`` and ``curv``, which have
    #: an axis of components, the last, if the outcome is a vector.
    arrays: Mapping[str, Any]

    @classmethod
    def of(
        cls, observations: Observations, likelihood: Likelihood, arrays: Mapping[str, Any]
    ) -> Self:
        """Hold arrays of which some are dask's; all are chunked as the derivatives are."""
        import dask.array as da

        held = {name: da.asarray(array) for name, array in arrays.items()}
        chunks = held.get("grad", held["logp"]).chunks[:3]
        alike = {
            name: array.rechunk((*chunks, *((size,) for size in array.shape[3:])))
            for name, array in held.items()
        }
        n_chains, n_draws = held["logp"].shape[:2]
        return cls(observations, n_chains, n_draws, likelihood, arrays=alike)

    @property
    @override
    def can(self) -> Abilities:
        return Abilities(differentiate="grad" in self.arrays, be_sent=False)  # dask sends tasks

    @override
    def one_chain(self, chain: int) -> Self:
        arrays = {name: array[chain : chain + 1] for name, array in self.arrays.items()}
        return replace(self, n_chains=1, arrays=arrays)

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return self._read(chain, draws, obs, "logp")[0]

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        self.require_derivatives()
        grad, curv = self._read(chain, draws, obs, "grad", "curv")
        shape = (*grad.shape[:2], self.observations.d)
        return grad.reshape(shape), curv.reshape(shape)

    @override
    def map_groups(
        self, work: Callable[[Sequence[Source], slice], R], reads: Sequence[str]
    ) -> Iterator[R]:
        with self._locating():
            yield from self._on_groups(work, reads, self._with_all_draws(reads))

    @override
    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        average = Average(kind, derivatives=derivatives)
        groups = []
        with self._locating():
            for group in self._averages(average, self._reads(average)):
                progress(len(group.n_effective))
                groups.append(group)
        return join(groups)

    @override
    def changed(self, change: Change) -> Self:
        arrays = {"logp": change.logp(self.arrays["logp"])}
        if "grad" in self.arrays:
            # Those of scalar outcomes have no axis of components.
            own = change if self.arrays["grad"].ndim == 4 else change[..., 0]
            derivatives = own.derivatives(self.arrays["grad"], self.arrays["curv"])
            arrays["grad"], arrays["curv"] = derivatives
        return replace(self, arrays=arrays)

    @override
    def dask_draws(self, dtype: str | None = None) -> Mapping[str, Any]:
        if dtype is None:
            return self.arrays
        chunks = self._with_all_draws(["logp"])[0].chunks[2]
        return {
            name: array.rechunk({0: -1, 1: -1, 2: max(chunks)}).astype(dtype)
            for name, array in self.arrays.items()
        }

    def delayed_averages(
        self, average: Average, chunks: tuple[int, ...]
    ) -> list[tuple[slice, Any]]:
        """Delay averages over the draws of groups of observations, within chunks of that many."""
        reads = self._reads(average)
        alike = {name: self.arrays[name].rechunk({2: chunks}) for name in reads}
        cut_alike = replace(self, arrays={**self.arrays, **alike})
        return cut_alike._delayed(average, reads)

    def _delayed(self, average: Average, reads: Sequence[str]) -> list[tuple[slice, Any]]:
        from dask import delayed

        grid = BlockGrid(self.n_chains, self.n_draws, self.n_obs)
        arrays = [self.arrays[name] for name in reads]
        if arrays[0].numblocks[:2] != (1, 1):
            return self._merged(grid, average, reads, arrays)
        work = partial(_average, grid=grid, average=average)
        ends = np.cumsum(arrays[0].chunks[2]).tolist()
        groups = [slice(*pair) for pair in zip([0, *ends], ends, strict=False)]
        boxes = self._boxes(work, reads, arrays)
        return [(obs, delayed(_open)(box)) for obs, box in zip(groups, boxes, strict=True)]

    def _reads(self, average: Average) -> list[str]:
        """Which arrays an average takes."""
        reads = [] if average.is_equal and average.derivatives else ["logp"]
        if average.derivatives:
            self.require_derivatives()
            reads += ["grad", "curv"]
        return reads

    def _averages(self, average: Average, reads: Sequence[str]) -> Iterator[Collapsed]:
        """Average over the draws of groups of observations, in order."""
        grid = BlockGrid(self.n_chains, self.n_draws, self.n_obs)
        arrays = [self.arrays[name] for name in reads]
        if arrays[0].numblocks[:2] == (1, 1):  # each chunk has all the draws
            return self._on_groups(partial(_average, grid=grid, average=average), reads, arrays)
        return compute_in_order([each for _, each in self._merged(grid, average, reads, arrays)])

    def _on_groups(
        self,
        work: Callable[[Sequence[Source], slice], R],
        reads: Sequence[str],
        arrays: Sequence[Any],
    ) -> Iterator[R]:
        """Do the same work for every chunk of arrays that have all draws in one chunk."""
        return map(_open, compute_in_order(self._boxes(work, reads, arrays)))

    def _boxes(
        self,
        work: Callable[[Sequence[Source], slice], R],
        reads: Sequence[str],
        arrays: Sequence[Any],
    ) -> Sequence[Any]:
        """Delay it; see :func:`_open`."""
        if self.case_weights is not None:
            import dask.array as da

            weights = da.from_array(
                self.case_weights[None, None], chunks=(1, 1, arrays[0].chunks[2])
            )
            reads, arrays = [*reads, _WEIGHTS], [*arrays, weights]
        boxes = _map_chunks(partial(_on_group, work, self.observations.d), reads, arrays)
        return list(boxes[0, 0])

    def _merged(
        self, grid: BlockGrid, average: Average, reads: Sequence[str], arrays: Sequence[Any]
    ) -> list[tuple[slice, Any]]:
        """Delay averages over draws that lie in several chunks, by groups of observations."""
        from dask import delayed

        n_blocks, d = grid.n_chains * grid.per_chain, self.observations.d
        strip = max(_TILE_OBS, _NUMBERS_AT_ONCE // (n_blocks * (2 * d + 3)))
        pool = partial(_pool_chunk, d=d, grid=grid, average=average, strip=strip)
        pooled = _map_chunks(pool, reads, arrays)
        averages = []
        ends = np.cumsum(arrays[0].chunks[2]).tolist()
        for column, end, n_obs in zip(
            np.moveaxis(pooled, 2, 0), ends, arrays[0].chunks[2], strict=True
        ):
            for i, obs in enumerate(cut(slice(end - n_obs, end), strip)):
                parts = [delayed(_strip)(part, i) for part in column.flat]
                while len(parts) > _FAN_IN:
                    branches = [parts[k : k + _FAN_IN] for k in range(0, len(parts), _FAN_IN)]
                    parts = [delayed(_pool_branch)(branch) for branch in branches]
                weights = None if self.case_weights is None else self.case_weights[obs]
                averages.append((obs, delayed(_merge)(parts, grid, weights)))
        return averages

    def _with_all_draws(self, reads: Sequence[str]) -> list[Any]:
        """Rechunk so that all draws of an observation are together, and chunks not too large."""
        arrays = [self.arrays[name] for name in reads]
        size = 8 * self.n_samples * prod(arrays[-1].shape[3:])
        ends = np.cumsum(arrays[0].chunks[2]).tolist()
        chunks = [slice(*pair) for pair in zip([0, *ends], ends, strict=False)]
        groups = [group for chunk in chunks for group in cut(chunk, max(1, _CHUNK // size))]
        obs = tuple(group.stop - group.start for group in groups)
        return [array.rechunk({0: -1, 1: -1, 2: obs}) for array in arrays]

    def _read(self, chain: int, draws: slice, obs: slice, *names: str) -> list[Array]:
        import dask

        with self._locating():
            tiles = dask.compute(*(self.arrays[name][chain, draws, obs] for name in names))
        return [np.asarray(tile, dtype=np.float64) for tile in tiles]

    @contextmanager
    def _locating(self) -> Iterator[None]:
        """Name the observation where a chunk held what is not a number."""
        try:
            yield
        except NotFiniteError as found:
            name, value, chain, draw, obs = found.args
            where = f"chain {chain}, draw {draw}, {self.observations.describe(obs)}"
            raise unusable(name, value, where) from None


class NotFiniteError(Exception):
    """What was found in a chunk, and where: name, value, chain, draw, observation."""


def chunks_for(
    sizes: Mapping[Any, int], stored: Mapping[Any, int] | None, itemsize: int
) -> dict[Any, int]:
    """Choose the chunks in which to read draws: with all draws of some observations if possible.

    Parameters
    ----------
    sizes
        Lengths of the dimensions, ``chain`` and ``draw`` among them.
    stored
        Chunks on disk, of which whole multiples are read; None: they may be cut anywhere.
    itemsize
        Bytes of a number.

    Examples
    --------
    >>> sizes = {"chain": 4, "draw": 1000, "obs": 100_000}
    >>> chunks_for(sizes, {"chain": 1, "draw": 100, "obs": 50}, itemsize=8)
    {'chain': 4, 'draw': 1000, 'obs': 1000}
    >>> chunks_for(sizes, {"chain": 1, "draw": 100, "obs": 100_000}, itemsize=8)
    {'chain': 1, 'draw': 100, 'obs': 100000}
    """
    *_, last = sizes
    chunks = dict.fromkeys(sizes, 1) | {last: min(sizes[last], _ROW)} | dict(stored or {})
    others = [dim for dim in sizes if dim not in SAMPLE_DIMS]
    for dim in (*reversed(SAMPLE_DIMS), *reversed(others)):
        more = max(1, _CHUNK // (itemsize * prod(chunks.values())))
        chunks[dim] = min(sizes[dim], chunks[dim] * more)
    return chunks


def _map_chunks(
    work: Callable[[Sequence[str], Sequence[Numeric], Place], Any],
    reads: Sequence[str],
    arrays: Sequence[Any],
) -> np.ndarray[Any, Any]:
    """Delay the same work for every chunk of some arrays, (chain, draw, obs); see :func:`_open`."""
    import dask.array as da

    n_dim = max(array.ndim for array in arrays)
    alike = [array[..., None] if array.ndim < n_dim else array for array in arrays]
    # As blocks of an array of objects: dask makes one task of reading them all and the work.
    boxes = da.map_blocks(
        _put_into_box,
        *alike,
        work=work,
        reads=reads,
        dtype=object,
        chunks=tuple((1,) * len(sizes) for sizes in alike[0].chunks),
        meta=np.empty((0,) * n_dim, dtype=object),
    ).to_delayed()
    return boxes[..., 0] if n_dim == 4 else boxes


def _put_into_box(
    *chunks: Numeric, work: Callable[..., Any], reads: Sequence[str], block_info: Any
) -> np.ndarray[Any, Any]:
    reuse_memory()
    box = np.empty((1,) * chunks[0].ndim, dtype=object)
    box[(0,) * box.ndim] = work(reads, chunks, block_info[0]["array-location"])
    return box


def _open(box: np.ndarray[Any, Any]) -> Any:
    """Take the result of a task out of its block."""
    return box.item()


def _piece(reads: Sequence[str], chunks: Sequence[Numeric], place: Place, d: int) -> ArraySource:
    """Make a model of what was read, in which all else is NaN; refuse what is not finite."""
    (chain, _), (draw, _), (obs, _) = place[:3]
    for name, chunk in zip(reads, chunks, strict=True):
        # Case weights were looked at when they were given.
        found = None if name == _WEIGHTS else first_unusable(name, chunk)
        if found is not None:
            value, at = found
            raise NotFiniteError(name, value, chain + at[0], draw + at[1], obs + at[2])
    shape = chunks[0].shape[:3]
    shapes = {"logp": shape, _WEIGHTS: shape[2:]}
    read = {
        name: chunk.reshape(shapes.get(name, (*shape, d)))
        for name, chunk in zip(reads, chunks, strict=True)
    }
    absent = np.broadcast_to(np.nan, (*shape, d))
    return ArraySource(
        Observations.unlabelled(absent[0, 0], read.get(_WEIGHTS)),
        n_chains=shape[0],
        n_draws=shape[1],
        likelihood=Likelihood("chunk"),
        logp_draws=read.get("logp", absent[..., 0]),
        grad_draws=read.get("grad", absent),
        curv_draws=read.get("curv", absent),
    )


def _on_group(
    work: Callable[[Sequence[Source], slice], R],
    d: int,
    reads: Sequence[str],
    chunks: Sequence[Numeric],
    place: Place,
) -> R:
    piece = _piece(reads, chunks, place, d)
    return work((piece,), slice(0, piece.n_obs))


def _average(sources: Sequence[Source], obs: slice, grid: BlockGrid, average: Average) -> Collapsed:
    """Average all draws of a group of observations, tile by tile."""
    (piece,) = sources
    tiles = [pool_blocks(piece, tile, grid, average) for tile in cut(obs, _TILE_OBS)]
    return _merge([tiles], grid, piece.case_weights)


def _pool_chunk(
    reads: Sequence[str],
    chunks: Sequence[Numeric],
    place: Place,
    *,
    d: int,
    grid: BlockGrid,
    average: Average,
    strip: int,
) -> list[list[Blocks]]:
    """Pool the draws of a chunk within blocks, tile by tile of each strip of observations."""
    piece = _piece(reads, chunks, place, d)
    return [
        [
            pool_blocks(piece, obs, grid, average, first_chain=place[0][0], first_draw=place[1][0])
            for obs in cut(slice(start, min(start + strip, piece.n_obs)), _TILE_OBS)
        ]
        for start in range(0, piece.n_obs, strip)
    ]


def _strip(box: np.ndarray[Any, Any], i: int) -> list[Blocks]:
    return _open(box)[i]


def _pool_branch(parts: Sequence[Sequence[Blocks]]) -> list[Blocks]:
    return [complete_blocks(tile) for tile in zip(*parts, strict=True)]


def _merge(parts: Sequence[Sequence[Blocks]], grid: BlockGrid, weights: Array | None) -> Collapsed:
    tiles = list(zip(*parts, strict=True))
    ends = np.cumsum([tile[0].grad.shape[1] for tile in tiles])
    by_tile = [None] * len(tiles) if weights is None else np.split(weights, ends[:-1])
    pairs = zip(tiles, by_tile, strict=True)
    return join([merge_blocks(tile, grid, each) for tile, each in pairs])
