"""A model's draws at the observations: what every adapter produces."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed, collapse
from lockquack.draws.diagnostics import ess_mean
from lockquack.draws.psis import loo_densities
from lockquack.errors import NonFiniteError, UnsupportedError
from lockquack.families.base import Edge
from lockquack.jets import Array, Jet
from lockquack.models.observations import Observations
from lockquack.numeric import and_more
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.words import GIVE_DERIVATIVES, NAME_ITS_LIKELIHOOD

if TYPE_CHECKING:
    import xarray as xr

LOGP_GROUP = "log_likelihood"
GRAD_GROUP = "log_likelihood_grad"
CURV_GROUP = "log_likelihood_curv"
#: Which group of a container holds which part of the jets.
GROUPS = {"logp": LOGP_GROUP, "grad": GRAD_GROUP, "curv": CURV_GROUP}
#: What PyMC's sequential Monte Carlo calls it, among the sample statistics.
EVIDENCE = "log_marginal_likelihood"
#: Which observations: consecutive ones, or by position.
Selection = slice | NDArray[np.intp]
#: Observations whose draws are held at once when a statistic needs all of them together.
_OBS_AT_ONCE = 256

R = TypeVar("R")


@dataclass(frozen=True)
class Likelihood:
    """What is known about the density of one observation, given the parameters."""

    description: str
    discrete: bool = False
    #: Where the support ends and how the density behaves there; empty: not known.
    edges: tuple[Edge, ...] = ()
    #: Why the density lacks derivatives (a kink, an atom, censoring); empty: it is smooth.
    not_smooth: str = ""

    def to_attrs(self) -> dict[str, str]:
        """Turn it into attributes of a variable."""
        return {"lockquack_likelihood": json.dumps(asdict(self))}

    @classmethod
    def from_attrs(cls, attrs: Mapping[Any, Any], default: str) -> Likelihood:
        """Read it from the attributes of a variable; little is known where there are none."""
        if "lockquack_likelihood" not in attrs:
            return cls(default)
        fields = json.loads(attrs["lockquack_likelihood"])
        edges = tuple(Edge(**edge) for edge in fields.pop("edges"))
        return cls(edges=edges, **fields)

    def order_at(self, place: float) -> float | None:
        """Order of the density at a place: 0 inside its support, None outside."""
        orders = [edge.order for edge in self.edges if edge.at == place]
        if orders:
            return min(orders)
        low, high = self.support or (-np.inf, np.inf)
        return 0.0 if low < place < high else None

    @property
    def support(self) -> tuple[float, float] | None:
        """Outermost edges, or None where they are not known."""
        places = [edge.at for edge in self.edges]
        return (min(places), max(places)) if places else None


@dataclass(frozen=True)
class LooDensity:
    """Pareto-smoothed leave-one-out log densities and their diagnostic."""

    logp: Array  # (n,)
    pareto_k: Array  # (n,)
    #: Effect of each draw on Σ_i log p_i, to first order.
    influence: Array  # (chain, draw)


@dataclass(frozen=True, eq=False)
class Predictive(ABC):
    """Posterior draws of one model's log density, and its derivatives, at each observation.

    Made by :func:`from_arrays`, :func:`from_family`, :func:`from_datatree` and the other
    adapters, never directly. Nothing in it changes; passes over the draws are remembered.

    Examples
    --------
    >>> from lockquack.testing import example_models
    >>> model = example_models()["first"]
    >>> model
    <FamilyPredictive normal; chain: 4, draw: 250, obs_id: 40, components: 1>
    >>> model.has_derivatives, model.evaluable  # it can be locked; it can be sampled
    (True, True)
    """

    observations: Observations
    n_chains: int
    n_draws: int
    likelihood: Likelihood
    #: Log probability of all observations together under the prior, where the sampler knows it.
    log_marginal_likelihood: float | None = field(default=None, kw_only=True)
    #: Outcomes that were drawn with the draws, (chain, draw, observations, components if any).
    stored_outcomes: xr.DataArray | None = field(default=None, kw_only=True, repr=False)
    _passes: dict[tuple[Kind, bool], Collapsed] = field(
        default_factory=dict, init=False, repr=False
    )
    _loo: list[LooDensity] = field(default_factory=list, init=False, repr=False)

    @abstractmethod
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        """Log densities of a tile, shape (draws, obs)."""

    @abstractmethod
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        """First and second derivatives of a tile, each of shape (draws, obs, component)."""

    @property
    def has_derivatives(self) -> bool:
        """Whether :meth:`derivatives` works; without, there is the log score only."""
        return True

    def require_derivatives(self) -> None:
        """Raise an error that says what to do, where there are no derivatives."""
        if not self.has_derivatives:
            raise UnsupportedError(
                f"{self.likelihood.description} has log densities only, without derivatives in "
                "the outcome. ",
                GIVE_DERIVATIVES,
            )

    @property
    def evaluable(self) -> bool:
        """Whether :meth:`logp_at` works, so the density is known away from the observed values."""
        return False

    @property
    def same_everywhere(self) -> bool:
        """Whether the density is known to be the same function at all observations."""
        return False

    @property
    def is_complete(self) -> bool:
        """Whether the density integrates to one over the outcomes."""
        return True

    def logp_at(self, y: Array, chain: int, draws: slice, obs: Selection) -> Array:
        """Log densities at other outcomes ``y``, (point, obs, component) → (point, draws, obs)."""
        raise self._not_evaluable()

    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        """Outcomes that many spreads from each mode of the prediction, (mode, multiple, obs).

        For scalar outcomes. Where quadrature begins to look; in detail, where it looks again
        if it missed something.
        """
        raise self._not_evaluable()

    def jets_at(
        self, y: Array, chain: int, draws: slice, obs: Selection, *, derivatives: bool
    ) -> Jet:
        """Log densities and derivatives at other outcomes ``y``, (point, obs, component).

        Of shape (point, draws, obs), and (point, draws, obs, component) for the derivatives.
        """
        raise self._not_evaluable()

    def stored_logp(self, chain: int, draws: slice) -> Array | None:
        """Log densities that came with the draws, computed by whoever drew them, (draws, obs).

        None where there are none. They are compared with those of the model.
        """
        return None

    @property
    def can_draw(self) -> bool:
        """Whether :meth:`draw_outcomes` works."""
        return False

    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Selection, rng: np.random.Generator
    ) -> Array:
        """Draw one outcome from the likelihood of each of some draws, (draws, obs, component).

        NaN where the model draws something that no outcome corresponds to.
        """
        raise UnsupportedError(
            f"Outcomes cannot be drawn from {self.likelihood.description}: its density is known, "
            "but no generator of random numbers for it. Make the model with from_family, or give "
            "from_jax sample=."
        )

    def numbers_of_rows(self, data: Mapping[str, Any]) -> set[int]:
        """How many observations data for :meth:`with_data` are of: one number, if it is clear."""
        found: set[int] = set()
        for given in data.values():
            if isinstance(given, Mapping):
                found |= self.numbers_of_rows(given)
            elif np.ndim(given) > 0:
                found.add(len(given))
        return found

    def with_data(self, y: Any, /, **data: Any) -> Predictive:
        """Return the same posterior's predictions of other outcomes, with other data.

        Parameters
        ----------
        y
            The outcomes there.
        **data
            What else is different there: covariates or parameters.

        Returns
        -------
        Predictive
            The same draws, other observations.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> model.with_data([0.0, 1.0], x=[[0.5], [2.0]]).n_obs
        2
        """
        raise UnsupportedError(
            f"{self.likelihood.description} holds values at the observed outcomes only, so it "
            "cannot predict others. Compute its values there and give them as a model of their "
            "own, fit.predict_at({name: new_model, ...}), or make it with from_family or a PPL "
            "adapter."
        )

    @property
    def draws_are_contiguous(self) -> bool:
        """Whether neighbouring draws, not neighbouring observations, lie together in memory."""
        return False

    @property
    def is_thread_safe(self) -> bool:
        """Whether several threads may read tiles at once."""
        return False

    @property
    def is_computed(self) -> bool:
        """Whether reading takes so much work that it is worth sending elsewhere."""
        return True

    @property
    def is_read_in_place(self) -> bool:
        """Whether tiles are memory that is held, so that reading them makes no arrays."""
        return False

    def restrict(self, obs: slice) -> Self | None:
        """Return the same draws at some of the observations; None where it cannot be cut."""
        return None

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return self.observations.n

    @property
    def n_components(self) -> int:
        """Number of components of an outcome."""
        return self.observations.d

    @property
    def n_samples(self) -> int:
        """Number of draws in all chains together."""
        return self.n_chains * self.n_draws

    def collapse(
        self, kind: Kind = "loo", *, derivatives: bool = True, progressbar: bool | None = None
    ) -> Collapsed:
        """Predictive jet at every observation, averaged over the draws; see :func:`collapse`.

        Parameters
        ----------
        kind
            ``"loo"``, ``"in-sample"`` or ``"held-out"``.
        derivatives
            Without, densities only.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        Collapsed
            ``jet``, with the log density and its derivatives at each observation, and what their
            Monte Carlo errors need.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> model.collapse("loo").jet.grad.shape  # observations × components
        (40, 1)
        """
        key = kind, derivatives
        if key not in self._passes:
            with progress_bar(self.n_obs, "pass over draws", progressbar) as advance:
                collapsed = self.pass_over_draws(kind, derivatives=derivatives, progress=advance)
            self._require_finite(collapsed)
            self._passes[key] = collapsed
        return self._passes[key]

    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        """Average the draws; :meth:`collapse` remembers the result."""
        return collapse(self, kind, derivatives=derivatives, progress=progress)

    def map_groups(
        self, work: Callable[[Sequence[Predictive], slice], R], reads: Sequence[str]
    ) -> Iterator[R]:
        """Do the same work for every group of observations; yield the results in order.

        A group is small enough to hold all its draws at once. What the work reads, ``"logp"`` or
        ``"grad"`` and ``"curv"``, is for models that must fetch it.
        """
        return map_observations(work, (self,), self.observation_slices())

    def stretched(self, root: Array, slope: Array) -> Predictive | None:
        """Return the draws with derivatives √h g and h c + h' g, if they must be changed unread.

        Both of shape (n, d). None where they can be changed as they are read.
        """
        return None

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
        ``derivatives`` these are not even looked at: the jets have no components then, and
        leave-one-out needs no pass besides PSIS.
        """
        if kind == "loo" and not derivatives:
            return self._loo_densities(self.loo(progressbar=progressbar))
        collapsed = self.collapse(kind, derivatives=derivatives, progressbar=progressbar)
        if not density or kind != "loo":
            return collapsed
        loo = self.loo(progressbar=progressbar)
        jet = replace(collapsed.jet, logp=loo.logp)
        return replace(collapsed, jet=jet, log_influence=loo.influence)

    def _loo_densities(self, loo: LooDensity) -> Collapsed:
        nothing = np.empty((self.n_obs, 0))
        return Collapsed(
            Jet(loo.logp, nothing, nothing),
            np.empty((*loo.influence.shape, 0)),
            loo.influence,
            # As in a pass: the draws count equally, and Pareto k̂ tells where they do not.
            np.full(self.n_obs, float(self.n_samples)),
            self.n_samples,
        )

    def loo(self, *, progressbar: bool | None = None) -> LooDensity:
        """Pareto-smoothed leave-one-out log densities and k̂; slow next to a pass.

        Parameters
        ----------
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        LooDensity
            ``logp``, ``pareto_k`` and the ``influence`` of each draw.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> loo = model.loo()
        >>> float(loo.logp.sum().round(1)), float(loo.pareto_k.max().round(1))
        (-75.7, 0.6)
        """
        if not self._loo:
            parts = []
            with progress_bar(self.n_obs, "PSIS", progressbar) as advance:
                for part in self.map_groups(_loo_of_group, ("logp",)):
                    parts.append(part)
                    advance(part.logp.size)
            self._loo.append(
                LooDensity(
                    np.concatenate([part.logp for part in parts]),
                    np.concatenate([part.pareto_k for part in parts]),
                    self.n_samples * np.sum([part.influence for part in parts], axis=0),
                )
            )
        return self._loo[0]

    def ess(self) -> xr.Dataset:
        """Effective sample sizes of the two averages in the leave-one-out Hyvärinen score.

        Per observation: of the gradient g and of h + g² (h the second derivative), by ArviZ.

        Returns
        -------
        xarray.Dataset
            ``grad`` and ``curv``, over observations.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> bool((model.ess()["grad"] > 400).all())
        True
        """
        import xarray as xr

        grads, squares = zip(*self.map_groups(_ess_of_group, ("grad", "curv")), strict=True)
        label = self.observations.label_components
        return xr.Dataset(
            {"grad": label(np.concatenate(grads)), "curv": label(np.concatenate(squares))}
        )

    def with_likelihood(self, likelihood: Likelihood) -> Self:
        """Return the same draws with another description of their density."""
        return replace(self, likelihood=likelihood)

    def to_datatree(self, var_name: str | None = None) -> xr.DataTree:
        """Hold the model in an ArviZ container, from which :func:`from_datatree` takes it back.

        Log densities and, where there are any, derivatives at every draw and observation are
        computed and stored. The outcome is called ``y`` unless ``var_name`` says otherwise.

        Parameters
        ----------
        var_name
            What to call the outcome, ``y`` by default.

        Returns
        -------
        xarray.DataTree
            Groups ``log_likelihood``, ``observed_data`` and, where there are any, the derivatives.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> sorted(model.to_datatree().children)
        ['log_likelihood', 'log_likelihood_curv', 'log_likelihood_grad', 'observed_data']
        """
        import xarray as xr

        name = var_name or self._outcome_name()
        sample = {"chain": np.arange(self.n_chains), "draw": np.arange(self.n_draws)}
        draws = self.labelled_draws(sample)
        draws["logp"].attrs = self.likelihood.to_attrs()
        groups = {GROUPS[part]: xr.Dataset({name: array}) for part, array in draws.items()}
        return xr.DataTree.from_dict({**groups, **self.small_groups(name)})

    def labelled_draws(self, sample: Mapping[str, Any]) -> dict[str, xr.DataArray]:
        """Log densities and, where there are any, derivatives at all draws and observations.

        ``sample`` has the labels of chains and draws.
        """
        values = all_draws((self,), slice(0, self.n_obs), self.has_derivatives)
        label, label_each = self.observations.label, self.observations.label_components
        return {
            part: (label if part == "logp" else label_each)(array, sample)
            for part, array in values.items()
        }

    def small_groups(self, name: str) -> dict[str, xr.Dataset]:
        """Return what a container holds besides the draws."""
        import xarray as xr

        groups = {"observed_data": xr.Dataset({name: self.observations.to_dataarray()})}
        if self.log_marginal_likelihood is not None:
            each = np.full(self.n_chains, self.log_marginal_likelihood)
            chains = {"chain": np.arange(self.n_chains)}
            groups["sample_stats"] = xr.Dataset({EVIDENCE: ("chain", each)}, chains)
        return groups

    def _outcome_name(self) -> str:
        taken = (*self.observations.dims, self.observations.component_dim)
        return "outcome" if "y" in taken else "y"

    def to_zarr(
        self,
        path: str | Path,
        *,
        dtype: str = "float64",
        var_name: str | None = None,
        progressbar: bool | None = None,
    ) -> None:
        """Write to a Zarr store, group by group of observations, for :func:`from_datatree`.

        The store is that of :meth:`to_datatree`, but about 100 MB of it are held per thread, so
        that it may be much larger than memory. A chunk has all draws of some observations,
        as passes over draws want it. Where a dask client is active its workers write: they must
        see the same path.

        Parameters
        ----------
        path
            Where to write. A store that lockquack wrote is replaced, an empty folder too; any
            other folder is refused.
        dtype
            ``"float32"`` halves the size. Passes add up in double precision, so what is lost are
            the digits beyond the seventh of each density and derivative.
        var_name
            What to call the outcome, ``y`` by default.
        progressbar
            Whether to show progress; by default in a terminal only.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> import tempfile
        >>> import lockquack as lq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.to_zarr(f"{folder}/first.zarr")
        ...     lq.from_datatree(f"{folder}/first.zarr", lazy=False)
        <ArrayPredictive normal; chain: 4, draw: 250, obs_id: 40, components: 1>
        """
        from lockquack.files.streaming import stream_to_zarr

        stream_to_zarr(self, path, dtype, var_name or self._outcome_name(), progressbar)

    def save(self, path: str | Path) -> None:
        """Write to NetCDF, or to Zarr if the path ends in ``.zarr``, for :func:`from_datatree`.

        Zarr stores are written group by group of observations, by :meth:`to_zarr`.

        Parameters
        ----------
        path
            Where to write. A file that is there is replaced, and so is a store that lockquack
            wrote; any other folder that is not empty is refused.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> import tempfile
        >>> import lockquack as lq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/first.nc")
        ...     lq.from_datatree(f"{folder}/first.nc")
        <ArrayPredictive normal; chain: 4, draw: 250, obs_id: 40, components: 1>
        """
        from lockquack.files.places import require_place
        from lockquack.files.storage import write_tree

        require_place(path)
        if Path(path).suffix == ".zarr":
            self.to_zarr(path)
        else:
            write_tree(self.to_datatree(), path)

    def all_logp(self, obs: slice) -> Array:
        """All log densities at some observations, (chain, draw, obs)."""
        draws = slice(0, self.n_draws)
        return np.stack([self.logp(chain, draws, obs) for chain in range(self.n_chains)])

    def observation_slices(self) -> list[slice]:
        """Cut the observations into groups small enough to hold all their draws at once."""
        return cut(slice(0, self.n_obs), _OBS_AT_ONCE)

    def _not_evaluable(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.likelihood.description} holds values at the observed outcomes only, so its "
            "density elsewhere is not known. ",
            NAME_ITS_LIKELIHOOD,
        )

    def _require_finite(self, collapsed: Collapsed) -> None:
        finite = np.isfinite(collapsed.jet.grad + collapsed.jet.curv).all(axis=1)
        if not finite.all():
            first = int(np.flatnonzero(~finite)[0])
            raise NonFiniteError(
                f"The derivatives of {self.likelihood.description} are not finite at "
                f"{self.observations.describe(first)}{and_more(int(np.sum(~finite)) - 1)}."
            )

    def _repr_html_(self) -> str:
        from lockquack.combination.table import model_as_html

        return model_as_html(self)

    def __repr__(self) -> str:
        grid = " × ".join(
            f"{dim}: {size}"
            for dim, size in zip(self.observations.dims, self.observations.shape, strict=True)
        )
        return (
            f"<{type(self).__name__} {self.likelihood.description}; chain: {self.n_chains}, "
            f"draw: {self.n_draws}, {grid}, components: {self.observations.d}>"
        )


