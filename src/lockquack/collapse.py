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
Monte Carlo standard error in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Literal, Protocol

import numpy as np

from lockquack.diagnostics import mcse_mean
from lockquack.jets import (
    Array,
    Jet,
    log_sum_exp,
    mix_derivatives_equally,
    pool_derivatives,
    softmax,
)

Kind = Literal["loo", "in-sample", "held-out"]

#: Blocks of draws per chain whose spread estimates the Monte Carlo error.
_BLOCKS_PER_CHAIN = 50
#: Numbers a tile of one array holds; a few such tiles stay in a core's cache.
_TILE = 2**15
_TILE_OBS = 2**10


class DrawJets(Protocol):
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
    def draws_are_contiguous(self) -> bool:
        """Whether neighbouring draws, not neighbouring observations, lie together in memory."""

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
    columns = []
    for obs in _observation_slices(source):
        # What overflows here is found, and located, in the result.
        with np.errstate(over="ignore", invalid="ignore"):
            blocks = [
                _pool_tile(source, tile, kind, log_weights, density, derivatives)
                for tile in _tiles(source, obs)
            ]
            columns.append(_merge(blocks))
        progress(obs.stop - obs.start)
    jets = [column.jet for column in columns]
    influence = np.sum([column.influence for column in columns], axis=0)
    return Collapsed(
        Jet(
            np.concatenate([jet.logp for jet in jets]),
            np.concatenate([jet.grad for jet in jets]),
            np.concatenate([jet.curv for jet in jets]),
        ),
        influence.reshape(source.n_chains, len(influence) // source.n_chains, -1),
        np.sum([column.log_influence for column in columns], axis=0).reshape(source.n_chains, -1),
        np.concatenate([column.n_effective for column in columns]),
        source.n_chains * source.n_draws,
    )


@dataclass(frozen=True)
class _Tile:
    """Some whole blocks of draws of one chain, at some observations."""

    chain: int
    draws: slice
    obs: slice
    n_blocks: int

    def split(self, array: Array) -> Array:
        """Give the blocks an axis of their own: (draws, ...) → (block, draw, ...)."""
        return array.reshape(self.n_blocks, len(array) // self.n_blocks, *array.shape[1:])


@dataclass(frozen=True)
class _Blocks:
    """Blocks of draws, pooled within; an axis of length 1 stands for all observations."""

    log_mass: Array  # (block, obs or 1): log Σ exp(v + log f)
    log_weight: Array  # (block, obs or 1): log Σ exp(v)
    square: Array  # (block, obs or 1): Σ of the squared shares within the block
    grad: Array  # (block, obs, d)
    curv: Array  # (block, obs, d)


@dataclass(frozen=True)
class _Column:
    """Some observations, averaged over all draws."""

    jet: Jet
    influence: Array  # (block, d)
    log_influence: Array  # (block,)
    n_effective: Array  # (obs,)


def _pool_tile(
    source: DrawJets,
    tile: _Tile,
    kind: Kind,
    log_weights: Array | None,
    density: bool,
    derivatives: bool,
) -> _Blocks:
    grad, curv = map(tile.split, _derivatives(source, tile, derivatives))
    n_blocks, length = grad.shape[:2]
    count = np.full((n_blocks, 1), np.log(length))
    square = np.full((n_blocks, 1), 1.0 / length)
    share = None
    log_mass = log_weight = count
    if kind == "loo" and log_weights is None:
        log_weight = np.full_like(count, np.nan)
        if density:
            logp = tile.split(source.logp(tile.chain, tile.draws, tile.obs))
            log_weight = log_sum_exp(-logp, axis=1)
    else:
        terms = tile.split(source.logp(tile.chain, tile.draws, tile.obs))
        if log_weights is not None:
            given = tile.split(_weights_of(log_weights, tile))
            log_weight = log_sum_exp(given, axis=1)
            terms = terms + given
        share, log_mass = softmax(terms, axis=1)
        square = np.square(share).sum(axis=1)
    if share is None:
        pooled = mix_derivatives_equally(grad, curv)
    else:
        pooled = pool_derivatives(share, grad, curv, 1.0, axis=1)
    return _Blocks(log_mass, log_weight, square, *pooled)


def _derivatives(source: DrawJets, tile: _Tile, wanted: bool) -> tuple[Array, Array]:
    """Read the derivatives of a tile; where they are not wanted they have no components."""
    if wanted:
        return source.derivatives(tile.chain, tile.draws, tile.obs)
    n_draws, n_obs = (cut.stop - cut.start for cut in (tile.draws, tile.obs))
    nothing = np.empty((n_draws, n_obs, 0))
    return nothing, nothing


def _weights_of(log_weights: Array, tile: _Tile) -> Array:
    chosen = log_weights[tile.chain, tile.draws]
    return chosen[:, None] if chosen.ndim == 1 else chosen[:, tile.obs]


def _merge(parts: list[_Blocks]) -> _Column:
    """Pool the blocks; sum each block's influence over the observations.

    To first order, a block with gradient g_b and curvature h_b of its own moves the average
    gradient m by W_b (g_b − m) and the curvature h by W_b [h_b − h + (g_b − m)²], so the score
    2h + m² by W_b 2 [h_b − h + (g_b − m) g_b].
    """
    blocks = _Blocks(
        *(
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(_Blocks)
        )
    )
    share, log_total = softmax(blocks.log_mass)
    grad, curv = pool_derivatives(share, blocks.grad, blocks.curv, 1.0)
    effect = blocks.grad - grad
    effect *= blocks.grad
    effect += blocks.curv
    effect -= curv
    effect *= 2.0 * len(share) * share[..., None]
    weight, log_weight = softmax(blocks.log_weight)
    n_obs = len(grad)
    return _Column(
        Jet(np.broadcast_to(log_total - log_weight, (n_obs,)), grad, curv),
        effect.sum(axis=1),
        len(share) * (share - weight).sum(axis=1),
        np.broadcast_to(1.0 / np.sum(np.square(share) * blocks.square, axis=0), (n_obs,)),
    )


def _observation_slices(source: DrawJets) -> Iterator[slice]:
    width = max(1, _TILE // source.n_draws) if source.draws_are_contiguous else _TILE_OBS
    for start in range(0, source.n_obs, width):
        yield slice(start, min(start + width, source.n_obs))


def _tiles(source: DrawJets, obs: slice) -> Iterator[_Tile]:
    length = -(-source.n_draws // _BLOCKS_PER_CHAIN)
    whole = source.n_draws // length
    at_once = max(1, _TILE // (length * (obs.stop - obs.start)))
    for chain in range(source.n_chains):
        for first in range(0, whole, at_once):
            last = min(first + at_once, whole)
            yield _Tile(chain, slice(first * length, last * length), obs, last - first)
        if whole * length < source.n_draws:
            yield _Tile(chain, slice(whole * length, source.n_draws), obs, 1)
