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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.blocks import (
    Average,
    BlockGrid,
    Blocks,
    DrawJets,
    Kind,
    complete_blocks,
    observation_groups,
    pool_blocks,
)
from lockquack.draws.diagnostics import mcse_mean
from lockquack.errors import ShapeError
from lockquack.jets import Array, Jet, join_jets, pool_derivatives, softmax
from lockquack.kernels import plain
from lockquack.kernels.choice import Kernels
from lockquack.numeric import broadcast_if_constant
from lockquack.parallel.mapping import map_observations
from lockquack.registry import require_known
from lockquack.totals import total


@dataclass(frozen=True)
class Collapsed:
    """A model's predictive jet at every observation, and how the draws determine its score."""

    jet: Jet  # logp (n,), NaN where it was not asked for; grad, curv (n, d), or (n, 0) likewise
    #: Effect of each block of draws on Σ_i w_i (2 curv_ij + grad_ij²), to first order.
    effect: Array  # (chain, block, d)
    #: The same for Σ_i w_i log p_i: by blocks, or by single draws where these were looked at.
    log_effect: Array  # (chain, block)
    #: 1 / Σ W²: how many draws really carry the average at each observation.
    n_effective: Array  # (n,)
    n_samples: int

    @classmethod
    def known(cls, logp: Array) -> Collapsed:
        """Hold log densities (n,) that came without draws, so that their error is not known."""
        nothing = np.empty((len(logp), 0))
        unknown = np.full((1, 1), np.nan)
        carried = np.full(len(logp), np.inf)
        return cls(Jet(logp, nothing, nothing), unknown[..., :0], unknown, carried, 0)

    def take(self, order: NDArray[np.intp]) -> Collapsed:
        """Bring the observations into another order."""
        return replace(self, jet=self.jet[order], n_effective=self.n_effective[order])

    def mcse(self, scale: Array) -> float:
        """Monte Carlo standard error of Σ_ij w_i s_j² (2 curv_ij + grad_ij²).

        The effects of the blocks are a short series of means over draws. ArviZ's estimator
        for the mean of a series takes care of what correlation is left between blocks and of
        chains that disagree. NaN when a chain has fewer than four draws, but zero where there is
        one draw in all: then the prediction is known exactly.
        """
        return self._mcse(self.effect @ np.square(scale))

    def mcse_logp(self) -> float:
        """Monte Carlo standard error of Σ_i w_i log p_i, in the same way."""
        return self._mcse(self.log_effect)

    def _mcse(self, effect: Array) -> float:
        return 0.0 if self.n_samples == 1 else mcse_mean(effect)


def require_known_scores(kind: Any) -> None:
    """Refuse a kind of scores that does not exist."""
    require_known("kind of scores", kind, get_args(Kind))


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
        costs reading the log likelihoods; :meth:`Model.loo` has its Pareto-smoothed form.
    derivatives
        Whether to read the derivatives; without, the jets have no components.
    progress
        Called with the number of observations done, after each group of them.

    Returns
    -------
    Collapsed
        The jets, (n,) and (n, d), and the effect of the draws on the Hyvärinen score.
    """
    require_known_scores(kind)
    grid = BlockGrid(source.n_chains, source.n_draws, source.n_obs)
    average = Average(kind, log_weights, density, derivatives)
    work = partial(collapse_group, grid=grid, average=average)
    groups = []
    # Weights of single observations cannot be sent along with only some of them.
    for group in map_observations(
        work, (source,), observation_groups(source, grid, average), here=log_weights is not None
    ):
        groups.append(group)
        progress(len(group.n_effective))
    return join(groups)


def collapse_group(
    sources: Sequence[DrawJets], obs: slice, grid: BlockGrid, average: Average
) -> Collapsed:
    """Pool all draws of one model at some observations."""
    (source,) = sources
    weights = source.case_weights
    return merge_blocks(
        [pool_blocks(source, obs, grid, average)], grid, None if weights is None else weights[obs]
    )


def merge_blocks(
    parts: Sequence[Blocks], grid: BlockGrid, weights: Array | None = None
) -> Collapsed:
    """Pool all blocks of a group of observations, in whatever parts and order they come.

    To first order, a block with gradient g_b and curvature h_b of its own moves the average
    gradient m by W_b (g_b − m) and the curvature h by W_b [h_b − h + (g_b − m)²], so the score
    2h + m² by W_b 2 [h_b − h + (g_b − m) g_b]. This effect is summed over observations, each
    as often as it counts.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = complete_blocks(parts)
        found, n_samples = int(blocks.n_draws.sum()), grid.n_chains * grid.n_draws
        if found != n_samples:
            raise ShapeError(f"The blocks to merge hold {found} draws; there are {n_samples}.")
        share, log_total = softmax(blocks.log_mass)
        if share.shape[1] == 1:
            pooled = _pool_equal_cells(share, blocks.grad, blocks.curv, weights, grid.kernels)
        else:
            pooled = _pool_cells(share, blocks.grad, blocks.curv, weights)
        grad, curv, effect = pooled
        weight, log_weight = softmax(blocks.log_weight)
        moved = share - weight
        # Where densities were not asked for it is not known: one number for all observations.
        log_effect = total(moved, weights if moved.shape[1] > 1 else None)
        carried = 1.0 / np.sum(np.square(share) * blocks.square, axis=0)
    n_obs, d = grad.shape
    return Collapsed(
        Jet(np.broadcast_to(log_total - log_weight, (n_obs,)), grad, curv),
        2 * len(share) * effect.reshape(grid.n_chains, grid.per_chain, d),
        len(share) * log_effect.reshape(grid.n_chains, grid.per_chain),
        np.broadcast_to(carried, (n_obs,)),
        n_samples,
    )


def join(groups: Sequence[Collapsed]) -> Collapsed:
    """Put groups of observations, averaged over the same draws, one after the other."""
    jet = join_jets([group.jet for group in groups])
    return Collapsed(
        # Densities that were not asked for, and equal shares, are one number for all.
        replace(jet, logp=broadcast_if_constant(jet.logp)),
        np.sum([group.effect for group in groups], axis=0),
        np.sum([group.log_effect for group in groups], axis=0),
        broadcast_if_constant(np.concatenate([group.n_effective for group in groups])),
        groups[0].n_samples,
    )


def _pool_cells(
    share: Array, grad: Array, curv: Array, weights: Array | None
) -> tuple[Array, Array, Array]:
    """Pool blocks (block, obs, d) by shares (block, obs); sum W_b [h_b − h + (g_b − m) g_b]."""
    mean, pooled = pool_derivatives(share, grad, curv, 1.0)
    effect = grad - mean
    effect *= grad
    effect += curv
    effect -= pooled
    counted = share if weights is None else share * weights
    return mean, pooled, np.einsum("bi,bid->bd", counted, effect)


def _pool_equal_cells(
    share: Array, grad: Array, curv: Array, weights: Array | None, kernels: Kernels
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
    counted = rows if weights is None else rows * weights
    effect = (np.vecdot(counted, rows) - np.vecdot(counted, mean_row)).T
    effect += _over_observations(curv, weights) - _over_observations(pooled, weights)
    return mean, pooled, share * effect


def _over_observations(values: Array, weights: Array | None) -> Array:
    """Sum (..., obs, d) over observations, each as often as it counts."""
    if weights is None:
        return np.asarray(values.sum(axis=-2))
    return np.asarray(np.einsum("i,...ij->...j", weights, values))
