"""Fits of CmdStanPy, read from files in CmdStan's format, and of PyStan, which runs here."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

import lockquack as lq
from lockquack.errors import ParameterError, UnknownNameError, UnsupportedError
from lockquack.sources.stan import SNIPPETS, from_cmdstanpy, from_pystan, stan_code

CHAINS, DRAWS, N = 2, 30, 6
EVERY_DRAW, EVERY_OBS = slice(0, DRAWS), slice(0, N)

HEADER = """\
# stan_version_major = 2
# stan_version_minor = 37
# stan_version_patch = 0
# model = regression_model
# method = sample (Default)
#   sample
#     num_samples = {draws}
#     num_warmup = {warmup}
#     save_warmup = {save_warmup}
#     thin = 1 (Default)
#     adapt
#       engaged = true (Default)
#     algorithm = hmc (Default)
#       hmc
#         engine = nuts (Default)
#           nuts
#             max_depth = 10 (Default)
#         metric = diag_e (Default)
#         stepsize = 1 (Default)
#     num_chains = 1 (Default)
# id = {chain}
# output
#   file = regression_{chain}.csv
{columns}
"""
ADAPTATION = """\
# Adaptation terminated
# Step size = 0.8
# Diagonal elements of inverse mass matrix:
# 1
"""
FOOTER = """\
#
#  Elapsed Time: 0.01 seconds (Warm-up)
#                0.01 seconds (Sampling)
#                0.02 seconds (Total)
#
"""
SAMPLER = ("lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__")


def write_csv(folder, variables, warmup=0):
    """Write draws (chain, draw, ...) as CmdStan would: one file a chain, matrices by columns."""
    chains, total = next(iter(variables.values())).shape[:2]
    names, columns = [*SAMPLER, "energy__"], []
    for name, values in variables.items():
        for index in np.ndindex(*values.shape[2:][::-1]):
            names.append(".".join([name, *(str(i + 1) for i in index[::-1])]))
            columns.append(values[(slice(None), slice(None), *index[::-1])])
    for chain in range(chains):
        # The step size changes from row to row until the warm-up ends.
        steps = [0.1 + 0.01 * s if s < warmup else 0.8 + 0.1 * chain for s in range(total)]
        lines = [",".join([f"-1,1,{step},2,3,0,1", *(f"{c[chain, s]:.17g}" for c in columns)])
                 for s, step in enumerate(steps)]  # fmt: skip
        head = HEADER.format(
            draws=total - warmup,
            warmup=warmup or 1000,
            save_warmup="true" if warmup else "false",
            chain=chain + 1,
            columns=",".join(names),
        )
        body = "\n".join([*lines[:warmup], ADAPTATION.strip(), *lines[warmup:]])
        (folder / f"regression_{chain + 1}.csv").write_text(f"{head}{body}\n{FOOTER}")
    return [str(folder / f"regression_{chain + 1}.csv") for chain in range(chains)]


@pytest.fixture
def read(tmp_path):
    cmdstanpy = pytest.importorskip("cmdstanpy")
    return lambda variables, **how: cmdstanpy.from_csv(write_csv(tmp_path, variables, **how))


@pytest.fixture
def y(rng):
    return rng.normal(size=N)


@pytest.fixture
def draws(rng):
    """A Student-t regression."""
    x = np.linspace(-1.0, 1.0, N)
    beta = rng.normal(size=(CHAINS, DRAWS, 2))
    return {
        "beta": beta,
        "mu": beta[..., :1] + beta[..., 1:] * x,
        "sigma": rng.gamma(50, 0.02, size=(CHAINS, DRAWS)),
        "nu": rng.gamma(20, 0.2, size=(CHAINS, DRAWS)),
    }


@pytest.fixture
def closed_form(y, draws):
    return lq.from_family("student_t", y=y, mu=draws["mu"], sigma=draws["sigma"], nu=draws["nu"])


def quantities(model):
    chains = range(model.n_chains)
    every = slice(0, model.n_draws), slice(0, model.observations.n)
    grad, curv = zip(*(model.source.derivatives(chain, *every) for chain in chains), strict=True)
    return {
        "log_lik": model.source.all_logp(every[1]),
        "grad_y": np.stack(grad)[..., 0],
        "curv_y": np.stack(curv)[..., 0],
    }


def assert_same(model, reference, rtol=1e-10):
    assert (model.n_chains, model.n_draws) == (reference.n_chains, reference.n_draws)
    for name, values in quantities(model).items():
        np.testing.assert_allclose(values, quantities(reference)[name], rtol=rtol, err_msg=name)


def test_generated_quantities_equal_the_closed_form(read, y, draws, closed_form):
    fit = read(draws | quantities(closed_form))
    assert_same(from_cmdstanpy(fit, y=y), closed_form)


def test_chains_and_draws_are_cmdstanpys_own(read, y, draws, closed_form):
    fit = read(quantities(closed_form))
    model = from_cmdstanpy(fit, y=y)
    theirs = fit.draws_xr("log_lik").log_lik.transpose("chain", "draw", ...)
    np.testing.assert_array_equal(model.source.all_logp(EVERY_OBS), theirs)


def test_a_family_takes_its_parameters_from_the_fit(read, y, draws, closed_form):
    model = from_cmdstanpy(read(draws), y=y, family="student_t", mu="mu", sigma="sigma", nu="nu")
    assert_same(model, closed_form)
    assert model.source.can.evaluate


def test_a_function_makes_parameters_of_variables(read, y, draws, closed_form):
    X = np.column_stack([np.ones(N), np.linspace(-1.0, 1.0, N)])
    model = from_cmdstanpy(
        read(draws),
        y=xr.DataArray(y, dims="day", coords={"day": np.arange(N)}),
        family="student_t",
        mu=lambda v: lq.linear_predictor(X, v["beta"]),
        sigma=lambda v: np.exp(np.log(v["sigma"])),
        nu=draws["nu"],
    )
    assert_same(model, closed_form)
    assert model.observations.dims == ("day",)


def test_log_lik_alone_gives_log_densities_only(read, y, closed_form):
    log_lik = quantities(closed_form)["log_lik"]
    model = from_cmdstanpy(read({"pointwise": log_lik}), y=y, log_lik="pointwise")
    np.testing.assert_allclose(model.source.all_logp(EVERY_OBS), log_lik, rtol=1e-14)
    assert not model.source.can.differentiate


def test_generated_quantities_of_log_y_are_brought_to_y(read, y, draws):
    """Without a family too: log_lik and its derivatives are those of log y."""
    natural, mu, sigma = np.exp(y), draws["mu"], draws["sigma"]
    of_log = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    model = from_cmdstanpy(read(quantities(of_log)), y=natural, transform="log")
    exact = lq.from_family("lognormal", y=natural, mu=mu, sigma=sigma)
    everything = 1, EVERY_DRAW, EVERY_OBS
    np.testing.assert_allclose(model.source.logp(*everything), exact.source.logp(*everything))
    for got, expected in zip(
        model.source.derivatives(*everything), exact.source.derivatives(*everything), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_vector_outcomes(read, rng):
    y = rng.normal(size=(N, 2))
    mu, sigma = rng.normal(size=(CHAINS, DRAWS, N, 2)), np.array([1.0, 2.0])
    reference = lq.from_family("mv_normal", y=y, mu=mu, cov=np.diag(sigma**2))
    fit = read(
        {
            "log_lik": reference.source.all_logp(EVERY_OBS),
            "grad_y": (mu - y) / sigma**2,
            "curv_y": np.broadcast_to(-1 / sigma**2, mu.shape),
        }
    )
    model = from_cmdstanpy(fit, y=y)
    for got, expected in zip(
        model.source.derivatives(1, EVERY_DRAW, EVERY_OBS),
        reference.source.derivatives(1, EVERY_DRAW, EVERY_OBS),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_warm_up_is_left_out(read, y, draws):
    model = from_cmdstanpy(read(draws, warmup=10), y=y, family="normal", mu="mu", sigma="sigma")
    assert model.n_draws == DRAWS - 10
    later = {name: values[:, 10:] for name, values in draws.items()}
    assert_same(model, lq.from_family("normal", y=y, mu=later["mu"], sigma=later["sigma"]))


def test_a_family_that_contradicts_log_lik_is_refused(read, y, draws, closed_form):
    fit = read(draws | quantities(closed_form))
    wrong = {"y": y, "family": "student_t", "mu": "mu", "sigma": "nu", "nu": "sigma"}
    with pytest.raises(ParameterError, match="the fit's 'log_lik' is"):
        from_cmdstanpy(fit, **wrong)
    assert from_cmdstanpy(fit, **wrong, log_lik=None).source.can.evaluate
    with pytest.raises(ParameterError, match="order of y"):
        from_cmdstanpy(fit, y=y[::-1], family="student_t", mu="mu", sigma="sigma", nu="nu")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({}, UnsupportedError, "no variable 'log_lik'; it has .*stan_code"),
        ({"log_lik": "sigma", "grad": "mu"}, UnsupportedError, "'curv_y', but the other"),
        ({"family": "normal", "mu": "Mu", "sigma": "sigma"}, UnknownNameError, "mean 'mu'"),
        ({"mu": "mu"}, ParameterError, "mu without a family"),
        ({"family": "normal", "likelihood": "normal"}, ParameterError, "leave out likelihood"),
    ],
)
def test_what_is_missing_is_said(read, y, draws, options, error, says):
    with pytest.raises(error, match=says):
        from_cmdstanpy(read(draws), y=y, **options)


def test_what_has_no_draws_is_refused(y):
    with pytest.raises(UnsupportedError, match="A dict holds no draws"):
        from_cmdstanpy({}, y=y)
    with pytest.raises(UnsupportedError, match="A dict is not a fit of PyStan"):
        from_pystan({}, y=y)


def test_unknown_snippet():
    with pytest.raises(UnknownNameError, match="Did you mean 'gamma'"):
        stan_code("gama")


# PyStan


def pystan_fit(variables, save_warmup=0):
    """What PyStan makes of the messages that Stan sends."""
    stan = pytest.importorskip("stan")
    chains, total = next(iter(variables.values())).shape[:2]
    dims = [list(values.shape[2:]) for values in variables.values()]
    columns = {}
    for name, values in variables.items():
        for index in np.ndindex(*values.shape[2:][::-1]):
            label = ".".join([name, *(str(i + 1) for i in index[::-1])])
            columns[label] = values[(slice(None), slice(None), *index[::-1])]
    outputs = []
    for chain in range(chains):
        rows = [
            {"lp__": -1.0} | {name: float(values[chain, s]) for name, values in columns.items()}
            for s in range(total)
        ]
        messages = [json.dumps({"topic": "sample", "values": row}) for row in rows]
        outputs.append("\n".join(messages).encode())
    return stan.fit.Fit(
        tuple(outputs),
        chains,
        tuple(variables),
        tuple(columns),
        tuple(dims),
        save_warmup,
        total - save_warmup,
        1,
        save_warmup > 0,
    )


@pytest.mark.parametrize("warmup", [0, 7])
def test_pystan_chains_draws_and_matrices_are_in_order(rng, y, warmup):
    draws = {
        "mu": rng.normal(size=(3, 20, N)),
        "sigma": rng.gamma(9, 1, size=(3, 20)),
        "nu": rng.gamma(9, 1, size=(3, 20, N, 2)),
    }
    fit = pystan_fit(draws, save_warmup=warmup)
    model = from_pystan(
        fit, y=y, family="student_t", mu="mu", sigma="sigma", nu=lambda v: v["nu"][..., 1]
    )
    kept = {name: values[:, warmup:] for name, values in draws.items()}
    reference = lq.from_family(
        "student_t", y=y, mu=kept["mu"], sigma=kept["sigma"], nu=kept["nu"][..., 1]
    )
    assert_same(model, reference)


#: The parameters of each snippet, as the program below has them.
PROGRAM_PARAMETERS = {
    "normal": {"mu": "mu", "sigma": "sigma"},
    "normal of log y": {"mu": "mu", "sigma": "sigma"},
    "normal of logit y": {"mu": "mu", "sigma": "sigma"},
    "student_t": {"mu": "mu", "sigma": "sigma", "nu": "nu"},
    "lognormal": {"mu": "mu", "sigma": "sigma"},
    "gamma": {"alpha": "alpha_shape", "beta": "beta"},
    "logistic": {"mu": "mu", "s": "s"},
    "beta": {"alpha": "alpha", "beta": "beta"},
}


def program():
    """One Stan program with the generated quantities of every snippet."""
    blocks = []
    for k, snippet in enumerate(SNIPPETS.values()):
        for name in ("log_lik", "grad_y", "curv_y"):
            snippet = snippet.replace(name, f"{name}_{k}")
        blocks.append(f"for (i in 1:N) {{{snippet}}}")
    blocks[list(SNIPPETS).index("gamma")] = blocks[list(SNIPPETS).index("gamma")].replace(
        "alpha", "alpha_shape"
    )
    declared = "\n".join(
        f"vector[N] {name}_{k};"
        for k in range(len(SNIPPETS))
        for name in ("log_lik", "grad_y", "curv_y")
    )
    return f"""
    data {{ int N; vector[N] x; vector<lower=0, upper=1>[N] y; }}
    parameters {{ real a; real<lower=0> sigma; real<lower=1> nu; real<lower=0> s;
                  real<lower=1> alpha_shape; }}
    transformed parameters {{
      vector[N] mu = a * x;
      vector[N] alpha = 2 + exp(a * x);
      vector[N] beta = 2 + exp(-a * x);
    }}
    model {{ y ~ normal(mu, sigma); a ~ normal(0, 1); sigma ~ gamma(2, 2); nu ~ gamma(2, .2);
             s ~ gamma(2, 2); alpha_shape ~ gamma(4, 1); }}
    generated quantities {{ {declared} {" ".join(blocks)} }}
    """


@pytest.mark.filterwarnings("ignore")
def test_stan_itself_agrees_with_the_closed_forms():
    """Compiles a program and samples from it, about a minute the first time."""
    stan = pytest.importorskip("stan")
    y, x = np.array([0.1, 0.4, 0.7, 0.9]), np.array([-1.0, 0.0, 0.5, 2.0])
    posterior = stan.build(program(), data={"N": 4, "x": x, "y": y}, random_seed=1)
    fit = posterior.sample(num_chains=2, num_warmup=100, num_samples=50)
    for k, name in enumerate(SNIPPETS):
        family, *transform = name.removesuffix(" y").split(" of ")
        names = {"log_lik": f"log_lik_{k}", "grad": f"grad_y_{k}", "curv": f"curv_y_{k}"}
        reference = from_pystan(
            fit,
            y=y,
            family=family,
            transform=transform[0] if transform else None,
            log_lik=names["log_lik"],
            **PROGRAM_PARAMETERS[name],
        )
        assert_same(from_pystan(fit, y=y, **names), reference, rtol=1e-8)
