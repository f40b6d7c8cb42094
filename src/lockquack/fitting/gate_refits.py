r"""A gate's posterior for other counts of its observations.

The posterior of a gate is :math:`\text{prior} \cdot \exp(\eta \sum_i c_i\, \text{score}_i)`. With
counts u in place of c, without one observation or for a replicate of the bootstrap, each draw has
the importance weight

.. math:: \exp\Bigl(\eta \sum_i (u_i - c_i)\, \text{score}_i\Bigr),

Pareto-smoothed. Where these weights are not reliable, the gate is drawn again, in coordinates in
which the posterior that is known is about a standard normal one: that needs little tuning.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.draws.psis import psis_rows
from lockquack.fitting.gate import GatedObjective
from lockquack.jets import Array
from lockquack.numeric import cut
from lockquack.operators.space import Mask

#: Draws that the weighted ones must be worth. The error of means is then a tenth of the posterior's
#: standard deviation, which adds 1 % to the variance of what varies as much between replicates.
_EFFECTIVE = 100.0
#: Numbers that are held at once.
_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True)
class GateRefits:
    """Draws of a gate, and what they were drawn from."""

    objective: GatedObjective
    rate: float
    #: The parameters of constant weights, (P,).
    start: Array
    draws: Array  # (S, gate)
    random_seed: int

    def importance(self, counts: Array) -> tuple[Array, Mask]:
        """Weights of the draws for other counts, (R, n) → (R, S), and which of them to rely on."""
        change = self.rate * (counts - self.objective.counts)
        rows = np.empty((len(counts), len(self.draws)))
        for part, at in self._parameters():
            # Leave-one-out weights are one over a likelihood.
            rows[:, part] = -change @ np.stack([self.objective.scores(x) for x in at]).T
        pareto_k = psis_rows(rows).pareto_k
        weights = np.exp(rows)
        effective = 1.0 / np.square(weights).sum(axis=1)
        return weights, (pareto_k <= pareto_k_threshold(len(self.draws))) & (effective > _EFFECTIVE)

    def means(self, weights: Array) -> Array:
        """Means of the operator's parameters by weights of the draws, (R, S) → (R, P, n)."""
        shape = self.objective.space.size, self.objective.n_obs
        found = np.zeros((len(weights), shape[0] * shape[1]))
        for part, at in self._parameters():
            found += weights[:, part] @ at.reshape(len(at), -1)
        return found.reshape(-1, *shape)

    def again(self, counts: Array, chains: int, draws: int) -> Array:
        """Means of the operator's parameters, drawn again for other counts, (n,) → (P, n).

        The same counts give the same draws.
        """
        objective = self.objective
        counted = replace(objective, densities=replace(objective.densities, case_weights=counts))
        seed = [self.random_seed, zlib.crc32(np.ascontiguousarray(counts).tobytes())]
        target = counted.posterior_near(self.rate, self.start, self.draws)
        found = target.draw_quickly(chains, draws, np.random.default_rng(seed))
        mean = np.zeros((objective.space.size, objective.n_obs))
        for x in found:
            mean += counted.parameters(x) / len(found)
        return mean

    def _parameters(self) -> Iterator[tuple[slice, Array]]:
        """Go through the draws as the operator's parameters, (draws, P, n) at a time."""
        at_once = max(1, _NUMBERS_AT_ONCE // (self.objective.space.size * self.objective.n_obs))
        for part in cut(slice(0, len(self.draws)), at_once):
            yield part, np.stack([self.objective.parameters(x) for x in self.draws[part]])