def cut(obs: slice, length: int) -> list[slice]:
    """Cut consecutive observations into slices of at most that length.

    Examples
    --------
    >>> cut(slice(5, 10), 3)
    [slice(5, 8, None), slice(8, 10, None)]
    """
    starts = range(obs.start, obs.stop, length)
    return [slice(start, min(start + length, obs.stop)) for start in starts]


def all_draws(models: Sequence[Predictive], obs: slice, derivatives: bool) -> dict[str, Array]:
    """All draws of a model at some observations, (chain, draw, obs) or with components last."""
    (model,) = models
    values = {"logp": model.all_logp(obs)}
    if derivatives:
        values["grad"], values["curv"] = _all_derivatives(model, obs)
    return values


def _all_derivatives(model: Predictive, obs: slice) -> tuple[Array, Array]:
    draws = slice(0, model.n_draws)
    tiles = [model.derivatives(chain, draws, obs) for chain in range(model.n_chains)]
    return np.stack([grad for grad, _ in tiles]), np.stack([curv for _, curv in tiles])


def _loo_of_group(models: Sequence[Predictive], obs: slice) -> LooDensity:
    """Leave-one-out densities of some observations; the influence lacks the number of draws."""
    (model,) = models
    by_draw = (model.n_chains, model.n_draws)
    rows = np.empty((obs.stop - obs.start, *by_draw))
    for chain in range(model.n_chains):
        rows[:, chain] = model.logp(chain, slice(0, model.n_draws), obs).T
    logp, pareto_k, influence = loo_densities(rows.reshape(-1, model.n_samples))
    return LooDensity(logp, pareto_k, influence.reshape(by_draw))


def _ess_of_group(models: Sequence[Predictive], obs: slice) -> tuple[Array, Array]:
    grad, curv = _all_derivatives(models[0], obs)
    return _ess_by_component(grad), _ess_by_component(curv + grad * grad)


def _ess_by_component(draws: Array) -> Array:
    flat = draws.reshape(*draws.shape[:2], -1)
    return ess_mean(flat).reshape(draws.shape[2:])
