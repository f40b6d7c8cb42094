"""How an objective is minimised, once, and again with other counts of the observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.fitting.basis import Basis
from lockquack.fitting.densities import Densities
from lockquack.fitting.objective import Objective
from lockquack.fitting.posterior import Target, generalised_posterior
from lockquack.fitting.uncertainty import expand_around
from lockquack.jets import Array
from lockquack.operators.base import Positions
from lockquack.operators.space import Mask
from lockquack.sampling.nuts import ChainQuality
from lockquack.solvers.base import Solution


@dataclass(frozen=True)
class Fitter(ABC):
    """A way to the parameters that an objective asks for, or to weights that a formula gives."""

    objective: Objective

    #: In a word or two, how it is done.
    kind: ClassVar[str]
    #: Whether the parameters depend on the observations through a sum over them.
    resamples: ClassVar[bool] = True
    #: Whether the parameters are the optimum of the objective.
    is_optimum: ClassVar[bool] = True
    #: Whether fitting again takes a few sums over the observations only.
    refits_cheaply: ClassVar[bool] = True
    #: Most observations of which each can be left out in turn within seconds.
    most_deletions: ClassVar[int] = 200

    #: What the intervals of its weights are from, in words.
    intervals_from: ClassVar[str] = "the Bayesian bootstrap"
    #: Names of what it must be told besides the objective.
    wants: ClassVar[tuple[str, ...]] = ()
    #: Whether the weights are those of a formula, so that nothing is searched for.
    is_formula: ClassVar[bool] = False
    #: How its weights come about, before the name of the score.
    way: ClassVar[str] = "fitted by"
    #: What cannot be done with its weights, and why.
    cannot: ClassVar[Mapping[str, str]] = {}

    def require(self, what: str) -> None:
        """Refuse what cannot be done with its weights."""
        if what in self.cannot:
            raise UnsupportedError(self.cannot[what])

    @property
    def prior(self) -> str | None:
        """The prior of the parameters, in words; None: there is none."""
        if not self.is_optimum:
            return None
        concentration = np.unique(self.objective.concentration)
        return (
            f"Dirichlet({concentration[0]:g})" if concentration.size == 1 else "Dirichlet(by model)"
        )

    @property
    def parameter_draws(self) -> Array | None:
        """Draws of the parameters that the weights are means of, (draw, P); None: they are not."""
        return None

    @property
    def chains(self) -> ChainQuality | None:
        """How well these draws went."""
        return None

    @abstractmethod
    def solve(self) -> Solution:
        """Fit the parameters, every observation with its case weight."""

    def solutions(self) -> Sequence[Solution]:
        """Return every local optimum that was found, the best first."""
        return [self.solve()]

    def solve_near(self, found: Sequence[Solution]) -> Sequence[Solution]:
        """Return :meth:`solutions`, given those of a problem that is nearly the same."""
        return self.solutions()

    @abstractmethod
    def refit_many(self, counts: Array, x: Array) -> Array:
        """Fit again for many sets of counts u, (replicate, n) → (replicate, P).

        The counts take the place of the case weights. ``x`` is the solution for these.
        """

    def replicates(self, counts: Array, x: Array) -> Array:
        """Fit replicates of the observations, with all that is chosen by these chosen again."""
        return self.refit_many(counts, x)

    def refit(self, counts: Array, x: Array) -> Array:
        """Fit again, exactly, for one set of counts, (n,) → (P,)."""
        return self.refit_many(counts[None], x)[0]

    def refit_each(self, counts: Array, x: Array) -> Array:
        """Fit again, exactly, for several sets of counts, (replicate, n) → (replicate, P)."""
        return np.stack([self.refit(each, x) for each in counts])

    def on(self, densities: Densities) -> Self:
        """Return the same for the models' densities at other places."""
        return replace(self, objective=replace(self.objective, densities=densities))

    def settled(self) -> Fitter:
        """Decide what the observations are to decide before the parameters are fitted."""
        return self

    def without_each(self, chosen: Positions, x: Array) -> Array:
        """Fit again without each of the chosen observations, one at a time, (m, P).

        ``x`` is the solution for all of them.
        """
        return self.refit_many(self.counts_without(chosen), x)

    def scores_without(self, chosen: Positions, found: Array) -> Array:
        """Score each of the chosen observations by what was found without it, (m, P) → (m,)."""
        return self.objective.at(chosen).scores_each(found.T)

    def exactly(self) -> Self:
        """Return the same that leaves observations out exactly, whatever it takes."""
        return self

    def is_exact(self, chosen: Positions) -> Mask:
        """Whether the parameters without each of the chosen observations are fitted again."""
        return np.ones(chosen.size, dtype=np.bool_)

    def counts_without(self, chosen: Positions) -> Array:
        """Count the observations without each of the chosen ones, (m, n)."""
        counts = np.repeat(self.objective.counts[None], chosen.size, axis=0)
        counts[np.arange(chosen.size), chosen] = 0.0
        return counts

    def value(self, x: Array) -> float:
        """Return the objective at x."""
        return self.objective.value(x)

    def expand_free(self, z: Array) -> tuple[float, Array]:
        """Return the objective and its gradient at free coordinates."""
        return self.objective.expand_free(z)

    def learning_rate(self, x: Array) -> float:
        """Return η of the generalised posterior, calibrated at the solution; NaN: none can be."""
        return expand_around(self.objective, x).learning_rate()

    def posterior(self, learning_rate: float, x: Array) -> Target:
        """Return the generalised posterior of the parameters, to be sampled from beside x."""
        space = self.objective.space
        return generalised_posterior(self.expand_free, learning_rate, space, x)

    @property
    def basis(self) -> Basis | None:
        """The functions of covariates that the weights depend on; None: they depend on nothing."""
        return None

    @property
    def record(self) -> dict[str, Any]:
        """All else that is known of weights that depend on covariates, as JSON can hold it."""
        return {}

    @property
    def arrays(self) -> dict[str, Array]:
        """What of that is arrays."""
        return {}

    @property
    def options(self) -> Mapping[str, Any]:
        """What it was told besides the objective: numbers and arrays over models."""
        return {name: getattr(self, name) for name in self.wants}

    def certificate(self, solution: Solution) -> str:
        """Say how much better other weights could be, or what speaks for these."""
        failed = "" if solution.converged else f"NOT CONVERGED, {solution.status}; "
        if solution.starts is None:
            gap = f"{float(solution.gap):.1e}"
            if failed:
                return f"{failed}other weights may raise the score, prior included, by {gap}"
            return (
                "Certified optimum: no other weights raise the score, prior included, by more "
                f"than {gap}"
            )
        agreeing, tried = solution.starts
        return (
            f"{failed}Best of {tried} searches, {agreeing} of which ended here; not convex, so a "
            "better optimum is possible"
        )
