r"""Weights by a softmax of functions of covariates, under hierarchical priors.

.. math::

    w_{ik} \propto \exp\Bigl(\mu_k + \sum_b \varphi_b(x_i)\, a_{bk}\Bigr), \qquad
    a_{bk} \sim N(0, \sigma_{tk}^2), \quad \mu_k \sim N(0, 1), \quad \sigma_{tk} \sim N^+(0, 1),

where the last model's predictor is zero and t is the covariate that function b belongs to. This is
hierarchical stacking (Yao, Pirš, Vehtari and Gelman 2021), and the gate of a mixture of experts. It
is not convex, and the mode over a and σ together is degenerate, so it is sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from lockquack.fitting.basis import Basis
from lockquack.fitting.objective import Objective
from lockquack.fitting.posterior import Chart, Target
from lockquack.jets import Array, softmax
from lockquack.operators.space import Space

#: Numbers up to which the functions at all observations are a dense matrix.
_DENSE = 2**20
#: Standard deviation of the effects where chains begin.
_BEGIN = 0.3


@dataclass(frozen=True)
class GatedObjective(Objective):
    """Scores by weights that are a softmax of functions of covariates.

    The parameters are μ, (H,), σ, (T, H), and the effects a, (B, H), of T covariates with B
    functions, one after the other, for all experts of the operator but the last; then those of the
    operator that do not vary. In their place stand the operator's own at each observation, (P, n),
    such as an average over a posterior, which no single gate gives.
    """

    basis: Basis = field(kw_only=True)

    @property
    def heads(self) -> int:
        """Number of experts whose predictors are not fixed at zero."""
        return self.space.blocks[0].size - 1

    @cached_property
    def rest(self) -> Space:
        """The operator's parameters that do not vary."""
        return Space(self.space.blocks[1:])

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many μ, σ and effects there are."""
        H = self.heads
        return H, len(self.basis.terms) * H, self.basis.size * H

    @cached_property
    def owner(self) -> NDArray[np.intp]:
        """The covariate that each function belongs to, (B,)."""
        sizes = [term.size for term in self.basis.terms]
        return np.repeat(np.arange(len(sizes)), sizes)

    def split(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Divide parameters of a gate into μ, σ, effects and the rest."""
        at, H = np.cumsum(self.sizes), self.heads
        middle, effects = x[at[0] : at[1]], x[at[1] : at[2]]
        return x[: at[0]], middle.reshape(-1, H), effects.reshape(-1, H), x[at[2] :]

    def predictors(self, x: Array, basis: Basis | None = None, new: Array | None = None) -> Array:
        """Linear predictors of all experts but the last, (H, n).

        Groups that were not seen have effects of their own: ``new``, (T, H), in units of σ, or
        none.
        """
        basis = self.basis if basis is None else basis
        mu, sigma, effects, _ = self.split(x)
        found = mu[:, None] + len(basis.terms) * (basis.share @ effects).T
        if basis.unseen is not None:
            for t, rows in enumerate(basis.unseen.T):
                own = np.zeros(self.heads) if new is None else sigma[t] * new[t]
                change = own - effects[self.owner == t].mean(axis=0)
                found += np.where(rows, change[:, None], 0.0)
        return np.asarray(found)

    @override
    def parameters(self, x: Array, basis: Basis | None = None, new: Array | None = None) -> Array:
        """Return the operator's parameters at each observation, (P, n), or at others."""
        if x.ndim == 2:
            return x
        predictors = self.predictors(x, basis, new)
        n, rest = predictors.shape[1], self.split(x)[3]
        same = np.broadcast_to(rest[:, None], (rest.size, n))
        return np.concatenate([_shares(predictors), same])

    @override
    def at(self, chosen: NDArray[np.intp]) -> GatedObjective:
        return replace(self, densities=self.densities.at(chosen), basis=self.basis.at(chosen))

    @override
    def scores(self, x: Array) -> Array:
        return super().scores(self.parameters(x))

    @override
    def value(self, x: Array, counts: Array | None = None) -> float:
        """Minus the total score: a gate's prior is that of its draws."""
        return -float(self.total(self.scores(x), counts))

    def posterior(self, learning_rate: float, constant: Array) -> Target:
        """Return the generalised posterior of the gate, to be sampled from beside constant weights.

        The effects are sampled in units of their standard deviations (not centred): the data say
        little of most of them.
        """
        width = self.heads + 1
        sampler = self._sampler(learning_rate, constant)
        return sampler.target(self.space.inside(constant, 0.1)[:width])

    def posterior_near(self, learning_rate: float, constant: Array, draws: Array) -> Target:
        """Return the posterior where draws of nearly the same one are known, (draw, P)."""
        sampler = self._sampler(learning_rate, constant)
        target = self.posterior(learning_rate, constant)
        return target.measured_by(np.stack([sampler.free(each) for each in draws]))

    def _sampler(self, learning_rate: float, constant: Array) -> _Sampler:
        chart = Chart.around(self.rest, constant[self.heads + 1 :])
        return _Sampler(self, learning_rate, chart)


