"""Weights by a softmax beside the published model, written in NumPyro, on the same elpds."""

from __future__ import annotations

import numpy as np
import pytest

import lockquack as lq
from lockquack.draws.diagnostics import ess_mean

numpyro = pytest.importorskip("numpyro")
jax = pytest.importorskip("jax")


def published(logp, functions, groups, n_groups):
    """Yao, Pirš, Vehtari and Gelman (2021): additive effects of numbers and of groups."""
    import numpyro.distributions as dist
    from jax import numpy as jnp

    heads = logp.shape[1] - 1
    unit = dist.Normal(0, 1)
    mu = numpyro.sample("mu", unit.expand([heads]))
    predictor = mu
    for name, values in (("numbers", functions), ("groups", jnp.eye(n_groups)[groups])):
        sigma = numpyro.sample(f"sigma_{name}", dist.HalfNormal(1).expand([heads]))
        effects = numpyro.sample(f"unit_{name}", unit.expand([values.shape[1], heads]))
        predictor = predictor + values @ (sigma * effects)
    last = jnp.zeros((logp.shape[0], 1))
    log_weights = jax.nn.log_softmax(jnp.concatenate([predictor, last], axis=1), axis=1)
    numpyro.deterministic("weights", jnp.exp(log_weights))
    numpyro.factor("score", jax.nn.logsumexp(logp + log_weights, axis=1).sum())


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(8)
    n = 90
    x, group = rng.uniform(-1, 1, size=n), rng.integers(3, size=n)
    y = np.where(x < 0, -1.0, 1.0) + np.array([0.0, 0.5, -1.0])[group] + rng.normal(size=n)
    noise = 0.05 * rng.normal(size=(4, 50))
    models = {
        "down": lq.from_family("normal", y=y, mu=noise - 1.0, sigma=1.0),
        "up": lq.from_family("normal", y=y, mu=noise + 1.0, sigma=1.0),
        "wide": lq.from_family("normal", y=y, mu=noise, sigma=2.0),
    }
    return models, x, group


# How few draws are enough depends on rounding; their error is looked at below.
@pytest.mark.filterwarnings("ignore::lockquack.errors.ConvergenceWarning")
def test_weights_are_those_of_the_published_model(data):
    from numpyro.infer import MCMC, NUTS

    models, x, group = data
    ramp = (x - x.min()) / np.ptp(x)
    by = lq.Spline(x, df=2, degree=1, name="x") + lq.Groups(group, name="group")
    fit = lq.stack(models, by=by, weights="softmax", random_seed=2)
    logp = np.stack([model.loo().logp for model in models.values()], axis=1)
    sampler = MCMC(
        NUTS(published, target_accept_prob=0.9),
        num_warmup=400,
        num_samples=1000,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    functions = np.column_stack([1 - ramp, ramp])
    sampler.run(jax.random.PRNGKey(1), logp, functions, group, 3)
    theirs = np.asarray(sampler.get_samples(group_by_chain=True)["weights"], dtype=np.float64)
    ours = np.stack([fit.objective.weights(each).T for each in fit.fitter.flat])
    ours = ours.reshape(4, -1, *ours.shape[1:])

    squared = []
    for draws in (ours, theirs):
        flat = draws.reshape(*draws.shape[:2], -1)
        squared.append(flat.var(axis=(0, 1)) / ess_mean(flat))
    error = np.sqrt(sum(squared)).reshape(ours.shape[2:])
    apart = np.abs(fit.weights.values.T - theirs.mean(axis=(0, 1)))
    assert (apart < 4 * error).mean() > 0.99
    assert error.max() < 0.03
    np.testing.assert_allclose(ours.std(axis=(0, 1)), theirs.std(axis=(0, 1)), rtol=0.15, atol=0.01)
