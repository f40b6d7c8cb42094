"""Methods tried on the same models, each with its weights cross-validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lockquack.checks.models import check_models, suited_rule
from lockquack.draws.blocks import Kind
from lockquack.errors import LockquackError, ParameterError, UnsupportedError
from lockquack.fitting.densities import Densities
from lockquack.fitting.fitters import can_be_fitted
from lockquack.fitting.objective import Objective
from lockquack.fitting.resampling import Resampling
from lockquack.jets import Array
from lockquack.methods.examine import examine_edges
from lockquack.methods.folds import Fold
from lockquack.methods.gather import Gathered, gather, grant
from lockquack.methods.method import Method, method_for
from lockquack.methods.solving import solve
from lockquack.methods.suspicious_outcomes import examine_outcomes
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.numeric import cut
from lockquack.operators import Linear, Locking, Operator
from lockquack.operators.pool import Pool
from lockquack.parallel.mapping import map_observations
from lockquack.prediction.evaluation import Evaluation
from lockquack.prediction.examine import examine_pareto
from lockquack.prediction.members import are_discrete
from lockquack.prediction.nodes import lay_nodes, refine_nodes
from lockquack.quadrature.beta import BetaTransform
from lockquack.remarks import Remark
from lockquack.rules import CRPS, EnergyScore, Hyvarinen, LogScore, PairwiseScore, Rule
from lockquack.totals import total

#: Folds that are left out in one go, where that costs little.
_FOLDS_AT_ONCE = 16


@dataclass(frozen=True)
class Row:
    """A method's weights on all observations and its held-out scores; or those of a model."""

    weights: Array  # (K,)
    log_scores: Array  # (n,); NaN where the pool cannot be normalised
    h_scores: Array  # (n,); NaN where H is not available
    distance_scores: Array  # (n,); NaN where neither CRPS nor energy score was asked for
    #: How much there is to it: 0 for one model, more for methods that find out more.
    complexity: int
    #: Effective number of parameters of a model; NaN for methods.
    p_loo: float = np.nan
    #: The pool that each fold was predicted by, at all observations; none: the model itself.
    pools: Sequence[Pool] = ()
    #: How these were recalibrated, for each observation by what predicts it.
    recalibration: BetaTransform | None = None

    def held_out(self, folds: Sequence[Fold]) -> Pool:
        """Return what each observation was predicted by."""
        return replace(held_out_pool(self.pools, folds), recalibration=self.recalibration)


def held_out_pool(pools: Sequence[Pool], folds: Sequence[Fold]) -> Pool:
    """Put pools together, each for its own fold of the observations."""
    x = np.empty((len(pools[0].x), sum(fold.size for fold in folds)))
    for pool, fold in zip(pools, folds, strict=True):
        x[:, fold] = pool.at(fold).x.reshape(len(x), -1)
    return replace(pools[0], x=x)


