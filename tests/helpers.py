"""What several test files need."""

from __future__ import annotations

import re
import warnings

import numpy as np

import lockquack as lq
from lockquack.errors import LockquackWarning
from lockquack.families import Mixture, get_family
from lockquack.fitting.densities import Densities
from lockquack.fitting.fitters import fitter_for
from lockquack.fitting.objective import Objective
from lockquack.jets import Jet
from lockquack.models.model import sources_of
from lockquack.operators.pool import Pool
from lockquack.prediction.distribution import KeptDistribution, distribution_of
from lockquack.prediction.nodes import refine_nodes
from lockquack.prediction.pooled import GroupDistribution
from lockquack.prediction.vectors import ModelTarget
from lockquack.quadrature.nodes import Nodes
from lockquack.rules.wishes import DISTRIBUTION, INTEGRAL, NEIGHBOURS


def lock(models, **options):
    """Lock without the warnings that are not what a test is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return lq.lock(models, **options)


def shown(fit):
    """What a fit prints, without what it says of log scores that it may yet find; a file cannot."""
    return re.sub(r"^elpd.*(\n  .*)*\n?", "", str(fit), flags=re.MULTILINE).rstrip()


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


def pooled_distribution(models, operator, x, **options):
    """Make a pool of models a distribution."""
    pool = Pool(operator, np.asarray(x), len(models))
    return distribution_of(sources_of(models), pool, **options)


def with_pool(pooled, pool):
    """Make another pool of the same models a distribution, on the same nodes and some more."""
    kept = [each.group for each in pooled.groups]
    groups = refine_nodes(kept, pooled.models, pool, loo=pooled.loo)
    sources = tuple(pooled.models.values())
    each = [GroupDistribution(sources, pool.at(part.obs), pooled.loo, part) for part in groups]
    return KeptDistribution(pooled.models, pool, pooled.loo, each)


def normalise(models, operator, x, *, loo):
    """Normalise a pool of models at each observation and evaluate it there."""
    pooled = pooled_distribution(models, operator, x, loo=loo)
    return pooled.at_observed()


def model_target(models, operator, x, observation, *, loo):
    """Make a pool of models at one observation a target of samplers."""
    pool = Pool(operator, np.asarray(x), len(models))
    return ModelTarget(sources_of(models), pool, observation, loo=loo)


def densities_of(jets, nodes=(), beside=None, curves=()):
    """Put together what rules want to know of models."""
    tables = {INTEGRAL: tuple(nodes)} if nodes else {}
    if beside is not None:
        tables[NEIGHBOURS] = (Nodes(beside, np.zeros(beside.shape[1:])),)
    if curves:
        tables[DISTRIBUTION] = tuple(curves)
    return Densities(jets, tables)


def beside_of(densities):
    """Log densities of the models at the neighbours of the outcomes, or None."""
    return densities.tables[NEIGHBOURS][0].logp if NEIGHBOURS in densities.tables else None


def pose_pair(operator, rule, densities, concentration, **options):
    """Set up how an operator is fitted by a rule."""
    objective = Objective(operator, rule, densities, concentration)
    return fitter_for(operator, rule)(objective, **options)


def unheard(models):
    """Return the same models as if nothing had been remarked on them yet."""
    return {name: lq.Model(model.source) for name, model in models.items()}


def mixture(names):
    """The mixture of families by name."""
    return Mixture([get_family(name) for name in names])


def changed(transform, y, jet, *, multivariate=False):
    """A jet of t(y), brought to y."""
    logp = transform.logp(y, jet.logp, multivariate=multivariate)
    cells = y if multivariate else np.asarray(y)[..., None]
    return Jet(logp, *transform.derivatives(cells, jet.grad, jet.curv))
