"""Predictions of observations without the whole group that they belong to, from one fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lockquack.arithmetic import own_arithmetic
from lockquack.draws.psis import psis
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.observations import row_values
from lockquack.models.source import FixedWeights, Source
from lockquack.sources.folds import FoldedSource
from lockquack.sources.left_out import LeftOutSource, ReweightedSource
from lockquack.sources.reading import as_model
from lockquack.sources.splits import Index

_HOW = "PSIS without its group"


@own_arithmetic
def leave_group_out(model: Any, groups: Any) -> Model:
    r"""Leave out the whole group of an observation, not the observation alone, without refitting.

    .. math:: p(y_i \mid y_{-g}) \approx \sum_s W_s f(y_i \mid \theta_s), \qquad
              W_s \propto \prod_{j \in g} f(y_j \mid \theta_s)^{-1},

    with Pareto-smoothed weights, for i in g: how well are observations of new groups predicted?
    The result is the same model; "leave-one-out" scores, densities and calibration are then those
    without the group, as :func:`cross_validate` with ``folds=groups`` has them from refits.

    Each group has one k̂. It is high for large groups, and for those that a parameter of their own
    describes; give the result to :func:`refit` to fit again without these. The *joint* Hyvärinen
    score of whole groups needs none of this: summed over groups it equals the leave-one-out score.

    Parameters
    ----------
    model
        A model with draws, fitted to all observations.
    groups
        Labels, one for each observation.

    Returns
    -------
    Model
        The same model, with other predictions where observations are left out.

    Examples
    --------
    >>> import lockquack as lq
    >>> model = lq.example_models()["first"]
    >>> by_decade = lq.leave_group_out(model, [i // 2 for i in range(40)])
    >>> set(by_decade.loo().how.tolist())
    {'PSIS without its group'}
    """
    source = as_model(model).source
    if not source.n_samples or source.is_left_out or isinstance(source, LeftOutSource):
        raise UnsupportedError(
            f"{source.likelihood.description} has no draws of a fit to all observations that could "
            "be weighted. Use cross_validate with folds=groups."
        )
    labels = row_values("groups", groups, source.observations)
    if labels.shape != (source.n_obs,):
        raise ParameterError(
            f"groups must be labels of the {source.n_obs} observations; got something of the "
            f"shape {labels.shape}."
        )
    try:
        group = pd.factorize(labels, use_na_sentinel=False)[0].astype(np.intp)
    except TypeError:
        raise ParameterError("groups must be labels, such as numbers or strings.") from None
    if group.max() == 0:
        raise ParameterError("All observations are of one group: nothing is left without it.")
    return Model(LeftOutSource.of(source, _without_groups(source, group), group))


def _without_groups(source: Source, group: Index) -> FoldedSource:
    log_weights, pareto_k = psis(_group_sums(source, group))
    each = [
        ReweightedSource.of(source, FixedWeights(log_weights[..., g], float(k)), _HOW)
        for g, k in enumerate(pareto_k)
    ]
    return FoldedSource(
        **{**source.common_fields(), "outcome_draws": None},
        sources=tuple(each),
        fold=group,
        row=np.arange(source.n_obs),
        hows=(_HOW,) * len(each),
    )


def _group_sums(source: Source, group: Index) -> Array:
    """Joint log likelihood of each group at each draw, (chain, draw, group)."""
    sums = np.zeros((source.n_chains, source.n_draws, int(group.max()) + 1))
    for obs in source.observation_slices():
        logp, own = source.all_logp(obs), group[obs]
        for g in np.unique(own):
            sums[..., g] += logp[..., own == g].sum(axis=2)
    return sums
