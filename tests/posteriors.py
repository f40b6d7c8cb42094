"""Two families of real posteriors: data that come in wheels, draws that are made here.

Normal linear regressions of y or log y, flat in the coefficients, with a prior ∝ σ^-a on σ. The
posterior is known, σ² ~ RSS / χ²(n − p + a − 1) and β given σ ~ N(β̂, σ² (X'X)^-1), so the draws
are independent and exact, and every prediction is a Student-t, also without one observation.

Draws are quantiles at the uniform numbers of a seeded generator: no rejection, whose course
another version of a library could change. ``scripts/reference_answers.py`` computes the right
answers for them; neither it nor this file knows lockquack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats
from scipy.special import gammaincinv, ndtri

Array = np.ndarray
Scale = Literal["y", "logy"]

N_CHAINS, N_DRAWS = 10, 400


@dataclass(frozen=True)
class Student:
    """Student-t predictions, one for each observation, of the regression's own response."""

    nu: float
    loc: Array
    spread: Array

    def jet(self, z: Array) -> tuple[Array, Array, Array]:
        """Log density at z and its first two derivatives."""
        u = (z - self.loc) / self.spread
        tail = self.nu + u**2
        logp = stats.t.logpdf(u, self.nu) - np.log(self.spread)
        grad = -(self.nu + 1) * u / tail / self.spread
        return logp, grad, -(self.nu + 1) * (self.nu - u**2) / tail**2 / self.spread**2


@dataclass(frozen=True)
class Regression:
    """The response, y or log y, on the columns of X."""

    predictor: str
    response: Scale
    z: Array  # (n,)
    X: Array  # (n, p)
    power: int = 1  # a in the prior σ^-a: 1 is flat in log σ, 0 flat in σ

    def posterior(self, left_out: int | None = None) -> tuple[Array, Array, float, int]:
        """β̂, the inverse of R in X = QR, RSS, and the degrees of freedom."""
        z, X = self.z, self.X
        if left_out is not None:
            z, X = np.delete(z, left_out), np.delete(X, left_out, axis=0)
        Q, R = np.linalg.qr(X)
        sign = np.sign(np.diag(R))  # R is unique once its diagonal is positive
        inverse = np.linalg.inv(sign[:, None] * R)
        estimate = inverse @ (sign * (Q.T @ z))
        n, p = X.shape
        return estimate, inverse, float(np.sum((z - X @ estimate) ** 2)), n - p + self.power - 1

    def draws(self, seed: list[int]) -> Array:
        """Coefficients, and σ last: (chain, draw, p + 1)."""
        estimate, inverse, rss, nu = self.posterior()
        shape = (N_CHAINS, N_DRAWS, estimate.size + 1)
        uniform = np.random.default_rng(seed).random(shape)
        sigma = np.sqrt(rss / (2 * gammaincinv(nu / 2, uniform[..., -1:])))
        beta = estimate + sigma * (ndtri(uniform[..., :-1]) @ inverse.T)
        return np.concatenate([beta, sigma], axis=-1)

    def exact(self, kind: Literal["loo", "in_sample"]) -> Student:
        """Prediction of each observation, without it (fitted anew) or with it."""
        n = self.z.size
        fits = [self.posterior(i) for i in range(n)] if kind == "loo" else [self.posterior()] * n
        nu = fits[0][3]
        loc = [x @ estimate for x, (estimate, *_) in zip(self.X, fits, strict=True)]
        spread = [
            np.sqrt(rss / nu * (1 + np.sum((x @ inverse) ** 2)))
            for x, (_, inverse, rss, _) in zip(self.X, fits, strict=True)
        ]
        return Student(nu, np.array(loc), np.array(spread))


@dataclass(frozen=True)
class Family:
    """Several regressions of one outcome."""

    y: Array
    regressions: dict[str, Regression]
    seed: int
    #: Models that differ in how they are written, and a little in the prior of σ.
    duplicates: list[list[str]]

    @property
    def scales(self) -> tuple[Scale, ...]:
        """On which the models can be compared: that of log y too where some are models of it."""
        fitted_to = {regression.response for regression in self.regressions.values()}
        return ("y", "logy") if "logy" in fitted_to else ("y",)

    def draws(self) -> dict[str, Array]:
        """Posterior draws of every model, by name."""
        return {
            name: regression.draws([self.seed, k])
            for k, (name, regression) in enumerate(self.regressions.items())
        }


def diabetes() -> Family:
    """Disease progression in 442 people, on blocks of covariates."""
    from sklearn.datasets import load_diabetes

    data, raw = load_diabetes(), load_diabetes(scaled=False)
    y, names = data.target.astype(float), data.feature_names

    def on(*columns: str, values: Array = data.data, power: int = 1) -> Regression:
        X = np.column_stack([np.ones(y.size), values[:, [names.index(c) for c in columns]]])
        units = "" if values is data.data else " (raw)"
        return Regression(" + ".join(columns) + units, "y", y, X, power)

    regressions = {
        "demographics": on("age", "sex"),
        "body": on("bmi", "bp"),
        "blood": on("s1", "s2", "s3", "s4", "s5", "s6"),
        "bmi_s5": on("bmi", "s5"),
        "full": on(*names),
        "full_raw": on(*names, values=raw.data, power=0),
    }
    return Family(y, regressions, 442, [["full", "full_raw"]])


def engel() -> Family:
    """Expenditure for food of 235 households: regressions of it and of its logarithm on income.

    The richest household is so far out that PSIS fails for some of the models.
    """
    from statsmodels.datasets import engel as source

    data = source.load_pandas().data
    y, income = data["foodexp"].to_numpy(), data["income"].to_numpy()
    log_y, log_income, one = np.log(y), np.log(income), np.ones(y.size)
    centred = log_income - log_income.mean()
    square = np.column_stack([one, log_income, log_income**2])
    square_centred = np.column_stack([one, centred, centred**2])
    regressions = {
        "linear": Regression("income", "y", y, np.column_stack([one, income])),
        "logarithmic": Regression("log income", "y", y, np.column_stack([one, log_income])),
        "exponential": Regression("income", "logy", log_y, np.column_stack([one, income])),
        "power": Regression("log income", "logy", log_y, np.column_stack([one, log_income])),
        "curved": Regression("log income, squared", "logy", log_y, square),
        "curved_centred": Regression("the same, centred", "logy", log_y, square_centred, power=0),
    }
    return Family(y, regressions, 235, [["curved", "curved_centred"]])


FAMILIES: dict[str, Callable[[], Family]] = {"diabetes": diabetes, "engel": engel}
