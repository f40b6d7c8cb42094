"""Models given as a likelihood's name and draws of its parameters."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ParameterError, ShapeError, SupportError, naming
from lockquack.families import Family, Mixture, get_family
from lockquack.families.base import Split, join_splits
from lockquack.jets import Array, Jet, bare
from lockquack.models.labels import merge_labels
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import (
    Observations,
    as_observations,
    require_inside,
    require_whole,
)
from lockquack.models.source import Abilities, Source, Subset
from lockquack.models.transformed import discrete_outcome, on_natural_scale, on_scale_of_model
from lockquack.sources.bulks import DRAWS_OF_BULKS, bulk_of_draws, places_of
from lockquack.sources.new_data import move_parameters, names_of_data, rows_of_parameter
from lockquack.sources.parameter_reading import as_parameter, require_domain, user_name
from lockquack.sources.parameters import ArrayParameter, LazyRange, Parameter


@dataclass(frozen=True, eq=False, repr=False)
class FamilySource(Source):
    """Draws of a family's parameters; densities and derivatives are computed as they are read."""

    family: Family
    parameters: Mapping[str, Parameter]

    @property
    @override
    def can(self) -> Abilities:
        return Abilities(
            differentiate=not self.family.discrete,
            evaluate=True,
            evaluate_once=all(
                isinstance(each, ArrayParameter) and each.values.shape[2] == 1
                for each in self.parameters.values()
            ),
            be_shared=True,
            has_generator=True,
        )

    @override
    def restrict(self, obs: slice) -> Self:
        return replace(
            self,
            observations=self.observations.restrict(obs),
            parameters={name: each.restrict(obs) for name, each in self.parameters.items()},
        )

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return np.asarray(self.logp_at(self.observations.values[None, obs], chain, draws, obs)[0])

    @override
    def logp_at(self, y: Array, chain: int, draws: slice, obs: Subset) -> Array:
        p = self._parameters(chain, draws, obs)
        logp = self.family.logp(self._outcome(y[:, None]), p)
        return np.broadcast_to(logp, (len(y), self._count(draws), y.shape[1]))

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        p = self._parameters(chain, draws, obs)
        grad, curv = self.family.derivatives(self._outcome(self.observations.values[None, obs]), p)
        if not self.family.multivariate:
            grad, curv = grad[..., None], curv[..., None]
        shape = (self._count(draws), *self.observations.values[obs].shape)
        return np.broadcast_to(grad, shape), np.broadcast_to(curv, shape)

    @override
    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        if not derivatives:
            return bare(self.logp_at(y, chain, draws, obs))
        p = self._parameters(chain, draws, obs)
        jet = self.family.jet(self._outcome(y[:, None]), p)
        shape = (len(y), self._count(draws), y.shape[1])
        return Jet(
            np.broadcast_to(jet.logp, shape),
            np.broadcast_to(jet.grad, (*shape, y.shape[2])),
            np.broadcast_to(jet.curv, (*shape, y.shape[2])),
        )

    @override
    def split(self, obs: slice) -> Split | None:
        draws = slice(0, self.n_draws)
        chains = [self._parameters(chain, draws, obs) for chain in range(self.n_chains)]
        parts = [part for p in chains if (part := self.family.split(p)) is not None]
        if not parts:
            return None
        return join_splits(parts, self.n_draws)

    @override
    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Subset, rng: np.random.Generator
    ) -> Array:
        p = self._parameters(chain, draws, obs)
        size = (draws.size, self.observations.values[obs].shape[0])
        outcome = self.family.draw(p, rng, size)
        return outcome if self.family.multivariate else outcome[..., None]

    @override
    def data_names(self) -> frozenset[str]:
        return names_of_data(self.parameters)

    @override
    def numbers_of_rows(self, data: Mapping[str, Any]) -> set[int]:
        own = {name: given for name, given in data.items() if name in self.parameters}
        found = super().numbers_of_rows({k: v for k, v in data.items() if k not in own})
        for name, given in own.items():
            event = self.family.event_shape(name, self.observations.d)
            found |= rows_of_parameter(given, len(event))
        return found

    @override
    def with_data(self, y: Any, /, **data: Any) -> Self:
        observations = _read_outcome(y, self.family, self.observations.component_dim)
        moved = move_parameters(
            self.parameters, data, observations, partial(self.family.event_shape, d=observations.d)
        )
        for name, parameter in moved.items():
            positive = name in self.family.positive
            require_domain(name, parameter, observations, positive=positive)
        _require_support(observations, self.family)
        n_chains, n_draws = _common_sample_shape(moved)
        elsewhere = replace(
            self,
            n_chains=n_chains,
            n_draws=n_draws,
            observations=observations,
            parameters=moved,
            log_marginal_likelihood=None,
        )
        if self.family.discrete:
            _require_possible(elsewhere)
        return elsewhere

    @override
    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        """Take each component of a mixture for a mode of its own.

        In detail, each chain may be one too, and so may the narrowest and the outermost draws of
        a chain.
        """
        modes = []
        for location, spread in self._draws_of_bulks(obs, detailed=detailed):
            flat = (-1, location.shape[2])
            modes.append(bulk_of_draws(location.reshape(flat), spread.reshape(flat)))
            if detailed:
                for place, width in zip(location, spread, strict=True):
                    modes.append(bulk_of_draws(place, width))
                    for draw in (width.argmin(0), place.argmin(0), place.argmax(0)):
                        each = draw, np.arange(place.shape[1])
                        modes.append((place[each], width[each]))
        return places_of(modes, multiples, self.family.support)

    def _draws_of_bulks(self, obs: slice, *, detailed: bool) -> list[tuple[Array, Array]]:
        """Locations and spreads of draws, (chain, draw, obs), for each part of the density.

        In detail, of all draws; else of as many as tell places and widths well enough.
        """
        step = 1 if detailed else max(1, self.n_samples // DRAWS_OF_BULKS)
        draws = slice(0, self.n_draws, step)
        n = (self._count(draws), self.observations.values[obs].shape[0])
        chains = [
            self.family.bulks(self._parameters(chain, draws, obs)) for chain in range(self.n_chains)
        ]
        return [
            (
                np.stack([np.broadcast_to(location, n) for location, _ in part]),
                np.stack([np.broadcast_to(spread, n) for _, spread in part]),
            )
            for part in zip(*chains, strict=True)
        ]

    def _parameters(
        self, chain: int, draws: slice | NDArray[np.intp], obs: Subset
    ) -> dict[str, Array]:
        p = {
            name: given.tile(chain, draws, obs)  # type: ignore[arg-type]  # positions do as well
            for name, given in self.parameters.items()
        }
        self.family.validate(p)
        return p

    def _outcome(self, y: Array) -> Array:
        """Drop the component axis, which scalar families do not have."""
        return y if self.family.multivariate else y[..., 0]

    def _count(self, draws: slice) -> int:
        return len(range(*draws.indices(self.n_draws)))


@own_arithmetic
def from_family(
    family: str,
    *,
    y: Any,
    transform: str | None = None,
    component_dim: Hashable | None = None,
    weights: Any = None,
    **parameters: Any,
) -> Model:
    r"""Make a model from its likelihood's name and draws of the likelihood's parameters.

    The derivatives with respect to y are exact; discrete families have none, and log scores only.
    Nothing of size draws × observations is stored: densities are computed tile by tile as they
    are read.

    Parameters
    ----------
    family
        ``normal`` (mu, sigma), ``student_t`` (nu, mu, sigma), ``logistic`` (mu, s),
        ``lognormal`` (mu, sigma), ``gamma`` (alpha, beta), ``beta`` (alpha, beta),
        ``skew_normal`` (mu, sigma, alpha), ``gumbel`` (mu, beta), ``exponential`` (lam),
        ``half_normal`` (sigma), ``weibull`` (alpha, beta), ``inverse_gamma`` (alpha, beta),
        ``von_mises`` (mu, kappa; angles from −π to π),
        ``mv_normal`` (mu, cov or chol), ``mv_student_t`` (nu, mu, scale or chol); of whole
        numbers ``poisson`` (mu), ``negative_binomial`` (mu, alpha; variance mu + mu²/alpha),
        ``binomial`` (n, p), ``bernoulli`` (p), ``geometric`` (p; from 1),
        ``zero_inflated_poisson`` (psi, mu), ``zero_inflated_negative_binomial`` (psi, mu, alpha;
        psi the probability of the counts); or ``mixture`` (weights, components).
    y
        The outcomes **on their natural scale**, (obs,) or (obs, component). A DataArray passes
        on its labels.
    transform
        ``"log"``, ``"log10"``, ``"sqrt"``, ``"logit"`` or ``"exp"`` if the family is a model of
        that function of y. The Jacobian enters the density and both derivatives. Not for
        discrete families.
    component_dim
        Which dimension of a DataArray ``y`` holds the components of a vector outcome.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`. Of a
        mixture they are the weights of its components: give it case weights by that method.
    **parameters
        Each of shape (chain, draw), (chain, draw, obs), or constant: one number, or one per
        observation. Vector and matrix parameters have their own axes last. DataArrays are read
        by their dimension names. A regression is best given by :func:`linear_predictor`. For a
        mixture: ``weights`` of shape (chain, draw, component) and ``components``, a list of
        ``(family, {parameter: draws})``.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives.

    Examples
    --------
    A model for y and a model for log y, ready to be combined on the scale of y:

    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.lognormal(size=30)
    >>> mu, sigma = rng.normal(1.0, 0.1, size=(4, 250)), rng.gamma(99, 0.01, size=(4, 250))
    >>> models = {
    ...     "normal": lq.from_family("normal", y=y, mu=mu, sigma=sigma),
    ...     "log": lq.from_family("normal", y=y, transform="log", mu=mu - 1.0, sigma=sigma),
    ... }
    >>> models["log"]
    <Model normal of log y; chain: 4, draw: 250, obs_id: 30, components: 1>
    """
    if isinstance(family, str) and family == Mixture.name and weights is not None:
        parameters, weights = {"weights": weights, **parameters}, None
    likelihood, draws = _flatten(family, parameters)
    signature = likelihood.signature(draws)
    if transform is not None and likelihood.discrete:
        raise discrete_outcome(repr(likelihood.name))
    natural = _read_outcome(y, likelihood, component_dim)
    observations = on_scale_of_model(natural, transform)
    read = {
        name: as_parameter(
            name, draws[name], observations, likelihood.event_shape(name, observations.d)
        )
        for name in signature
    }
    n_chains, n_draws = _common_sample_shape(read)
    for name, parameter in read.items():
        require_domain(name, parameter, observations, positive=name in likelihood.positive)
    _require_support(observations, likelihood)
    source = FamilySource(
        observations,
        n_chains=n_chains,
        n_draws=n_draws,
        likelihood=_describe(likelihood, read),
        family=likelihood,
        parameters=read,
    )
    if likelihood.discrete:
        _require_possible(source)
    return Model(on_natural_scale(source, transform, natural)).with_weights(weights)


def _flatten(family: str, given: Mapping[str, Any]) -> tuple[Family, dict[str, Any]]:
    """Resolve a family and, for mixtures, name their components' parameters ``k.name``."""
    if not isinstance(family, str) or family != Mixture.name:
        likelihood = get_family(family)
        likelihood.signature(given)
        return likelihood, dict(given)
    components = given.get("components")
    if not isinstance(components, Sequence) or not all(map(_is_component, components)):
        raise ParameterError(
            "A mixture needs components=[(family, {parameter: draws}), ...] and weights= of shape "
            "(chain, draw, component)."
        )
    unknown = given.keys() - {"weights", "components"}
    if unknown or "weights" not in given:
        raise ParameterError(
            f"A mixture takes weights and components; got {', '.join(given)}. The parameters of "
            "its components go into components=[(family, {parameter: draws}), ...]."
        )
    parts = [_flatten_component(k, *component) for k, component in enumerate(components)]
    flat = {"weights": given["weights"]}
    for k, (_, parameters) in enumerate(parts):
        flat |= {f"{k}.{name}": value for name, value in parameters.items()}
    return Mixture([part for part, _ in parts]), flat


def _flatten_component(
    k: int, family: str, given: Mapping[str, Any]
) -> tuple[Family, dict[str, Any]]:
    with naming(f"Component {k}"):
        return _flatten(family, given)


def _is_component(given: object) -> bool:
    return (
        isinstance(given, Sequence)
        and len(given) == 2
        and isinstance(given[0], str)
        and isinstance(given[1], Mapping)
    )


def _read_outcome(y: Any, family: Family, component_dim: Hashable | None) -> Observations:
    observations = as_observations(y, component_dim)
    if family.multivariate != (observations.component_dim is not None):
        wanted = "(obs, component)" if family.multivariate else "(obs,)"
        raise ShapeError(
            f"Family {family.name!r} needs y of shape {wanted}; got {observations.sizes} "
            f"observations of {observations.d} component(s). {_outcome_hint(observations)}"
        )
    return observations


def _outcome_hint(observations: Observations) -> str:
    if observations.component_dim is not None:
        column = "Select its column, y[:, 0]." if observations.d == 1 else ""
        return column or (
            "If y is a grid of scalar outcomes, name its dimensions: "
            'xr.DataArray(y, dims=("school", "year")).'
        )
    if len(observations.dims) > 1:
        return (
            f"Say which dimension holds the components by component_dim={observations.dims[-1]!r}."
        )
    return "Give one column per component."


def _common_sample_shape(parameters: Mapping[str, Parameter]) -> tuple[int, int]:
    shapes = {
        name: parameter.sample_shape
        for name, parameter in parameters.items()
        if parameter.sample_shape is not None
    }
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{user_name(name)}: {shape}" for name, shape in shapes.items())
        raise ParameterError(f"The parameters differ in (chain, draw): {listed}.")
    merge_labels({user_name(name): each.all_labels for name, each in parameters.items()})
    chains, draws = next(iter(shapes.values()), (1, 1))
    if chains == 0 or draws == 0:
        raise ParameterError(
            f"Parameter {user_name(next(iter(shapes)))!r} has {chains} chains of {draws} draws; "
            "at least one draw is needed."
        )
    return chains, draws


def _require_support(observations: Observations, family: Family) -> None:
    if family.discrete:
        require_whole(f"family {family.name!r}", observations, family.support)
        return
    what, advice = f"family {family.name!r}", family.outside_advice
    require_inside(what, observations.values, family.outcomes, observations, advice)


def _require_possible(source: FamilySource) -> None:
    """Refuse outcomes of probability 0: more successes than trials. One draw tells."""
    logp = source.logp(0, slice(0, 1), slice(0, source.n_obs))[0]
    bad = np.flatnonzero(logp == -np.inf)
    if bad.size:
        at = int(bad[0])
        raise SupportError(
            f"Family {source.family.name!r} with these parameters gives {bad.size} outcome(s) "
            f"probability 0, first {source.observations.values[at].tolist()} at "
            f"{source.observations.describe(at)}."
        )


def _describe(family: Family, parameters: Mapping[str, Parameter]) -> Likelihood:
    ranges = {
        name: LazyRange(user_name(name), parameter, positive=name in family.positive)
        for name, parameter in parameters.items()
    }
    return Likelihood(family.name, family.discrete, family.edges(ranges))