@dataclass(frozen=True)
class _Sampler:
    """The log density of a gate in free coordinates: μ, log σ, a / σ, and those of the rest."""

    objective: GatedObjective
    learning_rate: float
    chart: Chart

    @cached_property
    def functions(self) -> Array | sparse.csr_array:
        basis = self.objective.basis
        functions = len(basis.terms) * basis.share
        small = functions.shape[0] * functions.shape[1] <= _DENSE
        return functions.toarray() if small else sparse.csr_array(functions)

    def target(self, weights: Array) -> Target:
        """Begin beside constant weights."""
        _, n_sigma, n_effects = self.objective.sizes
        start = np.concatenate(
            [
                np.log(weights[:-1] / weights[-1]),
                np.full(n_sigma, np.log(_BEGIN)),
                np.zeros(n_effects + self.chart.directions.shape[1]),
            ]
        )
        return Target(self.log_density, start, self.natural)

    def natural(self, t: Array) -> Array:
        """Parameters of the gate at free coordinates."""
        mu, log_sigma, unit, rest = self.objective.split(t)
        sigma = np.exp(log_sigma)
        effects = unit * sigma[self.objective.owner]
        return np.concatenate([mu, sigma.ravel(), effects.ravel(), self.chart.natural(rest)])

    def free(self, x: Array) -> Array:
        """Free coordinates of a gate, where :meth:`natural` comes from."""
        mu, sigma, effects, rest = self.objective.split(x)
        unit = effects / sigma[self.objective.owner]
        return np.concatenate([mu, np.log(sigma).ravel(), unit.ravel(), self.chart.back(rest)])

    def log_density(self, t: Array) -> tuple[float, Array]:
        """Log density and its gradient."""
        objective = self.objective
        mu, log_sigma, unit, rest = objective.split(t)
        sigma = np.exp(log_sigma)
        effects = unit * sigma[objective.owner]
        weights = _shares((mu + self.functions @ effects).T)
        total, slopes, by_rest, log_rest = self._scored(weights, rest)
        by_function = self.functions.T @ slopes.T  # (B, H)
        through = np.zeros_like(sigma)
        np.add.at(through, objective.owner, by_function * effects)
        log_prior = log_sigma.sum() - 0.5 * (mu @ mu + (sigma**2).sum() + (unit**2).sum())
        gradient = np.concatenate(
            [
                slopes.sum(axis=1) - mu,
                (through + 1.0 - sigma**2).ravel(),
                (by_function * sigma[objective.owner] - unit).ravel(),
                by_rest,
            ]
        )
        return total + log_prior + log_rest, gradient

    def _scored(self, weights: Array, rest: Array) -> tuple[float, Array, Array, float]:
        """Return η times the total score, its slopes in predictors, (H, n), and what is common."""
        objective, chart = self.objective, self.chart
        z = chart.free(rest)
        at = chart.space.natural(z)
        same = np.broadcast_to(at[:, None], (at.size, weights.shape[1]))
        scores, slopes = objective.expand(np.concatenate([weights, same]))
        counts = self.learning_rate * objective.counts
        width = len(weights)
        own = slopes[:width]
        pulled = (own - weights * own.sum(axis=0))[:-1] * counts
        by_rest = slopes[width:] @ counts + chart.space.prior_slopes(at)
        by_rest = chart.directions.T @ (chart.space.pull(z, by_rest) + chart.measure_slopes(z))
        log_rest = chart.space.log_prior(at) + chart.log_measure(z)
        return float(scores @ counts), pulled, by_rest, log_rest


def _shares(predictors: Array) -> Array:
    """Softmax of predictors, (H, n), beside which the last is zero; (H + 1, n)."""
    last = np.zeros((1, predictors.shape[1]))
    return softmax(np.concatenate([predictors, last]))[0]
