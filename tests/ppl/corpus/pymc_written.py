"""Likelihoods written by hand, and models that are made of something else than densities."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(9)
N = 6
X = RNG.normal(size=N)
Y = 0.5 * X + 0.5 * RNG.normal(size=N)
POSITIVE = np.exp(Y)


@CORPUS.case("written by hand", "CustomDist with a logp", quick=True)
def custom_logp():
    import pymc as pm
    import pytensor.tensor as pt

    def logp(y, mu, s):  # hyperbolic secant
        z = (y - mu) / s
        return -pt.log(pt.cosh(np.pi * z / 2)) - pt.log(2 * s)

    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1.0)
        pm.CustomDist("y", mu + X, s, logp=logp, observed=Y)
    return model


@CORPUS.case("written by hand", "CustomDist whose logp is one sum")
def custom_sum():
    import pymc as pm
    import pytensor.tensor as pt

    def logp(y, mu, s):
        return pt.sum(pm.logp(pm.Normal.dist(mu, s), y))

    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1.0)
        pm.CustomDist("y", mu, s, logp=logp, observed=Y)
    return model


@CORPUS.case("written by hand", "CustomDist from a random graph: shifted log-normal times")
def custom_dist():
    import pymc as pm

    def shifted(mu, sigma, size):
        return 0.1 + pm.LogNormal.dist(mu, sigma, size=size)

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        pm.CustomDist("y", mu + 0.3 * X, sigma, dist=shifted, observed=POSITIVE)
    return model


@CORPUS.case("written by hand", "CustomDist from a random graph: the exponential of a normal")
def custom_transform():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        pm.CustomDist(
            "y",
            mu,
            sigma,
            dist=lambda mu, sigma, size: pt.exp(pm.Normal.dist(mu, sigma, size=size)),
            observed=POSITIVE,
        )
    return model


@CORPUS.case("written by hand", "outliers written as a CustomDist of two log densities")
def custom_mixture():
    import pymc as pm
    import pytensor.tensor as pt

    def logp(y, mu, share):
        inside = pm.logp(pm.Normal.dist(mu, 0.5), y)
        outside = pm.logp(pm.Normal.dist(mu, 3.0), y)
        return pt.logaddexp(pt.log1p(-share) + inside, pt.log(share) + outside)

    with pm.Model() as model:
        mu, share = pm.Normal("mu", 0, 1), pm.Beta("share", 2, 8)
        pm.CustomDist("y", mu + X, share, logp=logp, observed=Y)
    return model


@CORPUS.case(
    "written by hand",
    "a likelihood whose code PyTensor cannot look into",
    goes_in="log",
    reason="its derivatives are not known to PyTensor",
    says="not known to the library",
)
def black_box():
    import pymc as pm
    import pytensor.tensor as pt
    from pytensor.graph.op import Apply, Op
    from scipy import stats

    class LogDensity(Op):
        def make_node(self, y, mu, s):
            inputs = [pt.as_tensor(value) for value in (y, mu, s)]
            return Apply(self, inputs, [pt.dvector()])

        def perform(self, node, inputs, outputs):
            y, mu, s = inputs
            outputs[0][0] = np.asarray(stats.t.logpdf(y, 4, mu, s))

    density = LogDensity()
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1.0)
        pm.CustomDist("y", mu, s, logp=density, observed=Y)
    return model


@CORPUS.case("written by hand", "an outcome that the model uses again in a Deterministic")
def deterministic_of_outcome():
    import pymc as pm

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        y = pm.Normal("y", mu, sigma, observed=Y)
        pm.Deterministic("residual", y - mu)
    return model


@CORPUS.case("written by hand", "a soft constraint on parameters as a Potential")
def soft_constraint():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Potential("sum_to_zero", -0.5 * (beta.sum() / 0.01) ** 2)
        pm.Normal("y", beta[np.arange(N) % 3], pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case(
    "written by hand",
    "a likelihood that is a Potential",
    goes_in="no",
    reason="a potential does not tell which of its numbers were observed",
    says="no observed variable",
)
def likelihood_as_potential():
    import pymc as pm

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(mu, sigma), Y).sum())
    return model


@CORPUS.case(
    "written by hand",
    "a Potential of the outcome beside its likelihood",
    goes_in="no",
    reason="the density of an outcome is not that of the variable alone",
    says="involves the outcome",
)
def potential_of_outcome():
    import pymc as pm

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        y = pm.Normal("y", mu, sigma, observed=Y)
        pm.Potential("weights", -0.1 * ((y - mu) ** 2).sum())
    return model


@CORPUS.case(
    "written by hand",
    "minibatches",
    goes_in="no",
    reason="the model sees some of the observations only",
    says="minibatches",
)
def minibatches():
    import pymc as pm

    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=3)
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", mu + x, sigma, observed=y, total_size=N)
    return model


@CORPUS.case(
    "written by hand",
    "a simulator, approximate Bayesian computation",
    goes_in="no",
    reason="it has no density",
    says="has no density",
)
def simulator():
    import pymc as pm

    def simulate(rng, mu, size=None):
        return rng.normal(mu, 1.0, size=N)

    with pm.Model() as model:
        pm.Simulator("y", simulate, params=(pm.Normal("mu", 0, 1),), epsilon=1, observed=Y)
    return model


@CORPUS.case(
    "written by hand",
    "one number",
    goes_in="no",
    reason="one observation: there is nothing to leave out",
    says="single number",
)
def one_number():
    import pymc as pm

    with pm.Model() as model:
        pm.Binomial("y", n=9, p=pm.Beta("p", 2, 2), observed=6)
    return model


@CORPUS.case(
    "written by hand",
    "tables as outcomes, matrix normal",
    goes_in="no",
    reason="all outcomes have one joint density",
    says="one joint density",
)
def matrix_normal():
    import pymc as pm

    table = RNG.normal(size=(3, 2))
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=(3, 2))
        pm.MatrixNormal("y", mu=mu, rowcov=np.eye(3), colcov=np.eye(2), observed=table)
    return model


@CORPUS.case("written by hand", "a support that ends at a parameter, where its density vanishes")
def parameter_as_bound():
    return _shifted_gamma(3.0)


@CORPUS.case(
    "written by hand",
    "a support that ends at a parameter, where its density jumps",
    goes_in="log",
    reason="where its support ends, and its density does not vanish, depends on a parameter",
    says="depends on its parameters",
)
def jump_at_a_parameter():
    return _shifted_gamma(1.0)


def _shifted_gamma(shape):
    import pymc as pm

    with pm.Model() as model:
        shift = pm.Uniform("shift", 0, 0.9 * POSITIVE.min())
        pm.CustomDist(
            "y",
            shift,
            dist=lambda shift, size: shift + pm.Gamma.dist(shape, 2.0, size=size),
            observed=POSITIVE,
        )
    return model


@CORPUS.case(
    "written by hand",
    "an operation of one's own that fails",
    goes_in="no",
    reason="the density cannot be evaluated; the message has the library's own words",
    says="the licence has run out",
)
def failing_operation():
    import pymc as pm
    import pytensor.tensor as pt
    from pytensor.graph.basic import Apply
    from pytensor.graph.op import Op

    class Licensed(Op):
        def make_node(self, y, mu):
            return Apply(self, [pt.as_tensor(y), pt.as_tensor(mu)], [pt.as_tensor(y).type()])

        def perform(self, node, inputs, outputs):
            raise OSError("the licence has run out")

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("mu"), logp=Licensed(), observed=POSITIVE)
    return model


@CORPUS.case("written by hand", "a model with a name, and one within it")
def models_with_names():
    import pymc as pm

    with pm.Model(name="outer") as model:
        with pm.Model(name="inner"):
            scale = pm.HalfNormal("scale", 1.0)
        pm.LogNormal("y", pm.Normal("mu"), scale + 0.1, observed=pm.Data("seen", POSITIVE))
    return model
