"""What a user holds: a model, which is a source of draws and the averages over them."""

from __future__ import annotations

import html
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import xarray as xr

from lockquack.arithmetic import methods_in_own_arithmetic
from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.errors import ParameterError
from lockquack.files.formats import require_store_place, write
from lockquack.models import containers
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import Observations
from lockquack.models.passes import LooDensity, Passes, effective_sizes
from lockquack.models.source import Source


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """One model's posterior predictions of some observations, ready to be combined.

    Made by :func:`from_family`, :func:`from_pymc`, :func:`from_datatree` and their relatives.
    Nothing in it changes; passes over the draws are remembered.

    Attributes
    ----------
    source
        Where the densities come from, and what it can do: ``model.source.can``.

    Examples
    --------
    >>> from lockquack.testing import example_models
    >>> model = example_models()["first"]
    >>> model
    <Model normal; chain: 4, draw: 250, obs_id: 40, components: 1>
    >>> model.source.can.differentiate, model.source.can.evaluate  # to be locked; to be sampled
    (True, True)
    """

    source: Source
    #: The averages over its draws, for the rest of this library.
    passes: Passes = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.source, Source):
            raise ParameterError(
                f"A Model is made of a Source; got a {type(self.source).__name__}. Use the "
                "function for it: from_datatree, from_family, from_pymc and their relatives."
            )
        object.__setattr__(self, "passes", Passes(self.source))

    @property
    def observations(self) -> Observations:
        """The outcomes that it predicts, and their labels."""
        return self.source.observations

    @property
    def likelihood(self) -> Likelihood:
        """What is known about the density of one observation, given the parameters."""
        return self.source.likelihood

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return self.source.n_chains

    @property
    def n_draws(self) -> int:
        """Number of draws in a chain."""
        return self.source.n_draws

    @property
    def log_marginal_likelihood(self) -> float | None:
        """Log probability of all observations under the prior, where the sampler knows it."""
        return self.source.log_marginal_likelihood

    def collapse(
        self, kind: Kind = "loo", *, derivatives: bool = True, progressbar: bool | None = None
    ) -> Collapsed:
        """Predictive jet at every observation, averaged over the draws.

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
        return self.passes.collapse(kind, derivatives=derivatives, progressbar=progressbar)

    def loo(self, *, progressbar: bool | None = None) -> LooDensity:
        """Pareto-smoothed leave-one-out log densities and k̂; slower than a pass over the draws.

        Parameters
        ----------
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        LooDensity
            ``logp``, ``pareto_k`` and the ``effect`` of each draw on their total.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> loo = model.loo()
        >>> float(loo.logp.sum().round(1)), float(loo.pareto_k.max().round(1))
        (-75.7, 0.6)
        """
        return self.passes.loo(progressbar=progressbar)

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
        grad, curv = effective_sizes(self.source)
        label = self.observations.label_components
        return xr.Dataset({"grad": label(grad), "curv": label(curv)})

    def with_data(self, y: Any, /, **data: Any) -> Model:
        """Return the same posterior's predictions of other outcomes, with other data.

        Parameters
        ----------
        y
            The outcomes there.
        **data
            What else is different there. For :func:`from_family`: ``x``, the covariates of the
            parameters that are a :func:`linear_predictor` (a dict by parameter where these
            differ), and ``offset`` if there was one, or parameters by name; those that are the
            same at all observations stay as they are. For :func:`from_pymc`: values of
            ``pm.Data`` containers by name. For :func:`from_bambi`: ``newdata``, a DataFrame. For
            :func:`from_jax`: its ``data``. For :func:`from_numpyro`: the arguments that change.

        Returns
        -------
        Model
            The same draws, other observations.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> model.with_data([0.0, 1.0], x=[[0.5], [2.0]])
        <Model normal; chain: 4, draw: 250, obs_id: 2, components: 1>
        """
        return Model(self.source.with_data(y, **data).named(self.observations.name))

    def with_weights(self, weights: Any) -> Model:
        r"""Return the same model with case weights: how often each observation counts.

        An observation of weight :math:`w_i` counts :math:`w_i` times in every total of scores,
        :math:`\sum_i w_i s_i`, and so in every fit: weights of whole numbers do what repeating the
        observations would. All models that are combined need the same weights. Sources take them
        as ``weights=`` as well.

        Standard errors and the Bayesian bootstrap do not treat them as repetitions: they
        take each observation, whatever its weight, for one independent observation, as is right
        for the weights of surveys. Twice the weights everywhere do not make anything more certain.
        The draws stay as they are: whether the model was *fitted* with weights, and
        with which, is up to whoever fitted it. Leave-one-out leaves one copy of the
        observation out.

        Parameters
        ----------
        weights
            One number for each observation, not negative: an array, a Series or a DataArray,
            whose labels must be those of the outcomes. None: once each.

        Returns
        -------
        Model
            The same draws and observations.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> models = {
        ...     name: model.with_weights([2.0] * 20 + [0.0] * 20)
        ...     for name, model in example_models().items()
        ... }
        >>> models["first"]
        <Model normal; chain: 4, draw: 250, obs_id: 40, components: 1, case weights: 40>
        >>> lq.lock(models).weights.round(2).to_series().to_dict()
        {'first': 0.28, 'second': 0.72}
        """
        if weights is None:
            return self
        return Model(replace(self.source, observations=self.observations.weighted(weights)))

    def to_datatree(self, var_name: str | None = None) -> xr.DataTree:
        """Put the model into an ArviZ container, which :func:`from_datatree` reads.

        Log densities and, where there are any, derivatives at every draw and observation are
        computed and stored.

        Parameters
        ----------
        var_name
            What to call the outcome; by default its own name, or ``y`` if it has none.

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
        return containers.to_datatree(self.source, var_name)

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
            What to call the outcome, as for :meth:`to_datatree`.
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
        <Model normal; chain: 4, draw: 250, obs_id: 40, components: 1>
        """
        containers.to_zarr(
            self.source, path, dtype=dtype, var_name=var_name, progressbar=progressbar
        )

    def save(self, path: str | Path) -> None:
        """Write to NetCDF, or to Zarr if the path ends in ``.zarr``, for :func:`from_datatree`.

        Zarr stores are written group by group of observations, by :meth:`to_zarr`.

        Parameters
        ----------
        path
            Where to write. A file or Zarr store that lockquack wrote is replaced, and so is an
            empty one; any other is refused.

        Examples
        --------
        >>> from lockquack.testing import example_models
        >>> model = example_models()["first"]
        >>> import tempfile
        >>> import lockquack as lq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/first.nc")
        ...     lq.from_datatree(f"{folder}/first.nc")
        <Model normal; chain: 4, draw: 250, obs_id: 40, components: 1>
        """
        require_store_place(path, kind=frozenset())
        if Path(path).suffix == ".zarr":
            self.to_zarr(path)
        else:
            write(self.to_datatree(), path)

    def __repr__(self) -> str:
        return f"<Model {self.source.describe()}>"

    def _repr_html_(self) -> str:
        return _as_html(self.source)


def already_said(models: Mapping[str, Model]) -> dict[str, set[Hashable]]:
    """Return the remarks made on each model before, by name; for :func:`remarks.warn`."""
    return {name: model.passes.said for name, model in models.items()}


def sources_of(models: Mapping[str, Model]) -> dict[str, Source]:
    """Return the models' sources by name: what everything below users works on."""
    return {name: model.source for name, model in models.items()}


def _counted_draws(source: Source) -> str:
    if not source.n_samples:
        return "none"
    return f"{source.n_chains} chain{'s' if source.n_chains > 1 else ''} of {source.n_draws}"


def _as_html(source: Source) -> str:
    """Describe a model for a notebook."""
    observations, can = source.observations, source.can
    sizes = " × ".join(f"{dim}: {size}" for dim, size in observations.sizes.items())
    components = f", {observations.d} components each" if observations.d > 1 else ""
    facts = {
        "likelihood": source.likelihood.description,
        "draws": _counted_draws(source),
        "observations": sizes + components,
        "derivatives in y": "yes" if can.differentiate else "no: for the log score only",
        "density known at": "any outcome" if can.evaluate else "the observed outcomes only",
    }
    if source.case_weights is not None:
        facts["case weights"] = f"sum {source.case_weights.sum():g}"
    if observations.kept is not None:
        facts["rows left out"] = str(observations.kept)
    if source.outcome_draws is not None:
        facts["predictive draws"] = "yes: for the calibration of mixtures"
    rows = "".join(
        f'<tr><th style="text-align: left">{name}</th>'
        f'<td style="text-align: left">{html.escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"
