"""The sites of a NumPyro model, and what their distributions are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from lockquack.errors import ParameterError, UnsupportedError
from lockquack.numeric import and_more
from lockquack.sources.jax_precision import double_precision
from lockquack.sources.numpyro_series import single, unwrapped

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
    #: First and last of discrete outcomes that are numbers, where that is known.
    ends: tuple[float, float] | None = None
    #: Whether each component of an outcome may be any number, or any angle.
    without_edges: bool = False
    #: Batch and event shape of single outcomes, where its event can be taken apart.
    single: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    #: Whether it only records a value, as ``Delta`` does.
    is_record: bool = False

    @classmethod
    def of(cls, name: str, site: Mapping[str, Any]) -> Site:
        """Read a site of a trace."""
        if site["type"] == "param":
            return cls(name, False, site["value"])
        fn = site["fn"]
        alone = single(fn)
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
            ends=_first_and_last(alone),
            without_edges=_is_without_edges(fn),
            single=None if alone is fn else (alone.batch_shape, alone.event_shape),
            is_record=is_record(fn),
        )

    @property
    def is_computed(self) -> bool:
        """Whether the outcomes, or which of them are observed, are results of computations."""
        from jax.core import Tracer

        known = (self.scale, *self.masks, *self.inner_masks, self.value if self.observed else None)
        return any(isinstance(part, Tracer) for part in known)


Sites = Mapping[str, Site]


def run(
    model: Program,
    draw: Draw,
    kwargs: Mapping[str, Any],
    observed: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """Trace the model with one draw in place of its latent sites, in float64.

    Sites may be given other outcomes than those that the model was told.
    """
    import jax
    from numpyro import handlers

    with double_precision():
        # Loops take values out of arrays by an index that is not known, which numpy's refuse.
        latent = jax.tree.map(jax.numpy.asarray, dict(draw))
        given = handlers.substitute(handlers.seed(model, 0), data=latent)
        if observed:
            given = handlers.condition(given, data=dict(observed))
        return handlers.trace(given).get_trace(**kwargs)


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


def others(trace: Mapping[str, Any], chosen: Container[str]) -> dict[str, list[Any]]:
    """Find the arrays that factors, and the distributions of other observed sites, consist of."""
    import jax

    return {
        name: jax.tree.leaves(unwrapped(fn).log_density if is_record(fn) else fn)
        for name, fn in ((name, each["fn"]) for name, each in trace.items() if _is_observed(each))
        if name not in chosen
    }


def _is_observed(site: Mapping[str, Any]) -> bool:
    return site["type"] == "sample" and bool(site["is_observed"])


def is_record(fn: Any) -> bool:
    """Whether a site only records a value, at which its distribution is a point mass."""
    from numpyro.distributions import Delta

    return isinstance(unwrapped(fn), Delta)


def is_factor(site: Mapping[str, Any]) -> bool:
    """Whether ``numpyro.factor`` made the site."""
    from numpyro.distributions import Unit

    return site["type"] == "sample" and isinstance(unwrapped(site["fn"]), Unit)


def find_sites(sites: Sites, wanted: str | Sequence[str] | None) -> tuple[Site, ...]:
    """Find the observed sites that are wanted, by name or pattern, or the only one."""
    observed = {name: site for name, site in sites.items() if site.observed}
    if wanted is None:
        outcomes = [site for site in observed.values() if not site.is_record]
        if len(outcomes) == 1:
            return tuple(outcomes)
        if not outcomes:
            raise UnsupportedError(
                f"The observed site(s) {', '.join(map(repr, observed))} have point masses (Delta), "
                "which say no more about an outcome than that it is so."
            )
        raise _which_site(list(observed), "")
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if not names:
        raise ParameterError("site= must name a site; got an empty list.")
    chosen: dict[str, Site] = {}
    for name in names:
        # An outcome with obs_mask= is split in two by NumPyro.
        found = [each for each in (name, f"{name}_observed") if each in observed][:1]
        found = found or [each for each in observed if fnmatchcase(each, str(name))]
        if not found:
            raise _which_site(list(observed), f"; {name!r} is none of them")
        chosen |= {each: observed[each] for each in found}
    return tuple(chosen.values())


def _which_site(observed: Sequence[str], got: str) -> UnsupportedError:
    stems = {re.sub(r"\d+$", "*", name) for name in observed}
    if len(observed) > 1 and len(stems) == 1:
        remedy = f"If each is one observation, say site={stems.pop()!r}, or list them in order."
    else:
        remedy = (
            "Say which one is the outcome by site=; several are scored together by a list, "
            f"site={list(observed[:2])}."
        )
    listed = ", ".join(map(repr, observed[:8])) + and_more(max(len(observed) - 8, 0))
    return UnsupportedError(f"The model has the observed site(s) {listed}{got}. {remedy}")


def layers(fn: Any) -> Iterator[Any]:
    """Go through a distribution and those that it is made of, from the outside in."""
    from numpyro.distributions import Distribution

    yield fn
    for value in vars(fn).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Distribution):
                yield from layers(part)


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


def _is_without_edges(fn: Any) -> bool:
    from numpyro.distributions import constraints

    support = fn.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support is constraints.real or support is constraints.circular


def _first_and_last(fn: Any) -> tuple[float, float] | None:
    """Smallest and largest of the whole numbers that are possible; infinity where it varies."""
    from jax.core import Tracer
    from numpyro.distributions import constraints

    if not _is_discrete(fn) or fn.event_shape:
        return None
    support = fn.support
    if support is constraints.boolean:
        return 0.0, 1.0

    def bound(name: str, choose: Callable[[Any], Any], otherwise: float) -> float:
        value = getattr(support, name, otherwise)
        return otherwise if isinstance(value, Tracer) else float(choose(np.asarray(value)))

    low = bound("lower_bound", np.min, np.nan)
    return None if np.isnan(low) else (low, bound("upper_bound", np.max, np.inf))
