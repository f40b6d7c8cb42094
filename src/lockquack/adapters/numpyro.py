"""Models written in NumPyro."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lockquack.adapters.evaluable import described
from lockquack.adapters.jax import (
    Density,
    Evaluator,
    JaxPredictive,
    double_precision,
    own_arrays,
    read_draws,
    sample_shape,
)
from lockquack.adapters.parameters import samples_first
from lockquack.errors import LockquackError, ParameterError, ShapeError, UnsupportedError
from lockquack.jets import Numeric
from lockquack.observations import (
    COMPONENT_DIM,
    OBS_DIM,
    RESERVED_DIMS,
    Observations,
    as_observations,
)
from lockquack.predictive import Likelihood, Predictive

Model = Callable[..., Any]
#: Latent sites → their values in all draws, (chain, draw, ...), or in one.
Draws = Mapping[str, Numeric]
Draw = Mapping[str, Any]

#: Numbers that are worked on at once where all outcomes are evaluated for each one of them.
_AT_ONCE = 2**12


def from_numpyro(
    model: Model,
    samples: Any,
    *,
    model_kwargs: Mapping[str, Any] | None = None,
    site: str | None = None,
) -> Predictive:
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
    Predictive
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
    <JaxPredictive Normal; chain: 4, draw: 1000, obs_id: 50, components: 1>
    """
    kwargs = _float64(model_kwargs or {})
    model = own_arrays(model)
    draws, sites = _read_samples(model, samples, kwargs)
    chosen = _find_site(sites, site)
    y = np.asarray(chosen.value)
    arguments = tuple(key for key, value in kwargs.items() if _is_same(value, y))
    return _build(_Fitted(model, draws, chosen.name, arguments), kwargs, chosen, y)


@dataclass(frozen=True)
class _Fitted:
    """A model and its posterior, at whatever observations."""

    model: Model
    draws: Draws  # of the latent sites, (chain, draw, ...)
    site: str
    arguments: tuple[str, ...]  # those that hold the outcomes

    def draw(self, chain: int, draw: int) -> Draw:
        return {name: draws[chain, draw] for name, draws in self.draws.items()}

    def elsewhere(
        self, kwargs: Mapping[str, Any], y: Any, changed: Mapping[str, Any]
    ) -> Predictive:
        """Predict other outcomes: changed arguments replace the old ones."""
        both = {**kwargs, **_float64(dict.fromkeys(self.arguments, np.asarray(y)) | dict(changed))}
        try:
            sites = _look(self.model, self.draw(0, 0), both)
        except Exception as error:
            raise LockquackError(
                f"The model does not run with the arguments {list(changed)} changed: {error}. "
                "Change all arguments that belong to the new outcomes. Where each observation, or "
                "each new group, has a latent value of its own, there are no draws of it."
            ) from error
        _require_fitting(sites, self.draw(0, 0))
        if self.site not in sites:
            raise UnsupportedError(
                f"With the arguments {list(changed)} changed the model has no site {self.site!r}."
            )
        return _build(self, both, sites[self.site], y)


def _build(fitted: _Fitted, kwargs: Mapping[str, Any], site: _Site, y: Any) -> Predictive:
    outcome = _read_outcome(site, np.asarray(y))
    if site.masks:
        last = _look(fitted.model, fitted.draw(-1, -1), kwargs)[site.name]
        _require_same_mask(outcome, _read_outcome(last, outcome.values))
    observations = _observations(y, outcome, site)

    def distribution(theta: Draw) -> Any:
        return _unwrapped(_run(fitted.model, theta, kwargs)[site.name]["fn"])

    n_chains, n_draws = sample_shape(fitted.draws)
    model = JaxPredictive(
        observations,
        n_chains=n_chains,
        n_draws=n_draws,
        likelihood=Likelihood(site.likelihood, discrete=site.discrete),
        evaluator=Evaluator(_density(distribution, fitted, outcome), fitted.draws, outcome.d),
        elsewhere=lambda y, changed: fitted.elsewhere(kwargs, y, changed),
        has_atoms=any(part.startswith(_WITH_ATOMS) for part in site.parts),
    )
    if outcome.d is None or site.discrete or site.real:
        return described(model, site.likelihood, site.parts)
    return model.with_likelihood(Likelihood(site.likelihood, not_smooth=_BOUNDED_VECTOR))


