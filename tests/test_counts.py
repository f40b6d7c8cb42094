"""Real counts: visits to the doctor in RAND's health insurance experiment."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

import lockquack as lq

randhie = pytest.importorskip("statsmodels.datasets.randhie")
pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")

PLAN = ["lncoins", "idp", "lpi", "fmde"]
HEALTH = ["physlm", "disea", "hlthg", "hlthf"]
SHAPE = (4, 20)
#: Name → covariates, and whether the counts may be overdispersed.
REGRESSIONS = {"plan": (PLAN, True), "health": (HEALTH, True), "poisson": (HEALTH, False)}
TRAIN, WEIGH, JUDGE = slice(0, 400), slice(400, 520), slice(520, 640)
COUNTS = np.arange(500)


def log_mass(y, mu, alpha):
    """Poisson where alpha is infinite, else negative binomial of variance mu + mu² / alpha."""
    if np.isinf(alpha).all():
        return y * np.log(mu) - mu - special.gammaln(y + 1)
    ways = special.gammaln(y + alpha) - special.gammaln(alpha) - special.gammaln(y + 1)
    return ways + alpha * np.log(alpha / (alpha + mu)) + y * np.log(mu / (alpha + mu))


def hessian(f, x, step=1e-4):
    """Second derivatives by central differences."""
    e = step * np.eye(x.size)
    return np.array(
        [[(f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b)) for b in e] for a in e]
    ) / (4 * step**2)


class Regression:
    """A count regression with draws from the normal approximation to its posterior."""

    def __init__(self, X, y, overdispersed, rng):
        self.overdispersed = overdispersed
        p = X.shape[1] + overdispersed

        def minus_log_posterior(theta):
            mu, alpha = np.exp(X @ theta[: X.shape[1]]), self._alpha(theta)
            return -log_mass(y, mu, alpha).sum() + 0.5 * np.square(theta / 5).sum()

        found = optimize.minimize(minus_log_posterior, np.zeros(p), method="BFGS")
        covariance = np.linalg.inv(hessian(minus_log_posterior, found.x))
        self.theta = rng.multivariate_normal(found.x, covariance, size=SHAPE)
        self.beta = self.theta[..., : X.shape[1]]

    def _alpha(self, theta):
        return np.exp(theta[..., -1]) if self.overdispersed else np.array(np.inf)

    def model(self, X, y):
        """The regression at other people."""
        mu = lq.linear_predictor(X, self.beta, link="log")
        if not self.overdispersed:
            return lq.from_family("poisson", y=y, mu=mu)
        return lq.from_family("negative_binomial", y=y, mu=mu, alpha=self._alpha(self.theta))

    def log_predictive(self, X):
        """Log of the mean mass over draws of each count at each row of X, (count, row)."""
        mu = np.exp(self.beta.reshape(-1, X.shape[1]) @ X.T)[:, None]
        alpha = np.broadcast_to(self._alpha(self.theta), SHAPE).reshape(-1, 1, 1)
        mass = log_mass(COUNTS[:, None], mu, alpha)
        return special.logsumexp(mass, axis=0) - np.log(len(mu))


class Visits:
    """Three regressions, fitted to some people, to be weighed by others and judged by others."""

    def __init__(self):
        rng = np.random.default_rng(1987)
        data = randhie.load_pandas().data
        data = data.iloc[rng.permutation(len(data))[: JUDGE.stop]]
        self.y = data["mdvis"].to_numpy()
        self.X = {}
        for name, (columns, _) in REGRESSIONS.items():
            z = data[columns].to_numpy()
            self.X[name] = np.column_stack([np.ones(len(z)), (z - z.mean(0)) / z.std(0)])
        self.regressions = {
            name: Regression(self.X[name][TRAIN], self.y[TRAIN], overdispersed, rng)
            for name, (_, overdispersed) in REGRESSIONS.items()
        }

    def models(self, people):
        return {
            name: regression.model(self.X[name][people], self.y[people])
            for name, regression in self.regressions.items()
        }

    def log_predictives(self, people):
        """Predictive log masses of all models, by hand: (model, count, person)."""
        return np.stack(
            [each.log_predictive(self.X[name][people]) for name, each in self.regressions.items()]
        )


@pytest.fixture(scope="module")
def visits():
    return Visits()


@pytest.fixture(scope="module")
def judged(visits):
    """Log masses by hand at the people who judge: of what was observed, and of all counts."""
    everywhere = visits.log_predictives(JUDGE)
    y = visits.y[JUDGE].astype(int)
    return everywhere[:, y, np.arange(y.size)], everywhere


METHODS = {
    "lock": lambda m: lq.lock(m, rule="log", scores="held-out"),
    "lock by pairs": lambda m: lq.lock(m, rule="pairwise", scores="held-out"),
    "stack": lambda m: lq.stack(m, scores="held-out"),
}


@pytest.fixture(scope="module")
def fits(visits):
    models = visits.models(WEIGH)
    return {name: fit(models) for name, fit in METHODS.items()}


def test_predictions_are_averages_over_draws(visits, judged):
    at_y, everywhere = judged
    np.testing.assert_allclose(special.logsumexp(everywhere, axis=1), 0.0, atol=1e-6)
    fit = lq.equal(visits.models(JUDGE), scores="held-out")
    np.testing.assert_allclose(fit.pointwise[1:], at_y, rtol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_combinations_are_near_the_best_model_or_above(fits, judged, name):
    at_y, everywhere = judged
    w = fits[name].solution.x
    if name == "stack":
        score = special.logsumexp(at_y, axis=0, b=w[:, None]).sum()
    else:
        log_norm = special.logsumexp(np.tensordot(w, everywhere, 1), axis=0)
        score = (w @ at_y - log_norm).sum()
    single = at_y.sum(axis=1)
    assert fits[name].solution.converged
    assert score > single.min() + 50
    assert score > single.max() - 3.0
    # Visits are far more dispersed than a Poisson regression allows.
    assert fits[name].weights.sel(model="poisson") < 0.2


def test_scores_at_other_people_are_those_by_hand(visits, fits, judged):
    at_y, everywhere = judged
    w = fits["lock"].solution.x
    there = lq.lock(visits.models(JUDGE), rule="log", scores="held-out")
    log_norm = special.logsumexp(np.tensordot(w, everywhere, 1), axis=0)
    np.testing.assert_allclose(there.objective.scores(w), w @ at_y - log_norm, atol=1e-6)
    # The exact score is best at its own weights, among the three ways to find some.
    others = [there.objective.scores(fit.solution.x).sum() for fit in fits.values()]
    assert there.objective.scores(there.solution.x).sum() >= max(others) - 0.05


def test_the_pooled_masses_of_one_person_sum_to_one(visits, fits, judged):
    # As many copies of a person as there are counts, each with another count.
    w = fits["lock"].solution.x
    pooled = np.tensordot(w, judged[1], 1)
    log_norm = special.logsumexp(pooled, axis=0)
    assert (log_norm < 0).all()  # a geometric mean is below the arithmetic one
    person = int(np.exp(judged[1][1]).T.dot(COUNTS).argmin())
    counts = COUNTS[:80]
    copies = np.full(counts.size, JUDGE.start + person)
    models = {
        name: regression.model(visits.X[name][copies], counts)
        for name, regression in visits.regressions.items()
    }
    logq = lq.lock(models, rule="log", scores="held-out").objective.scores(w)
    np.testing.assert_allclose(logq, (pooled - log_norm)[:80, person], atol=1e-6)
    assert np.exp(logq).sum() == pytest.approx(1.0, abs=1e-5)


def test_a_signed_hybrid_without_a_normaliser_is_refused(rng):
    # A negative exponent of a model that ends at 30 makes the pool infinite beyond.
    from lockquack.operators.pool import Pool
    from lockquack.prediction.tails import heaviest_tail

    y = rng.poisson(4.0, size=12)
    models = {
        "poisson": lq.from_family("poisson", y=y, mu=np.full((2, 5), 4.0)),
        "binomial": lq.from_family("binomial", y=y, n=30, p=np.full((2, 5), 0.15)),
    }
    sources = {name: model.source for name, model in models.items()}
    x = np.array([0.5, 1.0, -0.3, 0.5, 0.5])  # w0, w1, w2 and the mixture's weights
    found = heaviest_tail(sources, Pool(lq.Hybrid(signed=True), x, 2))
    assert found is not None
    assert not found[1] < -1
