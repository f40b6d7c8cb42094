"""Sources whose density a probabilistic programming language can evaluate anywhere.

How to write an adapter with it: subclass :class:`DensitySource`, implement the one method
:meth:`~DensitySource.jets_at`, make an object with ``Likelihood(name)``, and return
``described(source, name)``, which finds out where the density ends and how::

    @dataclass(frozen=True, eq=False, repr=False)
    class MySource(DensitySource):
        theta: Mapping[str, Array]  # (chain, draw, ...)

        def jets_at(self, y, chain, draws, obs, *, derivatives):
            ...  # y (point, obs, d) → Jet of (point, draws, obs) and (point, draws, obs, d)

    source = MySource(observations, chains, draws, Likelihood("Gamma"), theta)
    return Model(described(source, "Gamma"))

Log densities, derivatives, densities at other outcomes and the places where quadrature begins to
look all follow from that method. ``draws`` may be a slice with a step; ``obs`` is a slice or an
array of positions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from lockquack.errors import ShapeError
from lockquack.families import Edge, Family, find_family
from lockquack.families.base import Split
from lockquack.families.refused import find_refused, letters_of
from lockquack.jets import Array, Jet
from lockquack.models.source import Abilities, Source, Subset
from lockquack.sources.bulks import places_of, search_bulks
from lockquack.sources.known_families import bulk_by_family, split_by_family
from lockquack.sources.possible import require_possible
from lockquack.sources.probing import AT_ONCE
from lockquack.sources.supports import find_edges, find_ends


@dataclass(frozen=True, eq=False, repr=False)
class DensitySource(Source):
    """Draws of a density that can be evaluated anywhere; subclasses say how, in one method."""

    #: Whether some single outcomes have positive probability, as censored ones do.
    has_atoms: bool = field(default=False, kw_only=True)
    #: Whether the source can differentiate its density twice.
    differentiable: bool = field(default=True, kw_only=True)
    #: Log likelihoods that came with the draws, (chain, draw, ...observations).
    stored: Any = field(default=None, kw_only=True)
    _last: dict[Any, Jet] = field(default_factory=dict, init=False, repr=False)

    @abstractmethod
    @override
    def jets_at(
        self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool
    ) -> Jet: ...

    @property
    @override
    def can(self) -> Abilities:
        likelihood = self.likelihood
        return Abilities(
            differentiate=self.differentiable and not (likelihood.discrete or self.has_atoms),
            # A density, or probabilities of outcomes that are known.
            evaluate=bool(likelihood.edges) if likelihood.discrete else not self.has_atoms,
        )

    @property
    @override
    def known_where(self) -> str:
        if self.likelihood.discrete:
            return "has outcomes that cannot be gone through one by one"
        return "gives single outcomes a probability and others a density"

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return np.asarray(self._tile(chain, draws, obs, derivatives=False).logp[0])

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        self.require_derivatives()
        jet = self._tile(chain, draws, obs, derivatives=True)
        return jet.grad[0], jet.curv[0]

    @override
    def stored_logp(self, chain: int, draws: slice) -> Array | None:
        if self.stored is None:
            return None
        some = np.asarray(self.stored[chain, draws], dtype=np.float64)
        if some[0].size != self.n_obs:
            raise ShapeError(
                f"The log likelihood stored with the draws has {some[0].size} values in each "
                f"draw; the model has {self.n_obs} observations. Give the model that was sampled."
            )
        return some.reshape(len(some), self.n_obs)

    def violated(self, chain: int, draw: int) -> str | None:
        """Say which demand on parameters a draw does not meet, where the library makes any."""
        return None

    @override
    def split(self, obs: slice) -> Split | None:
        return split_by_family(self, _spelt(self.likelihood.description), obs)

    @override
    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        """Find the modes on ever finer grids, unless the family of each draw tells its own."""
        name = _spelt(self.likelihood.description)
        bulk = None if detailed else bulk_by_family(self, name, obs)
        if bulk is None:
            return search_bulks(self, obs, multiples, detailed=detailed)
        return places_of([bulk], multiples, self.likelihood.support)

    def _tile(self, chain: int, draws: slice, obs: slice, *, derivatives: bool) -> Jet:
        """Evaluate at the observed outcomes; a pass asks for one tile twice in a row."""
        place = (chain, draws.start, draws.stop, draws.step, obs.start, obs.stop)
        for key in ((place, True), (place, derivatives)):
            if key in self._last:
                return self._last[key]
        jet = self.jets_at(
            self.observations.values[None, obs], chain, draws, obs, derivatives=derivatives
        )
        self._last.clear()
        if jet.logp.size <= AT_ONCE:
            self._last[place, derivatives] = jet
        return jet


S = TypeVar("S", bound=DensitySource)


def described(source: S, name: str, parts: Sequence[str] = (), *, original: bool = True) -> S:
    """Return the source with what the name of its likelihood, and the density itself, tell.

    What :mod:`lockquack.families` knows by name is taken from there. Where a density ends, and
    how it behaves there, depends on parameters or is not known by name, the density is looked at
    near and far from the observations.

    Parameters
    ----------
    source
        The source, with any likelihood description.
    name
        What to call the likelihood in messages and tables, ``"Gamma"``.
    parts
        Names of the distributions that it is made of, such as those of a ``"Mixture"``. What is
        wrong with any of them is wrong with the whole.
    original
        Whether the outcomes are those that the posterior was drawn with.
    """
    names = [_spelt(part) for part in (name, *parts)]
    families = [find_family(each) for each in names]
    refused = [
        find_refused(each) for each, family in zip(names, families, strict=True) if family is None
    ]
    if (
        source.likelihood.discrete
        or any(family.discrete for family in families if family is not None)
        or any(why.discrete for why in refused if why is not None)
    ):
        likelihood = replace(source.likelihood, description=name, discrete=True)
        source = replace(source, likelihood=likelihood)
        require_possible(source, name, source.violated, original=original)
        ends = _outcomes(names, families) or find_ends(source)
        return replace(source, likelihood=replace(likelihood, edges=ends))
    require_possible(source, name, source.violated, original=original)
    reasons = [why.not_smooth for why in refused if why is not None and why.not_smooth]
    reasons += [_NOT_SMOOTH[each] for each in names if each in _NOT_SMOOTH]
    if source.has_atoms:
        reasons.append("it has atoms: single outcomes with a probability, not a density")
    if not source.differentiable:
        reasons.append(
            "its derivatives with respect to the outcome are not known to the library it comes from"
        )
    edges: tuple[Edge, ...] = ()
    if not source.has_atoms:
        edges, problem = find_edges(source, names[1:] if names[0] == "mixture" else names[:1])
        reasons += [problem] if problem else []
    not_smooth = reasons[0] if reasons else ""
    likelihood = replace(source.likelihood, description=name, edges=edges, not_smooth=not_smooth)
    return replace(source, likelihood=likelihood)


#: Likelihoods that :mod:`lockquack.families.refused` does not know.
_NOT_SMOOTH = {
    "dirichlet": "its outcomes lie on a simplex, where components cannot vary on their own",
    "interpolated": "its density is interpolated between points, with kinks there",
}
_ALIASES = {"t": "studentt", "multivariatenormal": "mvnormal", "multivariatestudentt": "mvstudentt"}


def _spelt(name: str) -> str:
    """Spell a name as the families' names are, without what only separates words."""
    return _ALIASES.get(letters_of(name), letters_of(name))


def _outcomes(names: Sequence[str], families: Sequence[Family | None]) -> tuple[Edge, ...]:
    """First and last outcome of a discrete likelihood, where its name tells them."""
    if names[0] == "mixture":  # a zero-inflated one has a point mass at 0 beside its counts
        families = [
            family
            for name, family in zip(names[1:], families[1:], strict=True)
            if name != "diracdelta"
        ]
    else:
        families = families[:1]
    known = [family.support for family in families if family is not None]
    if not known or len(known) < len(families):
        return ()
    return Edge(min(low for low, _ in known), 0.0), Edge(max(high for _, high in known), 0.0)
