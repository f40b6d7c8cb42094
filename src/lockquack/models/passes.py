"""Averages over the draws of a source, each computed once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed, join, require_known_scores
from lockquack.draws.diagnostics import ess_mean
from lockquack.draws.psis import loo_densities
from lockquack.draws.tails import TAILS
from lockquack.errors import NonFiniteError
from lockquack.jets import Array, Jet
from lockquack.models.source import Source
from lockquack.models.weighted import WeightedSource
from lockquack.numeric import and_more
from lockquack.parallel.progress import progress_bar
from lockquack.transforms import Transform


@dataclass(frozen=True)
class LooDensity:
    """Leave-one-out log densities, Pareto-smoothed where draws are weighted, and their diagnostic.

    k̂ is NaN where nothing had to be weighted, because the observation was left out already.
    """

    logp: Array  # (n,)
    pareto_k: Array  # (n,)
    #: Effect of each draw, or block of draws, on Σ_i w_i log p_i, to first order.
    effect: Array  # (chain, draw)
    #: How each was found: "PSIS", "held out", "refit", and others.
    how: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, dtype=np.str_))  # (n,)


@dataclass(frozen=True, eq=False)
class Passes:
    """The passes over a source's draws, remembered: what a model owns besides its source."""

    source: Source
    _collapsed: dict[tuple[Kind, bool], Collapsed] = field(default_factory=dict, repr=False)
    _loo: list[LooDensity] = field(default_factory=list, repr=False)
    #: Remarks that were made on it before and are not repeated.
    said: set[Hashable] = field(default_factory=set, repr=False)
    _weighted: dict[Transform, Passes] = field(default_factory=dict, repr=False)

    def weighted(self, coordinates: Transform) -> Passes:
        """Return passes over the same draws as the weighted Hyvärinen score sees them.

        Densities, and so the leave-one-out ones, are the same.
        """
        if coordinates not in self._weighted:
            source = WeightedSource.of(self.source, coordinates)
            self._weighted[coordinates] = Passes(source, _loo=self._loo, said=self.said)
        return self._weighted[coordinates]

    def collapse(
        self, kind: Kind, *, derivatives: bool = True, progressbar: bool | None = None
    ) -> Collapsed:
        """Predictive jet at every observation, averaged over the draws."""
        require_known_scores(kind)
        kind = self.average_for(kind)
        key = kind, derivatives
        if key not in self._collapsed:
            self._collapsed[key] = self._collapse(kind, derivatives, progressbar)
        return self._collapsed[key]

    def _collapse(self, kind: Kind, derivatives: bool, progressbar: bool | None) -> Collapsed:
        order, parts = self._parts(kind)
        if parts:
            each = [
                part.collapse(kind, derivatives=derivatives, progressbar=progressbar)
                for part in parts
            ]
            return join(each).take(order)
        with progress_bar(self.source.n_obs, "pass over draws", progressbar) as advance:
            collapsed = self.source.pass_over_draws(kind, derivatives=derivatives, progress=advance)
        require_finite(self.source, collapsed)
        return collapsed

    def _parts(self, kind: Kind) -> tuple[NDArray[np.intp], list[Passes]]:
        """Return passes over some observations each, and what brings these into their order.

        None where one pass does for all.
        """
        source = self.source.left_out() if kind == "loo" else self.source
        everywhere = np.arange(self.source.n_obs)
        pieces = source.pieces() or ([] if source is self.source else [(everywhere, source)])
        places = [each for each, _ in pieces] or [everywhere]
        return np.argsort(np.concatenate(places)), [Passes(piece) for _, piece in pieces]

    def has_parts(self, kind: Kind) -> bool:
        """Whether draws are averaged with weights of their own, or differently at some places."""
        average = self.average_for(kind)
        return self.source.fixed_weights is not None or bool(self._parts(average)[1])

    def predict(
        self,
        kind: Kind,
        *,
        density: bool,
        derivatives: bool = True,
        progressbar: bool | None = None,
    ) -> Collapsed:
        """Collapse the draws; with ``density``, leave-one-out densities by PSIS as well.

        In-sample and held-out densities come with the derivatives in one pass. Without
        ``derivatives`` these are not computed: the jets have no components then, and
        leave-one-out needs no pass besides PSIS.
        """
        kind = self.average_for(kind)
        if kind == "loo" and not derivatives:
            return _without_derivatives(self.source, self.loo(progressbar=progressbar))
        collapsed = self.collapse(kind, derivatives=derivatives, progressbar=progressbar)
        if not density or kind != "loo":
            return collapsed
        loo = self.loo(progressbar=progressbar)
        jet = replace(collapsed.jet, logp=loo.logp)
        return replace(collapsed, jet=jet, log_effect=loo.effect)

    def loo(self, *, progressbar: bool | None = None) -> LooDensity:
        """Pareto-smoothed leave-one-out log densities and k̂; slower than a pass."""
        if not self._loo:
            self._loo.append(self._find_loo(progressbar))
        return self._loo[0]

    @property
    def knows_loo(self) -> bool:
        """Whether leave-one-out densities were computed, or came with the draws."""
        return bool(self._loo) or self.source.stored_loo() is not None

    def _find_loo(self, progressbar: bool | None) -> LooDensity:
        order, parts = self._parts("loo")
        if parts:
            return _rearranged([part.loo(progressbar=progressbar) for part in parts], order)
        stored = self.source.stored_loo()
        if stored is not None:
            found = LooDensity(*stored, np.full((1, 1), np.nan))
        elif self.source.is_left_out:
            found = self._without_weights(progressbar)
        else:
            found = self._by_psis(progressbar)
        return replace(found, how=self.source.each_left_out_by)

    def average_for(self, kind: Kind) -> Kind:
        """Return which average over the draws it takes: nothing is left out twice."""
        left_out = kind == "prequential" or (kind == "loo" and self.source.is_left_out)
        return "held-out" if left_out else kind

    def _without_weights(self, progressbar: bool | None) -> LooDensity:
        found = self.collapse("held-out", derivatives=False, progressbar=progressbar)
        fixed = self.source.fixed_weights
        pareto_k = np.full(self.source.n_obs, np.nan if fixed is None else fixed.pareto_k)
        return LooDensity(found.jet.logp, pareto_k, found.log_effect)

    def _by_psis(self, progressbar: bool | None) -> LooDensity:
        parts = []
        with progress_bar(self.source.n_obs, "PSIS", progressbar) as advance:
            for part in self.source.map_groups(_loo_of_group, ("logp",)):
                parts.append(part)
                advance(part.logp.size)
        return LooDensity(
            np.concatenate([part.logp for part in parts]),
            np.concatenate([part.pareto_k for part in parts]),
            self.source.n_samples * np.sum([part.effect for part in parts], axis=0),
        )


