"""Outcomes that are impossible under a model: whether they, or its parameters, are at fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lockquack.errors import ParameterError, SupportError
from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.numeric import and_more

#: Log densities that are read, at most: all draws, or so many evenly spaced ones.
_LOOKED_AT = 2**22
_POSSIBLE_ELSEWHERE = (
    " In the other draws it does. Give the draws of the posterior that has seen these outcomes; if "
    "they are, its density is too small for a number there, as where classes hardly occur."
)


def require_possible(
    source: Source, name: str, violated: Callable[[int, int], str | None], *, original: bool = True
) -> None:
    """Refuse outcomes without a density, looking at all draws, or at many of them.

    A posterior gives each outcome that it was drawn with a density in every draw. To other ones
    it must give one in some draw: those that do not lie in the support of all of them are only
    less probable.

    Parameters
    ----------
    source
        Where the densities come from.
    name
        What to call the likelihood.
    violated
        Returns what the parameters of a chain's draw should be and are not, where that is known.
    original
        Whether the outcomes are those that the posterior was drawn with.

    Raises
    ------
    ParameterError
        Where a draw gives no outcome a density: its parameters are outside their domain.
    SupportError
        Where an outcome is outside the support.
    """
    step = max(1, -(-source.n_samples * source.n_obs // _LOOKED_AT))
    everything = slice(0, source.n_draws, step), slice(0, source.n_obs)
    logp = np.stack([source.logp(chain, *everything) for chain in range(source.n_chains)])
    bad = ~np.isfinite(logp)
    if not bad.any():
        return
    # The first outcome that is impossible in some draw, and the first such draw of it.
    impossible = bad.any(axis=(0, 1)) if original else bad.all(axis=(0, 1))
    impossible |= np.isnan(logp).any(axis=(0, 1))
    rows = np.flatnonzero(impossible)
    if not rows.size:
        return
    at = int(rows[0])
    chain, place = (int(k[0]) for k in np.nonzero(bad[:, :, at]))
    draw = place * step
    share = f"{bad[:, :, at].sum()} of {bad[:, :, at].size} draws"
    found = (
        f"The log density of {name} is {logp[chain, place, at]} at "
        f"{source.observations.describe(at)}, where y is "
        f"{source.observations.values[at].tolist()}, in {share}{and_more(rows.size - 1)}. "
    )
    demand = violated(chain, draw)
    if demand is None and not _is_possible_elsewhere(source, chain, draw, at):
        demand = "no other outcome has a density there either"
    if demand is not None:
        raise ParameterError(
            f"{found}A parameter is outside its domain in draw {draw} of chain {chain}: {demand}. "
            "Give the draws of this model, on the scale on which it has its parameters."
        )
    in_some = "" if bad[:, :, at].all() else _POSSIBLE_ELSEWHERE
    raise SupportError(
        f"{found}The parameters are possible, the outcome is not: it must lie inside the support "
        f"of the source.{in_some}"
    )


def _is_possible_elsewhere(source: Source, chain: int, draw: int, at: int) -> bool:
    """Whether a draw gives any of some other outcomes of an observation a density."""
    y = source.observations.values
    some = y[np.unique(np.linspace(0, len(y) - 1, 64).astype(int))]
    usual = np.array([0.0, 1.0, 0.5, 0.01, 2.0, -1.0, 100.0, 1 / y.shape[1]])
    tried: Array = np.concatenate([some, np.repeat(usual[:, None], y.shape[1], axis=1)])
    if source.likelihood.discrete:
        tried = np.round(tried)
    with np.errstate(all="ignore"):
        logp = source.logp_at(tried[:, None], chain, slice(draw, draw + 1), np.array([at]))
    return bool(np.isfinite(logp).any())
