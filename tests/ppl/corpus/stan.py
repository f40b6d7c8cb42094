"""Stan programs as people write them, with log densities among their generated quantities.

Where ``moved`` is among them, it has Stan's own log densities of the outcomes moved by −2h to 2h.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from tests.ppl.corpus.case import Corpus
from tests.ppl.corpus.stan_merging import Program

CORPUS = Corpus("Stan")
RNG = np.random.default_rng(21)
N = 6
#: By how much outcomes are moved.
STEP = 0.01
X = RNG.normal(size=N)
Y = 0.5 * X + RNG.normal(size=N)
POSITIVE = RNG.gamma(4.0, 0.5, size=N)
COUNTS = RNG.poisson(2.0, size=N)
GROUP = np.array([1, 1, 2, 2, 3, 3])
#: Without a family, only the name of the likelihood tells that it is discrete, or has atoms.
NO_DERIVATIVES = "derivatives in the outcome"


@CORPUS.case("regression", "linear regression, vectorised, with derivatives")
def linear_regression():
    return Program(
        {
            "data": "int<lower=0> N; vector[N] x; vector[N] y;",
            "parameters": "real alpha; real beta; real<lower=0> sigma;",
            "model": """
                alpha ~ normal(0, 1); beta ~ normal(0, 1); sigma ~ exponential(1);
                y ~ normal(alpha + beta * x, sigma);""",
            "generated quantities": """
                vector[N] log_lik; vector[N] grad_y; vector[N] curv_y; matrix[N, 5] moved;
                for (i in 1:N) {
                  real mu = alpha + beta * x[i];
                  log_lik[i] = normal_lpdf(y[i] | mu, sigma);
                  grad_y[i] = (mu - y[i]) / square(sigma);
                  curv_y[i] = -1 / square(sigma);
                  for (j in 1:5) moved[i, j] = normal_lpdf(y[i] + (j - 3) * 0.01 | mu, sigma);
                }""",
        },
        {"N": N, "x": X, "y": Y},
        Y,
        {
            "family": "normal",
            "mu": lambda v: v["alpha"][..., None] + v["beta"][..., None] * X,
            "sigma": "sigma",
        },
    )


@CORPUS.case("hierarchy", "eight schools, not centred, integers as data")
def eight_schools():
    y, sigma = np.array([28, 8, -3, 7, -1, 1]), np.array([15.0, 10, 16, 11, 9, 11])
    return Program(
        {
            "data": "int J; array[J] real y; array[J] real<lower=0> sigma;",
            "parameters": "real mu; real<lower=0> tau; vector[J] eta;",
            "transformed parameters": "vector[J] theta = mu + tau * eta;",
            "model": """
                mu ~ normal(0, 5); tau ~ cauchy(0, 5); eta ~ std_normal();
                y ~ normal(theta, sigma);""",
            "generated quantities": """
                vector[J] log_lik; matrix[J, 5] moved;
                for (j in 1:J) {
                  log_lik[j] = normal_lpdf(y[j] | theta[j], sigma[j]);
                  for (k in 1:5)
                    moved[j, k] = normal_lpdf(y[j] + (k - 3) * 0.01 | theta[j], sigma[j]);
                }""",
        },
        {"J": N, "y": y, "sigma": sigma},
        y,
        {"family": "normal", "mu": "theta", "sigma": sigma},
    )


@CORPUS.case("hierarchy", "varying intercepts and slopes with a Cholesky factor, Student-t")
def varying_slopes():
    return Program(
        {
            "data": "int N; int K; array[N] int<lower=1, upper=K> g; vector[N] x; vector[N] y;",
            "parameters": """
                vector[2] mean_b; vector<lower=0>[2] spread; cholesky_factor_corr[2] L;
                matrix[2, K] z; real<lower=0> sigma; real<lower=2> nu;""",
            "transformed parameters": """
                matrix[K, 2] b = (rep_matrix(mean_b, K) + diag_pre_multiply(spread, L) * z)';""",
            "model": """
                mean_b ~ normal(0, 1); spread ~ exponential(1); L ~ lkj_corr_cholesky(2);
                to_vector(z) ~ std_normal(); sigma ~ exponential(1); nu ~ gamma(2, 0.1);
                for (i in 1:N) y[i] ~ student_t(nu, b[g[i], 1] + b[g[i], 2] * x[i], sigma);""",
            "generated quantities": """
                vector[N] log_lik; matrix[N, 5] moved;
                for (i in 1:N) {
                  real mu = b[g[i], 1] + b[g[i], 2] * x[i];
                  log_lik[i] = student_t_lpdf(y[i] | nu, mu, sigma);
                  for (j in 1:5)
                    moved[i, j] = student_t_lpdf(y[i] + (j - 3) * 0.01 | nu, mu, sigma);
                }""",
        },
        {"N": N, "K": 3, "g": GROUP, "x": X, "y": Y},
        Y,
        {
            "family": "student_t",
            "mu": lambda v: v["b"][..., GROUP - 1, 0] + v["b"][..., GROUP - 1, 1] * X,
            "sigma": "sigma",
            "nu": "nu",
        },
    )


