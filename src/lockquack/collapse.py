r"""From the draws of a model to its predictive jet at every observation.

With draw jets :math:`(\log f_s, g_s, h_s)` and log weights :math:`v_s`, the predictive density is
the linear pool of the draws with shares :math:`W_s \propto \exp(v_s + \log f_s)`:

.. math::

    \partial \log p = \sum_s W_s g_s, \qquad
    \partial^2 \log p = \sum_s W_s h_s + \sum_s W_s (g_s - \partial \log p)^2 .

In-sample and held-out averages have :math:`v_s = 0`. Leave-one-out has :math:`v_s = -\log f_s`,
which cancels the likelihood: all shares are equal, so neither densities nor importance weights
are needed for the derivatives, and Pareto tails cannot hurt them.

A linear pool of linear pools is a linear pool. Draws are therefore pooled in blocks of
consecutive draws, and then the blocks, by the same rule; the spread of the blocks gives the
Monte Carlo standard error in the same pass. Where blocks begin and end is a matter of the
chains alone (:class:`BlockGrid`). Storage may cut the draws elsewhere: parts of one block are
pooled to the whole block first, so the result is the same.

The three steps have names, for passes over pieces that are not in one place:
:func:`pool_blocks` reads a piece, :func:`merge_blocks` ends at the jets of a group of
observations, :func:`join` puts groups together. :func:`collapse` does all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from lockquack.diagnostics import mcse_mean
from lockquack.errors import ShapeError, unknown_name
from lockquack.jets import (
    Array,
    Jet,
    join_jets,
    log_sum_exp,
    pool_derivatives,
    softmax,
)
from lockquack.kernels import Kernels, kernels_for, plain
from lockquack.numeric import held_once
from lockquack.parallel import Divisible, map_observations

Kind = Literal["loo", "in-sample", "held-out"]

#: Blocks of draws per chain whose spread estimates the Monte Carlo error.
_BLOCKS_PER_CHAIN = 50
#: Numbers in a tile that is made, and in its rows: so many that threads seldom wait for the
#: interpreter, so few that most stay in cache.
_TILE, _TILE_OBS = 2**18, 2**11


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
    def draws_are_contiguous(self) -> bool:
        """Whether neighbouring draws, not neighbouring observations, lie together in memory."""

    @property
    def is_read_in_place(self) -> bool:
        """Whether tiles are memory that is held, so that reading them makes no arrays."""

    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        """Log densities of a tile, shape (draws, obs)."""

    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        """First and second derivatives of a tile, each of shape (draws, obs, component)."""


@dataclass(frozen=True)
class Collapsed:
    """A model's predictive jet at every observation, and how the draws determine its score."""

    jet: Jet  # logp (n,), NaN where it was not asked for; grad, curv (n, d), or (n, 0) likewise
    #: Effect of each block of draws on Σ_i (2 curv_ij + grad_ij²), to first order.
    influence: Array  # (chain, block, d)
    #: The same for Σ_i log p_i: by blocks, or by single draws where these were looked at.
    log_influence: Array  # (chain, block)
    #: 1 / Σ W²: how many draws really carry the average at each observation.
    n_effective: Array  # (n,)
    n_samples: int

    def mcse(self, scale: Array) -> float:
        """Monte Carlo standard error of Σ_ij s_j² (2 curv_ij + grad_ij²).

        The influences of the blocks are a short series of means over draws. ArviZ's estimator
        for the mean of a series takes care of what correlation is left between blocks and of
        chains that disagree. NaN when a chain has fewer than four draws.
        """
        return mcse_mean(self.influence @ np.square(scale))

    def mcse_logp(self) -> float:
        """Monte Carlo standard error of Σ_i log p_i, in the same way."""
        return mcse_mean(self.log_influence)


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


def require_known_scores(kind: Any) -> None:
    """Refuse a kind of scores that does not exist."""
    if kind not in get_args(Kind):
        raise unknown_name("kind of scores", kind, get_args(Kind))


def collapse(
    source: DrawJets,
    kind: Kind = "loo",
    *,
    log_weights: Array | None = None,
    density: bool = False,
    derivatives: bool = True,
    progress: Callable[[int], object] = lambda done: None,
) -> Collapsed:
    """Pool a model's draws into its predictive jet, in one pass over the stored arrays.

    Parameters
    ----------
    source
        Where the tiles come from.
    kind
        ``"loo"``, ``"in-sample"`` or ``"held-out"``; the last two are the same average, at
        observations that were, or were not, used to fit the model.
    log_weights
        Log importance weights of the draws, (chain, draw) or (chain, draw, obs), in place of
        those that ``kind`` implies. They need not be normalised.
    density
        For leave-one-out only: also compute the log density by plain importance weights. It
        costs reading the log likelihoods; :meth:`Predictive.loo` has its Pareto-smoothed form.
    derivatives
        Whether to read the derivatives; without, the jets have no components.
    progress
        Called with the number of observations done, after each group of them.

    Returns
    -------
    Collapsed
        The jets, (n,) and (n, d), and the influence of the draws on the Hyvärinen score.
    """
    require_known_scores(kind)
    grid = BlockGrid(source.n_chains, source.n_draws, source.n_obs)
    average = Average(kind, log_weights, density, derivatives)
    work = partial(_one_group, grid=grid, average=average)
    groups = []
    # Weights of single observations cannot be sent along with only some of them.
    for group in map_observations(
        work, (source,), observation_groups(source, grid, average), here=log_weights is not None
    ):
        groups.append(group)
        progress(len(group.n_effective))
    return join(groups)


