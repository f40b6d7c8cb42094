"""What an adapter implements: a source of densities, read in tiles of draws × observations.

A new source of models is one file. Subclass :class:`Source`, as a frozen dataclass, and implement

- ``logp``: log densities of a tile, some draws of one chain at some consecutive observations;
- ``derivatives``: their first and second derivatives **in the outcome**, not in the parameters.

That is enough to lock, to stack and to compare. Whatever else it can do it says in ``can``, an
:class:`Abilities`, and does in the method that goes with it::

    @dataclass(frozen=True, eq=False, repr=False)
    class MySource(Source):
        theta: Array  # (chain, draw)

        @property
        def can(self) -> Abilities:
            return Abilities(evaluate=True, be_shared=True)

        def logp(self, chain, draws, obs): ...  # (draws, obs)
        def derivatives(self, chain, draws, obs): ...  # twice (draws, obs, component)

        # can.evaluate:
        def jets_at(self, y, chain, draws, obs, *, derivatives): ...
        def bulks(self, obs, multiples, *, detailed): ...

    def from_mine(fit, *, y) -> Model:
        observations = as_observations(y)
        return Model(MySource(observations, 4, 1000, Likelihood("gamma"), fit.theta))

and one line in the package's ``__init__.py`` that says where ``from_mine`` lives. For a density
that a library evaluates anywhere, :mod:`lockquack.sources.density` derives all of this from one
method.

A source holds no results: averages over its draws are remembered by
:class:`lockquack.models.passes.Passes`, and what users hold is a
:class:`lockquack.models.model.Model` around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed, collapse
from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.draws.psis import psis_rows
from lockquack.draws.tails import TAILS
from lockquack.errors import UnsupportedError
from lockquack.families.base import Split
from lockquack.jets import Array, Jet, log_sum_exp, transpose_into
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import Observations
from lockquack.numeric import cut
from lockquack.parallel.mapping import map_observations
from lockquack.transforms import Change
from lockquack.words import GIVE_DERIVATIVES, NAME_ITS_LIKELIHOOD, STACKING

#: Some of the observations: consecutive ones, or by position.
Subset = slice | NDArray[np.intp]
#: Observations whose draws are held at once when a statistic needs all of them together.
_OBS_AT_ONCE = 256
R = TypeVar("R")


@dataclass(frozen=True)
class Abilities:
    """What a source can do.

    Examples
    --------
    >>> from lockquack.testing import example_models
    >>> source = example_models()["first"].source
    >>> source.can.differentiate, source.can.evaluate, source.can.draw
    (True, True, True)
    """

    #: Give its density at the observed outcomes; without, draws of outcomes are all there is.
    know_density: bool = True
    #: Give the derivatives of its density in the outcome; without, there is the log score only.
    differentiate: bool = True
    #: Give its density at any outcome: ``logp_at``, ``jets_at`` and ``bulks`` work.
    evaluate: bool = False
    #: Be evaluated at one observation for all: the density is the same function everywhere.
    evaluate_once: bool = False
    #: Integrate to one over the outcomes; a transform may leave mass that no outcome accounts for.
    integrate_to_one: bool = True
    #: Predict an observation without being told the outcomes of others, unlike a series.
    predict_alone: bool = True
    #: Be read by several threads at once.
    be_shared: bool = False
    #: Be sent to a cluster: reading it takes so much work that sending it pays.
    be_sent: bool = True
    #: Hand out tiles of memory that it holds, so that reading them makes no arrays.
    read_in_place: bool = False
    #: Be read along draws: these, not neighbouring observations, lie together in memory.
    read_along_draws: bool = False
    #: Whether there is a generator of outcomes, or a function that finds out: it may compile one.
    has_generator: bool | Callable[[], bool] = False

    @property
    def draw(self) -> bool:
        """Draw random outcomes: ``draw_outcomes`` works."""
        found = self.has_generator
        return found() if callable(found) else found


@dataclass(frozen=True)
class FixedWeights:
    """Weights of draws that came from another posterior than the one that predicts."""

    log_weights: Array  # (chain, draw)
    pareto_k: float


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """Posterior draws of one model's log density, and its derivatives, at each observation.

    Nothing in it changes.
    """

    observations: Observations
    n_chains: int
    n_draws: int
    likelihood: Likelihood
    #: Log probability of all observations together under the prior, where the sampler knows it.
    log_marginal_likelihood: float | None = field(default=None, kw_only=True)
    #: Draws at which the sampler noted a divergence, where it is known.
    divergent: int = field(default=0, kw_only=True)
    #: Outcomes that were drawn with the draws, (chain, draw, observations, components if any).
    outcome_draws: xr.DataArray | None = field(default=None, kw_only=True, repr=False)
    #: Whether the model was fitted without the observations that it predicts.
    held_out: bool = field(default=False, kw_only=True)
    #: Whether it is one of several chains, taken by itself on purpose.
    is_split: bool = field(default=False, kw_only=True)

    # What every source implements

    @abstractmethod
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        """Log densities of a tile, shape (draws, obs)."""

    @abstractmethod
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        """First and second derivatives of a tile, each of shape (draws, obs, component)."""

    # What some sources implement besides

    @property
    def can(self) -> Abilities:
        """What it can do besides handing out tiles."""
        return Abilities()

    @property
    def known_where(self) -> str:
        """What keeps it from being evaluated anywhere, as said after the name of a model."""
        return "is known at the observed outcomes only"

    def logp_at(self, y: Array, chain: int, draws: slice, obs: Subset) -> Array:
        """Log densities at other outcomes ``y``, (point, obs, component) → (point, draws, obs)."""
        return self.jets_at(y, chain, draws, obs, derivatives=False).logp

    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        """Log densities and derivatives at other outcomes ``y``, (point, obs, component).

        Of shape (point, draws, obs), and (point, draws, obs, component) for the derivatives,
        which may be empty where they are not wanted. ``draws`` may have a step. Outside the
        support the log density is −inf.
        """
        raise self._not_evaluable()

    def split(self, obs: slice) -> Split | None:
        """Split the log density of all draws at some observations, for compiled sums over them.

        Its constant and parameters are (obs or 1, sample). None where it cannot be split.
        """
        return None

    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        """Outcomes that many spreads from each mode of the prediction, (mode, multiple, obs).

        For scalar outcomes. Where quadrature begins to look; in detail, where it looks again
        if it missed something.
        """
        raise self._not_evaluable()

    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Subset, rng: np.random.Generator
    ) -> Array:
        """Draw one outcome from the likelihood of each of some draws, (draws, obs, component).

        NaN where the model draws something that no outcome corresponds to.
        """
        raise UnsupportedError(
            f"Outcomes cannot be drawn from {self.likelihood.description}: its density is known, "
            "but no generator of random numbers for it. Make the model with from_family, or give "
            "from_jax sample=."
        )

    def stored_logp(self, chain: int, draws: slice) -> Array | None:
        """Log densities that came with the draws, computed by whoever drew them, (draws, obs).

        None where there are none. They are compared with those of the model.
        """
        return None

    def stored_loo(self) -> tuple[Array, Array] | None:
        """Leave-one-out log densities and k̂ that came without draws, each (n,).

        None where the draws tell.
        """
        return None

    # How observations are left out

    def left_out(self) -> Source:
        """Return what predicts each observation as if it was left out: mostly the same draws."""
        return self

    def pieces(self) -> Sequence[tuple[NDArray[np.intp], Source]] | None:
        """Return places, and what predicts there, where draws are averaged in different ways.

        None where all observations are alike.
        """
        return None

    @property
    def fixed_weights(self) -> FixedWeights | None:
        """Weights with which the draws are of the posterior that it predicts by; None: equal."""
        return None

    @property
    def left_out_by(self) -> str:
        """How it predicts observations that are left out, in a word or two."""
        return "held out" if self.is_left_out else "PSIS"

    @property
    def each_left_out_by(self) -> NDArray[np.str_]:
        """How each observation is predicted where it is left out, (n,)."""
        return np.broadcast_to(np.array(self.left_out_by), self.n_obs)  # in no memory

    @property
    def is_one_step_ahead(self) -> bool:
        """Whether each observation is predicted from all before it, and from no others."""
        return False

    def draw_weights(self, obs: slice, *, loo: bool) -> tuple[Array | None, Array]:
        """Log weights of the draws at some observations, (chain, draw, obs), and k̂, (obs,).

        None where they are equal, and k̂ is zero there. With ``loo``, as if each was left out.
        """
        n = obs.stop - obs.start
        fixed = self.fixed_weights
        if fixed is not None:
            normalised = fixed.log_weights - log_sum_exp(fixed.log_weights.ravel())
            weights = np.broadcast_to(normalised[..., None], (*normalised.shape, n))
            return weights, np.full(n, fixed.pareto_k)
        if not loo or self.is_left_out:
            return None, np.zeros(n)
        rows = self.logp_rows(obs)
        tails = psis_rows(rows.reshape(n, -1), TAILS.get(self, obs))
        TAILS.keep(self, obs, tails)
        return np.moveaxis(rows, 0, 2), tails.pareto_k

    # What else some sources do

    def with_data(self, y: Any, /, **data: Any) -> Source:
        """Return the same posterior's predictions of other outcomes, with other data."""
        raise UnsupportedError(
            f"{self.likelihood.description} holds values at the observed outcomes only, so it "
            "cannot predict others. Compute its values there and give them as a model of their "
            "own, fit.predict(models={name: new_model, ...}), or make it with from_family or a PPL "
            "adapter."
        )

    def data_names(self) -> frozenset[str] | None:
        """Names of the data that :meth:`with_data` takes; None where that is not known."""
        return None

    def numbers_of_rows(self, data: Mapping[str, Any]) -> set[int]:
        """Numbers of observations found in data for :meth:`with_data`: one where they agree."""
        found: set[int] = set()
        for given in data.values():
            if isinstance(given, Mapping):
                found |= self.numbers_of_rows(given)
            elif np.ndim(given) > 0:
                found.add(len(given))
        return found

    def one_chain(self, chain: int) -> Source | None:
        """Return one chain by itself, where arrays are held; None where it is read from this."""
        return None

    def restrict(self, obs: slice) -> Self | None:
        """Return the same draws at some of the observations; None where it cannot be cut."""
        return None

    # How draws are read that are not in memory

    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        """Average the draws; :class:`~lockquack.models.passes.Passes` remembers the result."""
        fixed = self.fixed_weights
        log_weights = None if fixed is None else fixed.log_weights
        return collapse(
            self, kind, log_weights=log_weights, derivatives=derivatives, progress=progress
        )

    def map_groups(
        self, work: Callable[[Sequence[Source], slice], R], reads: Sequence[str]
    ) -> Iterator[R]:
        """Do the same work for every group of observations; yield the results in order.

        A group is small enough to hold all its draws at once. What the work reads, ``"logp"`` or
        ``"grad"`` and ``"curv"``, is for sources that must fetch it.
        """
        return map_observations(work, (self,), self.observation_slices())

    def changed(self, change: Change) -> Source | None:
        """Return a source of the changed jets, if the draws lie elsewhere and are changed there.

        None where they can be changed as they are read.
        """
        return None

    def dask_draws(self, dtype: str | None = None) -> Mapping[str, Any] | None:
        """Return ``logp`` and, where there are any, ``grad`` and ``curv`` that are dask arrays.

        With a ``dtype``, of that type and in chunks that a store wants. None where the draws are
        read, not held by dask.
        """
        return None

    # What follows from these

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return self.observations.n

    @property
    def n_components(self) -> int:
        """Number of components of an outcome."""
        return self.observations.d

    @property
    def case_weights(self) -> Array | None:
        """How often each observation counts, (n,); None: once each."""
        return self.observations.weights

    @property
    def n_samples(self) -> int:
        """Number of draws in all chains together."""
        return self.n_chains * self.n_draws

    @property
    def is_exact(self) -> bool:
        """Whether its prediction is known without Monte Carlo: it is that of its only draw."""
        return self.n_samples == 1

    @property
    def is_left_out(self) -> bool:
        """Whether its prediction of an observation stays the same when that is left out.

        It was fitted without it; or there are no draws that could be weighted, and the prediction
        is what it is.
        """
        return self.held_out or self.is_exact

    @property
    def is_sample(self) -> bool:
        """Whether its draws were drawn, so that they have a Monte Carlo error."""
        return True

    @property
    def has_quadrature(self) -> bool:
        """Whether outcomes are single numbers, and its density is known at any of them."""
        return self.can.evaluate and self.n_components == 1

    @property
    def lacks_chains(self) -> bool:
        """Whether there is one chain where several would tell how well they agree."""
        return self.n_chains < 2 and not (self.is_exact or self.is_split)

    @property
    def pareto_limit(self) -> float:
        """Largest Pareto k̂ at which its leave-one-out densities can be relied on."""
        return pareto_k_threshold(self.n_samples)

    def common_fields(self) -> dict[str, Any]:
        """Return the fields of every source, for a source that is made of this one."""
        return {field.name: getattr(self, field.name) for field in fields(Source)}

    def draws_of(self, chain: int) -> xr.DataArray | None:
        """Outcomes that were drawn with the draws of one chain, if there are any."""
        return None if self.outcome_draws is None else self.outcome_draws.isel(chain=[chain])

    def named(self, outcome: str | None) -> Self:
        """Return the same with a name for the outcome, unless it has one."""
        if outcome is None or self.observations.name is not None:
            return self
        return replace(self, observations=replace(self.observations, name=outcome))

    def all_logp(self, obs: slice) -> Array:
        """All log densities at some observations, (chain, draw, obs)."""
        draws = slice(0, self.n_draws)
        return np.stack([self.logp(chain, draws, obs) for chain in range(self.n_chains)])

    def logp_rows(self, obs: slice) -> Array:
        """All log densities at some observations, (obs, chain, draw): draws lie together."""
        rows = np.empty((obs.stop - obs.start, self.n_chains, self.n_draws))
        for chain in range(self.n_chains):
            transpose_into(rows[:, chain], self.logp(chain, slice(0, self.n_draws), obs))
        return rows

    def all_derivatives(self, obs: slice) -> tuple[Array, Array]:
        """All derivatives at some observations, each (chain, draw, obs, component)."""
        draws = slice(0, self.n_draws)
        tiles = [self.derivatives(chain, draws, obs) for chain in range(self.n_chains)]
        return np.stack([grad for grad, _ in tiles]), np.stack([curv for _, curv in tiles])

    def observation_slices(self) -> list[slice]:
        """Cut the observations into groups small enough to hold all their draws at once."""
        return cut(slice(0, self.n_obs), _OBS_AT_ONCE)

    def require_density(self) -> None:
        """Refuse to be scored by densities, where there are none."""
        if not self.can.know_density:
            raise self._not_evaluable()

    def require_derivatives(self) -> None:
        """Raise an error that says what to do, where there are no derivatives."""
        if self.likelihood.discrete:
            raise UnsupportedError(
                f"{self.likelihood.description} is discrete: it has no derivatives with respect "
                "to the outcome. Its log densities are enough for ",
                STACKING,
                ".",
            )
        if not self.can.differentiate:
            raise UnsupportedError(
                f"{self.likelihood.description} has log densities only, without derivatives in "
                "the outcome. ",
                GIVE_DERIVATIVES,
            )

    def describe(self) -> str:
        """Say in a line what it is of, and how large."""
        grid = " × ".join(f"{dim}: {size}" for dim, size in self.observations.sizes.items())
        weights, kept = self.case_weights, self.observations.kept
        return (
            f"{self.likelihood.description}; chain: {self.n_chains}, draw: {self.n_draws}, "
            f"{grid}, components: {self.observations.d}"
            + ("" if weights is None else f", case weights: {weights.sum():g}")
            + ("" if kept is None else f", left out: {kept}")
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}>"

    def _not_evaluable(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.likelihood.description} holds values at the observed outcomes only, so its "
            "density elsewhere is not known. ",
            NAME_ITS_LIKELIHOOD,
        )
