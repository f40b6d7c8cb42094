"""Draws pooled in blocks of consecutive ones, tile by tile; see :mod:`lockquack.draws.collapse`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, log_sum_exp, pool_derivatives, softmax
from lockquack.kernels.choice import Kernels, kernels_for
from lockquack.numeric import cut
from lockquack.parallel.mapping import Divisible, Sharing

#: Prequential: held out, and predicted from all before it.
Kind = Literal["loo", "in-sample", "held-out", "prequential"]
#: Kinds of scores of observations that were not used to fit the models.
HELD_OUT: tuple[Kind, ...] = ("held-out", "prequential")


#: Blocks of draws per chain whose spread estimates the Monte Carlo error.
_BLOCKS_PER_CHAIN = 50
#: Numbers in a tile that is made, and in its rows: so many that threads seldom wait for the
#: interpreter, so few that most stay in cache.
_TILE, _TILE_OBS = 2**18, 2**11


class Reading(Sharing, Protocol):
    """How tiles lie in memory, and who may read them."""

    @property
    def read_in_place(self) -> bool:
        """Whether tiles are memory that is held, so that reading them makes no arrays."""

    @property
    def read_along_draws(self) -> bool:
        """Whether neighbouring draws, not neighbouring observations, lie together in memory."""


class DrawJets(Divisible, Protocol):
    """What the pass over draws reads: tiles of draws × observations, in float64."""

    @property
    def n_chains(self) -> int:
        """Number of chains."""

    @property
    def n_draws(self) -> int:
        """Number of draws in a chain."""

    @property
    def n_obs(self) -> int:
        """Number of observations."""

    @property
    def n_components(self) -> int:
        """Number of components of an outcome."""

    @property
    def case_weights(self) -> Array | None:
        """How often each observation counts, (n,); None: once each."""

    @property
    def can(self) -> Reading:
        """How tiles lie in memory, and who may read them."""

    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        """Log densities of a tile, shape (draws, obs)."""

    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        """First and second derivatives of a tile, each of shape (draws, obs, component)."""


@dataclass(frozen=True)
class BlockGrid:
    """The size of a model, and where its blocks of consecutive draws lie: in all chains alike."""

    n_chains: int
    n_draws: int  # of a chain
    n_obs: int

    @property
    def kernels(self) -> Kernels:
        """How sums are done: it depends on the whole model, whatever pieces it comes in."""
        return kernels_for(self.n_chains * self.n_draws * self.n_obs)

    @property
    def length(self) -> int:
        """Draws in a block; the last of a chain may have fewer."""
        return -(-self.n_draws // _BLOCKS_PER_CHAIN)

    @property
    def per_chain(self) -> int:
        """Blocks in a chain."""
        return -(-self.n_draws // self.length)


@dataclass(frozen=True)
class Average:
    """Which average over the draws is taken, and of what; see :func:`collapse`."""

    kind: Kind = "loo"
    log_weights: Array | None = None
    density: bool = False
    derivatives: bool = True

    @property
    def is_equal(self) -> bool:
        """Whether all draws have the same share, because the likelihood cancels."""
        return self.kind == "loo" and self.log_weights is None


@dataclass(frozen=True)
class Blocks:
    """Blocks of draws or parts of blocks, pooled within, at some observations.

    An axis of length 1 stands for all of them.
    """

    number: NDArray[np.intp]  # (block,): chain × blocks in a chain + place in the chain
    n_draws: NDArray[np.intp]  # (block,)
    log_mass: Array  # (block, obs or 1): log Σ exp(v + log f)
    log_weight: Array  # (block, obs or 1): log Σ exp(v)
    square: Array  # (block, obs or 1): Σ of the squared shares within the block
    grad: Array  # (block, obs, d)
    curv: Array  # (block, obs, d)

    def __getitem__(self, which: slice | NDArray[np.intp]) -> Blocks:
        """Select some blocks."""
        return Blocks(*(getattr(self, field.name)[which] for field in fields(Blocks)))


def observation_groups(source: DrawJets, grid: BlockGrid, average: Average) -> list[slice]:
    """Cut the observations into groups whose blocks are few, given the memory layout."""
    at_most, rows = _tile_shape(source, grid, average)
    width = max(1, at_most // source.n_draws) if source.can.read_along_draws else rows
    width = -(-source.n_obs // -(-source.n_obs // width))  # groups of nearly the same size
    return cut(slice(0, source.n_obs), width)


def _tile_shape(source: DrawJets, grid: BlockGrid, average: Average) -> tuple[int, int]:
    """Most draws × observations of a tile, and most observations."""
    d = source.n_components
    if source.can.read_in_place:
        kernels = grid.kernels
        # Blocks with weights of their own are several arrays more.
        row = kernels.HELD_ROW if average.is_equal else kernels.HELD_ROW // 4
        most, most_obs, share = kernels.HELD_TILE, row, d
    else:
        # What computes a tile takes its time to begin with; a few components are no more work.
        most, most_obs, share = _TILE, _TILE_OBS, max(1, d // 4)
    return most // share, max(1, most_obs // share)


def pool_blocks(
    source: DrawJets,
    obs: slice,
    grid: BlockGrid,
    average: Average,
    *,
    first_chain: int = 0,
    first_draw: int = 0,
) -> Blocks:
    """Read all draws of a source at some observations, and pool them within blocks.

    Parameters
    ----------
    source
        All draws, or a piece of them: some consecutive chains, and the same consecutive draws
        of each. It may begin and end inside a block.
    obs
        Which of the source's observations.
    grid
        How all draws, of which the source may be a piece, are cut into blocks.
    average
        Shares of the draws. Its ``log_weights`` belong to the source, as its tiles do.
    first_chain, first_draw
        Place of the source's first chain and draw among all of them.
    """
    tiles = list(_tiles(source, obs, grid, average, first_chain, first_draw))
    blocks = _empty_blocks(tiles, average, source.n_components)
    start = 0
    # What overflows here is found, and located, in the result.
    with np.errstate(over="ignore", invalid="ignore"):
        for tile in tiles:
            stop = start + len(tile.number)
            _pool_tile(source, tile, average, grid.kernels, out=blocks[start:stop])
            start = stop
    return blocks


def complete_blocks(parts: Sequence[Blocks]) -> Blocks:
    """Pool the parts of each block to one, and bring the blocks into order.

    Parts may be completed in several rounds: the result has parts of blocks where some are
    still missing.
    """
    blocks = _concatenate(parts)
    order = np.argsort(blocks.number, kind="stable")
    number, first = np.unique(blocks.number[order], return_index=True)
    if len(number) == len(order):
        return blocks if (np.diff(order) == 1).all() else blocks[order]
    return _concatenate([_pool_parts(blocks[members]) for members in np.split(order, first[1:])])


@dataclass(frozen=True)
class _Tile:
    """Consecutive draws of one chain at some observations: whole blocks, or part of one."""

    chain: int
    draws: slice
    obs: slice
    number: NDArray[np.intp]  # of its blocks

    def split(self, array: Array) -> Array:
        """Give the blocks an axis of their own: (draws, ...) → (block, draw, ...)."""
        return array.reshape(len(self.number), self.length, *array.shape[1:])

    def logp(self, source: DrawJets) -> Array:
        """Read its log densities, (block, draw, obs)."""
        return self.split(source.logp(self.chain, self.draws, self.obs))

    def derivatives(self, source: DrawJets) -> tuple[Array, Array]:
        """Read its derivatives, (block, draw, obs, component)."""
        grad, curv = source.derivatives(self.chain, self.draws, self.obs)
        return self.split(grad), self.split(curv)

    @property
    def length(self) -> int:
        """Draws in each of its blocks."""
        return (self.draws.stop - self.draws.start) // len(self.number)


def _tiles(
    source: DrawJets,
    obs: slice,
    grid: BlockGrid,
    average: Average,
    first_chain: int,
    first_draw: int,
) -> Iterator[_Tile]:
    """Cut the source at the ends of blocks, into tiles of as many blocks as stay in cache."""
    at_most, _ = _tile_shape(source, grid, average)
    at_once = max(1, at_most // (grid.length * (obs.stop - obs.start)))
    end = first_draw + source.n_draws
    for chain in range(source.n_chains):
        start = first_draw
        while start < end:
            block, inside = divmod(start, grid.length)
            whole = 0 if inside else (end - start) // grid.length
            n_blocks = min(max(whole, 1), at_once)
            stop = min((block + n_blocks) * grid.length, end)
            number = (first_chain + chain) * grid.per_chain + block + np.arange(n_blocks)
            yield _Tile(chain, slice(start - first_draw, stop - first_draw), obs, number)
            start = stop


def _empty_blocks(tiles: Sequence[_Tile], average: Average, n_components: int) -> Blocks:
    """Make room for the blocks of some tiles; what does not depend on the draws is filled in."""
    number = np.concatenate([tile.number for tile in tiles])
    n_draws = np.repeat([tile.length for tile in tiles], [len(tile.number) for tile in tiles])
    shape = (len(number), tiles[0].obs.stop - tiles[0].obs.start)
    count = np.log(n_draws)[:, None]
    if average.is_equal:
        log_mass, square = count, 1.0 / n_draws[:, None]
        log_weight = np.empty(shape) if average.density else np.full_like(count, np.nan)
    else:
        log_mass, square = np.empty(shape), np.empty(shape)
        weights = average.log_weights
        by_cell = weights is not None and weights.ndim == 3
        log_weight = count if weights is None else np.empty(shape if by_cell else count.shape)
    grad, curv = np.empty((2, *shape, n_components if average.derivatives else 0))
    return Blocks(number, n_draws, log_mass, log_weight, square, grad, curv)


def _pool_tile(
    source: DrawJets, tile: _Tile, average: Average, kernels: Kernels, out: Blocks
) -> None:
    if average.is_equal:
        _pool_equally(source, tile, average, kernels, out)
        return
    # Sources that compute a tile's derivatives have its densities then, not the other way round.
    derivatives = tile.derivatives(source) if average.derivatives else None
    terms = tile.logp(source)
    if average.log_weights is not None:
        given = tile.split(_weights_of(average.log_weights, tile))
        out.log_weight[:] = log_sum_exp(given, axis=1)
        terms = terms + given
    grad, curv = derivatives or np.empty((2, *terms.shape, 0))
    kernels.mix_members(terms, grad, curv, (out.log_mass, out.square, out.grad, out.curv))


def _pool_equally(
    source: DrawJets, tile: _Tile, average: Average, kernels: Kernels, out: Blocks
) -> None:
    if average.density:
        out.log_weight[:] = log_sum_exp(-tile.logp(source), axis=1)
    if average.derivatives:
        blocks = len(tile.number), tile.length, -1
        grad, curv = (each.reshape(blocks) for each in tile.derivatives(source))
        mean, pooled = (each.reshape(len(each), -1) for each in (out.grad, out.curv))
        kernels.average_members(grad, curv, mean, pooled)


def _weights_of(log_weights: Array, tile: _Tile) -> Array:
    chosen = log_weights[tile.chain, tile.draws]
    return chosen[:, None] if chosen.ndim == 1 else chosen[:, tile.obs]


def _pool_parts(parts: Blocks) -> Blocks:
    """Pool parts of one block to that block."""
    share, log_mass = softmax(parts.log_mass)
    grad, curv = pool_derivatives(share, parts.grad, parts.curv, 1.0)
    return Blocks(
        parts.number[:1],
        parts.n_draws.sum(keepdims=True),
        log_mass[None],
        log_sum_exp(parts.log_weight)[None],
        np.sum(np.square(share) * parts.square, axis=0, keepdims=True),
        grad[None],
        curv[None],
    )


def _concatenate(parts: Sequence[Blocks]) -> Blocks:
    if len(parts) == 1:
        return parts[0]
    return Blocks(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Blocks))
    )
