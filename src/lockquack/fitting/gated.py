"""Sampling weights that are a softmax of functions of covariates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from typing_extensions import override

from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.draws.psis import psis
from lockquack.errors import UnsupportedError
from lockquack.fitting.basis import Basis
from lockquack.fitting.densities import Densities
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.gate import GatedObjective
from lockquack.fitting.objective import Objective
from lockquack.fitting.posterior import Target
from lockquack.jets import Array
from lockquack.numeric import cut
from lockquack.sampling.nuts import Sampled, judged
from lockquack.solvers.base import Solution
from lockquack.totals import error_of_total, total

#: Chains, and draws of each.
_CHAINS, _DRAWS = 4, 300
#: Observations whose weights are looked at to see whether the chains agree.
_LOOKED_AT = 100
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
    sampled: Sampled | None = None
    worth: Worth | None = None

    kind = "sampled"
    is_optimum = False
    resamples = False
    refits_cheaply = False
    intervals_from = "the posterior"
    way = "posterior mean weights by"
    prior = "hierarchical"  # of its effects
    cannot: ClassVar[Mapping[str, str]] = {
        "bootstrap": "Weights by a softmax are drawn from their posterior, which would take as "
        "long for every resampling of the observations. Use fit.posterior(), or fit.weights_at() "
        "for intervals; weights='simplex' has a bootstrap.",
        "expansion": "Weights by a softmax are means of a posterior, not the optimum of a score. "
        "Use fit.posterior(), or fit.weights_at() for intervals.",
        "influence": "The posterior of weights by a softmax is not drawn again without each "
        "observation. The table says what they are worth with each left out; weights='simplex' "
        "has influences.",
    }

    @classmethod
    def beside(cls, constant: Fitter, solution: Solution, basis: Basis, random_seed: int) -> Self:
        """Make the gate of a problem whose constant weights are known."""
        known = {each.name: getattr(constant.objective, each.name) for each in fields(Objective)}
        objective = GatedObjective(**known, basis=basis)
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
        return replace(found, sampled=judged(found._looked_at(), divergences))

    def weighed(self, constant: Fitter) -> Self:
        """Find out what the gate is worth over constant weights."""
        return replace(self, worth=_worth(self, constant))

    @property
    @override
    def parameter_draws(self) -> Array:
        return self.flat

    @property
    @override
    def chains(self) -> Sampled | None:
        return self.sampled

    @property
    def what_it_is_worth(self) -> str:
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
        x[self.objective.heads + 1 :] = drawn._common(x)[:, None]
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

    def _common(self, x: Array) -> Array:
        """Find the parameters that do not vary and that score best with the mean weights, (R,)."""
        objective, width = self.objective, self.objective.heads + 1
        rest = objective.rest
        if not rest.size:
            return np.zeros(0)
        shape = (rest.size, x.shape[1])

        def expand(z: Array) -> tuple[float, Array]:
            at = rest.natural(z)
            whole = np.concatenate([x[:width], np.broadcast_to(at[:, None], shape)])
            scores, slopes = objective.expand(whole)
            by = objective.total(slopes[width:]) + rest.prior_slopes(at)
            return -float(objective.total(scores)) - rest.log_prior(at), -rest.pull(z, by)

        step = max(1, len(self.flat) // _CANDIDATES)
        drawn = [objective.split(each)[3] for each in self.flat[::step]]
        starts = [rest.free(rest.inside(each, 0.01)) for each in (self.start[width:], *drawn)]
        best = min(starts, key=lambda z: expand(z)[0])
        return rest.natural(minimize(expand, best, jac=True, method="BFGS").x)

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

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        raise UnsupportedError(self.cannot["bootstrap"])

    @override
    def certificate(self, solution: Solution) -> str:
        says = "not sampled" if self.sampled is None else self.sampled.says
        return f"Weights are posterior means: {says}; learning rate {self.rate:.3g}"

    @property
    def record(self) -> dict[str, Any]:
        """All that is known of it but arrays, as JSON can hold it."""
        each = {"sampled": self.sampled, "worth": self.worth}
        known = {name: None if what is None else vars(what) for name, what in each.items()}
        return {"rate": self.rate, "random_seed": self.random_seed, **known}

    @classmethod
    def from_record(cls, objective: GatedObjective, start: Array, draws: Array, known: Any) -> Self:
        """Make it again."""
        sampled, worth = Sampled(**known["sampled"]), Worth(**known["worth"])
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


def _worth(gated: GatedFitter, constant: Fitter) -> Worth:
    """Score each observation by weights that it is left out of, gated and constant."""
    objective, counts = gated.objective, gated.objective.counts
    left_out, high_k = np.empty(objective.n_obs), 0
    length = max(1, _NUMBERS_AT_ONCE // (len(gated.flat) * (objective.space.size + 2)))
    for part in cut(slice(0, objective.n_obs), length):
        here = np.arange(part.start, part.stop)
        left_out[here], high = _without_each(gated, objective.at(here))
        high_k += int((high & (counts[here] > 0)).sum())
    apart = left_out - _held_out(constant, gated.start, gated.random_seed)
    apart = np.where(counts > 0, apart, 0.0)
    weights = objective.case_weights
    return Worth(float(total(apart, weights)), float(error_of_total(apart, weights)), high_k)


def _without_each(gated: GatedFitter, here: GatedObjective) -> tuple[Array, NDArray[np.bool_]]:
    """Scores without each observation in the posterior, and where that is not reliable."""
    parameters = np.stack(list(gated.spread_draws(gated.flat, here.basis)))  # (draw, P, n)
    scores = np.stack([here.scores(each) for each in parameters])
    log_weights, pareto_k = psis(gated.rate * here.counts * scores[None])
    mean = np.einsum("sn,spn->pn", np.exp(log_weights[0]), parameters)
    return here.scores(mean), pareto_k > pareto_k_threshold(len(scores))


def _held_out(constant: Fitter, x: Array, random_seed: int) -> Array:
    """Scores by constant weights without each of many folds, (n,)."""
    objective = constant.objective
    order = np.random.default_rng(random_seed).permutation(objective.n_obs)
    folds: Sequence[NDArray[np.intp]] = np.array_split(order, min(_FOLDS, objective.n_obs))
    counts = np.repeat(objective.counts[None], len(folds), axis=0)
    for row, fold in zip(counts, folds, strict=True):
        row[fold] = 0.0
    scores = np.empty(objective.n_obs)
    for fold, found in zip(folds, constant.refit_many(counts, x), strict=True):
        scores[fold] = objective.at(fold).scores(found)
    return scores