@CORPUS.case(
    "counts and classes",
    "Poisson regression with an offset",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def poisson_regression():
    return Program(
        {
            "data": "int N; vector[N] x; vector[N] log_exposure; array[N] int y;",
            "parameters": "real alpha; real beta;",
            "model": """
                alpha ~ normal(0, 1); beta ~ normal(0, 1);
                y ~ poisson_log(log_exposure + alpha + beta * x);""",
            "generated quantities": """
                vector[N] log_lik;
                for (i in 1:N)
                  log_lik[i] = poisson_log_lpmf(y[i] | log_exposure[i] + alpha + beta * x[i]);""",
        },
        {"N": N, "x": X, "log_exposure": np.zeros(N) + 0.5, "y": COUNTS},
        COUNTS,
        {
            "family": "poisson",
            "mu": lambda v: np.exp(0.5 + v["alpha"][..., None] + v["beta"][..., None] * X),
        },
        {"likelihood": "poisson"},
    )


@CORPUS.case(
    "counts and classes",
    "logistic regression with a matrix of predictors (QR or not)",
    goes_in="log",
    reason="classes have no derivatives",
    says="discrete",
)
def logistic_regression():
    design = np.column_stack([np.ones(N), X])
    return Program(
        {
            "data": "int N; int K; matrix[N, K] X; array[N] int<lower=0, upper=1> y;",
            "parameters": "vector[K] beta;",
            "model": "beta ~ normal(0, 2); y ~ bernoulli_logit_glm(X, 0, beta);",
            "generated quantities": """
                vector[N] log_lik;
                for (i in 1:N) log_lik[i] = bernoulli_logit_lpmf(y[i] | X[i] * beta);""",
        },
        {"N": N, "K": 2, "X": design, "y": COUNTS % 2},
        COUNTS % 2,
        {"family": "bernoulli", "p": lambda v: 1 / (1 + np.exp(-v["beta"] @ design.T))},
        {"likelihood": "bernoulli"},
    )


@CORPUS.case("mixture", "mixture of two normals with ordered locations, summed out")
def mixture():
    def parts(v):
        return [("normal", {"mu": v["mu"][..., k], "sigma": v["sigma"][..., k]}) for k in range(2)]

    return Program(
        {
            "data": "int N; vector[N] y;",
            "parameters": """
                simplex[2] theta; ordered[2] mu; vector<lower=0>[2] sigma;""",
            "model": """
                mu ~ normal(0, 2); sigma ~ lognormal(0, 0.5); theta ~ dirichlet([2, 2]');
                for (i in 1:N)
                  target += log_mix(theta[1], normal_lpdf(y[i] | mu[1], sigma[1]),
                                    normal_lpdf(y[i] | mu[2], sigma[2]));""",
            "generated quantities": """
                vector[N] log_lik; matrix[N, 5] moved;
                for (i in 1:N) {
                  log_lik[i] = log_mix(theta[1], normal_lpdf(y[i] | mu[1], sigma[1]),
                                       normal_lpdf(y[i] | mu[2], sigma[2]));
                  for (j in 1:5) {
                    real at = y[i] + (j - 3) * 0.01;
                    moved[i, j] = log_mix(theta[1], normal_lpdf(at | mu[1], sigma[1]),
                                          normal_lpdf(at | mu[2], sigma[2]));
                  }
                }""",
        },
        {"N": N, "y": Y},
        Y,
        {"family": "mixture", "weights": "theta", "components": parts},
    )


@CORPUS.case(
    "censored",
    "survival times, Weibull, censored by target += lccdf",
    goes_in="log",
    reason="censored outcomes have a probability, not a density",
    says=NO_DERIVATIVES,
)
def censored_survival():
    censored = np.arange(N) % 3 == 0

    def by_hand(v):
        weibull = stats.weibull_min(v["alpha"][..., None], scale=v["sigma"][..., None])
        return np.where(censored, weibull.logsf(POSITIVE), weibull.logpdf(POSITIVE))

    return Program(
        {
            "data": "int N; vector<lower=0>[N] t; array[N] int censored;",
            "parameters": "real<lower=0> alpha; real<lower=0> sigma;",
            "model": """
                alpha ~ gamma(4, 2); sigma ~ gamma(4, 2);
                for (i in 1:N) {
                  if (censored[i]) target += weibull_lccdf(t[i] | alpha, sigma);
                  else target += weibull_lpdf(t[i] | alpha, sigma);
                }""",
            "generated quantities": """
                vector[N] log_lik;
                for (i in 1:N)
                  log_lik[i] = censored[i] ? weibull_lccdf(t[i] | alpha, sigma)
                                           : weibull_lpdf(t[i] | alpha, sigma);""",
        },
        {"N": N, "t": POSITIVE, "censored": censored.astype(int)},
        POSITIVE,
        by_hand=by_hand,
    )


@CORPUS.case("time series", "autoregression, the lag as a covariate")
def autoregression():
    return Program(
        {
            "data": "int T; vector[T] y;",
            "parameters": "real alpha; real<lower=-1, upper=1> rho; real<lower=0> sigma;",
            "model": """
                alpha ~ normal(0, 1); sigma ~ exponential(1);
                y[2:T] ~ normal(alpha + rho * y[1:(T - 1)], sigma);""",
            "generated quantities": """
                vector[T - 1] log_lik; matrix[T - 1, 5] moved;
                for (t in 2:T) {
                  real mu = alpha + rho * y[t - 1];
                  log_lik[t - 1] = normal_lpdf(y[t] | mu, sigma);
                  for (j in 1:5)
                    moved[t - 1, j] = normal_lpdf(y[t] + (j - 3) * 0.01 | mu, sigma);
                }""",
        },
        {"T": N, "y": Y},
        Y[1:],
        {
            "family": "normal",
            "mu": lambda v: v["alpha"][..., None] + v["rho"][..., None] * Y[:-1],
            "sigma": "sigma",
        },
    )


@CORPUS.case("vector outcomes", "multivariate normal, derivatives of both components")
def multivariate():
    y = RNG.normal(size=(N, 2))
    return Program(
        {
            "data": "int N; array[N] vector[2] y;",
            "parameters": "vector[2] mu; vector<lower=0>[2] scale; cholesky_factor_corr[2] L;",
            "transformed parameters": "matrix[2, 2] chol = diag_pre_multiply(scale, L);",
            "model": """
                mu ~ normal(0, 1); scale ~ lognormal(0, 0.3); L ~ lkj_corr_cholesky(2);
                y ~ multi_normal_cholesky(mu, chol);""",
            "generated quantities": """
                vector[N] log_lik; matrix[N, 2] grad_y; matrix[N, 2] curv_y;
                {
                  matrix[2, 2] precision = inverse(tcrossprod(chol));
                  for (i in 1:N) {
                    log_lik[i] = multi_normal_cholesky_lpdf(y[i] | mu, chol);
                    grad_y[i] = (precision * (mu - y[i]))';
                    curv_y[i] = -diagonal(precision)';
                  }
                }""",
        },
        {"N": N, "y": y},
        y,
        {
            "family": "mv_normal",
            "mu": lambda v: np.repeat(v["mu"][..., None, :], N, axis=2),
            "chol": "chol",
        },
    )


@CORPUS.case(
    "regression",
    "gamma regression with a log link and derivatives",
    goes_in="H of log y",
    reason="its density need not vanish smoothly at 0",
    says="does not vanish smoothly at 0",
)
def gamma_regression():
    return Program(
        {
            "data": "int N; vector[N] x; vector<lower=0>[N] y;",
            "parameters": "real a; real b; real<lower=0, upper=2> shape;",
            "model": """
                a ~ normal(0, 0.5); b ~ normal(0, 0.5); shape ~ gamma(2, 1);
                y ~ gamma(shape, shape * exp(-(a + b * x)));""",
            "generated quantities": """
                vector[N] log_lik; vector[N] grad_y; vector[N] curv_y; matrix[N, 5] moved;
                for (i in 1:N) {
                  real rate = shape * exp(-(a + b * x[i]));
                  log_lik[i] = gamma_lpdf(y[i] | shape, rate);
                  grad_y[i] = (shape - 1) / y[i] - rate;
                  curv_y[i] = (1 - shape) / square(y[i]);
                  for (j in 1:5) moved[i, j] = gamma_lpdf(y[i] + (j - 3) * 0.01 | shape, rate);
                }""",
        },
        {"N": N, "x": X, "y": POSITIVE},
        POSITIVE,
        {
            "family": "gamma",
            "alpha": "shape",
            "beta": lambda v: (
                v["shape"][..., None] * np.exp(-(v["a"][..., None] + v["b"][..., None] * X))
            ),
        },
        {"likelihood": "gamma", "support": (0, np.inf)},
    )


@CORPUS.case("regression", "regression of log y, without the Jacobian: transform='log'")
def regression_of_log():
    return Program(
        {
            "data": "int N; vector[N] x; vector<lower=0>[N] y;",
            "transformed data": "vector[N] log_y = log(y);",
            "parameters": "real alpha; real beta; real<lower=0> sigma;",
            "model": """
                alpha ~ normal(0, 1); beta ~ normal(0, 1); sigma ~ exponential(1);
                log_y ~ normal(alpha + beta * x, sigma);""",
            "generated quantities": """
                vector[N] log_lik; matrix[N, 5] moved;
                for (i in 1:N) {
                  real mu = alpha + beta * x[i];
                  log_lik[i] = normal_lpdf(log_y[i] | mu, sigma);
                  for (j in 1:5) {
                    real at = y[i] + (j - 3) * 0.01;
                    moved[i, j] = normal_lpdf(log(at) | mu, sigma) - log(at);
                  }
                }""",
        },
        {"N": N, "x": X, "y": POSITIVE},
        POSITIVE,
        {
            "family": "normal",
            "transform": "log",
            "log_lik": None,
            "mu": lambda v: v["alpha"][..., None] + v["beta"][..., None] * X,
            "sigma": "sigma",
        },
        {"transform": "log"},
    )
