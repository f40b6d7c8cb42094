"""Densities of libraries that are those of a family: found from their jets, and checked.

A library that evaluates a density tells its name, and its derivatives at one outcome determine
the parameters of a simple family: those of a normal density are y − g/h and (−1/h)^(1/2), with g
and h its first and second derivative at y. So densities at other outcomes can be summed over draws
by compiled loops, as those of :func:`.from_family` are. What the name promises is held against the
density itself: at the observed outcome for all draws, and far from it for some.
"""

from __future__ import annotations

import numpy as np

from lockquack.families import Family, find_family
from lockquack.families.base import Parameters, Split, join_splits
from lockquack.jets import Array
from lockquack.models.source import Source

#: Draws of each chain that are looked at away from the observed outcomes, and where, in spreads.
_TRIED = 8
_AWAY = np.array([-7.0, -2.0, 0.5, 3.0, 7.0])
#: How far a log density may be from that of the family, in units of its size and of one.
_SAME = 1e-9


def split_by_family(source: Source, name: str, obs: slice) -> Split | None:
    """Split the density of a source by the family of that name; None where it is not of it."""
    family = find_family(name)
    if family is None or source.observations.d > 1 or not source.can.differentiate:
        return None
    parts = []
    for chain in range(source.n_chains):
        p = _parameters(source, family, chain, obs)
        part = None if p is None else family.split(p)
        if p is None or part is None or not _is_far_out_too(source, family, chain, obs, p):
            return None
        parts.append(part)
    return join_splits(parts, source.n_draws)


def _parameters(source: Source, family: Family, chain: int, obs: slice) -> Parameters | None:
    """Parameters, (draw, obs), with these jets at the observed outcomes; None: there are none."""
    y, draws = source.observations.values[None, obs], slice(0, source.n_draws)
    jet = source.jets_at(y, chain, draws, obs, derivatives=True)
    with np.errstate(all="ignore"):
        p = family.from_derivatives(y[0, :, 0], jet.grad[0, ..., 0], jet.curv[0, ..., 0])
        if p is None or not all((each > 0).all() for k, each in p.items() if k in family.positive):
            return None
        return p if _are_same(family.logp(y[0, :, 0], p), jet.logp[0]) else None


def _is_far_out_too(source: Source, family: Family, chain: int, obs: slice, p: Parameters) -> bool:
    """Whether the density is that of the family away from the observed outcomes."""
    some = slice(0, source.n_draws, max(1, source.n_draws // _TRIED))
    p = {name: each[some] for name, each in p.items()}
    middle, width = family.location(p).mean(axis=0), family.spread(p).mean(axis=0)
    low, high = family.support
    y = np.clip(middle + _AWAY[:, None] * width, *(low + 1e-3 * width, high - 1e-3 * width))
    with np.errstate(all="ignore"):
        known = family.logp(y[:, None], p)
        return _are_same(known, source.logp_at(y[..., None], chain, some, obs))


def _are_same(logp: Array, found: Array) -> bool:
    return bool((np.abs(logp - found) <= _SAME * (1.0 + np.abs(found))).all())