@dataclass
class Bench:
    """The models' predictions, gathered once for all methods."""

    models: Mapping[str, Model]
    hyvarinen: Rule
    scores: Kind
    gathered: Gathered
    why_no_h: str  # empty: there is H
    why_no_norm: str  # empty: pools can be normalised
    pareto_k: Array  # (K, n); −inf where an observation does not count
    #: CRPS or energy score, where it decides; None: it was not asked for.
    distance: Rule | None = None
    why_no_log: str = ""  # empty: there are log scores
    _cut: tuple[Densities, Sequence[Fold], Sequence[Densities]] | None = None

    @classmethod
    def build(
        cls,
        models: Mapping[str, Model],
        hyvarinen: Rule,
        scores: Kind,
        progressbar: bool | None,
        distance: Rule | None = None,
        random_seed: int = 0,
    ) -> Bench:
        """Collapse the draws and lay nodes, as far as these models allow.

        Of models without densities, distances of their draws are all there is.
        """
        sources = sources_of(models)
        hyvarinen = suited_rule(hyvarinen, sources)
        why = why_no_densities(sources)
        if why:
            rule = distance or distance_for(sources)
            drawn = gather(models, Linear(), rule, scores, progressbar, random_seed)
            weights, pareto_k = drawn.densities.case_weights, drawn.pareto_k
            assert pareto_k is not None
            known = _where_counted(pareto_k, weights)
            return cls(models, hyvarinen, scores, drawn, why, why, known, rule, why)
        found = cls._of_densities(models, hyvarinen, scores, progressbar)
        return replace(found, distance=distance)

    @classmethod
    def _of_densities(
        cls,
        models: Mapping[str, Model],
        hyvarinen: Rule,
        scores: Kind,
        progressbar: bool | None,
    ) -> Bench:
        why_no_h = why_no_norm = ""
        sources = sources_of(models)
        rule: Rule = hyvarinen
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
        pareto_k = _where_counted(pareto_k, gathered.densities.case_weights)
        return cls(models, hyvarinen, scores, gathered, why_no_h, why_no_norm, pareto_k)

    @property
    def sources(self) -> dict[str, Source]:
        """Where the models' densities come from."""
        return sources_of(self.models)

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return self.gathered.densities.n_obs

    @property
    def case_weights(self) -> Array | None:
        """How often each observation counts, (n,); None: once each."""
        return self.gathered.densities.case_weights

    def run(self, method: Method, folds: Sequence[Fold]) -> Row:
        """Fit a method to all observations, then to all folds but one, scored on that one."""
        method = self._for_these_models(method)
        concentration = np.full(len(self.models), method.concentration)
        self._grant(method.operator, method.rule)
        loo = self.scores == "loo"
        solved = solve(self.sources, method, self.gathered, concentration, loo=loo)
        fitter, solution = solved.fitter, solved.solution
        if solved.gathered.node_groups:  # with what the method added
            self.gathered = self.gathered.with_nodes(solved.gathered.node_groups)
        pool = fitter.objective.pool(solution.x)
        if method.rule.needs_derivatives:
            examine_edges(self.sources, pool, method.rule)
        self._refine(pool)
        held_out = _HeldOut(fitter, solution.x, self._objectives(pool.operator))
        scores = np.full((len(held_out.objectives), self.n_obs), np.nan)
        places = cut(slice(0, len(folds)), held_out.at_once)
        # Each of the others is a few sums over the observations: sooner done than sent.
        here = fitter.refits_cheaply
        # A worker has the problem, and cuts out of it what it needs.
        parts = self._parts(folds) if here else [None] * len(folds)
        found = map_observations(
            _score_folds,
            (held_out,),
            places,
            [folds[some] for some in places],
            [parts[some] for some in places],
            here=here,
        )
        pools = []
        for fold, (own, x) in zip(folds, chain.from_iterable(found), strict=True):
            scores[:, fold] = own
            pools.append(replace(pool, x=x))
        weights = fitter.objective.mean_weights(solution.x)
        log_scores, h_scores, distances = scores
        return Row(weights, log_scores, h_scores, distances, method.complexity, pools=pools)

    def _parts(self, folds: Sequence[Fold]) -> Sequence[Densities]:
        """Densities at each fold, for all methods until more is known of the models."""
        whole = self.gathered.densities
        if self._cut is None or self._cut[0] is not whole or self._cut[1] is not folds:
            self._cut = whole, folds, [whole.at(fold) for fold in folds]
        return self._cut[2]

    def scores_of(self, pool: Pool) -> tuple[Array, Array]:
        """Log score and H of a pool at all observations, (n,) each; NaN where it has none.

        Not those of its recalibration.
        """
        self._refine(pool)
        unknown = np.full(self.n_obs, np.nan)
        log_scores, h_scores, _ = (
            unknown if objective is None else objective.scores(pool.x)
            for objective in self._objectives(pool.operator)
        )
        return log_scores, h_scores

    @property
    def observations(self) -> Observations:
        """The outcomes."""
        return next(iter(self.models.values())).observations

    def evaluation(self, pool: Pool, progressbar: bool | None = None) -> Evaluation:
        """Return what a pool predicts, beside others, where observations are left out."""
        loo = self.scores == "loo"
        return Evaluation(self.models, pool, self.observations, loo, 0, progressbar)

    def single_models(self) -> dict[str, Row]:
        """Return a row for each model by itself."""
        alone = np.eye(len(self.models))
        logs, h, distances = (
            np.full((len(self.models), self.n_obs), np.nan)
            if objective is None
            else np.stack([objective.scores(x) for x in alone])
            for objective in self._objectives(Linear())
        )
        return {
            name: Row(alone[k], logs[k], h[k], distances[k], 0, self._p_loo(model, logs[k]))
            for k, (name, model) in enumerate(self.models.items())
        }

    def _p_loo(self, model: Model, log_scores: Array) -> float:
        known = model.n_draws and not self.why_no_log
        if self.scores != "loo" or model.source.is_left_out or not known:
            return np.nan
        fitted = model.passes.predict("in-sample", density=True, derivatives=False)
        return float(total(fitted.jet.logp - log_scores, self.case_weights))

    @cached_property
    def high_k(self) -> NDArray[np.bool_]:
        """Where the Pareto k̂ of a model is above its limit, (K, n)."""
        limits = [source.pareto_limit for source in self.sources.values()]
        return np.asarray(self.pareto_k > np.array(limits)[:, None])

    def remarks(self) -> list[Remark]:
        """Remark on leave-one-out scores that are unreliable, and on suspicious outcomes."""
        remarks = examine_pareto(self.sources, self.pareto_k, self.observations, "scores")
        if any(source.likelihood.discrete for source in self.sources.values()):
            return remarks
        logp, names = self.gathered.densities.jets.logp, tuple(self.models)
        return [*remarks, *examine_outcomes(self.observations, names, logp, densities=True)]

    def _for_these_models(self, method: Method) -> Method:
        """Return the method for these models, or say why it is not for them."""
        if self.distance is not None and not method.kind.resamples:
            method = replace(method, rule=self.distance)  # it decides nothing
        operator, rule = method.operator, method.rule
        if self.why_no_log and self.distance is not None and not rule.is_by_distance:
            instead = method_for(Linear(), self.distance).label
            raise UnsupportedError(f"{self.why_no_log} Mix such models by {instead!r}.")
        if rule.needs_derivatives:
            if self.why_no_h:
                raise UnsupportedError(self.why_no_h)
            if rule not in (Hyvarinen(), self.hyvarinen):
                raise ParameterError(
                    f"{rule!r} differs from the score of the table, {self.hyvarinen!r}. "
                    "Give one form of it for all methods, by hyvarinen=."
                )
            method = replace(method, rule=self.hyvarinen)
        if rule.needs_normaliser and operator.needs_normaliser and self.why_no_norm:
            raise UnsupportedError(self.why_no_norm)
        if rule.is_for_discrete and not self.knows(rule):
            raise UnsupportedError(f"The {rule.label} score is for discrete outcomes only.")
        return method.for_models(tuple(self.models))

    def would_try(self, method: Method) -> bool:
        """Whether a method is of use with these models and the score that decides."""
        if self.why_no_log and not method.rule.is_by_distance:
            return not method.kind.resamples
        return method.is_default or type(method.rule) is type(self.distance)

    def knows(self, rule: Rule) -> bool:
        """Whether the models were evaluated wherever a rule wants it."""
        return set(rule.wishes) <= set(self.gathered.densities.tables)

    def _grant(self, operator: Operator, rule: Rule) -> None:
        """Find out what a rule wants to know that no other did; the next has it too."""
        known = self.gathered.pareto_k
        found = grant(self.gathered, self.sources, operator, rule, self.scores)
        self.gathered = replace(found, pareto_k=known)

    def _refine(self, pool: Pool) -> None:
        """Add nodes where this pool needs them; other methods profit from them too."""
        if pool.operator.needs_normaliser and self.gathered.node_groups:
            loo = self.scores == "loo"
            node_groups = refine_nodes(self.gathered.node_groups, self.sources, pool, loo=loo)
            self.gathered = self.gathered.with_nodes(node_groups)

    def _objectives(self, operator: Operator) -> tuple[Objective | None, ...]:
        """Log score, H, and distance of a pool; None where it has no such score."""
        by_distance = self._can_measure(operator)
        densities, flat = self.gathered.densities, np.ones(len(self.models))
        rules = (
            None if self._why_no_log(operator) else LogScore(),
            None if self.why_no_h or not operator.of_densities else self.hyvarinen,
            self.distance if by_distance else None,
        )
        return tuple(
            None if rule is None else Objective(operator, rule, densities, flat) for rule in rules
        )

    def _why_no_log(self, operator: Operator) -> str:
        if not operator.of_densities:
            return "An average of quantiles has no log score."
        return self.why_no_log if operator.normalised else self.why_no_log or self.why_no_norm

    def _can_measure(self, operator: Operator) -> bool:
        """Find out what it takes to measure pools by distance, if that is asked for."""
        if self.distance is None or not can_be_fitted(operator, self.distance):
            return False
        try:
            self._grant(operator, self.distance)
        except UnsupportedError:
            return False
        return True