# Looking at the model


@dataclass(frozen=True)
class _Site:
    """What there is to know about a site before anything is computed."""

    name: str
    observed: bool
    value: Any
    #: Of one value; None where the model does not say.
    shape: tuple[int, ...] | None = None
    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()
    scale: Any = None
    masks: tuple[Any, ...] = ()
    #: Masks of components of an outcome.
    inner_masks: tuple[Any, ...] = ()
    plates: Mapping[int, str] = field(default_factory=dict)
    #: What to call its likelihood, and the names by which that is judged.
    likelihood: str = ""
    parts: tuple[str, ...] = ()
    discrete: bool = False
    #: Whether each component of an outcome may be any number.
    real: bool = False
    #: Whether its event was put together from independent numbers.
    independent: bool = False

    @classmethod
    def of(cls, name: str, site: Mapping[str, Any]) -> _Site:
        """Read a site of a trace."""
        from numpyro.distributions import Independent

        if site["type"] == "param":
            return cls(name, False, site["value"])
        fn = site["fn"]
        likelihood, parts = _names(fn)
        masks, inner = _masks(fn)
        return cls(
            name,
            site["is_observed"],
            site["value"],
            shape=site["kwargs"].get("sample_shape", ()) + fn.shape(),
            batch_shape=fn.batch_shape,
            event_shape=fn.event_shape,
            scale=site["scale"],
            masks=masks,
            inner_masks=inner,
            plates={frame.dim: frame.name for frame in site["cond_indep_stack"]},
            likelihood=likelihood,
            parts=parts,
            discrete=_is_discrete(fn),
            real=_is_real(fn),
            independent=isinstance(_unwrapped(fn), Independent),
        )

    @property
    def is_computed(self) -> bool:
        """Whether the outcomes, or which of them are observed, are results of computations."""
        from jax.core import Tracer

        known = (self.scale, *self.masks, *self.inner_masks, self.value if self.observed else None)
        return any(isinstance(part, Tracer) for part in known)


Sites = Mapping[str, _Site]


