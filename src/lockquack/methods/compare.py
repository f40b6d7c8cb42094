"""Every way to combine the models, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from lockquack.checks.models import check_models
from lockquack.draws.blocks import Kind
from lockquack.draws.diagnostics import NOISE_ERRORS, pareto_k_threshold
from lockquack.errors import LockquackError, ParameterError, UnsupportedError, unknown_name
from lockquack.fitting.objective import Objective
from lockquack.fitting.resampling import Resampling
from lockquack.jets import Array
from lockquack.methods.examine import examine_edges
from lockquack.methods.fit import log_probabilities, require_known_scores, require_seed, solve
from lockquack.methods.gather import Gathered, gather
from lockquack.methods.method import METHODS, Method, method_for
from lockquack.models.model import Model, sources_of
from lockquack.models.source import Source
from lockquack.operators import Linear, Locking, Operator, get_operator
from lockquack.operators.pool import Pool
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.prediction.members import are_discrete
from lockquack.prediction.nodes import lay_nodes, refine_nodes
from lockquack.rules import Hyvarinen, LogScore, PairwiseScore, Rule, get_rule

Fold = NDArray[np.intp]
#: Total difference that is noise however small its standard error: a tenth of a nat.
_SMALL = 0.1
#: What fitters are told that need marginal likelihoods.
_MARGINAL = "log_probability"


def compare(
    models: Mapping[str, Model],
    methods: Sequence[str] | Mapping[str, Any] | None = None,
    *,
    cv: int | ArrayLike = 10,
    hyvarinen: Hyvarinen | None = None,
    log_marginal_likelihood: Any = None,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> pd.DataFrame:
    r"""Compare ways to combine models, by cross-validation of their weights.

    The weights of every method are fitted to all folds of the observations but one and scored on
    that one, so that methods with more parameters have no advantage. The models' own predictions
    are leave-one-out throughout; they are not fitted again. (Marginal likelihoods are those of
    all observations.)

    Differences of less than two paired standard errors are called noise. The standard errors
    take the observations as independent, and know nothing of the error that comes with a high
    Pareto k̂.

    Parameters
    ----------
    models
        Name → model, all of the same observations.
    methods
        Names of methods, or a dict from names of your own to pairs of operator and rule. By
        default all that these models allow.
    cv
        Number of folds, or the fold of each observation (for grouped data).
    hyvarinen
        Another form of the Hyvärinen score, such as ``Hyvarinen(transform="log")`` for positive
        outcomes.
    log_marginal_likelihood
        As for :func:`bma`; without, the methods that need it are left out.
    scores
        As for :func:`lock`.
    random_seed
        Seed of the folds and of pseudo-BMA+.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    pandas.DataFrame
        One row per method, the best first: ``elpd``, the total held-out log score (also as
        ``elpd_loo``, which ArviZ before 1.0 looks for), its difference to the best and both
        standard errors, so that ``az.plot_compare`` takes it; ``verdict``, whether the difference
        is noise: within two standard errors, or below a tenth; ``hyvarinen`` and its difference
        to the best by that score; ``bad_k``, how many observations have a Pareto k̂ above its
        limit for a model with weight; and the weights. Where the log score is not available, H
        decides. ``attrs["left_out"]`` says which methods could not be used, and why.

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
    >>> table.index[0], table["verdict"].tolist()
    ('lock', ['best', 'worse', 'worse'])
    """
    require_known_scores(scores)
    require_seed(random_seed)
    if not isinstance(hyvarinen, Hyvarinen | None):
        raise ParameterError(
            f"hyvarinen must be a Hyvarinen, such as Hyvarinen(transform='log'); got {hyvarinen!r}."
        )
    check_models(models, LogScore())
    bench = _Bench.build(models, hyvarinen or Hyvarinen(), scores, progressbar)
    wanted = _read_methods(methods, bench, log_marginal_likelihood, random_seed)
    folds = _read_folds(cv, bench.n_obs, random_seed)
    rows, left_out = {}, {}
    with progress_bar(len(wanted), "methods", progressbar) as advance:
        for name, method in wanted.items():
            try:
                rows[name] = bench.run(method, folds)
            except LockquackError as error:
                if methods is not None:
                    raise error.within(f"Method {name!r}") from error
                left_out[name] = error.text
            advance(1)
    table = _table(rows, bench)
    table.attrs["left_out"] = left_out
    return table


@dataclass(frozen=True)
class _Row:
    """A method's weights on all observations and its held-out scores."""

    weights: Array  # (K,)
    log_scores: Array  # (n,); NaN where the pool cannot be normalised
    h_scores: Array  # (n,); NaN where H is not available