def distance_for(models: Mapping[str, Source]) -> Rule:
    """Return the score of distances for such outcomes: CRPS of numbers, else the energy score."""
    d = max(model.observations.d for model in models.values())
    return CRPS() if d == 1 else EnergyScore()


def why_no_densities(models: Mapping[str, Source]) -> str:
    """Say which model has no densities; empty: all have some."""
    for name, model in models.items():
        if not model.can.know_density:
            return f"Model {name!r} {model.known_where}, so there are no log scores."
    return ""


def _where_counted(pareto_k: Array, case_weights: Array | None) -> Array:
    """Forget Pareto k̂ of observations that do not count."""
    return pareto_k if case_weights is None else np.where(case_weights > 0, pareto_k, -np.inf)


@dataclass(frozen=True)
class _HeldOut(Resampling):
    """A problem to be solved without each fold in turn, and how to score it there."""

    objectives: tuple[Objective | None, ...]

    @property
    def at_once(self) -> int:
        """How many folds are left out in one go: solving several is hardly more work, or it is."""
        return _FOLDS_AT_ONCE if self.fitter.refits_cheaply else 1

    def scored(self, fold: Fold, densities: Densities | None, x: Array) -> tuple[Array, Array]:
        """Scores at a fold of what was fitted without it, (scoring, fold), and its parameters."""
        everywhere = self.fitter.objective.parameters(x)
        own = everywhere[:, fold] if everywhere.ndim == 2 else everywhere
        scores = np.full((len(self.objectives), fold.size), np.nan)
        for row, objective in zip(scores, self.objectives, strict=True):
            if objective is not None:
                there = objective.densities.at(fold) if densities is None else densities
                row[:] = replace(objective, densities=there).scores(own)
        return scores, everywhere


def _score_folds(
    resamplings: Sequence[_HeldOut],
    place: slice,
    folds: Sequence[Fold],
    densities: Sequence[Densities | None],
) -> list[tuple[Array, Array]]:
    """Fit to all observations but a fold, for each of some; see :meth:`_HeldOut.scored`."""
    (held_out,) = resamplings
    counts = np.repeat(held_out.fitter.objective.counts[None], len(folds), axis=0)
    for row, fold in zip(counts, folds, strict=True):
        row[fold] = 0.0
    found = held_out.fitter.refit_each(counts, held_out.x)
    return list(map(held_out.scored, folds, densities, found))