def _run(model: Model, draw: Draw, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Trace the model with one draw in place of its latent sites, in float64."""
    from numpyro import handlers

    with double_precision():
        substituted = handlers.substitute(handlers.seed(model, 0), data=dict(draw))
        return handlers.trace(substituted).get_trace(**kwargs)


def _look(model: Model, draw: Draw, kwargs: Mapping[str, Any]) -> Sites:
    """Find the sites of the model; nothing is computed unless the outcomes have to be."""
    import jax

    found: dict[str, _Site] = {}

    def run(draw: Draw) -> None:
        found.update(_sites(_run(model, draw, kwargs)))

    with double_precision():
        jax.eval_shape(run, dict(draw))
        if any(site.is_computed for site in found.values()):
            run(draw)
    return found


def _sites(trace: Mapping[str, Any]) -> dict[str, _Site]:
    """Read the sites that have values of their own; what is computed from them does not count."""
    from numpyro.distributions import Unit

    found = {}
    for name, site in trace.items():
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            size, subsample = site["args"]
            raise UnsupportedError(
                f"The plate {name!r} is subsampled, {subsample} of {size}. Give a model that sees "
                "all observations: the same one without subsample_size."
            )
        # What numpyro.factor makes is a site without a value.
        if site["type"] == "param" or (site["type"] == "sample" and type(site["fn"]) is not Unit):
            found[name] = _Site.of(name, site)
    return found


def _find_site(sites: Sites, wanted: str | None) -> _Site:
    observed = [name for name, site in sites.items() if site.observed]
    # An outcome with obs_mask= is split in two by NumPyro.
    for name in (wanted, f"{wanted}_observed"):
        if name in observed:
            return sites[str(name)]
    if wanted is None and len(observed) == 1:
        return sites[observed[0]]
    got = "" if wanted is None else f"; {wanted!r} is none of them"
    raise UnsupportedError(
        f"The model has the observed site(s) {', '.join(map(repr, observed))}{got}. Say which one "
        "is the outcome by site=."
    )


# Reading the posterior


def _float64(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Copy arrays, real ones in double: nothing that a model computes from them is single."""
    import jax

    def read(value: Any) -> Any:
        if not isinstance(value, np.ndarray | jax.Array):
            return value
        single = value.dtype.kind == "f" and value.dtype.itemsize < 8
        return value.astype(np.float64) if single else value

    with double_precision():
        return {name: jax.tree.map(read, own_arrays(value)) for name, value in kwargs.items()}


def _read_samples(model: Model, samples: Any, kwargs: Mapping[str, Any]) -> tuple[Draws, Sites]:
    """Return the draws of the latent sites, (chain, draw, ...), and all sites."""
    given, layouts = _as_dict(samples)
    problems = []
    for grouped in layouts:
        draws = {name: values if grouped else values[None] for name, values in given.items()}
        try:
            sites = _first_look(model, draws, kwargs)
        except Exception as error:
            problems.append(error)
            continue
        return read_draws({name: draws[name] for name in _latents(sites)}), sites
    problem = next((each for each in problems if isinstance(each, LockquackError)), problems[0])
    if isinstance(problem, LockquackError):
        raise problem
    shapes = ", ".join(f"{name}: {values.shape}" for name, values in given.items())
    raise LockquackError(
        f"The model does not run with these draws ({shapes}) and the arguments "
        f"{list(kwargs) or 'none'}: {problem}. Give all its arguments by model_kwargs=."
    ) from problem


def _first_look(model: Model, draws: Draws, kwargs: Mapping[str, Any]) -> Sites:
    first = {name: values[0, 0] for name, values in draws.items()}
    sites = _look(model, first, kwargs)
    if not any(site.observed for site in sites.values()):
        raise UnsupportedError(
            "The model has no observed site. Give its outcomes among model_kwargs=, such as "
            "model_kwargs={'x': x, 'y': y}; a likelihood written with numpyro.factor needs "
            "lq.from_jax, because it does not say what the outcomes are."
        )
    latents = _latents(sites)
    missing = [f"{name!r}" for name in latents if name not in first]
    if missing:
        raise ParameterError(
            f"The model has the latent site(s) {', '.join(missing)}, of which there are no draws; "
            f"there are draws of {', '.join(first) or 'nothing'}. Give the model as it was fitted, "
            "with its handlers. A discrete latent site that was summed out must be written as a "
            "mixture, MixtureSameFamily."
        )
    if not latents:
        raise ParameterError("The model has no latent sites, so there is nothing to average over.")
    first = {name: first[name] for name in latents}
    sites = _look(model, first, kwargs)
    _require_fitting(sites, first)
    return sites


def _latents(sites: Sites) -> list[str]:
    return [name for name, site in sites.items() if not site.observed]


def _require_fitting(sites: Sites, draw: Draw) -> None:
    """Refuse draws of another shape than the model's sites have."""
    for name, value in draw.items():
        shape = sites[name].shape if name in sites else None
        if shape is not None and shape != np.shape(value):
            raise ShapeError(
                f"A draw of the latent site {name!r} has shape {np.shape(value)}; with these "
                f"arguments the model needs {shape}. Draws must be (chain, draw, ...) or, without "
                "chains, (draw, ...), and of new groups there are none."
            )


def _as_dict(samples: Any) -> tuple[dict[str, Numeric], tuple[bool, ...]]:
    """Return the draws by site, and whether they may be grouped by chain, may be flat."""
    may_be_flat = isinstance(samples, dict)
    if hasattr(samples, "get_samples"):
        samples = samples.get_samples(group_by_chain=True)
    elif not may_be_flat:
        samples = _posterior(samples)
    draws = {str(name): np.asarray(values) for name, values in samples.items()}
    leading = {values.shape[:2] for values in draws.values()}
    if len(leading) == 1 and len(next(iter(leading))) == 2:
        return draws, (True, False) if may_be_flat else (True,)
    return draws, (False,)


def _posterior(samples: Any) -> Mapping[str, Any]:
    from arviz_base import convert_to_datatree

    if isinstance(samples, xr.Dataset):
        posterior = samples
    else:
        try:
            posterior = convert_to_datatree(samples)["posterior"].to_dataset()
        except (KeyError, TypeError, ValueError) as error:
            raise LockquackError(
                f"Cannot read draws from a {type(samples).__name__}; give the MCMC object, a dict "
                f"of draws by site, or an ArviZ container with a posterior. ({error})"
            ) from error
    return {str(name): samples_first(str(name), draws) for name, draws in posterior.items()}


# Reading the outcomes


@dataclass(frozen=True)
class _Outcome:
    """The outcomes at an observed site."""

    values: Numeric  # as the model has them
    grid: tuple[int, ...]  # the shape of the observations
    d: int | None  # components of one outcome, None: it is a scalar
    mask: NDArray[np.bool_]  # (grid), False: not observed
    dtype: Any  # in which the distribution takes them

    @property
    def kept(self) -> NDArray[np.intp]:
        """Positions of what is observed in the flattened grid."""
        return np.flatnonzero(self.mask)

    @property
    def rows(self) -> Numeric:
        """All outcomes, flattened: (n,) or (n, d)."""
        return self.values.reshape(-1) if self.d is None else self.values.reshape(-1, self.d)


def _read_outcome(site: _Site, y: Numeric) -> _Outcome:
    """Find out which axes of the outcomes are observations, and which of these were made."""
    if site.scale is not None and not np.all(np.asarray(site.scale) == 1):
        raise UnsupportedError(
            f"The site {site.name!r} is scaled (handlers.scale): its observations count more or "
            "less than once, and leaving one out is not what leave-one-out formulas assume. Give "
            "the densities by lq.from_arrays with held-out scores instead."
        )
    grid = _grid(site, y)
    if not np.all([np.all(mask) for mask in site.inner_masks]):
        raise UnsupportedError(
            f"The site {site.name!r} has masked components of outcomes. Leave out the outcomes "
            "that are not complete, by masking them as a whole."
        )
    mask = np.ones(grid, dtype=np.bool_)
    for part in site.masks:
        mask &= np.broadcast_to(np.asarray(part), grid)
    if not mask.any():
        raise UnsupportedError(f"All outcomes of the site {site.name!r} are masked.")
    integer = y.dtype if y.dtype.kind in "biu" else np.int64
    d = y.shape[-1] if site.event_shape else None
    return _Outcome(y, grid, d, mask, integer if site.discrete else np.float64)


def _grid(site: _Site, y: Numeric) -> tuple[int, ...]:
    """Return the shape of the observations: that of y without the components of an outcome."""
    if y.ndim and y.shape == site.event_shape and not site.batch_shape:
        remedy = (
            "Leave out .to_event(), or put it on the components of one outcome only."
            if site.independent
            else "Its score would be a joint one. Write the distribution of each outcome given the "
            "parameters and, in a time series, given earlier outcomes as data."
        )
        raise UnsupportedError(
            f"All {y.size} outcomes of the site {site.name!r} are one event of its distribution "
            f"({site.likelihood}): there are no single observations. {remedy}"
        )
    lead = y.shape[: y.ndim - len(site.event_shape)]
    fits = len(site.event_shape) < 2 and y.shape[len(lead) :] == site.event_shape
    if fits and lead and _broadcasts_to(site.batch_shape, lead):
        return lead
    raise ShapeError(
        f"The site {site.name!r} has outcomes of shape {y.shape}; its distribution has the shape "
        f"{site.batch_shape} and outcomes of shape {site.event_shape} each. They must fit, with "
        "one axis at most for the components of an outcome. Change all arguments of the model "
        "that belong to the outcomes; where outcomes and parameters broadcast against each other, "
        "as (n,) and (n, 1) do, give them the same shape."
    )


def _broadcasts_to(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, whole) == whole
    except ValueError:
        return False


def _require_same_mask(first: _Outcome, last: _Outcome) -> None:
    if not np.array_equal(first.mask, last.mask):
        raise UnsupportedError(
            "The mask of the outcomes differs between draws. Only what is never observed can be "
            "left out."
        )


def _observations(y: Any, outcome: _Outcome, site: _Site) -> Observations:
    """Label the observations: by position where some are masked, by plates on a grid."""
    if not outcome.mask.all():
        dims = [OBS_DIM, COMPONENT_DIM][: 1 if outcome.d is None else 2]
        kept = xr.DataArray(outcome.rows[outcome.kept], dims=dims, coords={OBS_DIM: outcome.kept})
        return as_observations(kept)
    if isinstance(y, xr.DataArray):
        return as_observations(y, None if outcome.d is None else y.dims[-1])
    if len(outcome.grid) == 1:
        return as_observations(y)
    names = [site.plates.get(axis - len(outcome.grid)) for axis in range(len(outcome.grid))]
    dims = [
        f"{site.name}_dim_{axis}" if name is None or name in RESERVED_DIMS else name
        for axis, name in enumerate(names)
    ]
    component = [] if outcome.d is None else [COMPONENT_DIM]
    return as_observations(xr.DataArray(outcome.values, dims=[*dims, *component]))


# Evaluating


def _density(distribution: Callable[[Draw], Any], fitted: _Fitted, outcome: _Outcome) -> Density:
    """Make the log densities of some observations a function of their outcomes.

    The distribution of those observations alone is made from the arrays of the whole. Where that
    does not reproduce the log densities of the whole, all of them are evaluated for each one.
    """
    import jax
    import jax.numpy as jnp

    def logp(fn: Any, y: Any) -> Any:
        y = y.astype(outcome.dtype)
        return jnp.where(fn.support(y), fn.log_prob(y), -jnp.inf)

    def by_rows(y: Any, theta: Draw, rows: Any) -> Any:
        at = jnp.asarray(outcome.kept)[rows]
        return logp(_select(distribution(theta), outcome.grid, at), y)

    def one_by_one(y: Any, theta: Draw, rows: Any) -> Any:
        fn, everything = distribution(theta), jnp.asarray(outcome.rows, dtype=np.float64)

        def one(pair: tuple[Any, Any]) -> Any:
            at, row = pair
            moved = everything.at[row].set(at).reshape(outcome.values.shape)
            return logp(fn, moved).reshape(-1)[row]

        pairs = (y, jnp.asarray(outcome.kept)[rows])
        return jax.lax.map(one, pairs, batch_size=max(1, _AT_ONCE // everything.size))

    rows = np.append(np.arange(outcome.kept.size)[::-1], 0)
    observed = np.asarray(outcome.rows[outcome.kept][rows], dtype=np.float64)
    all_outcomes = np.array(outcome.values, dtype=np.float64)

    def both(theta: Draw) -> tuple[Any, Any]:
        whole = logp(distribution(theta), jnp.asarray(all_outcomes)).reshape(-1)
        return whole[outcome.kept[rows]], by_rows(jnp.asarray(observed), theta, rows)

    with double_precision():
        pair = jax.jit(both)
        draws = (fitted.draw(0, 0), fitted.draw(-1, -1))
        return by_rows if all(_agree(pair, draw) for draw in draws) else one_by_one


def _agree(pair: Callable[[Draw], tuple[Any, Any]], theta: Draw) -> bool:
    try:
        whole, part = pair(theta)
    except Exception:  # whatever a distribution does when its arrays have another shape
        return False
    return np.shape(whole) == np.shape(part) and np.allclose(
        whole, part, rtol=1e-10, atol=1e-10, equal_nan=True
    )


def _select(fn: Any, grid: tuple[int, ...], rows: Any) -> Any:
    """Make the distribution of some observations from the arrays that the whole one consists of.

    An array belongs to the observations if its first axes broadcast to theirs.
    """
    import jax
    import jax.numpy as jnp

    k, n = len(grid), math.prod(grid)

    def is_lead(shape: tuple[int, ...]) -> bool:
        return all(size in (1, whole) for size, whole in zip(shape, grid, strict=True))

    def take(leaf: Any) -> Any:
        shape = (1,) * (k - jnp.ndim(leaf)) + jnp.shape(leaf)
        if not is_lead(shape[:k]):
            return leaf
        if shape[:k] == (1,) * k:
            return jnp.reshape(leaf, shape[k - 1 :] if jnp.ndim(leaf) >= k else jnp.shape(leaf))
        rest = shape[k:]
        return jnp.broadcast_to(jnp.reshape(leaf, shape), grid + rest).reshape(n, *rest)[rows]

    part = jax.tree.map(take, fn)
    for layer in _layers(part):
        batch = layer.batch_shape
        if len(batch) >= k and is_lead(batch[:k]):
            layer._batch_shape = (len(rows), *batch[k:])
    return part


def _layers(fn: Any) -> Iterator[Any]:
    """Go through a distribution and those that it is made of, from the outside in."""
    from numpyro.distributions import Distribution

    yield fn
    for value in vars(fn).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Distribution):
                yield from _layers(part)


def _unwrapped(fn: Any) -> Any:
    """Take off what only masks or repeats a distribution."""
    from numpyro.distributions import ExpandedDistribution, MaskedDistribution

    while isinstance(fn, ExpandedDistribution | MaskedDistribution):
        fn = fn.base_dist
    return fn


def _masks(fn: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Masks of outcomes, and masks of their components."""
    from numpyro.distributions import Independent, MaskedDistribution

    outer: list[Any] = []
    inner: list[Any] = []
    inside = False
    for layer in _layers(fn):
        inside |= isinstance(layer, Independent)
        if isinstance(layer, MaskedDistribution):
            (inner if inside else outer).append(layer._mask)
    return tuple(outer), tuple(inner)


# What the likelihood is called

_BOUNDED_VECTOR = "the components of its outcomes are bounded, and its density may not vanish there"
_WITH_ATOMS = ("Censored", "Hurdle", "Delta")


def _names(fn: Any) -> tuple[str, tuple[str, ...]]:
    """Name a distribution, and those that decide whether it is smooth."""
    from numpyro.distributions import (
        Independent,
        MixtureGeneral,
        MixtureSameFamily,
        TransformedDistribution,
    )

    fn = _unwrapped(fn)
    name = type(fn).__name__
    if isinstance(fn, Independent):
        return _names(fn.base_dist)
    if isinstance(fn, MixtureSameFamily):
        return "Mixture", _names(fn.component_distribution)[1]
    if isinstance(fn, MixtureGeneral):
        each = [_names(part) for part in fn.component_distributions]
        parts = tuple(part for _, of_part in each for part in of_part)
        # Components that end at the same places leave no kinks, whatever they are.
        supports = [part.support for part in fn.component_distributions]
        alike = all(support is supports[0] for support in supports)
        return " + ".join(name for name, _ in each) if alike else "Mixture", parts
    if type(fn) is TransformedDistribution:
        base, parts = _names(fn.base_dist)
        return f"transformed {base}", parts
    for word in ("Truncated", "Censored", "AsymmetricLaplace"):
        if word in name:
            return name, (word,)
    # Counts are parametrised by probabilities, by their logits, or otherwise.
    plain = name.removesuffix("Logits").removesuffix("Probs").removesuffix("2")
    return (plain if _is_discrete(fn) else name), (name,)


def _is_discrete(fn: Any) -> bool:
    try:
        return bool(fn.support.is_discrete)
    except NotImplementedError:
        return False


def _is_real(fn: Any) -> bool:
    from numpyro.distributions import constraints

    support = fn.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support is constraints.real


def _is_same(value: Any, y: Numeric) -> bool:
    """Whether an argument of the model holds the outcomes."""
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):
        return False
    if given.dtype.kind not in "biuf" or given.shape != y.shape or not y.ndim:
        return False
    return np.array_equal(given, y, equal_nan=True)
