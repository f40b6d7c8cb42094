"""Every way to combine the models, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lockquack.arithmetic import own_arithmetic
from lockquack.checks.models import check_models, kind_of_scores
from lockquack.draws.blocks import Kind
from lockquack.errors import LockquackError, ParameterError, UnsupportedError
from lockquack.fitting.fitters import varying_fitter_for
from lockquack.fitting.recalibration import RECALIBRATED
from lockquack.jets import Array
from lockquack.methods.bench import Bench, Row, distance_for, why_no_densities
from lockquack.methods.comparison import Comparison, tabulate
from lockquack.methods.fit import SIMPLEX, SOFTMAX, log_probabilities, require_seed, vary
from lockquack.methods.folds import Fold, read_folds
from lockquack.methods.method import METHODS, Method, method_for
from lockquack.methods.metrics import measure
from lockquack.methods.recalibrated import recalibrate_row
from lockquack.models.model import already_said, sources_of
from lockquack.models.observations import Observations
from lockquack.numeric import as_flag
from lockquack.operators import get_operator
from lockquack.parallel.progress import progress_bar
from lockquack.parallel.threads import small_products
from lockquack.registry import require_known
from lockquack.remarks import warn
from lockquack.rules import Hyvarinen, LogScore, Rule, get_rule
from lockquack.sources.reading import as_models
from lockquack.words import Text

#: What fitters are told that need marginal likelihoods.
_MARGINAL = "log_probability"


@own_arithmetic
def compare(
    models: Mapping[str, Any],
    methods: Sequence[str] | Mapping[str, Any] | None = None,
    *,
    cv: int | ArrayLike = 10,
    by: Any = None,
    rule: str | Rule | None = None,
    weights: str = SIMPLEX,
    hyvarinen: Hyvarinen | None = None,
    log_marginal_likelihood: Any = None,
    scores: Kind = "loo",
    recalibrated: bool = False,
    metrics: bool = False,
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Comparison:
    r"""Compare ways to combine models, by cross-validation of their weights.

    The weights of every method are fitted to all folds of the observations but one and scored on
    that one, so that methods with more parameters have no advantage. The models' own predictions
    are leave-one-out throughout; they are not fitted again. (Marginal likelihoods are those of
    all observations.)

    Beside the methods stands each model by itself. The table recommends the simplest row that
    cannot be distinguished from the best: a single model before equal weights, these before a
    mixture, a mixture before locking, locking before pools with more parameters.

    A row is called worse if its difference to the best exceeds what equally good rows would show
    anywhere in the table with a probability of 5 %: the limit grows with the number of rows, and
    allows for the best being chosen after the fact. What exceeds two standard errors, but not that
    limit, is unclear; so are differences below 4 nats, whose standard errors are too small [1]_,
    and those that depend on observations with a high Pareto k̂. The standard errors take the
    observations as independent; of fewer than ten there are none, and nothing is called worse.

    Parameters
    ----------
    models
        As for :func:`lock`.
    methods
        Names of methods, or a dict from names of your own to pairs of operator and rule. By
        default all that these models allow.
    cv
        Number of folds, or the fold of each observation (for grouped data).
    by
        Covariates that the weights may depend on, as for :func:`lock`. Methods whose weights can
        are then in the table twice, the second time as ``lock ~ age``; by default those whose
        problem is convex. How much their weights are shrunk is chosen for each fold without it.
    rule
        ``"crps"``, or ``"energy"`` for vectors, if that is to decide: rows are then ranked and
        judged by it, and methods that fit weights by it are in the table. By default it decides
        where a model has no densities, such as those of :func:`from_draws`, and else the log
        score.
    weights
        ``"softmax"`` adds each of these a third time, with a softmax gate, as ``stack ~
        softmax(age)``, drawn again without each fold. It takes half a minute a row.
    hyvarinen
        Another form of the Hyvärinen score, such as ``Hyvarinen(transform=None)``; by default in
        the coordinates in which all models live on the whole line.
    log_marginal_likelihood
        As for :func:`bma`; without, the methods that need it are left out.
    scores
        As for :func:`lock`.
    recalibrated
        Whether to add each method with its predictions recalibrated, as ``lock, recalibrated``: see
        :meth:`Combination.recalibrated`. The transform is fitted for each fold without it, too.
    metrics
        Whether to add columns that measure the held-out predictions in other ways: ``crps``, the
        mean continuous ranked probability score (smaller is better), ``coverage_0.9`` and
        ``width_0.9`` of their intervals of 90 % probability, ``rmse`` and ``r2`` of their means.
    random_seed
        Seed of the folds and of pseudo-BMA+.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    Comparison
        A data frame with one row per method and per model (``kind``), the best first: ``elpd``,
        the total held-out log score (also as ``elpd_loo``, which ArviZ before 1.0 looks for), its
        difference to the best and both standard errors, so that ``az.plot_compare`` takes it;
        ``p_worse``, the probability of being worse than the best, were it the only comparison;
        ``verdict``: ``best``, ``noise``, ``unclear`` or ``worse``; ``flags``: what makes the
        standard error unreliable; ``hyvarinen`` and its difference to the best by that score;
        ``bad_k``, how many observations have a Pareto k̂ above its limit for a model with weight;
        ``p_loo``, the effective number of parameters of a model; and the weights. Where the log
        score is not available, H decides. With ``rule``, and of models without densities, there
        are ``crps`` (or ``energy``), the mean of that score, smaller is better, ``crps_diff``, what
        a row has more than the best, and its standard error ``crps_dse``. ``recommended`` names the
        row that it recommends; ``attrs["left_out"]`` says which methods could not be used, and
        why.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(size=60)
    >>> draws = rng.normal(size=(4, 100)) / 8
    >>> table = lq.compare(
    ...     {
    ...         "left": lq.from_family("normal", y=y, mu=draws - 1.0, sigma=1.0),
    ...         "right": lq.from_family("normal", y=y, mu=draws + 1.0, sigma=1.0),
    ...     },
    ...     ["lock", "stack", "select"],
    ... )
    >>> table.recommended, table.loc[["lock", "stack", "select"], "verdict"].tolist()
    ('lock', ['best', 'worse', 'worse'])

    References
    ----------
    .. [1] Sivula, Magnusson, Matamoros and Vehtari (2020). Uncertainty in Bayesian leave-one-out
       cross-validation based model comparison. arXiv:2008.10296.
    """
    require_seed(random_seed)
    recalibrated, metrics = as_flag("recalibrated", recalibrated), as_flag("metrics", metrics)
    _require_form(hyvarinen)
    models = as_models(models)
    sources = sources_of(models)
    check_models(models, distance_for(sources) if why_no_densities(sources) else LogScore())
    scores = kind_of_scores(models, scores)
    asked = hyvarinen or Hyvarinen(), scores, progressbar, _read_rule(rule), random_seed
    bench = Bench.build(models, *asked)
    wanted = _read_methods(methods, bench, log_marginal_likelihood, random_seed)
    observations = next(iter(models.values())).observations
    constant = wanted
    for kind in _kinds(weights, by):
        varied = _varied(constant, by, observations, random_seed, kind, methods is None)
        wanted = {**wanted, **varied}
    folds = read_folds(cv, observations, random_seed)
    _require_training(folds, bench.case_weights)
    with small_products():
        rows, left_out = _run_all(wanted, bench, folds, methods is None, progressbar)
        if not rows:
            raise UnsupportedError("None of the methods can be used with these models.")
        if recalibrated:
            rows, why_not = _recalibrated(rows, bench, folds)
            left_out |= why_not
        warn(*bench.remarks(), already_said=already_said(models))
        measured = _measured(rows, bench, folds, progressbar) if metrics else None
    return tabulate(
        rows,
        bench,
        folds=len(folds),
        left_out=left_out,
        random_seed=random_seed,
        measured=measured,
    )


def _require_form(hyvarinen: Any) -> None:
    if not isinstance(hyvarinen, Hyvarinen | None):
        raise ParameterError(
            f"hyvarinen must be a Hyvarinen, such as Hyvarinen(transform=None); got {hyvarinen!r}."
        )


def _read_rule(rule: Any) -> Rule | None:
    """Read the score that is to decide; None: whatever there is."""
    if rule is None:
        return None
    found = get_rule(rule)
    if found.is_by_distance:
        return found
    raise ParameterError(
        f"rule must be 'crps', 'energy' or None; got {rule!r}. Without it the log score decides, "
        "or the Hyvärinen score where there is none; the table has both."
    )


def _run_all(
    wanted: Mapping[str, Method],
    bench: Bench,
    folds: Sequence[Fold],
    where_possible: bool,
    progressbar: bool | None,
) -> tuple[dict[str, Row], dict[str, Text]]:
    """Fit and score every method; leave out, and say, what cannot be, or refuse it."""
    rows, left_out = {}, {}
    with progress_bar(len(wanted), "methods", progressbar) as advance:
        for name, method in wanted.items():
            try:
                rows[name] = bench.run(method, folds)
            except LockquackError as error:
                if not where_possible:
                    raise error.within(f"Method {name!r}") from error
                left_out[name] = error.text
            advance(1)
    return rows, left_out


def _recalibrated(
    rows: Mapping[str, Row], bench: Bench, folds: Sequence[Fold]
) -> tuple[dict[str, Row], dict[str, Text]]:
    """Put each method beside itself with its predictions recalibrated; say where that fails."""
    found, left_out = dict(rows), {}
    for name, row in rows.items():
        try:
            found[f"{name}{RECALIBRATED}"] = recalibrate_row(bench, row, folds)
        except LockquackError as error:
            left_out[f"{name}{RECALIBRATED}"] = error.text
    return found, left_out


def _measured(
    rows: Mapping[str, Row], bench: Bench, folds: Sequence[Fold], progressbar: bool | None
) -> list[dict[str, float]]:
    """Measure what was predicted by each method, then by each model."""
    # A model may be called like a method.
    pools = {f"[{name}]": row.held_out(folds) for name, row in rows.items()}
    evaluation = bench.evaluation(next(iter(pools.values())), progressbar)
    return list(measure(evaluation, pools).values())


def _read_methods(
    methods: Any, bench: Bench, log_marginal_likelihood: Any, random_seed: int
) -> dict[str, Method]:
    if methods is None:
        methods = _usual_methods(bench, log_marginal_likelihood)
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Mapping):
        methods = _by_own_name(methods)
    chosen = {}
    for label, given in methods.items():
        if not isinstance(given, str):
            chosen[label] = _read_pair(label, given)
            continue
        require_known("method", given, METHODS)
        method = METHODS[given]
        told: dict[str, Any] = {"random_seed": random_seed}
        if _MARGINAL in method.kind.wants:
            told[_MARGINAL] = log_probabilities(bench.models, log_marginal_likelihood, None)
        options = {name: told[name] for name in method.kind.wants}
        chosen[label] = replace(method, options=options)
    return chosen


def _by_own_name(methods: Any) -> dict[str, str]:
    """Read names of methods."""
    try:
        listed = list(methods)
    except TypeError:
        listed = [methods]
    for name in listed:
        require_known("method", name, METHODS)
    return {name: name for name in listed}


def _varied(
    methods: Mapping[str, Method],
    by: Any,
    observations: Observations,
    random_seed: int,
    kind: str,
    only_convex: bool,
) -> dict[str, Method]:
    """Return those methods whose weights can depend on covariates, as they then are."""
    found = {}
    for name, method in methods.items():
        try:
            fitter = varying_fitter_for(method.operator, method.rule)
            design, varied = vary(method, by, "auto", observations, random_seed, kind)
        except UnsupportedError:
            continue
        if design is not None and (not only_convex or fitter.is_convex):
            found[f"{name}{varied.label.removeprefix(method.label)}"] = varied
    return found


def _kinds(weights: str, by: Any) -> tuple[str, ...]:
    """Return the kinds of weights that depend on covariates and are to be compared."""
    require_known("kind of weights", weights, (SIMPLEX, SOFTMAX))
    if by is None:
        if weights != SIMPLEX:
            raise ParameterError(
                "weights='softmax' is for weights that depend on covariates; give by=."
            )
        return ()
    return (SIMPLEX,) if weights == SIMPLEX else (SIMPLEX, SOFTMAX)


def _usual_methods(bench: Bench, log_marginal_likelihood: Any) -> list[str]:
    """Names of the methods that are not there for other kinds of models only."""
    known = log_marginal_likelihood is not None or all(
        model.log_marginal_likelihood is not None for model in bench.models.values()
    )
    return [
        name
        for name, method in METHODS.items()
        if bench.would_try(method)
        and (known or _MARGINAL not in method.kind.wants)
        and (bench.why_no_norm or not method.is_fallback)
        and (bench.knows(method.rule) or not method.rule.is_for_discrete)
    ]


def _read_pair(name: str, pair: Any) -> Method:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise ParameterError(
            f"Method {name!r} must be a pair of operator and rule, such as (Hoelder(-1), "
            f"LogScore()); got {pair!r}."
        )
    return method_for(get_operator(pair[0]), get_rule(pair[1]))


def _require_training(folds: Sequence[Fold], case_weights: Array | None) -> None:
    """Refuse folds of which one has all the observations that count."""
    if case_weights is not None and any(
        np.count_nonzero(case_weights[fold]) == np.count_nonzero(case_weights) for fold in folds
    ):
        raise ParameterError(
            "One fold of cv holds all observations whose case weight is not zero; nothing is left "
            "to fit the weights of the models to."
        )
