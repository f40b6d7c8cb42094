"""Cross-validation: fitting a model again and again, each time without some observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ObservationMismatchError, ParameterError, naming
from lockquack.models.model import Model
from lockquack.models.observations import Observations, as_observations
from lockquack.models.source import Source
from lockquack.numeric import as_count
from lockquack.parallel.progress import progress_bar
from lockquack.parallel.tasks import completed
from lockquack.sources.folds import Fold, positions, require_alike, side_by_side
from lockquack.sources.reading import as_model
from lockquack.sources.resuming import FitFolder, describe
from lockquack.sources.reusing import fit_where_needed, read_limit, with_all_that_follow
from lockquack.sources.splits import Index, Split, read_splits

#: What users write: fits to some rows, predicts others.
Fit = Callable[[Index, Index], Any]


@own_arithmetic
def cross_validate(
    fit: Fit,
    *,
    n: int,
    folds: int | Sequence[Any] | NDArray[Any] = 10,
    stratify: Any = None,
    reuse: bool | float = False,
    y: Any = None,
    folder: str | Path | None = None,
    random_seed: int = 0,
    threads: int = 1,
    progressbar: bool | None = None,
) -> Model:
    """Fit a model again and again, each time without some observations, and predict these.

    The result is one model of held-out predictions in the order of the data, as
    :func:`from_folds` makes it: K-fold, leave-group-out and leave-future-out cross-validation
    differ in the folds only. Scores and weights of :func:`stack` and its relatives are then
    out-of-sample whatever the model is; that of a few folds is of a model fitted to fewer
    observations than there are.

    The fits must not learn from what they leave out: standardise, select variables and choose
    priors inside ``fit``, from the rows ``train`` alone.

    Parameters
    ----------
    fit
        ``fit(train, test)`` fits the model to the rows ``train`` and returns a model of the rows
        ``test``, in this order: arrays of positions.
    n
        Number of observations.
    folds
        A number of folds of nearly equal sizes, dealt at random; or labels, one for each
        observation, of which each group is left out in turn; or pairs ``(train, test)`` of
        positions, such as those of :func:`leave_future_out`; or a splitter of scikit-learn, or
        what its ``split`` returns.
    stratify
        Classes, one for each observation, of which every fold gets its share; or numbers, such as
        the outcomes themselves, so that every fold gets small and large ones. Only with a number
        of folds.
    reuse
        Whether a fit predicts later folds too, by weighted draws, so that most fits need not be
        made (PSIS-LFO [1]_): a new one is made only where Pareto k̂ exceeds what the number of
        draws allows, or the number that is given here. For folds of which each is fitted to all
        rows of the one before and to more, such as those of :func:`leave_future_out`. ``fit`` is
        then asked for all later rows, and a row's density must depend on the parameters and on
        what is known before it, such as lagged outcomes. Fits are made one after the other.
    y
        Outcomes of all observations, in their order. Those that fits return are compared with
        them, so that predictions in another order are refused; a ``folder`` needs them.
    folder
        Where to keep each fit as soon as it is there. The same call again, after an
        interruption, makes only the fits that are missing. A folder of other outcomes, folds or
        of a function of another name is refused; that covariates or priors are others cannot be
        seen, so give each model a folder of its own and remove it when the model changes. Fits are
        kept as Python's pickles: use folders that you trust, with the versions that wrote them.
    random_seed
        With which folds are dealt.
    threads
        How many fits run at the same time; more than one needs a ``fit`` that allows it. Where a
        dask client is active, its workers make the fits instead.
    progressbar
        Whether to show progress; None: in a terminal only.

    Returns
    -------
    Model
        A model for :func:`lockquack.stack` and its relatives. It holds the predictions of all
        fits. ``model.loo().how`` says of each observation whether a fit of its own fold predicts
        it, ``"held out"``, or an earlier one.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(size=20)
    >>> def fit(train, test):  # the posterior of a mean, known variance
    ...     mu = rng.normal(y[train].mean(), len(train) ** -0.5, size=(4, 100))
    ...     return lq.from_family("normal", y=y[test], mu=mu, sigma=1.0)
    >>> lq.cross_validate(fit, n=len(y), folds=5)
    <Model normal; chain: 4, draw: 100, obs_id: 20, components: 1>

    References
    ----------
    .. [1] Bürkner, Gabry, Vehtari (2020), Approximate leave-future-out cross-validation for
       Bayesian time series models, Journal of Statistical Computation and Simulation 90,
       arXiv:1902.06281.
    """
    require_function(fit)
    n, threads = as_count("n", n), as_count("threads", threads)
    splits = read_splits(n, folds, stratify, random_seed)
    outcomes = _outcomes(y, n)
    if folder is not None and outcomes is None:
        raise ParameterError(
            "folder= needs y=, the outcomes of all observations: they tell whether the folder is "
            "of the same data."
        )
    # What is asked of each fit.
    asked = splits if reuse is False else with_all_that_follow(splits)
    kept = FitFolder(None) if outcomes is None else open_folder(folder, fit, outcomes, asked)
    if reuse is not False:
        fit_fold = partial(fit_or_read, fit, asked, kept, outcomes)
        return fit_where_needed(fit_fold, splits, asked, read_limit(reuse), progressbar)
    fitted = fit_all(fit, splits, kept, outcomes, threads=threads, progressbar=progressbar)
    folds = [
        Fold(test, each.source, np.arange(len(test)))
        for (_, test), each in zip(splits, fitted, strict=True)
    ]
    return side_by_side(folds, splits)


def require_function(fit: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(fit):
        raise ParameterError(
            "fit must be a function fit(train, test) that fits the model to the rows train and "
            f"returns a model of the rows test; got {_in_short(fit)}."
        )


def _in_short(given: Any) -> str:
    """Name what was given, in one line."""
    short = isinstance(given, str | int | float | None) and len(repr(given)) <= 60
    kind = type(given).__name__
    return repr(given) if short else f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


def open_folder(
    folder: str | Path | None, fit: Fit, outcomes: Observations, splits: Sequence[Split]
) -> FitFolder:
    """Keep fits in a folder, if there is one, which must be of the same data and folds."""
    return FitFolder.open(folder, describe(fit, outcomes.values, splits))


def fit_all(
    fit: Fit,
    splits: Sequence[Split],
    kept: FitFolder,
    outcomes: Observations | None,
    *,
    threads: int,
    progressbar: bool | None,
    like: Source | None = None,
) -> list[Model]:
    """Make the fits that are not kept yet, keep them, and return all: of one size."""
    fitted = {k: kept.read(k) for k in range(len(splits)) if k in kept}
    missing = [k for k in range(len(splits)) if k not in fitted]
    one_fit = partial(fit_one, fit, splits, outcomes)
    with progress_bar(len(missing), "cross-validation", progressbar) as advance:
        for place, model in completed(one_fit, missing, threads=threads):
            like = like or model.source
            with naming(f"Fold {missing[place]}"):
                require_alike([like, model.source])
            kept.write(missing[place], model)
            fitted[missing[place]] = model
            advance(1)
    return [fitted[k] for k in range(len(splits))]


def fit_or_read(
    fit: Fit, splits: Sequence[Split], kept: FitFolder, outcomes: Observations | None, k: int
) -> Model:
    """Make fit k and keep it, or read it if it is kept."""
    if k in kept:
        return kept.read(k)
    ((_, model),) = completed(partial(fit_one, fit, splits, outcomes), [k])
    kept.write(k, model)
    return model


def fit_one(fit: Fit, splits: Sequence[Split], outcomes: Observations | None, k: int) -> Model:
    """Make fit k, and see at once whether it is a model of the rows that it should predict."""
    train, test = splits[k]
    try:
        found = fit(train, test)
    except Exception as error:
        error.add_note(f"In fit(train, test) of fold {k}, {len(train)} and {len(test)} rows.")
        raise
    with naming(f"Fold {k}"):
        model = as_model(found)
        places = positions(test, model.source)
        if outcomes is not None:
            _require_outcomes(model.observations, outcomes, places)
    return model


def _outcomes(y: Any, n: int) -> Observations | None:
    if y is None:
        return None
    outcomes = as_observations(y)
    if outcomes.n != n:
        raise ParameterError(f"y has {outcomes.n} outcomes, and n is {n}.")
    return outcomes


def _require_outcomes(found: Observations, expected: Observations, places: Index) -> None:
    """Refuse a fit that predicts other outcomes than those of its rows."""
    if not found.known:
        return
    values = expected.values[places]
    tolerance = 1e-6 * (np.abs(values) + np.ptp(expected.values, axis=0))
    if found.values.shape == values.shape:
        wrong = (np.abs(found.values - values) > tolerance).any(axis=1)
        if not wrong.any():
            return
        at = int(np.flatnonzero(wrong)[0])
        seen = f"{found.values[at].tolist()} where y has {values[at].tolist()} at row {places[at]}"
    else:
        seen = f"outcomes of {found.d} component(s) where y has {expected.d}"
    raise ObservationMismatchError(
        f"fit(train, test) must return a model of the rows test, in this order; got {seen}."
    )
