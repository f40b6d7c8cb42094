"""Locking and mixing by sums: for observations that come in parts, or are too many to hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from lockquack.arithmetic import methods_in_own_arithmetic, own_arithmetic
from lockquack.checks.models import kind_of_scores, suited_rule
from lockquack.combination.sums import Running
from lockquack.draws.blocks import Kind
from lockquack.errors import UnsupportedError
from lockquack.fitting.sums import QuadraticSums
from lockquack.methods.fit import read_concentration, require_seed
from lockquack.methods.gather import unit_of
from lockquack.methods.method import METHODS
from lockquack.methods.summing import distances_of, sum_averages, sum_distances, sum_up
from lockquack.models.model import Model, sources_of
from lockquack.operators import Linear, Locking
from lockquack.rules import CRPS, Hyvarinen
from lockquack.sources.reading import as_models

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

R = TypeVar("R", bound=Running)


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class RunningLock(Running):
    r"""Locking weights by the Hyvärinen score, from sums over the observations.

    The score of a log-linear pool is linear in :math:`G_i G_i'` and :math:`C_i`, the products of
    the models' gradients and their curvatures at an observation. Their sums are all that is held:
    it does not grow with the observations, new ones are added exactly, and parts of the data that
    were summed in different places are added with ``+``. It never changes: :meth:`update`
    returns another.

    Nothing is kept of single observations, so that there is no :attr:`Combination.pointwise`,
    ``influence`` or ``loo`` prediction; use :func:`lock` for these. Weights are the same.

    Made by :func:`running_lock`, or by :meth:`Combination.update`.

    Attributes
    ----------
    names
        The models' names.
    rule
        The Hyvärinen score, in the coordinates that it takes.
    scores
        Which predictions are scored: leave-one-out, in-sample, or held-out.
    sums
        The sums.
    concentration
        The prior's, for each model.

    Examples
    --------
    >>> import lockquack as lq
    >>> whole = lq.lock(lq.example_models())
    >>> running = lq.running_lock(lq.example_models())
    >>> bool(abs(running.weights - whole.weights).max() < 1e-12)
    True
    >>> twice = running.update(lq.example_models())
    >>> twice.n_obs, (running + running).n_obs
    (80, 80)
    """

    operator = Locking()
    label = "lock"
    scored_by = Hyvarinen
    summed_by = staticmethod(sum_up)

    @staticmethod
    @override
    def sums_behind(fit: Combination) -> QuadraticSums:
        return sum_averages(fit._require_models(), fit.rule, fit.scores)


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class RunningStack(Running):
    r"""Weights of a mixture by CRPS, from sums over the observations.

    CRPS of a mixture is :math:`w'Q_iw`, so :math:`\sum_i Q_i` is all that is held. New observations
    are added exactly, by :meth:`update`, and parts of the data that were summed in different
    places with ``+``. Made by :func:`running_stack`; for all that is known of single
    observations, use :func:`combine`.

    Attributes
    ----------
    names, scores, sums, concentration
        As for :class:`RunningLock`.
    rule
        The :class:`CRPS`.

    Examples
    --------
    >>> import lockquack as lq
    >>> whole = lq.combine(lq.example_models(), lq.Linear(), lq.CRPS())
    >>> running = lq.running_stack(lq.example_models())
    >>> bool(abs(running.weights - whole.weights).max() < 1e-9)
    True
    """

    operator = Linear()
    label = "stack by CRPS"
    scored_by = CRPS
    summed_by = staticmethod(sum_distances)

    @staticmethod
    @override
    def sums_behind(fit: Combination) -> QuadraticSums:
        unit = float(unit_of(fit.rule, fit.observations)[0])
        return distances_of(fit.objective.densities, fit.observations, unit)


@own_arithmetic
def running_lock(
    models: Mapping[str, Any],
    *,
    rule: Hyvarinen | None = None,
    prior: Any = None,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> RunningLock:
    """Combine models by log-linear pooling, holding sums over the observations only.

    The weights are those of :func:`lock`. Use it for observations that come in parts, or that are
    so many that 16 bytes for each and every model do not fit into memory: groups of observations
    are read one after the other, on threads or by the workers of a dask cluster, and only
    K × K sums come back.

    Standard errors and intervals of the weights are those of the Bayesian bootstrap in the limit
    of many observations, where its sums are normal.

    Parameters
    ----------
    models
        Name → model, as for :func:`lock`.
    rule
        A :class:`Hyvarinen` score; by default in the coordinates that the supports of the models
        ask for.
    prior
        Concentration of the Dirichlet prior on the weights, as for :func:`lock`.
    scores
        ``"loo"``, ``"in-sample"`` or ``"held-out"``.
    random_seed
        Seed of the bootstrap behind the standard errors.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    RunningLock
        The weights, their uncertainty and the scores; more observations can be added.

    Examples
    --------
    Ten parts of a stream, one after the other:

    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> mu = rng.normal(1.0, 0.1, size=(4, 100))
    >>> def models(y):
    ...     return {
    ...         "narrow": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
    ...         "wide": lq.from_family("normal", y=y, mu=mu, sigma=3.0),
    ...     }
    >>> fit = lq.running_lock(models(rng.normal(1.0, 1.5, size=100)))
    >>> for _ in range(9):
    ...     fit = fit.update(models(rng.normal(1.0, 1.5, size=100)))
    >>> fit.n_obs, fit.weights.round(1).to_series().to_dict()
    (1000, {'narrow': 0.3, 'wide': 0.7})
    """
    rule = Hyvarinen() if rule is None else rule
    if not isinstance(rule, Hyvarinen):
        raise UnsupportedError(
            "Only locking by the Hyvärinen score can be fitted from sums over the observations; "
            f"got {rule!r}. Use running_stack for CRPS, lock or combine for other scores."
        )
    read = as_models(models)
    rule = suited_rule(rule, sources_of(read))
    return _begin(RunningLock, read, rule, prior, scores, random_seed, progressbar)


@own_arithmetic
def running_stack(
    models: Mapping[str, Any],
    *,
    rule: CRPS | None = None,
    prior: Any = None,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> RunningStack:
    """Mix models by CRPS, holding sums over the observations only.

    The weights are those of ``combine(models, Linear(), CRPS())``. Use it for forecasts that come
    in parts: each is added by :meth:`RunningStack.update`, and the past may be forgotten little by
    little. Standard errors are those of the Bayesian bootstrap in the limit of many observations.

    Parameters
    ----------
    models
        Name → model, as for :func:`combine`.
    rule
        The :class:`CRPS`, with another ``scale``.
    prior
        Concentration of the Dirichlet prior on the weights; by default flat.
    scores, random_seed, progressbar
        As for :func:`running_lock`.

    Returns
    -------
    RunningStack
        The weights, their uncertainty and the scores; more observations can be added.

    Examples
    --------
    >>> import lockquack as lq
    >>> running = lq.running_stack(lq.example_models())
    >>> running.update(lq.example_models(), forget=0.1).n_obs
    80
    """
    rule = CRPS() if rule is None else rule
    if type(rule) is not CRPS:
        raise UnsupportedError(
            f"Only mixtures by CRPS can be fitted from sums over the observations; got {rule!r}. "
            "Use running_lock for the Hyvärinen score, combine for others."
        )
    return _begin(RunningStack, as_models(models), rule, prior, scores, random_seed, progressbar)


def _begin(
    kind: type[R],
    models: Mapping[str, Model],
    rule: Any,
    prior: Any,
    scores: Kind,
    random_seed: int,
    progressbar: bool | None,
) -> R:
    """Sum over the first observations."""
    require_seed(random_seed)
    usual = METHODS[kind.label].concentration
    concentration = read_concentration(usual if prior is None else prior, tuple(models))
    scores = kind_of_scores(models, scores)
    sums = kind.sum_over(models, rule, scores, progressbar)
    return kind(tuple(models), rule, scores, sums, concentration, int(random_seed))


def update(
    self: Combination,
    models: Mapping[str, Any],
    *,
    forget: float = 0.0,
    progressbar: bool | None = None,
) -> Running:
    """Add observations without reading the old ones again.

    To a lock by the Hyvärinen score, or a mixture by CRPS: sums over the observations are enough
    for these.

    Parameters
    ----------
    models, forget, progressbar
        As for :meth:`RunningLock.update`.

    Returns
    -------
    RunningLock or RunningStack
        The weights of all observations together, from sums; it can be updated again.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> fit.update(lq.example_models()).n_obs
    80
    """
    return _summed(self).update(models, forget=forget, progressbar=progressbar)


def _summed(fit: Combination) -> Running:
    """Sum over the observations of a fit."""
    if fit.design is not None:
        raise UnsupportedError(
            f"The weights depend on {fit.design.title}, so sums over all observations are not "
            "enough. Fit all observations again, or combine without by=."
        )
    fit._require_models()
    for kind in (RunningLock, RunningStack):
        if kind.is_for(fit.rule, fit.operator):
            rest = fit.objective.concentration, fit.random_seed
            return kind(fit.names, fit.rule, fit.scores, kind.sums_behind(fit), *rest)
    raise UnsupportedError(
        "Only locking by the Hyvärinen score and mixing by CRPS can be updated, because sums over "
        f"the observations are enough for them; this is {fit.operator!r} by the "
        f"{fit.rule.label} score. Fit all observations again."
    )
