"""The sites of a NumPyro model, and what their distributions are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockquack.errors import UnsupportedError
from lockquack.sources.jax_precision import double_precision

Program = Callable[..., Any]
#: Latent sites → their values in one draw.
Draw = Mapping[str, Any]


@dataclass(frozen=True)
class Site:
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
    def of(cls, name: str, site: Mapping[str, Any]) -> Site:
        """Read a site of a trace."""
        from numpyro.distributions import Independent

        if site["type"] == "param":
            return cls(name, False, site["value"])
        fn = site["fn"]
        likelihood, parts = _names(fn)
        outer, inner = _masks(fn)
        return cls(
            name,
            site["is_observed"],
            site["value"],
            shape=site["kwargs"].get("sample_shape", ()) + fn.shape(),
            batch_shape=fn.batch_shape,
            event_shape=fn.event_shape,
            scale=site["scale"],
            masks=outer,
            inner_masks=inner,
            plates={frame.dim: frame.name for frame in site["cond_indep_stack"]},
            likelihood=likelihood,
            parts=parts,
            discrete=_is_discrete(fn),
            real=_is_real(fn),
            independent=isinstance(unwrapped(fn), Independent),
        )

    @property
    def is_computed(self) -> bool:
        """Whether the outcomes, or which of them are observed, are results of computations."""
        from jax.core import Tracer

        known = (self.scale, *self.masks, *self.inner_masks, self.value if self.observed else None)
        return any(isinstance(part, Tracer) for part in known)


Sites = Mapping[str, Site]


def run(model: Program, draw: Draw, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Trace the model with one draw in place of its latent sites, in float64."""
    from numpyro import handlers

    with double_precision():
        substituted = handlers.substitute(handlers.seed(model, 0), data=dict(draw))
        return handlers.trace(substituted).get_trace(**kwargs)


def look(model: Program, draw: Draw, kwargs: Mapping[str, Any]) -> Sites:
    """Find the sites of the model; nothing is computed unless the outcomes have to be."""
    import jax

    found: dict[str, Site] = {}

    def find(draw: Draw) -> None:
        found.update(_sites(run(model, draw, kwargs)))

    with double_precision():
        jax.eval_shape(find, dict(draw))
        if any(site.is_computed for site in found.values()):
            find(draw)
    return found


def _sites(trace: Mapping[str, Any]) -> dict[str, Site]:
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
            found[name] = Site.of(name, site)
    return found


def has_others(model: Program, draw: Draw, kwargs: Mapping[str, Any], site: str) -> bool:
    """Whether there are factors, or other observed sites; nothing is computed to find out."""
    import jax

    found: list[str] = []
    with double_precision():
        jax.eval_shape(
            lambda draw: found.extend(others(run(model, draw, kwargs), site)), dict(draw)
        )
    return bool(found)


def others(trace: Mapping[str, Any], site: str) -> dict[str, list[Any]]:
    """Find the arrays that factors, and the distributions of other observed sites, consist of."""
    import jax

    return {
        name: jax.tree.leaves(each["fn"])
        for name, each in trace.items()
        if each["type"] == "sample" and each["is_observed"] and name != site
    }


def find_site(sites: Sites, wanted: str | None) -> Site:
    """Find the observed site, or the one of several that is wanted."""
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


def layers(fn: Any) -> Iterator[Any]:
    """Go through a distribution and those that it is made of, from the outside in."""
    from numpyro.distributions import Distribution

    yield fn
    for value in vars(fn).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Distribution):
                yield from layers(part)


def unwrapped(fn: Any) -> Any:
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
    for layer in layers(fn):
        inside |= isinstance(layer, Independent)
        if isinstance(layer, MaskedDistribution):
            (inner if inside else outer).append(layer._mask)
    return tuple(outer), tuple(inner)


def _names(fn: Any) -> tuple[str, tuple[str, ...]]:
    """Name a distribution, and those that decide whether it is smooth."""
    from numpyro.distributions import (
        Independent,
        MixtureGeneral,
        MixtureSameFamily,
        TransformedDistribution,
    )

    fn = unwrapped(fn)
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
