"""Small models to try things with: in examples, in tests, in other packages."""

from __future__ import annotations

import numpy as np

from lockquack.arithmetic import own_arithmetic
from lockquack.models.model import Model
from lockquack.numeric import as_count, as_generator
from lockquack.sources.family import from_family
from lockquack.sources.parameters import linear_predictor


@own_arithmetic
def example_models(n: int = 40, random_seed: int = 1) -> dict[str, Model]:
    """Make two regressions of the same outcomes, each with one of two covariates.

    Their posteriors are known (normal likelihood, σ = 1, flat prior), so the draws are exact and
    independent.

    Parameters
    ----------
    n
        Number of observations.
    random_seed
        Seed of the data and of the draws.

    Returns
    -------
    dict of str to Model
        Models ``"first"`` and ``"second"``, with 4 chains of 250 draws.

    Examples
    --------
    >>> import lockquack as lq
    >>> lq.lock(lq.example_models()).weights.round(2).to_series().to_dict()
    {'first': 0.36, 'second': 0.64}
    """
    n, rng = as_count("n", n), as_generator(random_seed)
    x = rng.normal(size=(n, 2))
    y = x.sum(axis=1) + rng.normal(size=n)
    models = {}
    for k, name in enumerate(("first", "second")):
        covariate = x[:, [k]]
        precision = float(np.square(covariate).sum())
        best = float(covariate[:, 0] @ y) / precision
        slope = best + rng.normal(size=(4, 250, 1)) / np.sqrt(precision)
        mu = linear_predictor(covariate, slope)
        models[name] = from_family("normal", y=y, mu=mu, sigma=1.0)
    return models
