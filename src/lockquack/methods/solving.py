"""From densities to parameters that can be believed.

Rules that need the normaliser get nodes that resolve the pool which comes out. Rules that do
without can be misled by models far from the observations: what they prefer is held against the
log score, as far as that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from lockquack.fitting.fitter import Fitter
from lockquack.fitting.gated import GatedFitter
from lockquack.fitting.limits import (
    SMALL,
    best_alone,
    cost_of,
    falls_short,
    log_score_bounds,
    needs_no_normaliser,
    summed,
    unseen,
)
from lockquack.fitting.objective import Objective
from lockquack.jets import Array
from lockquack.methods.gather import Gathered
from lockquack.methods.method import Method, Varying
from lockquack.models.source import Source
from lockquack.operators.base import Positions
from lockquack.operators.pool import Pool
from lockquack.operators.reduced import leave_out
from lockquack.prediction.members import are_evaluable
from lockquack.prediction.nodes import NodeGroup, lay_nodes, refine_nodes
from lockquack.remarks.base import Remark
from lockquack.remarks.limits import (
    LogScoreUnknown,
    MisledScore,
    ScoresDisagree,
    UncertainPool,
    UnseenWeight,
)
from lockquack.solvers.base import Solution

#: Most times that nodes are added for the pool at hand and the fit is repeated.
_REFINEMENTS = 5
#: Most and fewest observations at which a pool is normalised to see whether it can be believed,
#: and the draws of all models together that may be evaluated for it.
_MOST, _FEWEST, _DRAWS = 24, 6, 400_000


@dataclass(frozen=True)
class Solved:
    """Parameters, how they were found, and what is to be remarked on that."""

    fitter: Fitter
    solution: Solution
    gathered: Gathered
    remarks: tuple[Remark, ...] = ()


def solve(
    models: Mapping[str, Source],
    method: Method,
    gathered: Gathered,
    concentration: Array,
    *,
    loo: bool,
) -> Solved:
    """Find the parameters of a method that is made for these models."""
    if method.varying is not None and method.varying.is_gate:
        return _sample(models, method, gathered, concentration, loo=loo)
    fitter = method.pose(gathered, concentration)
    if not needs_no_normaliser(fitter.objective):
        return _refine(models, fitter.settled(), gathered, loo=loo)
    names, log_norms = tuple(models), _LogNorms(models, gathered, loo)
    if not fitter.is_optimum:
        solution = fitter.solve()
        return Solved(fitter, solution, gathered, _examine_choice(names, fitter, solution))
    return _solve_believably(names, method, gathered, concentration, log_norms)


def _refine(
    models: Mapping[str, Source], fitter: Fitter, gathered: Gathered, *, loo: bool
) -> Solved:
    """Solve; where the pool that comes out is not resolved by the nodes, add some and repeat."""
    found = fitter.solutions()
    asks_nodes = bool(gathered.node_groups) and not fitter.objective.operator.normalised
    for _ in range(_REFINEMENTS if asks_nodes else 0):
        pool = fitter.objective.pool(found[0].x)
        node_groups = refine_nodes(gathered.node_groups, models, pool, loo=loo)
        if all(new is old for new, old in zip(node_groups, gathered.node_groups, strict=True)):
            break
        gathered = gathered.with_nodes(node_groups)
        fitter = fitter.on(gathered.densities).settled()
        found = fitter.solve_near(found)
    return Solved(fitter, found[0], gathered)


def _sample(
    models: Mapping[str, Source],
    method: Method,
    gathered: Gathered,
    concentration: Array,
    *,
    loo: bool,
) -> Solved:
    """Draw the weights of a softmax gate, beside constant weights that can be believed."""
    varying = cast(Varying, method.varying)
    constant = solve(models, replace(method, varying=None), gathered, concentration, loo=loo)
    found = GatedFitter.beside(
        constant.fitter, constant.solution, varying.basis, varying.random_seed
    ).settled()
    solved = Solved(found, found.solve(), constant.gathered)
    if not needs_no_normaliser(found.objective):
        solved = _refine(models, found, constant.gathered, loo=loo)
    relative = constant.fitter.on(solved.gathered.densities)
    gated = cast(GatedFitter, solved.fitter).weighed(relative, solved.solution.x)
    return replace(solved, fitter=gated, remarks=constant.remarks)


def _solve_believably(
    names: tuple[str, ...],
    method: Method,
    gathered: Gathered,
    concentration: Array,
    log_norms: _LogNorms,
) -> Solved:
    """Take the best optimum that does not predict worse than one of the models alone.

    Where there is none, the model with the lowest log score is left out, and models that the score
    does not see are. What is left in the end at the latest, the best model, stands the test.
    """
    trials = _Trials(names, method.rule.label, log_norms, method.must_beat_best_model)
    while True:
        fitter = method.pose(gathered, concentration).settled()
        objective, found = fitter.objective, fitter.solutions()
        out = trials.hidden(objective, found[0])
        if not out.size:
            solution = next(trials.believable(objective, found), None)
            out = _worst(objective) if solution is None else trials.hidden(objective, solution)
            if solution is None:
                trials.left_out += tuple(out.tolist())
            elif not out.size:
                return Solved(fitter, solution, gathered, trials.remarks(objective, solution.x))
        method = replace(method, operator=leave_out(objective.operator, out, objective.K))


def _worst(objective: Objective) -> Positions:
    """Return the position of the model with the lowest log score of those that are left."""
    totals = np.array([summed(objective, logp) for logp in objective.jets.logp])
    totals[objective.operator.left_out(objective.K)] = np.inf
    return np.array([totals.argmin()])


@dataclass
class _Trials:
    """What was tried and given up on the way to a pool that can be believed."""

    names: tuple[str, ...]
    rule: str
    log_norms: _LogNorms
    #: Whether a pool must be known to be no worse than one of the models.
    must_beat_best_model: bool = False
    #: What the log score of the pool that the score likes best is at most, if it was given up.
    at_most: float | None = None
    #: Its bounds, if it was given up because these leave it open whether it is worth anything.
    bounds: tuple[float, float] | None = None
    left_out: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()

    def hidden(self, objective: Objective, solution: Solution) -> Positions:
        """Return the models that the score does not see, where they cost the others much.

        Where the best of all is hidden by others, as by one far away in a harmonic mean, it is not
        the one to leave out.
        """
        hidden = unseen(objective, solution.x)
        if hidden[best_alone(objective)]:
            return np.zeros(0, dtype=np.intp)
        cost = cost_of(hidden, objective.mean_weights(solution.x), objective.n_counted)
        out = np.flatnonzero(hidden if cost > SMALL else ())
        self.unseen += tuple(out.tolist())
        return out

    def believable(self, objective: Objective, found: Sequence[Solution]) -> Iterator[Solution]:
        """Go through the optima that are not known to be worthless.

        Once a score was seen to prefer what is worthless, the next that it offers must be known to
        be better; or each of them, where only what is certain is wanted.
        """
        alone, counts = objective.jets.logp[best_alone(objective)], objective.counts
        misled = False
        for solution in found:
            least, most = log_score_bounds(objective, solution.x)
            bounds = summed(objective, least), summed(objective, most)
            worthless = falls_short(most, alone, counts)
            if not worthless and self._is_open(bounds[0], summed(objective, alone)):
                self.bounds = self.bounds or bounds
                continue
            at_most = bounds[1]
            if falls_short(least, alone, counts) and not worthless:
                known = self.log_norms.short(objective, solution.x)
                if known is None and misled and not self.log_norms.can:
                    continue
                at_most = np.inf if known is None else known
            elif not falls_short(least, alone, counts):
                at_most = np.inf
            if at_most == np.inf:
                yield solution
            misled = True
            self.at_most = at_most if self.at_most is None else self.at_most

    def _is_open(self, at_least: float, alone: float) -> bool:
        """Whether it must be known, and is not, that a pool is no worse than a model alone."""
        return self.must_beat_best_model and not self.log_norms.can and at_least < alone - SMALL

    def remarks(self, objective: Objective, x: Array) -> tuple[Remark, ...]:
        """Say what was given up, and what is still not known."""
        best = best_alone(objective)
        alone = objective.jets.logp[best]
        beside = self.names[best], summed(objective, alone)
        found: list[Remark] = []
        left_out = self._named(self.left_out)
        if self.bounds is not None and self.at_most is None:
            found.append(UncertainPool(self.rule, *self.bounds, *beside, left_out))
        elif self.at_most is not None:
            found.append(MisledScore(self.rule, self.at_most, *beside, left_out))
        kept = tuple(np.flatnonzero(unseen(objective, x)).tolist())
        for places, out in ((self.unseen, True), (kept, False)):
            if places:
                found.append(UnseenWeight(self.rule, self._named(places), out))
        least, most = log_score_bounds(objective, x)
        if not self.log_norms.can and falls_short(least, alone, objective.counts):
            low, high = (summed(objective, bound) for bound in (least, most))
            found.append(LogScoreUnknown(low, high, *beside))
        return tuple(found)

    def _named(self, places: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.names[k] for k in sorted(places))


@dataclass(frozen=True)
class _LogNorms:
    """Normalisers of pools, computed at some observations where the models can be evaluated."""

    models: Mapping[str, Source]
    gathered: Gathered
    loo: bool

    @property
    def can(self) -> bool:
        """Whether pools can be normalised."""
        return bool(self.gathered.node_groups) or are_evaluable(self.models)

    def short(self, objective: Objective, x: Array) -> float | None:
        """Return the log score of a pool that falls short of one model; None if it does not."""
        if not self.can:
            return None
        pool = objective.pool(x)
        logq = objective.operator.pool_density(objective.jets.logp, objective.parameters(x))
        alone = objective.jets.logp[best_alone(objective)]
        rows, norms = self._log_norms(pool)
        if not np.isfinite(norms).all():
            return None
        n, m = objective.n_counted, rows.size
        rest = 1.0 - m / objective.n_obs
        error = 2.0 * n * float(norms.std()) * np.sqrt(rest / m)
        # All that is known of each observation, and the mean of the normalisers for all.
        total = summed(objective, logq) - n * float(norms.mean())
        behind = logq - norms.mean()
        behind[rows] = logq[rows] - norms
        return total + error if falls_short(behind, alone, objective.counts, error) else None

    def _log_norms(self, pool: Pool) -> tuple[Positions, Array]:
        """Observations and the logs of the normalisers there."""
        groups = refine_nodes(self._groups, self.models, pool, loo=self.loo)
        rows = np.concatenate([np.arange(part.obs.start, part.obs.stop) for part in groups])
        return rows, np.concatenate([part.log_norm(pool.at(part.obs))[0] for part in groups])

    @cached_property
    def _groups(self) -> list[NodeGroup]:
        if self.gathered.node_groups:
            return list(self.gathered.node_groups)
        first = next(iter(self.models.values()))
        draws = sum(model.n_samples for model in self.models.values())
        count = min(first.n_obs, int(np.clip(_DRAWS // draws, _FEWEST, _MOST)))
        chosen = np.unique(np.linspace(0, first.n_obs - 1, count).round().astype(int)).tolist()
        slices = [slice(i, i + 1) for i in chosen]
        return lay_nodes(self.models, loo=self.loo, of_all=False, slices=slices, progressbar=False)


def _examine_choice(
    names: tuple[str, ...], fitter: Fitter, solution: Solution
) -> tuple[Remark, ...]:
    """Remark on a model that was chosen although by the log score another is clearly better."""
    objective = fitter.objective
    chosen, best = int(objective.weights(solution.x).argmax()), best_alone(objective)
    own, alone = objective.jets.logp[chosen], objective.jets.logp[best]
    if not falls_short(own, alone, objective.counts):
        return ()
    totals = summed(objective, own), summed(objective, alone)
    return (ScoresDisagree(names[chosen], totals[0], names[best], totals[1]),)
