"""Models written in NumPyro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockquack.errors import LockquackError, UnsupportedError
from lockquack.jets import Numeric
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.source import Source
from lockquack.sources.density import described
from lockquack.sources.jax import sample_shape
from lockquack.sources.jax_evaluation import Evaluator, JaxSource
from lockquack.sources.jax_precision import own_arrays
from lockquack.sources.jax_sampling import Sampler
from lockquack.sources.numpyro_densities import SiteDistribution
from lockquack.sources.numpyro_outcomes import (
    changed,
    is_same,
    observations,
    read_outcome,
    require_same_mask,
)
from lockquack.sources.numpyro_samples import (
    Draws,
    float64,
    read_log_likelihood,
    read_samples,
    require_fitting,
)
from lockquack.sources.numpyro_sites import (
    Draw,
    Program,
    Site,
    find_site,
    has_others,
    look,
    others,
    run,
    unwrapped,
)

_BOUNDED_VECTOR = "the components of its outcomes are bounded, and its density may not vanish there"
_WITH_ATOMS = ("Censored", "Hurdle", "Delta")


def from_numpyro(
    model: Program,
    samples: Any,
    *,
    model_kwargs: Mapping[str, Any] | None = None,
    site: str | None = None,
) -> Model:
    r"""Take a model from a NumPyro model and draws from its posterior.

    .. math:: \log f(y_i \mid \theta_s), \quad \partial_y \log f(y_i \mid \theta_s), \quad
        \partial_y^2 \log f(y_i \mid \theta_s)

    The model is run with each draw θ in place of its latent sites, and the distribution of its
    observed site is evaluated and differentiated by JAX, in float64 whatever the session's
    setting, which is left as it was. Draws of ``deterministic`` sites are not used: they are
    computed anew. Entries that are masked are left out of the observations.

    Do not trust it where the model's likelihood is not in its observed sites, as with
    ``numpyro.factor``: use :func:`from_jax` there. Subsampled plates, scaled sites and sites whose
    event is a whole series are refused. Discrete sites give log densities only.

    Parameters
    ----------
    model
        The model that was fitted, with the handlers it was fitted under.
    samples
        The ``MCMC`` object; or a dict of draws, ``mcmc.get_samples(group_by_chain=True)``, or
        one without chains, as variational inference gives; or an ArviZ container with a
        posterior.
    model_kwargs
        All arguments of the model by name, the outcomes among them.
    site
        The observed site, if there are several.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives. Its method
        ``with_data(y, **model_kwargs)`` gives the same posterior's predictions of other outcomes:
        the arguments that are given replace the old ones, and an argument that held the old
        outcomes holds the new ones.

    Examples
    --------
    >>> import lockquack as lq
    >>> def regression(x, y=None):
    ...     slope = numpyro.sample("slope", dist.Normal(0, 1))
    ...     sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    ...     with numpyro.plate("obs", len(x)):
    ...         numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)
    >>> mcmc.run(key, x=x, y=y)  # doctest: +SKIP
    >>> lq.from_numpyro(regression, mcmc, model_kwargs={"x": x, "y": y})  # doctest: +SKIP
    <Model Normal; chain: 4, draw: 1000, obs_id: 50, components: 1>
    """
    kwargs = float64(model_kwargs or {})
    model = own_arrays(model)
    draws, sites = read_samples(model, samples, kwargs)
    chosen = find_site(sites, site)
    y = np.asarray(chosen.value)
    arguments = tuple(key for key, value in kwargs.items() if is_same(value, y))
    fitted = _Fitted(model, draws, chosen.name, arguments)
    _require_alone(fitted, kwargs, y)
    stored = read_log_likelihood(samples, chosen.name)
    return Model(_build(fitted, kwargs, chosen, y, stored=stored))


@dataclass(frozen=True)
class _Fitted:
    """A model and its posterior, at whatever observations."""

    model: Program
    draws: Draws  # of the latent sites, (chain, draw, ...)
    site: str
    arguments: tuple[str, ...]  # those that hold the outcomes

    def draw(self, chain: int, draw: int) -> Draw:
        return {name: draws[chain, draw] for name, draws in self.draws.items()}

    def elsewhere(self, kwargs: Mapping[str, Any], y: Any, changed: Mapping[str, Any]) -> Source:
        """Predict other outcomes: changed arguments replace the old ones."""
        both = {**kwargs, **float64(dict.fromkeys(self.arguments, np.asarray(y)) | dict(changed))}
        try:
            sites = look(self.model, self.draw(0, 0), both)
        except Exception as error:
            raise LockquackError(
                f"The model does not run with the arguments {list(changed)} changed: {error}. "
                "Change all arguments that belong to the new outcomes. Where each observation, or "
                "each new group, has a latent value of its own, there are no draws of it."
            ) from error
        require_fitting(sites, self.draw(0, 0))
        if self.site not in sites:
            raise UnsupportedError(
                f"With the arguments {list(changed)} changed the model has no site {self.site!r}."
            )
        return _build(self, both, sites[self.site], y)


def _require_alone(fitted: _Fitted, kwargs: Mapping[str, Any], y: Numeric) -> None:
    """Refuse a model in which a factor, or the distribution of another outcome, depends on y."""
    draw = fitted.draw(0, 0)
    if not fitted.arguments or not has_others(fitted.model, draw, kwargs, fitted.site):
        return
    moved = {**kwargs, **dict.fromkeys(fitted.arguments, changed(y))}
    before, after = (others(run(fitted.model, draw, each), fitted.site) for each in (kwargs, moved))
    for name, numbers in before.items():
        if not all(map(np.array_equal, numbers, after.get(name, ()))):
            raise UnsupportedError(
                f"{name!r} depends on the outcomes at the site {fitted.site!r}, so the density of "
                "an outcome is not that of this site alone. Write all that involves the outcome as "
                "one distribution, or use lq.from_jax."
            )


def _build(
    fitted: _Fitted, kwargs: Mapping[str, Any], site: Site, y: Any, stored: Any = None
) -> Source:
    outcome = read_outcome(site, np.asarray(y))
    if site.masks:
        last = look(fitted.model, fitted.draw(-1, -1), kwargs)[site.name]
        require_same_mask(outcome, read_outcome(last, outcome.values))

    def distribution(theta: Draw) -> Any:
        return unwrapped(run(fitted.model, theta, kwargs)[site.name]["fn"])

    of_site = SiteDistribution(distribution, outcome).tried(
        [fitted.draw(0, 0), fitted.draw(-1, -1)]
    )
    n_chains, n_draws = sample_shape(fitted.draws)
    source = JaxSource(
        observations(y, outcome, site),
        n_chains=n_chains,
        n_draws=n_draws,
        likelihood=Likelihood(site.likelihood, discrete=site.discrete),
        evaluator=Evaluator(of_site.density, fitted.draws, outcome.d),
        elsewhere=lambda y, changed: fitted.elsewhere(kwargs, y, changed),
        has_atoms=any(part.startswith(_WITH_ATOMS) for part in site.parts),
        sampler=Sampler(of_site.random, fitted.draws, outcome.d),
        stored=stored if outcome.mask.all() else None,
    )
    if outcome.d is None or site.discrete or site.real:
        return described(source, site.likelihood, site.parts)
    likelihood = Likelihood(site.likelihood, not_smooth=_BOUNDED_VECTOR)
    return replace(source, likelihood=likelihood)