def _rearranged(parts: Sequence[LooDensity], order: NDArray[np.intp]) -> LooDensity:
    """Put the densities of some observations each into one order."""
    blocks = min(part.effect.shape[1] for part in parts)
    return LooDensity(
        np.concatenate([part.logp for part in parts])[order],
        np.concatenate([part.pareto_k for part in parts])[order],
        np.sum([_by_block(part.effect, blocks) for part in parts], axis=0),
        np.concatenate([part.how for part in parts])[order],
    )


def _by_block(effect: Array, blocks: int) -> Array:
    """Average the effect of draws (chain, draw) over as many blocks as others have."""
    n = effect.shape[1]
    if n == blocks:
        return effect
    length = -(-n // blocks)  # as BlockGrid cuts them
    starts = np.arange(0, n, length)
    counts = np.diff(np.append(starts, n))
    return np.asarray(np.add.reduceat(effect, starts, axis=1) / counts)


def effective_sizes(source: Source) -> tuple[Array, Array]:
    """Effective sample sizes of the gradient g and of h + g², h the curvature, each (n, d)."""
    parts = source.map_groups(_ess_of_group, ("grad", "curv"))
    grads, squares = zip(*parts, strict=True)
    return np.concatenate(grads), np.concatenate(squares)


def _without_derivatives(source: Source, loo: LooDensity) -> Collapsed:
    if source.n_samples == 0:
        return Collapsed.known(loo.logp)
    nothing = np.empty((source.n_obs, 0))
    return Collapsed(
        Jet(loo.logp, nothing, nothing),
        np.empty((*loo.effect.shape, 0)),
        loo.effect,
        # As in a pass: the draws count equally, and Pareto k̂ tells where they do not.
        np.full(source.n_obs, float(source.n_samples)),
        source.n_samples,
    )


def require_finite(source: Source, collapsed: Collapsed, start: int = 0) -> None:
    """Refuse derivatives that are not numbers, of the observations from ``start`` on."""
    finite = np.isfinite(collapsed.jet.grad + collapsed.jet.curv).all(axis=1)
    if not finite.all():
        first = start + int(np.flatnonzero(~finite)[0])
        raise NonFiniteError(
            f"The derivatives of {source.likelihood.description} are not finite at "
            f"{source.observations.describe(first)}{and_more(int(np.sum(~finite)) - 1)}. Check the "
            "draws of its parameters, or use the log score."
        )


def _loo_of_group(sources: Sequence[Source], obs: slice) -> LooDensity:
    """Leave-one-out densities of some observations; the effect lacks the number of draws."""
    (source,) = sources
    rows = source.logp_rows(obs).reshape(-1, source.n_samples)
    weights = None if source.case_weights is None else source.case_weights[obs]
    logp, tails, effect = loo_densities(rows, weights, TAILS.get(source, obs))
    TAILS.keep(source, obs, tails)
    return LooDensity(logp, tails.pareto_k, effect.reshape(source.n_chains, source.n_draws))


def _ess_of_group(sources: Sequence[Source], obs: slice) -> tuple[Array, Array]:
    grad, curv = sources[0].all_derivatives(obs)
    return _ess_by_component(grad), _ess_by_component(curv + grad * grad)


def _ess_by_component(draws: Array) -> Array:
    flat = draws.reshape(*draws.shape[:2], -1)
    return ess_mean(flat).reshape(draws.shape[2:])
