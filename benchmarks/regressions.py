"""Posterior draws of small regressions, cheap and exact or nearly so, in plain numpy.

Normal errors have a conjugate prior and independent draws. Student-t errors are normal ones with a
precision for each observation, drawn in turn (Gibbs). Generalised linear models with a log link are
drawn by Metropolis steps whose proposals, a Student t around the mode, do not depend on where the
chain is.

Priors are weak: covariates are standardised; a coefficient is N(0, (10 σ)²) where errors have a
scale and N(0, 1) on a log scale.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

Array = NDArray[np.float64]
CHAINS, DRAWS = 4, 250
WARMUP = 100
#: Prior standard deviation of coefficients, in units of σ; the prior of σ² is IG(.01, .01 var(y)).
WIDE, PRIOR_COUNT = 10.0, 0.01
#: Degrees of freedom of Student-t errors.
NU = 4.0
#: Prior standard deviations of slopes, intercept and log dispersion on a log scale.
SLOPE, INTERCEPT, DISPERSION = 1.0, 5.0, 3.0
#: Metropolis steps for each draw that is kept, and the share of accepted ones below which to stop.
THIN, FEWEST_ACCEPTED = 8, 0.1


@dataclass(frozen=True)
class Draws:
    """Coefficients (chain, draw, p), intercept first, and a scale or dispersion (chain, draw)."""

    beta: Array
    dispersion: Array

    def predictor(self, X: Array) -> Array:
        """Linear predictor, (chain, draw, obs)."""
        return self.beta @ X.T


class Likelihood(ABC):
    """A regression: how it is fitted, and its density."""

    #: What users read.
    title: str

    @abstractmethod
    def fit(self, X: Array, y: Array, rng: np.random.Generator) -> Draws:
        """Draw from the posterior given rows of X, the first column ones, and outcomes."""

    @abstractmethod
    def logp(self, y: Array, eta: Array, dispersion: Array) -> Array:
        """Log density of outcomes; the three are broadcast."""

    @abstractmethod
    def family(self, eta: Array, dispersion: Array) -> dict[str, Any]:
        """Arguments of ``lq.from_family``."""

    @abstractmethod
    def draw(self, eta: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Draw an outcome for each."""