@dataclass
class _Bench:
    """The models' predictions, gathered once for all methods."""

    models: Mapping[str, Model]
    hyvarinen: Hyvarinen
    scores: Kind
    gathered: Gathered
    why_no_h: str  # empty: there is H
    why_no_norm: str  # empty: pools can be normalised
    pareto_k: Array  # (K, n)

    @classmethod
    def build(
        cls,
        models: Mapping[str, Model],
        hyvarinen: Hyvarinen,
        scores: Kind,
        progressbar: bool | None,
    ) -> _Bench:
        """Collapse the draws and lay nodes, as far as these models allow."""
        why_no_h = why_no_norm = ""
        rule: Rule = hyvarinen
        sources = sources_of(models)
        try:
            check_models(models, hyvarinen)
        except LockquackError as error:
            why_no_h, rule = error.text, LogScore()
        gathered = gather(models, Linear(), rule, scores, progressbar)
        try:
            rule = PairwiseScore() if are_discrete(sources) else LogScore()
            what = "pools other than mixtures cannot be normalised"
            loo = scores == "loo"
            node_groups = lay_nodes(
                sources, loo=loo, of_all=False, what=what, progressbar=progressbar
            )
            gathered = gathered.with_nodes(node_groups)
            if rule.is_for_discrete:
                found = gather(models, Locking(), rule, scores, progressbar).densities.tables
                for wish, tables in found.items():
                    gathered = gathered.with_tables(wish, tables)
        except UnsupportedError as error:
            why_no_norm = error.text
        pareto_k = np.zeros((len(models), gathered.densities.n_obs))
        if scores == "loo":
            pareto_k = np.stack([model.loo().pareto_k for model in models.values()])
        return cls(models, hyvarinen, scores, gathered, why_no_h, why_no_norm, pareto_k)

    @property
    def sources(self) -> dict[str, Source]:
        """Where the models' densities come from."""
        return sources_of(self.models)

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return self.gathered.densities.n_obs

    def run(self, method: Method, folds: Sequence[Fold]) -> _Row:
        """Fit a method to all observations, then to all folds but one, scored on that one."""
        method = self._for_these_models(method)
        concentration = np.full(len(self.models), method.concentration)
        loo = self.scores == "loo"
        fitter, solution = solve(self.sources, method, self.gathered, concentration, loo=loo)
        pool = fitter.objective.pool(solution.x)
        if method.rule.needs_derivatives:
            examine_edges(self.sources, pool, method.rule)
        self._refine(pool)
        held_out = _HeldOut(fitter, solution.x, self._objectives(method.operator))
        scores = np.empty((2, self.n_obs))
        places = [slice(i, i + 1) for i in range(len(folds))]
        # Each of the others is a few sums over the observations: sooner done than sent.
        found = map_observations(
            _score_fold, (held_out,), places, folds, here=fitter.refits_cheaply
        )
        for fold, part in zip(folds, found, strict=True):
            scores[:, fold] = part
        return _Row(pool.weights, *scores)

    def _for_these_models(self, method: Method) -> Method:
        """Return the method for these models, or say why it is not for them."""
        operator, rule = method.operator, method.rule
        if rule.needs_derivatives:
            if self.why_no_h:
                raise UnsupportedError(self.why_no_h)
            if rule not in (Hyvarinen(), self.hyvarinen):
                raise ParameterError(
                    f"{rule!r} differs from the score of the table, {self.hyvarinen!r}. "
                    "Give one form of it for all methods, by hyvarinen=."
                )
            method = replace(method, rule=self.hyvarinen)
        if rule.needs_normaliser and not operator.normalised and self.why_no_norm:
            raise UnsupportedError(self.why_no_norm)
        if rule.is_for_discrete and not self._knows(rule):
            raise UnsupportedError(f"The {rule.label} score is for discrete outcomes only.")
        return method.for_models(tuple(self.models))

    def _knows(self, rule: Rule) -> bool:
        """Whether the models were evaluated wherever a rule wants it."""
        return set(rule.wishes) <= set(self.gathered.densities.tables)

    def _refine(self, pool: Pool) -> None:
        """Add nodes where this pool needs them; other methods profit from them too."""
        if not pool.operator.normalised and self.gathered.node_groups:
            loo = self.scores == "loo"
            node_groups = refine_nodes(self.gathered.node_groups, self.sources, pool, loo=loo)
            self.gathered = self.gathered.with_nodes(node_groups)

    def _objectives(self, operator: Operator) -> tuple[Objective | None, Objective | None]:
        """Log score and H of a pool; None where it has no such score."""
        densities, flat = self.gathered.densities, np.ones(len(self.models))
        normalised = operator.normalised or not self.why_no_norm
        return (
            Objective(operator, LogScore(), densities, flat) if normalised else None,
            None if self.why_no_h else Objective(operator, self.hyvarinen, densities, flat),
        )


@dataclass(frozen=True)
class _HeldOut(Resampling):
    """A problem to be solved without each fold in turn, and how to score it there."""

    objectives: tuple[Objective | None, ...]


def _score_fold(resamplings: Sequence[_HeldOut], place: slice, fold: Fold) -> Array:
    """Fit to all observations but a fold; scores there, (scoring, fold), or NaN."""
    (held_out,) = resamplings
    fitter = held_out.fitter
    counts = np.ones(fitter.objective.n_obs)
    counts[fold] = 0.0
    x = fitter.refit(counts, held_out.x)
    scores = np.full((len(held_out.objectives), fold.size), np.nan)
    for row, objective in zip(scores, held_out.objectives, strict=True):
        if objective is not None:
            row[:] = objective.at(fold).scores(x)
    return scores


