r"""Does a score over-fit? Linear regressions with ever more coefficients.

.. math::

    y = \alpha + X\beta + \sigma\varepsilon, \quad \beta_j \sim N(0, 10^2), \quad
    \alpha \sim t_3(0, 2.5), \quad \sigma \sim t_3^+(0, 2.5)

No draws are needed. With :math:`\alpha \mid \lambda \sim N(0, 2.5^2/\lambda)` and
:math:`\lambda \sim \text{Gamma}(3/2, 3/2)`, everything but :math:`\theta = (\sigma, \lambda)` is
integrated in closed form: :math:`y \mid \theta` is normal with precision P, and

.. math::

    y_i \mid y_{-i}, \theta \sim N(y_i - (Py)_i / P_{ii},\; 1 / P_{ii}), \qquad
    \tilde y_i \mid y, \theta \sim N(y_i - \sigma^2 (Py)_i,\; 2\sigma^2 - \sigma^4 P_{ii})

are the leave-one-out and the in-sample prediction. What is left is a mixture over a grid of
:math:`(\log\sigma, \log\lambda)`, with weights :math:`p(\theta) p(y \mid \theta)`, divided by
:math:`p(y_i \mid y_{-i}, \theta)` for leave-one-out. The grid reaches far beyond the posterior,
so these ratios do no harm, however large they are: there is no Pareto tail, because there is no
sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lockquack.families import get_family
from lockquack.jets import Array, Jet, pool_derivatives, power_pool, softmax
from lockquack.paper.scenarios import Density
from lockquack.rules import Hyvarinen
from lockquack.rules.base import Pooled

N, MAX_P = 100, 100
#: Coefficients that are not zero, and variance of the signal over that of the noise.
RELEVANT, SIGNAL_TO_NOISE = 5, 0.25
PRIOR_SD, PRIOR_NU, PRIOR_SCALE = 10.0, 3.0, 2.5
#: From this many covariates on (with the intercept, as many coefficients as observations) the
#: model can pass through every observation: in-sample densities are then infinite.
INTERPOLATES = N - 1
#: Log weight below the largest that is not worth computing with, where there are more
#: observations to spare than this; with fewer, one left out lets σ be tiny.
_NEGLIGIBLE, _SPARE = 1e3, 10


@dataclass(frozen=True)
class Lattice:
    """The grid of σ and λ: equal distances on the log scale, and their prior weights."""

    sigma: Array  # (s,)
    inverse_lambda: Array  # (l,): prior variance of the intercept, in units of scale²
    log_prior: Array  # (s, l)

    @classmethod
    def build(cls, refine: float = 1.0) -> Lattice:
        """Space the grid; distances are divided by ``refine``."""
        log_sigma = np.arange(np.log(1e-4), np.log(100.0), 0.08 / refine)
        log_lambda = np.arange(-8.0, 3.0, 0.8 / refine)
        sigma, lambda_ = np.exp(log_sigma), np.exp(log_lambda)
        half = PRIOR_NU / 2
        # The prior densities of log σ (up to a constant) and of log λ.
        log_prior = get_family("student_t").logp(
            sigma,
            {"nu": np.asarray(PRIOR_NU), "mu": np.zeros(()), "sigma": np.asarray(PRIOR_SCALE)},
        )
        by_lambda = half * log_lambda - half * lambda_
        return cls(sigma, 1.0 / lambda_, (log_prior + log_sigma)[:, None] + by_lambda)

    def cropped(self, log_weight: Array) -> Lattice:
        """Keep the σ between the first and the last that have weight worth mentioning."""
        peak = log_weight.max(axis=1)
        kept = np.flatnonzero(peak > peak.max() - _NEGLIGIBLE)
        part = slice(kept[0], kept[-1] + 1)
        return Lattice(self.sigma[part], self.inverse_lambda, self.log_prior[part])


@dataclass(frozen=True)
class Marginal:
    """The outcomes given θ, all coefficients integrated, in the eigenvectors of XX'.

    The intercept is a change of rank one of the precision (Sherman and Morrison).
    """

    values: Array  # (n,): eigenvalues of the coefficients' part of the covariance
    vectors: Array  # (n, n)
    by_y: Array  # (n,): the outcomes in these coordinates
    by_one: Array  # (n,): the vector of ones

    @classmethod
    def of(cls, X: Array, y: Array) -> Marginal:
        """Decompose once; every σ has the same eigenvectors."""
        values, vectors = np.linalg.eigh(PRIOR_SD**2 * X @ X.T)
        values = np.where(np.arange(y.size) < y.size - X.shape[1], 0.0, values)
        return cls(values, vectors, vectors.T @ y, vectors.T @ np.ones(y.size))

    def log_weight(self, lattice: Lattice) -> Array:
        """Log of p(θ) p(y | θ), (s, l), up to a constant."""
        inverse, shrink, variance = self._parts(lattice)
        one_y = (inverse @ (self.by_one * self.by_y))[:, None]
        square = (inverse @ np.square(self.by_y))[:, None] - shrink * one_y**2
        log_det = np.log(inverse).sum(axis=1)[:, None] + np.log(shrink / variance)
        return lattice.log_prior + 0.5 * (log_det - square)

    def precision(self, lattice: Lattice) -> tuple[Array, Array]:
        """Py and the diagonal of P, (s, l, n)."""
        inverse, shrink, _ = self._parts(lattice)
        one_y = (inverse @ (self.by_one * self.by_y))[:, None]
        pull = (inverse * self.by_y) @ self.vectors.T  # (s, n)
        ones = (inverse * self.by_one) @ self.vectors.T
        diagonal = inverse @ np.square(self.vectors).T
        return (
            pull[:, None] - (shrink * one_y)[..., None] * ones[:, None],
            diagonal[:, None] - shrink[..., None] * np.square(ones)[:, None],
        )

    def _parts(self, lattice: Lattice) -> tuple[Array, Array, Array]:
        """Eigenvalues of P without the intercept, (s, n); how much the intercept takes away."""
        inverse = 1.0 / (lattice.sigma[:, None] ** 2 + self.values)
        variance = PRIOR_SCALE**2 * lattice.inverse_lambda  # (l,)
        shrink = variance / (1.0 + variance * (inverse @ np.square(self.by_one))[:, None])
        return inverse, shrink, variance


@dataclass(frozen=True)
class Predictions:
    """Predictions of each observation, in-sample and leave-one-out, and the error of the grid."""

    in_sample: Jet  # (n,), (n, 1)
    loo: Jet
    #: Average over the posterior of the likelihood's own second derivative, −1/σ².
    mean_curv: float
    #: Largest share of the posterior, left-out ones included, on the edge of the grid.
    edge: float


def simulate(rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw standard normal covariates, (n, 100), and outcomes that a few of them explain."""
    X = rng.normal(size=(N, MAX_P))
    coefficient = np.sqrt(SIGNAL_TO_NOISE / RELEVANT)
    return X, X[:, :RELEVANT].sum(axis=1) * coefficient + rng.normal(size=N)


