"""Where to look for the mass of a pool: Student t distributions around its moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lockquack.families.student_t import log_normaliser
from lockquack.jets import Array, softmax

#: Degrees of freedom of the proposals: heavier tails than most pools, but a variance.
_NU = 5.0


@dataclass(frozen=True)
class TMixture:
    """A mixture of multivariate Student t distributions with five degrees of freedom."""

    weights: Array  # (J,)
    means: Array  # (J, d)
    factors: Array  # (J, d, d): lower Cholesky factors of the scale matrices

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Draw (n, d)."""
        chosen = rng.choice(self.weights.size, size=n, p=self.weights)
        white = rng.normal(size=(n, self.means.shape[1]))
        white *= np.sqrt(_NU / rng.chisquare(_NU, size=(n, 1)))
        return self.means[chosen] + np.einsum("nij,nj->ni", self.factors[chosen], white)

    def logpdf(self, y: Array) -> Array:
        """Log densities at points (n, d)."""
        return self.with_gradient(y)[0]

    def with_gradient(self, y: Array) -> tuple[Array, Array]:
        """Log densities at points (n, d), and their gradients, (n, d)."""
        d = y.shape[1]
        logs, pulls = [], []
        for weight, mean, factor in zip(self.weights, self.means, self.factors, strict=True):
            inverse = np.linalg.inv(factor)
            white = (y - mean) @ inverse.T
            square = np.square(white).sum(axis=1)
            constant = log_normaliser(np.asarray(_NU), d) - np.log(np.diag(factor)).sum()
            logs.append(np.log(weight) + constant - (_NU + d) / 2 * np.log1p(square / _NU))
            pulls.append(-(_NU + d) * (white @ inverse) / (_NU + square)[:, None])
        share, total = softmax(np.stack(logs))
        return total, (share[..., None] * np.stack(pulls)).sum(axis=0)


def moment_pool(means: Array, covariances: Array, weights: Array) -> tuple[Array, Array]:
    """Mean and covariance of the log-linear pool of normal distributions with these moments."""
    precisions = weights[:, None, None] * np.linalg.inv(covariances)
    covariance = np.linalg.inv(precisions.sum(axis=0))
    return covariance @ np.einsum("kij,kj->i", precisions, means), covariance


def t_mixture(parts: Sequence[tuple[float, Array, Array]]) -> TMixture:
    """Make a mixture of weights, means and covariances; weights need not sum to one."""
    weights = np.array([weight for weight, _, _ in parts])
    keep = weights > 0
    return TMixture(
        weights[keep] / weights.sum(),
        np.stack([mean for _, mean, _ in parts])[keep],
        np.stack([safe_factor(covariance) for _, _, covariance in parts])[keep],
    )


def safe_factor(covariance: Array) -> Array:
    """Cholesky factor, of a covariance that may have no full rank."""
    d = len(covariance)
    size = np.trace(covariance) / d or 1.0
    for jitter in 10.0 ** np.arange(-14.0, 1.0):
        try:
            return np.asarray(np.linalg.cholesky(covariance + jitter * size * np.eye(d)))
        except np.linalg.LinAlgError:
            continue
    return np.asarray(np.sqrt(np.diag(np.maximum(np.diag(covariance), 1e-300))))


def robust_moments(y: Array) -> tuple[Array, Array]:
    """Middle and spread of draws (n, d) whose distribution may have no moments.

    Medians, and covariances of what is left when the outermost are pulled in.
    """
    low, middle, high = np.quantile(y, [0.01, 0.5, 0.99], axis=0)
    inside = np.clip(y, low, high)
    covariance = np.atleast_2d(np.cov(inside, rowvar=False))
    return middle if len(y) < 2 else inside.mean(axis=0), covariance
