"""Densities of libraries that are those of a family: found from their jets, and checked.

A library that evaluates a density tells its name, and its derivatives at one outcome determine
the parameters of a simple family: those of a normal density are y − g/h and (−1/h)^(1/2), with g
and h its first and second derivative at y. So densities at other outcomes can be summed over draws
by compiled loops, as those of :func:`.from_family` are, and where predictions have their mass need
not be searched for. What the name promises is held against the density itself: at the observed
outcome for all draws, and far from it for some.
"""

from __future__ import annotations

import numpy as np

from lockquack.families import Family, find_family
from lockquack.families.base import Parameters, Split, join_splits
from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.sources.bulks import DRAWS_OF_BULKS, Bulk, bulk_of_draws

#: Draws of each chain that are looked at away from the observed outcomes, and where, in spreads.
_TRIED = 8
_AWAY = np.array([-7.0, -2.0, 0.5, 3.0, 7.0])
#: How far a log density may be from that of the family, in units of its size and of one.
_SAME = 1e-9


def split_by_family(source: Source, name: str, obs: slice) -> Split | None:
    """Split the density of a source by the family of that name; None where it is not of it."""
    family = _scalar_family(source, name)
    known = family and _parameters(source, family, obs, slice(0, source.n_draws))
    if not family or not known:
        return None
    parts = [part for p in known if (part := family.split(p)) is not None]
    return join_splits(parts, source.n_draws) if parts else None


def bulk_by_family(source: Source, name: str, obs: slice) -> Bulk | None:
    """Middle and width of a prediction by the family of that name; None where it is not of it."""
    family = _scalar_family(source, name)
    step = max(1, source.n_samples // DRAWS_OF_BULKS)
    known = family and _parameters(source, family, obs, slice(0, source.n_draws, step))
    if not family or not known:
        return None
    places = np.concatenate([family.location(p) for p in known])
    widths = np.concatenate([family.spread(p) for p in known])
    return bulk_of_draws(places, widths)


def _scalar_family(source: Source, name: str) -> Family | None:
    """Return the family of that name, if the density of the source may be of it."""
    may_be = source.observations.d == 1 and source.can.differentiate
    return find_family(name) if may_be else None


def _parameters(
    source: Source, family: Family, obs: slice, draws: slice
) -> list[Parameters] | None:
    """Parameters (draw, obs) of some draws of each chain; None where the density is another."""
    found = []
    for chain in range(source.n_chains):
        p = _by_jets(source, family, chain, obs, draws)
        if p is None or not _is_far_out_too(source, family, chain, obs, draws, p):
            return None
        found.append(p)
    return found


def _by_jets(
    source: Source, family: Family, chain: int, obs: slice, draws: slice
) -> Parameters | None:
    """Parameters, (draw, obs), with these jets at the observed outcomes; None: there are none."""
    y = source.observations.values[None, obs]
    jet = source.jets_at(y, chain, draws, obs, derivatives=True)
    with np.errstate(all="ignore"):
        p = family.from_derivatives(y[0, :, 0], jet.grad[0, ..., 0], jet.curv[0, ..., 0])
        if p is None or not all((each > 0).all() for k, each in p.items() if k in family.positive):
            return None
        return p if _are_same(family.logp(y[0, :, 0], p), jet.logp[0]) else None


def _is_far_out_too(
    source: Source, family: Family, chain: int, obs: slice, draws: slice, p: Parameters
) -> bool:
    """Whether the density is that of the family away from the observed outcomes."""
    step = max(1, len(range(*draws.indices(source.n_draws))) // _TRIED)
    some = slice(draws.start, draws.stop, step * (draws.step or 1))
    p = {name: each[::step] for name, each in p.items()}
    middle, width = family.location(p).mean(axis=0), family.spread(p).mean(axis=0)
    low, high = family.support
    y = np.clip(middle + _AWAY[:, None] * width, *(low + 1e-3 * width, high - 1e-3 * width))
    with np.errstate(all="ignore"):
        known = family.logp(y[:, None], p)
        return _are_same(known, source.logp_at(y[..., None], chain, some, obs))


def _are_same(logp: Array, found: Array) -> bool:
    return bool((np.abs(logp - found) <= _SAME * (1.0 + np.abs(found))).all())
