"""Fits without the observations whose leave-one-out predictions importance sampling cannot give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.models.model import Model
from lockquack.numeric import as_count, as_positive
from lockquack.sources.cross_validation import Fit, fit_all, open_folder, require_function
from lockquack.sources.folds import FoldedSource
from lockquack.sources.left_out import LeftOutSource, as_folded, left_out_together
from lockquack.sources.reading import as_model
from lockquack.sources.splits import Split, complements


@own_arithmetic
def refit(
    model: Any,
    fit: Fit,
    *,
    limit: float | None = None,
    folder: str | Path | None = None,
    threads: int = 1,
    progressbar: bool | None = None,
) -> Model:
    r"""Fit a model again without each observation of a high Pareto k̂, and use these predictions.

    Leave-one-out predictions come from the draws of one fit, with weights
    :math:`1 / f(y_i \mid \theta_s)`. Where k̂ says that these weights cannot be relied on, the
    prediction is replaced by that of a fit without the observation,

    .. math:: p(y_i \mid y_{-i}) \approx \frac1S \sum_s f(y_i \mid \theta_s^{-i}) .

    That is as many fits as there are such observations, and no more. The result is the same model;
    its scores, densities and calibration where observations are left out use the new fits, and so
    do :func:`stack`, :func:`lock`, :func:`compare` and ``logpdf(loo=True)``. What it predicts
    for all data, or new ones, is unchanged.

    Where many observations have a high k̂, the model does not fit much of the data: fix the
    model, or cross-validate all of it with :func:`cross_validate`.

    Parameters
    ----------
    model
        The model, fitted to all observations, or what :func:`leave_group_out` made of it: then
        groups with a high k̂ are left out as a whole.
    fit
        ``fit(train, test)`` as for :func:`cross_validate`. Positions are those of the model's
        observations. It must draw as many chains and draws as the model has.
    limit
        Largest k̂ that is relied on; by default what the number of draws allows, at most 0.7.
    folder, threads, progressbar
        As for :func:`cross_validate`.

    Returns
    -------
    Model
        The same model. ``model.loo().how`` says how the prediction of each observation was
        obtained, and so does ``fit.diagnostics()``.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = np.append(rng.normal(size=20), 8.0)  # one outlier
    >>> def draw(y):  # the posterior of a mean, known variance
    ...     return rng.normal(y.sum() / (len(y) + 0.1), (len(y) + 0.1) ** -0.5, size=(4, 250))
    >>> def fit(train, test):
    ...     return lq.from_family("normal", y=y[test], mu=draw(y[train]), sigma=1.0)
    >>> model = lq.from_family("normal", y=y, mu=draw(y), sigma=1.0)
    >>> lq.refit(model, fit)
    <Model normal; chain: 4, draw: 250, obs_id: 21, components: 1, left out by: 20 PSIS, 1 refit>

    References
    ----------
    Vehtari, Gelman, Gabry (2017), Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC, Statistics and Computing 27, arXiv:1507.04544.
    """
    require_function(fit)
    model, threads = as_model(model), as_count("threads", threads)
    source = model.source
    if not source.n_samples:
        raise UnsupportedError(
            f"{source.likelihood.description} has no draws beside which others could be put. Give "
            "the model that it was computed from."
        )
    most = source.pareto_limit if limit is None else as_positive("limit", limit)
    group = left_out_together(source)
    bad = np.unique(group[model.loo(progressbar=progressbar).pareto_k > most])
    if not bad.size:
        return model
    tests = [np.flatnonzero(group == each) for each in bad]
    if len(tests[0]) == source.n_obs:
        raise ParameterError("All observations are left out together: nothing is left to fit to.")
    splits = complements(source.n_obs, tests)
    kept = open_folder(folder, fit, source.observations, splits)
    fitted = fit_all(
        fit,
        splits,
        kept,
        source.observations,
        threads=threads,
        progressbar=progressbar,
        like=source,
    )
    instead = _replaced(as_folded(source), splits, [each.source for each in fitted])
    return Model(LeftOutSource.of(source, instead, group))


def _replaced(folded: FoldedSource, splits: list[Split], fitted: list[Any]) -> FoldedSource:
    """Let new fits predict their observations, and the others stay as they are."""
    fold, row = folded.fold.copy(), folded.row.copy()
    for k, (_, test) in enumerate(splits, len(folded.sources)):
        fold[test], row[test] = k, np.arange(len(test))
    return replace(
        folded,
        sources=(*folded.sources, *fitted),
        fold=fold,
        row=row,
        hows=(*folded.hows, *("refit" for _ in fitted)),
        held_out=False,
    )
