"""Models written in NumPyro."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import LockquackError, ShapeError, UnsupportedError, in_brief
from lockquack.families import Edge, find_family
from lockquack.jets import Numeric
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import require_inside
from lockquack.models.source import Source
from lockquack.models.transformed import on_natural_scale
from lockquack.sources.density import described
from lockquack.sources.jax import sample_shape
from lockquack.sources.jax_evaluation import Evaluator, JaxSource
from lockquack.sources.jax_precision import own_arrays
from lockquack.sources.jax_sampling import Sampler
from lockquack.sources.libraries import library
from lockquack.sources.numpyro_densities import OutcomeDensity
from lockquack.sources.numpyro_dependence import find_coupling
from lockquack.sources.numpyro_entries import Entries
from lockquack.sources.numpyro_new_data import (
    arguments_of,
    does_not_run,
    name_of,
    require_arguments,
    require_draws,
    require_same_length,
    require_seen_groups,
)
from lockquack.sources.numpyro_outcomes import (
    Outcome,
    Part,
    case_weights,
    is_same,
    observations,
    read_outcome,
    require_same,
)
from lockquack.sources.numpyro_samples import (
    Draws,
    float64,
    read_divergences,
    read_log_likelihood,
    read_samples,
)
from lockquack.sources.numpyro_sites import Draw, Program, Site, find_sites, look

_BOUNDED_VECTOR = "the components of its outcomes are bounded, and its density may not vanish there"
_WITH_ATOMS = ("Censored", "Hurdle", "Delta")


@own_arithmetic
def from_numpyro(
    model: Program,
    samples: Any,
    *,
    model_kwargs: Mapping[str, Any] | None = None,
    site: str | Sequence[str] | None = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    r"""Take a model from a NumPyro model and draws from its posterior.

    .. math:: \log f(y_i \mid \theta_s), \quad \partial_y \log f(y_i \mid \theta_s), \quad
        \partial_y^2 \log f(y_i \mid \theta_s)

    The model is run with each draw θ in place of its latent sites, and the distribution of its
    observed site is evaluated and differentiated by JAX, in float64 whatever the session's
    setting, which is left as it was. Draws of ``deterministic`` sites are not used: they are
    computed anew. Entries that are masked are left out of the observations.

    Do not trust it where the model's likelihood is not in its observed sites, as with
    ``numpyro.factor``: use :func:`from_jax` there. Subsampled plates, sites that are scaled as a
    whole and sites whose event is a whole series are refused. Discrete sites give log densities
    only.

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
    transform
        ``"log"`` or another name of :func:`from_family` if the values of the site are that
        function of the outcome, as in ``obs=jnp.log(y)``; see :func:`from_pymc`.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`. None:
        those of ``handlers.scale``, where it scales observations differently.

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
    library("numpyro", "numpyro")
    kwargs = float64(model_kwargs or {})
    model = own_arrays(model)
    draws, sites = read_samples(model, samples, kwargs)
    chosen = find_sites(sites, site)
    outcome = read_outcome(chosen)
    fitted = _Fitted(model, draws, tuple(each.name for each in chosen), _holding(kwargs, outcome))
    stored = read_log_likelihood(samples, chosen[0].name) if len(chosen) == 1 else None
    source = fitted.source(kwargs, chosen, outcome, stored=stored)
    source = replace(source, divergent=read_divergences(samples))
    if len(chosen) == 1:
        source = source.named(chosen[0].name)
    weights = case_weights(chosen, outcome) if weights is None else weights
    return Model(on_natural_scale(source, transform)).with_weights(weights)


def _holding(kwargs: Mapping[str, Any], outcome: Outcome) -> dict[str, Part | None]:
    """Find the arguments that hold the outcomes: all of them, or those of one site."""
    parts = [None, *(outcome.parts if len(outcome.parts) > 1 else ())]
    whole = outcome.rows.reshape(*outcome.grid, *outcome.rows.shape[1:])
    values = [whole if part is None else outcome.at_site(part, outcome.rows) for part in parts]
    return {
        name: part
        for name, given in kwargs.items()
        for part, y in zip(parts, values, strict=True)
        if is_same(given, y)
    }


@dataclass(frozen=True)
class _Fitted:
    """A model and its posterior, at whatever observations."""

    model: Program
    draws: Draws  # of the latent sites, (chain, draw, ...)
    sites: tuple[str, ...]
    #: Arguments that hold the outcomes, all (None) or those of one site.
    arguments: Mapping[str, Part | None]
    #: Arguments that hold them among others; None: not known yet.
    places: frozenset[str] | None = None

    def draw(self, chain: int, draw: int) -> Draw:
        return {name: draws[chain, draw] for name, draws in self.draws.items()}

    def rebuild(
        self, kwargs: Mapping[str, Any], n: int, y: Any, changed: Mapping[str, Any]
    ) -> Source:
        """Predict other outcomes: changed arguments replace the old ones of n observations."""
        require_arguments(self.model, changed)
        values = np.asarray(y)
        require_same_length(self.model, values, changed, kwargs, n)
        outcomes = {
            name: values if part is None or part.columns is None else _column(values, part)
            for name, part in self.arguments.items()
        }
        both = {**kwargs, **float64(outcomes | dict(changed))}
        first = self.draw(0, 0)
        try:
            found = look(self.model, first, both)
        except Exception as error:
            raise does_not_run(
                self.model, error, values, {**outcomes, **changed}, kwargs, n
            ) from error
        require_draws(self.model, found, first)
        missing = [name for name in self.sites if name not in found]
        if missing:
            raise UnsupportedError(
                f"With the arguments {list(changed)} changed the model {name_of(self.model)!r} has "
                f"no site {missing[0]!r}."
            )
        require_seen_groups(self.model, first, kwargs, both, list(changed))
        sites = tuple(found[name] for name in self.sites)
        try:
            outcome = read_outcome(sites, values)
        except ShapeError as error:
            raise does_not_run(
                self.model, error, values, {**outcomes, **changed}, kwargs, n
            ) from error
        return self.source(both, sites, outcome, y)

    def source(
        self,
        kwargs: Mapping[str, Any],
        sites: Sequence[Site],
        outcome: Outcome,
        y: Any = None,
        stored: Any = None,
    ) -> Source:
        """Make the source of the outcomes at some sites, labelled as ``y`` is."""
        first, last = self.draw(0, 0), self.draw(-1, -1)
        at_last = look(self.model, last, kwargs)
        require_same(outcome, read_outcome([at_last[site.name] for site in sites], y))
        entries = Entries(self.model, kwargs, outcome, self.places)
        fitted = self
        if self.places is None:
            entries = entries.told_from_covariates(first)
            known = entries.holders if entries.places is None else entries.places
            fitted = replace(self, places=known)
        density = _density(entries, first, last)
        n_chains, n_draws = sample_shape(self.draws)
        discrete = [site.discrete for site in sites]
        source = JaxSource(
            observations(y, outcome, sites),
            n_chains=n_chains,
            n_draws=n_draws,
            likelihood=Likelihood(
                _title(sites),
                discrete=all(discrete),
                given_earlier=density.coupling.earlier or density.coupling.lagged,
                not_scored=density.coupling.not_scored,
            ),
            evaluator=Evaluator(
                density.density, self.draws, outcome.d, repeats=density.allows_repeats
            ),
            rebuild=lambda y, changed: fitted.rebuild(kwargs, len(outcome.rows), y, changed),
            names=arguments_of(self.model),
            has_atoms=any(part.startswith(_WITH_ATOMS) for site in sites for part in site.parts)
            or any(discrete) != all(discrete),
            sampler=Sampler(density.random, self.draws, outcome.d),
            stored=stored if outcome.mask.all() else None,
        )
        return _described(source, sites, outcome)


def _density(entries: Entries, first: Draw, last: Draw) -> OutcomeDensity:
    """Make the density of the outcomes; what a distribution cannot do is said."""
    try:
        return OutcomeDensity(entries, find_coupling(entries, first)).tried([first, last])
    except LockquackError:
        raise
    except Exception as error:
        sites = ", ".join(repr(part.site) for part in entries.outcome.parts[:3])
        raise LockquackError(
            f"The log density at the site {sites} of the model {name_of(entries.model)!r} cannot "
            f"be computed: {in_brief(error)}"
        ) from error


def _column(y: Numeric, part: Part) -> Numeric:
    """Take the components of a site out of all."""
    own = y[..., part.columns]
    return own if part.event_shape else own[..., 0]


def _title(sites: Sequence[Site]) -> str:
    """Name the likelihood after those of the sites."""
    return " and ".join(dict.fromkeys(site.likelihood for site in sites))


def _described(source: JaxSource, sites: Sequence[Site], outcome: Outcome) -> JaxSource:
    """Say where the density ends, and what is wrong with it."""
    alike = len({site.likelihood for site in sites}) == 1
    if alike or outcome.beside:
        name, parts = source.likelihood.description, sites[0].parts
    else:  # edges are those of all; what is wrong with one is wrong with the whole
        name, parts = "Mixture", tuple(part for site in sites for part in site.parts)
    for family in filter(None, map(find_family, parts)):
        if family.slack and outcome.d is None:
            values, advice = source.observations.values, family.outside_advice
            require_inside(name, values, family.outcomes, source.observations, advice)
    source = described(source, name, parts)
    likelihood = replace(source.likelihood, description=_title(sites))
    counts = [site.name for site in sites if site.discrete]
    if counts and len(counts) < len(sites):
        why = f"its outcomes at the site {counts[0]!r} are discrete"
        likelihood = replace(likelihood, discrete=False, edges=(), not_smooth=why)
    elif outcome.d is not None and not counts and not all(s.without_edges for s in sites):
        likelihood = replace(likelihood, not_smooth=likelihood.not_smooth or _BOUNDED_VECTOR)
    elif counts and outcome.d is None:
        # By name alone, NumPyro's geometric would begin at 1, where others do.
        ends = [site.ends for site in sites if site.ends is not None]
        low, high = (min(e[0] for e in ends), max(e[1] for e in ends)) if ends else (0.0, 0.0)
        edges = (Edge(low, 0.0), Edge(high, 0.0)) if len(ends) == len(sites) else ()
        likelihood = replace(likelihood, edges=edges)
    return replace(source, likelihood=likelihood)