class Normal(Likelihood):
    """Normal errors."""

    title = "normal"

    def fit(self, X: Array, y: Array, rng: np.random.Generator) -> Draws:
        """Draw independently."""
        return _in_units(y, lambda z: _conjugate(X, z, np.ones((1, len(z))), CHAINS * DRAWS, rng))

    def logp(self, y: Array, eta: Array, dispersion: Array) -> Array:
        """Return the normal log density."""
        z = (y - eta) / dispersion
        return -0.5 * z * z - np.log(dispersion) - 0.5 * np.log(2 * np.pi)

    def family(self, eta: Array, dispersion: Array) -> dict[str, Any]:
        """Name and parameters."""
        return {"family": "normal", "mu": eta, "sigma": dispersion}

    def draw(self, eta: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Draw normal outcomes."""
        return rng.normal(eta, dispersion)


class LogNormal(Normal):
    """Normal errors of the logarithm."""

    title = "log-normal"

    def fit(self, X: Array, y: Array, rng: np.random.Generator) -> Draws:
        """Draw the regression of log y."""
        return super().fit(X, np.log(y), rng)

    def logp(self, y: Array, eta: Array, dispersion: Array) -> Array:
        """Return the log density of y, zero below zero."""
        log_y = np.log(np.where(y > 0, y, 1.0))
        return np.where(y > 0, super().logp(log_y, eta, dispersion) - log_y, -np.inf)

    def family(self, eta: Array, dispersion: Array) -> dict[str, Any]:
        """Name and parameters."""
        return {"family": "lognormal", "mu": eta, "sigma": dispersion}

    def draw(self, eta: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Draw log-normal outcomes."""
        return np.exp(rng.normal(eta, dispersion))


class StudentT(Likelihood):
    """Student-t errors with four degrees of freedom."""

    title = "Student t"

    def fit(self, X: Array, y: Array, rng: np.random.Generator) -> Draws:
        """Draw coefficients and scale given precisions, precisions given these, and so on."""
        return _in_units(y, lambda z: self._gibbs(X, z, rng))

    @staticmethod
    def _gibbs(X: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        precision = np.ones((CHAINS, len(y)))
        kept = []
        for step in range(WARMUP + DRAWS):
            beta, sigma = _conjugate(X, y, precision, CHAINS, rng)
            z = (y - beta @ X.T) / sigma[:, None]
            precision = rng.gamma(0.5 * (NU + 1.0), 2.0 / (NU + z * z))
            if step >= WARMUP:
                kept.append((beta, sigma))
        betas, sigmas = (np.stack(each, axis=1) for each in zip(*kept, strict=True))
        return betas.reshape(CHAINS * DRAWS, -1), sigmas.reshape(-1)

    def logp(self, y: Array, eta: Array, dispersion: Array) -> Array:
        """Return the log density of Student's t."""
        z = (y - eta) / dispersion
        constant = gammaln(0.5 * (NU + 1)) - gammaln(0.5 * NU) - 0.5 * np.log(NU * np.pi)
        return constant - np.log(dispersion) - 0.5 * (NU + 1) * np.log1p(z * z / NU)

    def family(self, eta: Array, dispersion: Array) -> dict[str, Any]:
        """Name and parameters."""
        return {"family": "student_t", "nu": NU, "mu": eta, "sigma": dispersion}

    def draw(self, eta: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Draw Student-t outcomes."""
        shape = np.broadcast_shapes(np.shape(eta), np.shape(dispersion))
        return eta + dispersion * rng.standard_t(NU, shape)


class LogLink(Likelihood):
    """A regression whose mean is the exponential of the linear predictor."""

    #: Whether there is a second parameter.
    dispersed = True

    @abstractmethod
    def slopes(self, y: Array, eta: Array, dispersion: Array) -> tuple[Array, Array]:
        """Differentiate the log density in the predictor and in the log of the dispersion."""

    def fit(self, X: Array, y: Array, rng: np.random.Generator) -> Draws:
        """Find the mode, and walk from proposals around it."""
        centre = np.zeros(X.shape[1] + self.dispersed)
        centre[0] = np.log(y.mean())
        width = np.full(centre.size, SLOPE)
        width[0], width[X.shape[1] :] = INTERCEPT, DISPERSION

        def split(theta: Array) -> tuple[Array, Array]:
            beta, rest = theta[..., : X.shape[1]], theta[..., X.shape[1] :]
            return beta @ X.T, np.exp(rest) if self.dispersed else np.ones((*theta.shape[:-1], 1))

        def log_posterior(theta: Array) -> Array:
            prior = -0.5 * np.square((theta - centre) / width).sum(axis=-1)
            return self.logp(y, *split(theta)).sum(axis=-1) + prior

        def gradient(theta: Array) -> Array:
            by_eta, by_log = self.slopes(y, *split(theta))
            own = [by_log.sum()] if self.dispersed else []
            return np.concatenate([by_eta @ X, own]) - (theta - centre) / width**2

        with np.errstate(over="ignore", invalid="ignore"):
            found = minimize(lambda t: -log_posterior(t), centre, jac=lambda t: -gradient(t))
            draws = _around_mode(log_posterior, gradient, found.x, rng)
        eta_free = draws.reshape(CHAINS, DRAWS, -1)
        rest = np.exp(eta_free[..., -1]) if self.dispersed else np.ones((CHAINS, DRAWS))
        return Draws(eta_free[..., : X.shape[1]], rest)


class Gamma(LogLink):
    """Gamma outcomes; the dispersion is the shape."""

    title = "gamma"

    def logp(self, y: Array, eta: Array, dispersion: Array) -> Array:
        """Return the gamma log density, zero below zero."""
        log_y = np.log(np.where(y > 0, y, 1.0))
        scaled = np.log(dispersion) + log_y - eta
        logp = dispersion * (scaled - np.exp(log_y - eta)) - gammaln(dispersion) - log_y
        return np.where(y > 0, logp, -np.inf)

    def slopes(self, y: Array, eta: Array, dispersion: Array) -> tuple[Array, Array]:
        """Differentiate it."""
        ratio = y * np.exp(-eta)
        by_log = np.log(dispersion) + np.log(ratio) + 1.0 - ratio - digamma(dispersion)
        return dispersion * (ratio - 1.0), dispersion * by_log

    def family(self, eta: Array, dispersion: Array) -> dict[str, Any]:
        """Name and parameters."""
        return {"family": "gamma", "alpha": dispersion, "beta": dispersion * np.exp(-eta)}

    def draw(self, eta: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Draw gamma outcomes."""
        return rng.gamma(dispersion, np.exp(eta) / dispersion)


class Poisson(LogLink):
    """Poisson counts."""

    title = "Poisson"
    dispersed = False

    def logp(self, y: Array, eta: Array, dispersion: Array) -> Array:
        """Return the log probability."""
        return y * eta - np.exp(eta) - gammaln(y + 1.0)

    def slopes(self, y: Array, eta: Array, dispersion: Array) -> tuple[Array, Array]:
        """Differentiate it."""
        return y - np.exp(eta), np.zeros(())

    def family(self, eta: Array, dispersion: Array) -> dict[str, Any]:
        """Name and parameters."""
        return {"family": "poisson", "mu": np.exp(eta)}

    def draw(self, eta: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Draw counts."""
        return rng.poisson(np.exp(eta)).astype(np.float64)


class NegativeBinomial(LogLink):
    """Negative binomial counts with variance μ + μ²/α; the dispersion is α."""

    title = "negative binomial"

    def logp(self, y: Array, eta: Array, dispersion: Array) -> Array:
        """Return the log probability."""
        a = dispersion
        log_total = np.logaddexp(np.log(a), eta)
        rising = gammaln(a + y) - gammaln(a) - gammaln(y + 1.0)
        return rising + a * (np.log(a) - log_total) + y * (eta - log_total)

    def slopes(self, y: Array, eta: Array, dispersion: Array) -> tuple[Array, Array]:
        """Differentiate it."""
        a, mu = dispersion, np.exp(eta)
        by_log = digamma(a + y) - digamma(a) + np.log(a / (a + mu)) + (mu - y) / (a + mu)
        return a * (y - mu) / (a + mu), a * by_log

    def family(self, eta: Array, dispersion: Array) -> dict[str, Any]:
        """Name and parameters."""
        return {"family": "negative_binomial", "mu": np.exp(eta), "alpha": dispersion}

    def draw(self, eta: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Draw counts."""
        return rng.poisson(rng.gamma(dispersion, np.exp(eta) / dispersion)).astype(np.float64)


def _in_units(y: Array, sample: Any) -> Draws:
    """Draw for outcomes in units of their standard deviation, from their mean on."""
    middle, unit = y.mean(), y.std()
    beta, sigma = sample((y - middle) / unit)
    beta = beta.reshape(CHAINS, DRAWS, -1) * unit
    beta[..., 0] += middle
    return Draws(beta, sigma.reshape(CHAINS, DRAWS) * unit)


def _conjugate(
    X: Array, y: Array, precision: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw β and σ so many times, given precisions of the errors relative to 1/σ².

    Precisions are (count, n), or (1, n) where they are the same for all draws.
    """
    weighted = precision[:, :, None] * X
    inverse = weighted.swapaxes(1, 2) @ X + np.eye(X.shape[1]) / WIDE**2
    projected = weighted.swapaxes(1, 2) @ y
    mean = np.linalg.solve(inverse, projected[..., None])[..., 0]
    rest = (precision * y**2).sum(axis=1) - (projected * mean).sum(axis=1)
    shape = PRIOR_COUNT + 0.5 * len(y)
    sigma = np.sqrt((PRIOR_COUNT + 0.5 * rest) / rng.gamma(shape, size=count))
    root = np.linalg.cholesky(np.linalg.inv(inverse))
    noise = rng.normal(size=(count, X.shape[1], 1))
    return mean + sigma[:, None] * (root @ noise)[..., 0], sigma


def _around_mode(log_posterior: Any, gradient: Any, mode: Array, rng: np.random.Generator) -> Array:
    """Walk by Metropolis steps whose proposals are Student t with 7 degrees of freedom."""
    steps = 1e-4 * np.eye(mode.size)
    hessian = np.stack([(gradient(mode - h) - gradient(mode + h)) / 2e-4 for h in steps])
    root = np.linalg.cholesky(np.linalg.inv(0.5 * (hessian + hessian.T)))
    count = WARMUP + DRAWS * THIN
    z = rng.normal(size=(count, CHAINS, mode.size))
    z /= np.sqrt(rng.chisquare(7, (count, CHAINS, 1)) / 7)
    proposals = mode + z @ root.T
    log_proposal = -0.5 * (7 + mode.size) * np.log1p(np.square(z).sum(axis=-1) / 7)
    log_ratio = np.nan_to_num(log_posterior(proposals) - log_proposal, nan=-np.inf)
    chains, place = np.arange(CHAINS), np.zeros(CHAINS, dtype=np.intp)
    places, threshold = [place], np.log(rng.uniform(size=(count, CHAINS)))
    for step in range(1, count):
        moved = threshold[step] < log_ratio[step] - log_ratio[place, chains]
        place = np.where(moved, step, place)
        places.append(place)
    accepted = np.mean(np.diff(places, axis=0) != 0)
    if accepted < FEWEST_ACCEPTED:
        raise RuntimeError(f"Only {accepted:.0%} of the proposals were accepted.")
    return np.stack([proposals[at, chains] for at in places[WARMUP::THIN]], axis=1)