def _read_methods(
    methods: Any, bench: _Bench, log_marginal_likelihood: Any, random_seed: int
) -> dict[str, Method]:
    if methods is None:
        methods = _usual_methods(bench, log_marginal_likelihood)
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Mapping):
        methods = {name: name for name in methods}
    chosen = {}
    for label, given in methods.items():
        if not isinstance(given, str):
            chosen[label] = _read_pair(label, given)
            continue
        if given not in METHODS:
            raise unknown_name("method", given, METHODS)
        method = METHODS[given]
        told: dict[str, Any] = {"random_seed": random_seed}
        if _MARGINAL in method.kind.wants:
            told[_MARGINAL] = log_probabilities(bench.models, log_marginal_likelihood, None)
        options = {name: told[name] for name in method.kind.wants}
        chosen[label] = replace(method, options=options)
    return chosen


def _usual_methods(bench: _Bench, log_marginal_likelihood: Any) -> list[str]:
    """Names of the methods that are not there for other kinds of models only."""
    known = log_marginal_likelihood is not None or all(
        model.log_marginal_likelihood is not None for model in bench.models.values()
    )
    return [
        name
        for name, method in METHODS.items()
        if (known or _MARGINAL not in method.kind.wants)
        and (bench.why_no_norm or not method.is_makeshift)
        and (bench._knows(method.rule) or not method.rule.is_for_discrete)
    ]


def _read_pair(name: str, pair: Any) -> Method:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise ParameterError(
            f"Method {name!r} must be a pair of operator and rule, such as (Hoelder(-1), "
            f"LogScore()); got {pair!r}."
        )
    return method_for(get_operator(pair[0]), get_rule(pair[1]))


def _read_folds(cv: int | ArrayLike, n: int, random_seed: int) -> list[Fold]:
    if isinstance(cv, int | np.integer):
        if not cv >= 2:
            raise ParameterError(f"cv must be at least 2 folds; got {cv}.")
        order = np.random.default_rng(random_seed).permutation(n)
        return [np.sort(part) for part in np.array_split(order, min(int(cv), n))]
    labels = np.asarray(cv)
    if labels.shape != (n,):
        raise ParameterError(
            f"cv must be a number of folds or the fold of each of {n} observations; got the "
            f"shape {labels.shape}."
        )
    folds = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if len(folds) < 2:
        raise ParameterError("cv puts all observations into one fold; at least two are needed.")
    return folds


def _table(rows: Mapping[str, _Row], bench: _Bench) -> pd.DataFrame:
    if not rows:
        raise UnsupportedError("None of the methods can be used with these models.")
    log_scores = np.stack([row.log_scores for row in rows.values()])
    h_scores = np.stack([row.h_scores for row in rows.values()])
    weights = np.stack([row.weights for row in rows.values()])
    elpd, h_total = log_scores.sum(axis=1), h_scores.sum(axis=1)
    leading = log_scores if np.isfinite(elpd).any() else h_scores
    diff, dse = _differences(leading)
    h_diff, h_dse = _differences(h_scores)
    limits = [pareto_k_threshold(source.n_samples) for source in bench.sources.values()]
    high = bench.pareto_k > np.array(limits)[:, None]
    table = pd.DataFrame(
        {
            "elpd": elpd,
            "elpd_diff": diff if leading is log_scores else np.nan,
            "dse": dse if leading is log_scores else np.nan,
            "verdict": _verdicts(diff, dse),
            "hyvarinen": h_total,
            "hyvarinen_diff": h_diff,
            "hyvarinen_dse": h_dse,
            "bad_k": [int(high[w > 0].any(axis=0).sum()) for w in weights],
            **{f"weight[{name}]": weights[:, k] for k, name in enumerate(bench.models)},
            "se": _standard_errors(log_scores),
            "elpd_loo": elpd,
            "scale": "log",
        },
        index=pd.Index(list(rows), name="method"),
    )
    order = np.argsort(-np.where(np.isnan(diff), -np.inf, diff), kind="stable")
    table = table.iloc[order]
    table.insert(0, "rank", np.arange(len(table)))
    return table


def _differences(scores: Array) -> tuple[Array, Array]:
    """Totals minus the best total, and their paired standard errors."""
    totals = scores.sum(axis=1)
    if np.isnan(totals).all():
        return totals, totals
    apart = scores - scores[np.nanargmax(totals)]
    return apart.sum(axis=1), _standard_errors(apart)


def _standard_errors(values: Array) -> Array:
    return np.asarray(np.sqrt(values.shape[1]) * values.std(axis=1, ddof=1))


def _verdicts(diff: Array, dse: Array) -> list[str]:
    verdicts = []
    for d, error in zip(diff, dse, strict=True):
        if np.isnan(d):
            verdicts.append("not known")
        elif d == 0:
            verdicts.append("best")
        else:
            verdicts.append("noise" if -d < max(NOISE_ERRORS * error, _SMALL) else "worse")
    return verdicts