def _one_group(
    sources: Sequence[DrawJets], obs: slice, grid: BlockGrid, average: Average
) -> Collapsed:
    (source,) = sources
    return merge_blocks([pool_blocks(source, obs, grid, average)], grid)


def observation_groups(source: DrawJets, grid: BlockGrid, average: Average) -> list[slice]:
    """Cut the observations into groups whose blocks are few, given the memory layout."""
    at_most, rows = _tile_shape(source, grid, average)
    width = max(1, at_most // source.n_draws) if source.draws_are_contiguous else rows
    width = -(-source.n_obs // -(-source.n_obs // width))  # groups of nearly the same size
    starts = range(0, source.n_obs, width)
    return [slice(start, min(start + width, source.n_obs)) for start in starts]


def _tile_shape(source: DrawJets, grid: BlockGrid, average: Average) -> tuple[int, int]:
    """Most draws × observations of a tile, and most observations."""
    d = source.n_components
    if source.is_read_in_place:
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


def merge_blocks(parts: Sequence[Blocks], grid: BlockGrid) -> Collapsed:
    """Pool all blocks of a group of observations, in whatever parts and order they come.

    To first order, a block with gradient g_b and curvature h_b of its own moves the average
    gradient m by W_b (g_b − m) and the curvature h by W_b [h_b − h + (g_b − m)²], so the score
    2h + m² by W_b 2 [h_b − h + (g_b − m) g_b]. This influence is summed over observations.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = complete_blocks(parts)
        found, n_samples = int(blocks.n_draws.sum()), grid.n_chains * grid.n_draws
        if found != n_samples:
            raise ShapeError(f"The blocks to merge hold {found} draws; there are {n_samples}.")
        share, log_total = softmax(blocks.log_mass)
        if share.shape[1] == 1:
            pooled = _pool_equal_cells(share, blocks.grad, blocks.curv, grid.kernels)
        else:
            pooled = _pool_cells(share, blocks.grad, blocks.curv)
        grad, curv, influence = pooled
        weight, log_weight = softmax(blocks.log_weight)
        carried = 1.0 / np.sum(np.square(share) * blocks.square, axis=0)
    n_obs, d = grad.shape
    return Collapsed(
        Jet(np.broadcast_to(log_total - log_weight, (n_obs,)), grad, curv),
        2 * len(share) * influence.reshape(grid.n_chains, grid.per_chain, d),
        len(share) * (share - weight).sum(axis=1).reshape(grid.n_chains, grid.per_chain),
        np.broadcast_to(carried, (n_obs,)),
        n_samples,
    )


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


def join(groups: Sequence[Collapsed]) -> Collapsed:
    """Put groups of observations, averaged over the same draws, one after the other."""
    jet = join_jets([group.jet for group in groups])
    return Collapsed(
        # Densities that were not asked for, and equal shares, are one number for all.
        replace(jet, logp=held_once(jet.logp)),
        np.sum([group.influence for group in groups], axis=0),
        np.sum([group.log_influence for group in groups], axis=0),
        held_once(np.concatenate([group.n_effective for group in groups])),
        groups[0].n_samples,
    )


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


def _pool_cells(share: Array, grad: Array, curv: Array) -> tuple[Array, Array, Array]:
    """Pool blocks (block, obs, d) by shares (block, obs); sum W_b [h_b − h + (g_b − m) g_b]."""
    mean, pooled = pool_derivatives(share, grad, curv, 1.0)
    effect = grad - mean
    effect *= grad
    effect += curv
    effect -= pooled
    return mean, pooled, np.einsum("bi,bid->bd", share, effect)


def _pool_equal_cells(
    share: Array, grad: Array, curv: Array, kernels: Kernels
) -> tuple[Array, Array, Array]:
    """Do the same by shares (block, 1), in products of matrices."""
    mean, pooled = np.empty((2, *grad.shape[1:]))
    g, h = grad.reshape(1, len(share), -1), curv.reshape(1, len(share), -1)
    m, c = mean.reshape(1, -1), pooled.reshape(1, -1)
    if (share == share[0]).all():
        kernels.average_members(g, h, m, c)
    else:
        plain.pool_members(share[:, 0], g, h, m, c)
    rows, mean_row = grad.transpose(2, 0, 1), mean.T[:, None]  # (d, block, obs), (d, 1, obs)
    effect = (np.vecdot(rows, rows) - np.vecdot(rows, mean_row)).T
    effect += curv.sum(axis=1) - pooled.sum(axis=0)
    return mean, pooled, share * effect


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
