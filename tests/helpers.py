"""What several test files need."""

from __future__ import annotations

import warnings

import numpy as np

import lockquack as lq
from lockquack.errors import LockquackWarning


def lock(models, **options):
    """Lock without the warnings that are not what a test is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return lq.lock(models, **options)


def paper_models(y, rng, shape=(4, 500)):
    """Draw exactly from the posteriors of the paper's two models.

    M1: y ~ N(θ, 1), θ ~ N(0, 10). M2: y ~ N(0, θ), θ ~ InvGamma(.05, .05); variances.
    """
    n = len(y)
    V = 1 / (n + 1 / 10)
    theta = V * y.sum() + np.sqrt(V) * rng.normal(size=shape)
    variance = (0.1 + np.square(y).sum()) / rng.chisquare(0.1 + n, size=shape)
    return {
        "M1": lq.from_family("normal", y=y, mu=theta, sigma=1.0),
        "M2": lq.from_family("normal", y=y, mu=0.0, sigma=np.sqrt(variance)),
    }