def predict(X: Array, y: Array, lattice: Lattice | None = None) -> Predictions:
    """Predict each observation exactly, in-sample and leave-one-out."""
    marginal = Marginal.of(X, y)
    lattice = Lattice.build() if lattice is None else lattice
    if y.size - X.shape[1] > _SPARE:
        lattice = lattice.cropped(marginal.log_weight(lattice))
    sigma = lattice.sigma[:, None, None]
    pull, precision = marginal.precision(lattice)
    log_weight = marginal.log_weight(lattice)
    loo = _jets(y, pull / precision, 1.0 / np.sqrt(precision))
    spread = sigma * np.sqrt(2.0 - sigma**2 * precision)
    seen = _jets(y, sigma**2 * pull, spread)
    share, log_total = softmax(log_weight.reshape(-1, 1))
    log_share = log_weight.reshape(-1, 1) - log_total
    # Divided by the left-out density, the weights are those of the posterior without it; times
    # that density, those of the full posterior again: the derivatives are plain averages.
    rest, log_rest = softmax(log_share - loo.logp)
    grad, curv = pool_derivatives(share, loo.grad, loo.curv, 1.0)
    sides = rest.reshape(*log_weight.shape, -1)
    edge = max(float(sides[k].sum(axis=0).max()) for k in (0, -1))
    edge = max(edge, *(float(sides[:, k].sum(axis=0).max()) for k in (0, -1)))
    return Predictions(
        power_pool(seen, log_share, 1.0),
        Jet(-log_rest, grad, curv),
        float(share[:, 0] @ np.repeat(-1.0 / lattice.sigma**2, lattice.inverse_lambda.size)),
        edge,
    )


def _jets(y: Array, offset: Array, spread: Array) -> Jet:
    """Return normal jets at y with mean y − offset; the grid becomes one axis, (s l, n)."""
    flat = offset.reshape(-1, y.size)
    density = Density.of("normal", mu=y - flat, sigma=spread.reshape(-1, y.size))
    return density.jet(y)


def replicate(seed: np.random.SeedSequence, sizes: tuple[int, ...] | None = None) -> list[Any]:
    """Score regressions of 1 to 100 covariates on one data set; one row per size."""
    X, y = simulate(np.random.default_rng(seed))
    lattice = Lattice.build()
    return [_row(p, predict(X[:, :p], y, lattice)) for p in sizes or range(1, MAX_P + 1)]


def _row(p: int, predicted: Predictions) -> dict[str, float]:
    """Mean scores, larger is better; NaN where in-sample densities are infinite."""
    seen, loo = predicted.in_sample, predicted.loo
    # The formula of the paper's step 3: one average of second derivatives for both.
    step_3 = [2 * predicted.mean_curv + float(np.square(jet.grad).mean()) for jet in (seen, loo)]
    exists = np.nan if p >= INTERPOLATES else 1.0
    return {
        "p": p,
        "log_in_sample": exists * float(seen.logp.mean()),
        "log_loo": float(loo.logp.mean()),
        "hyvarinen_in_sample": exists * _hyvarinen(seen),
        "hyvarinen_loo": _hyvarinen(loo),
        "step_3_in_sample": -exists * step_3[0],
        "step_3_loo": -exists * step_3[1],
        "edge": predicted.edge,
    }


def _hyvarinen(jet: Jet) -> float:
    return float(Hyvarinen().score(Pooled(jet, {})).mean())
