"""Sampling weights that are a softmax of functions of covariates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import minimize
from typing_extensions import override

from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.draws.psis import psis
from lockquack.fitting.basis import Basis
from lockquack.fitting.densities import Densities
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.gate import GatedObjective
from lockquack.fitting.gate_refits import GateRefits
from lockquack.fitting.posterior import Target
from lockquack.fitting.shrinkage import deal_folds
from lockquack.jets import Array
from lockquack.numeric import cut
from lockquack.operators.base import Positions
from lockquack.operators.space import Mask
from lockquack.sampling.nuts import ChainQuality, assess
from lockquack.solvers.base import Solution
from lockquack.totals import error_of_total, total

#: Chains, and draws of each.
_CHAINS, _DRAWS = 4, 300
#: Observations whose weights are looked at to see whether the chains agree.
_LOOKED_AT = 100
#: Chains and draws of each for a replicate of the bootstrap.
_SHORTLY = 1, 100
#: Draws by which the parameters that do not vary are searched for.
_CANDIDATES = 8
#: Folds by which constant weights are scored, at most.
_FOLDS = 50
#: Numbers that are held at once.
_NUMBERS_AT_ONCE = 2**24


@dataclass(frozen=True)
class Worth:
    """What a gate is worth over constant weights, each observation left out of both."""

    gain: float
    se: float
    #: At how many observations the Pareto k̂ of leaving it out of the gate is too high.
    high_k: int


@dataclass(frozen=True)
class GatedFitter(Fitter):
    """A gate beside the constant weights that it begins from.

    The weights at each observation are their means over the posterior. Of a mixture, these are
    exactly the posterior predictive; of other pools they are a point inside the posterior.
    """

    objective: GatedObjective
    #: η of the generalised posterior.
    rate: float
    #: The parameters of constant weights, (P,).
    start: Array
    random_seed: int
    #: Gates, (chain, draw, parameter), how well they were drawn and what they are worth.
    draws: Array | None = None
    sampled: ChainQuality | None = None
    worth: Worth | None = None
    #: Whether to draw again for other counts even where weighing the draws is reliable.
    anew: bool = False

    kind = "sampled"
    is_optimum = False
    refits_cheaply = False
    intervals_from = "the posterior"
    way = "posterior mean weights by"
    prior = "hierarchical"  # of its effects
    cannot: ClassVar[Mapping[str, str]] = {
        "expansion": "Weights by a softmax are means of a posterior, not the optimum of a score. "
        "Use fit.posterior(), or fit.weights_at() for intervals."
    }

    @classmethod
    def beside(cls, constant: Fitter, solution: Solution, basis: Basis, random_seed: int) -> Self:
        """Make the gate of a problem whose constant weights are known."""
        objective = GatedObjective(**constant.objective.common_fields(), basis=basis)
        return cls(objective, _rate(constant, solution.x), solution.x, random_seed)

    @override
    def on(self, densities: Densities) -> Self:
        return replace(super().on(densities), draws=None, sampled=None, worth=None)

    @override
    def learning_rate(self, x: Array) -> float:
        return self.rate

    @override
    def posterior(self, learning_rate: float, x: Array) -> Target:
        return self.objective.posterior(learning_rate, self.start)

    @override
    def settled(self) -> Self:
        """Draw gates, unless that is done."""
        if self.draws is not None:
            return self
        rng = np.random.default_rng(self.random_seed)
        draws, divergences = self.posterior(self.rate, self.start).draw(_CHAINS, _DRAWS, rng)
        found = replace(self, draws=draws)
        return replace(found, sampled=assess(found._looked_at(), divergences))

    def weighed(self, constant: Fitter, x: Array) -> Self:
        """Find out what the gate, with the parameters x, is worth over constant weights."""
        return replace(self, worth=_worth(self, constant, x))

    @property
    @override
    def parameter_draws(self) -> Array:
        return self.flat

    @property
    @override
    def chains(self) -> ChainQuality | None:
        return self.sampled

    @property
    def worth_in_words(self) -> str:
        """Say what the gate is worth over constant weights."""
        worth = self.worth
        if worth is None:
            return "a softmax, drawn from its posterior."
        high_k = f" (doubtful: Pareto k̂ is high at {worth.high_k} observations)"
        return (
            f"a softmax, drawn from its posterior. It is worth {worth.gain:+.1f} ± {worth.se:.1f} "
            "(total score) over constant weights, every observation left out of both"
            f"{high_k if worth.high_k else ''}."
        )

    @property
    def flat(self) -> Array:
        """All gates that were drawn, (draw, parameter)."""
        if self.draws is None:
            raise RuntimeError("The gate has not been drawn yet.")
        return self.draws.reshape(-1, self.draws.shape[-1])

    def spread_draws(self, draws: Array, basis: Basis | None = None) -> Iterator[Array]:
        """Go through the operator's parameters, (P, n), at some observations.

        Groups that were not seen get effects that are drawn from the population of groups.
        """
        objective = self.objective
        rng = np.random.default_rng(self.random_seed)
        shape = (len(draws), len(objective.basis.terms), objective.heads)
        for x, new in zip(draws, rng.normal(size=shape), strict=True):
            yield objective.parameters(x, basis, new)

    def parameters_at(self, x: Array, basis: Basis | None = None) -> Array:
        """Return the operator's parameters elsewhere: the mean weights, and what is common in x."""
        mean: Array | float = 0.0
        for each in self.spread_draws(self.flat, basis):
            mean = mean + each / len(self.flat)
        found, width = np.asarray(mean), self.objective.heads + 1
        found[width:] = x[width:, :1] if x.ndim == 2 else x[width:, None]
        return found

    @override
    def solve(self) -> Solution:
        drawn = self.settled()
        x = drawn.parameters_at(drawn.start)
        candidates = drawn.flat[:: max(1, len(drawn.flat) // _CANDIDATES)]
        rest = [drawn.start[self.objective.heads + 1 :]]
        rest += [self.objective.split(each)[3] for each in candidates]
        self._set_common(x, rest, self.objective.counts)
        scores = self.objective.scores(x)
        count = len(drawn.flat)
        return Solution(
            x=x,
            objective=np.asarray(-float(self.objective.total(scores))),
            gap=np.asarray(np.nan),
            scale=np.asarray(self.objective.size_of(scores)),
            converged=np.asarray(True),
            iterations=np.asarray(count),
            status=np.asarray("sampled"),
        )

    def _set_common(self, x: Array, candidates: Sequence[Array], counts: Array) -> None:
        """Set the parameters that do not vary to what scores best with the mean weights, (P, n).

        The search begins at the best of some candidates.
        """
        objective, width = self.objective, self.objective.heads + 1
        rest = objective.rest
        if not rest.size:
            return
        shape = (rest.size, x.shape[1])

        def expand(z: Array) -> tuple[float, Array]:
            at = rest.natural(z)
            whole = np.concatenate([x[:width], np.broadcast_to(at[:, None], shape)])
            scores, slopes = objective.expand(whole)
            by = slopes[width:] @ counts + rest.prior_slopes(at)
            return -float(scores @ counts) - rest.log_prior(at), -rest.pull(z, by)

        starts = [rest.free(rest.inside(each, 0.01)) for each in candidates]
        best = min(starts, key=lambda z: expand(z)[0])
        x[width:] = rest.natural(minimize(expand, best, jac=True, method="BFGS").x)[:, None]

    def _looked_at(self) -> Array:
        """Weights at some observations and all μ and σ of the draws, (chain, draw, quantity)."""
        objective, width = self.objective, self.objective.heads + 1
        n = objective.n_obs
        some = np.unique(np.linspace(0, n - 1, min(n, _LOOKED_AT)).round().astype(np.intp))
        basis = objective.basis.at(some)
        weights = [each[:width].ravel() for each in self.spread_draws(self.flat, basis)]
        priors = self.flat[:, : sum(objective.sizes[:2])]
        found = np.concatenate([np.stack(weights), priors], axis=1)
        return found.reshape(_CHAINS, len(found) // _CHAINS, -1)

    @cached_property
    def _refits(self) -> GateRefits:
        return GateRefits(self.objective, self.rate, self.start, self.flat, self.random_seed)

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        """Fit again for many sets of counts: the operator's parameters, (replicate, P, n).

        What is drawn again has the error of few draws: between replicates the means vary more.
        """
        return self._for_counts(counts, x, *_SHORTLY)

    @override
    def refit(self, counts: Array, x: Array) -> Array:
        return self.exactly()._for_counts(counts[None], x, _CHAINS, _DRAWS)[0]

    @override
    def without_each(self, chosen: Positions, x: Array) -> Array:
        return self._for_counts(self.counts_without(chosen), x, _CHAINS, _DRAWS)

    @override
    def scores_without(self, chosen: Positions, found: Array) -> Array:
        own = found[np.arange(chosen.size), :, chosen]
        return self.objective.at(chosen).scores(own.T)

    @override
    def exactly(self) -> Self:
        return replace(self, anew=True)

    @override
    def is_exact(self, chosen: Positions) -> Mask:
        weighed = self._refits.importance(self.counts_without(chosen))[1]
        return np.ones_like(weighed) if self.anew else ~weighed

    def _for_counts(self, counts: Array, x: Array, chains: int, draws: int) -> Array:
        """Mean parameters for other counts, (R, P, n), drawn again where that is needed."""
        weights, reliable = self._refits.importance(counts)
        found = self._refits.means(weights)
        for row in np.flatnonzero(~reliable | self.anew).tolist():
            found[row] = self._refits.again(counts[row], chains, draws)
        common = x[self.objective.heads + 1 :, 0]
        for each, u in zip(found, counts, strict=True):
            self._set_common(each, [common], u)
        return found

    @override
    def certificate(self, solution: Solution) -> str:
        chains = "not sampled" if self.sampled is None else self.sampled.summary
        return f"Weights are posterior means: {chains}; learning rate {self.rate:.3g}"

    @property
    @override
    def basis(self) -> Basis:
        return self.objective.basis

    @property
    @override
    def record(self) -> dict[str, Any]:
        each = {"sampled": self.sampled, "worth": self.worth}
        known = {name: None if what is None else vars(what) for name, what in each.items()}
        return {"gate": {"rate": self.rate, "random_seed": self.random_seed, **known}}

    @property
    @override
    def arrays(self) -> dict[str, Array]:
        draws = {} if self.draws is None else {"gates": self.draws}
        return {"gate_start": self.start, **draws}

    @classmethod
    def from_record(cls, objective: GatedObjective, start: Array, draws: Array, known: Any) -> Self:
        """Make it again, from the record of its gate."""
        sampled, worth = ChainQuality(**known["sampled"]), Worth(**known["worth"])
        return cls(objective, known["rate"], start, known["random_seed"], draws, sampled, worth)


def _rate(constant: Fitter, x: Array) -> float:
    """Return η: one for a log likelihood, else as constant weights have it.

    Where one model has all the weight, nothing varies there: then that of a pool beside it. Of
    models that all score alike any η is as good.
    """
    if constant.objective.rule.is_log_likelihood:
        return 1.0
    for least in (0.0, 0.5):
        found = constant.learning_rate(constant.objective.space.inside(x, least) if least else x)
        if np.isfinite(found) and found > 0:
            return found
    return 1.0


def _worth(gated: GatedFitter, constant: Fitter, x: Array) -> Worth:
    """Score each observation by weights that it is left out of, gated and constant."""
    objective, counts = gated.objective, gated.objective.counts
    left_out, high_k = np.empty(objective.n_obs), 0
    length = max(1, _NUMBERS_AT_ONCE // (len(gated.flat) * (objective.space.size + 2)))
    for part in cut(slice(0, objective.n_obs), length):
        here = np.arange(part.start, part.stop)
        left_out[here], high = _without_each(gated, objective.at(here), x)
        high_k += int((high & (counts[here] > 0)).sum())
    apart = left_out - _held_out(constant, gated.start, gated.random_seed)
    apart = np.where(counts > 0, apart, 0.0)
    weights = objective.case_weights
    return Worth(float(total(apart, weights)), float(error_of_total(apart, weights)), high_k)


def _without_each(gated: GatedFitter, here: GatedObjective, x: Array) -> tuple[Array, Mask]:
    """Scores without each observation in the posterior, and where that is not reliable.

    What does not vary is as it is in x.
    """
    parameters = np.stack(list(gated.spread_draws(gated.flat, here.basis)))  # (draw, P, n)
    scores = np.stack([here.scores(each) for each in parameters])
    log_weights, pareto_k = psis(gated.rate * here.counts * scores[None])
    mean = np.einsum("sn,spn->pn", np.exp(log_weights[0]), parameters)
    mean[here.heads + 1 :] = x[here.heads + 1 :, :1]
    return here.scores(mean), pareto_k > pareto_k_threshold(len(scores))


def _held_out(constant: Fitter, x: Array, random_seed: int) -> Array:
    """Scores by constant weights without each of many folds, (n,)."""
    objective = constant.objective
    folds = deal_folds(np.random.default_rng(random_seed), objective.n_obs, _FOLDS)
    counts = np.repeat(objective.counts[None], len(folds), axis=0)
    for row, fold in zip(counts, folds, strict=True):
        row[fold] = 0.0
    scores = np.empty(objective.n_obs)
    for fold, found in zip(folds, constant.refit_many(counts, x), strict=True):
        scores[fold] = objective.at(fold).scores(found)
    return scores
