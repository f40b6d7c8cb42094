"""Sources whose log density is a PyTensor graph: what the adapters of PyMC and Bambi build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from inspect import Parameter, signature
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.errors import ParameterError, UnsupportedError
from lockquack.jets import Array, Jet, Numeric, join_jets
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import Observations
from lockquack.models.source import Abilities, Source, Subset
from lockquack.sources.density import DensitySource, described
from lockquack.sources.possible import require_possible
from lockquack.sources.probing import Dependence, find_dependence
from lockquack.sources.pytensor_compiling import as_it_stands
from lockquack.sources.pytensor_densities import AT_ONCE, Density, Slot
from lockquack.sources.pytensor_parameters import DrawParameters, Parameters, window
from lockquack.sources.pytensor_rewriting import (
    Variable,
    checks_in,
    dependent_on,
    lengths_of,
    parameters_of,
    rebuilt,
    simplified,
)
from lockquack.sources.pytensor_sampling import (
    Generator,
    looping_generator,
    plain_generator,
    whole_generator,
)

#: Bytes of parameters that are kept rather than computed again.
_KEEP = 2**27
#: Draws of each chain for which the demands on parameters are looked at.
_CHECKED = 16


@dataclass(frozen=True, eq=False, repr=False)
class GraphSource(DensitySource):
    """Draws of a density's parameters, and the density as compiled functions."""

    density: Density
    parameters: Parameters
    #: Makes the same source at other outcomes and data.
    rebuild: Callable[..., Source]
    #: How many observations back the outcomes lie that a log density depends on.
    reach: int = field(default=0, kw_only=True)
    #: Finds out where random outcomes come from, if from anywhere.
    find_generator: Callable[[], Generator | None] = field(default=lambda: None, kw_only=True)
    #: Finds out which demand on its parameters a draw of a chain does not meet.
    find_violated: Callable[[int, int], str | None] = field(default=lambda c, d: None, kw_only=True)
    #: Names of the data that it takes, and how many observations some of these are of.
    names: frozenset[str] | None = field(default=None, kw_only=True)
    count_rows: Callable[[Mapping[str, Any]], set[int]] | None = field(default=None, kw_only=True)

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        return self.rebuild(y, **data)

    @override
    def data_names(self) -> frozenset[str] | None:
        return named_arguments(self.rebuild) if self.names is None else self.names

    @override
    def numbers_of_rows(self, data: Mapping[str, Any]) -> set[int]:
        found = set() if self.count_rows is None else self.count_rows(data)
        return found or super().numbers_of_rows(data)

    @override
    def violated(self, chain: int, draw: int) -> str | None:
        return self.find_violated(chain, draw)

    @cached_property
    def _generator(self) -> Generator | None:
        return self.find_generator()

    @property
    @override
    def can(self) -> Abilities:
        return replace(
            super().can,
            has_generator=lambda: self._generator is not None,
            predict_alone=self.reach == 0,
        )

    @override
    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Subset, rng: np.random.Generator
    ) -> Array:
        if self._generator is None:
            return super().draw_outcomes(chain, draws, obs, rng)
        rows = np.arange(self.n_obs)[obs]
        drawn = self._generator.draw(chain, draws, rows, rng)
        return drawn.astype(np.float64).reshape(draws.size, rows.size, self.observations.d)

    @override
    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        near, inside = window(obs, self.n_obs)
        if not self.density.separable:
            return self._whole(y, chain, draws, obs, derivatives=derivatives)
        values = self.parameters.tile(chain, draws, near)
        slots = self.density.slots
        values = [
            value[:, inside] if slot.by_observation and inside is not None else value
            for value, slot in zip(values, slots, strict=True)
        ]
        grid = (y.shape[1], *(1,) * (self.density.logp.ndim - 1))
        return self._in_pieces(y, values, grid, draws, derivatives=derivatives)

    def _whole(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        """Evaluate at all observations, where a graph does not let single ones be taken out.

        In a series, the outcomes of observations that do not depend on each other are moved
        together, and all others stay where they were observed.
        """
        rows = np.arange(self.n_obs)[obs]
        values = self.parameters.tile(chain, draws, slice(0, self.n_obs))
        grid = self.observations.shape
        together = rows % (self.reach + 1)
        if not derivatives and np.array_equal(y[0], self.observations.values[obs]) and len(y) == 1:
            together = np.zeros_like(rows)  # nothing is moved
        parts, places = [], []
        for group in np.unique(together):
            some = np.flatnonzero(together == group)
            everywhere = np.repeat(self.observations.values[None], len(y), axis=0)
            everywhere[:, rows[some]] = y[:, some]
            which = None
            if self.reach and derivatives:
                which = np.isin(np.arange(self.n_obs), rows[some]).astype(np.float64)
            jet = self._in_pieces(
                everywhere, values, grid, draws, derivatives=derivatives, which=which
            )
            parts.append(jet[:, :, rows[some]])
            places.append(some)
        return join_jets(parts, axis=2)[:, :, np.argsort(np.concatenate(places))]

    def _in_pieces(
        self,
        y: Array,
        values: Sequence[Numeric],
        grid: tuple[int, ...],
        draws: slice,
        *,
        derivatives: bool,
        which: Array | None = None,
    ) -> Jet:
        n_draws = len(range(*draws.indices(self.n_draws)))
        length = max(1, AT_ONCE // (y.shape[0] * y.shape[1]))
        jets = [
            self.density.jets(
                y,
                [value[start : start + length] if len(value) > 1 else value for value in values],
                min(length, n_draws - start),
                grid,
                derivatives=derivatives,
                which=which,
            )
            for start in range(0, n_draws, length)
        ]
        return join_jets(jets, axis=1)


def named_arguments(function: Callable[..., Any]) -> frozenset[str] | None:
    """Names of the arguments that a function takes by name; None where it takes any.

    Examples
    --------
    >>> named_arguments(lambda y, /, *, newdata: None), named_arguments(lambda **data: None)
    (frozenset({'newdata'}), None)
    """
    parameters = signature(function).parameters.values()
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        return None
    by_name = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return frozenset(each.name for each in parameters if each.kind in by_name)


@dataclass(frozen=True, eq=False)
class LogDensityGraph:
    """A log density of observations given draws of θ, as a graph: what adapters build."""

    y: Variable  # grid of observations, then the component of a vector outcome
    logp: Variable  # grid of observations
    theta: Mapping[Variable, Numeric]  # what it depends on, (chain, draw, ...)
    data: Mapping[Variable, Numeric]
    n_chains: int
    n_draws: int
    name: str
    #: Names of the distributions inside, such as those of a mixture.
    parts: tuple[str, ...]
    discrete: bool
    has_atoms: bool
    log_marginal_likelihood: float | None = None
    #: Log likelihoods that came with the draws.
    stored: Any = None
    #: What the density does not tell of itself; with a description, all that is to be told.
    known: Likelihood = Likelihood("")  # noqa: RUF009
    #: Whether draws must meet the demands that the density makes on its parameters.
    checked: bool = False
    #: Whether ``logp`` has the terms of which one joint density of all outcomes is the sum.
    joint: bool = False
    #: The outcomes as random variables, if they can be written as such.
    outcome: Variable | None = None
    #: What was compiled for other data of the same model.
    cache: dict[Any, Any] = field(default_factory=dict)

    def source(
        self, observations: Observations, rebuild: Callable[..., Source], *, original: bool = True
    ) -> GraphSource:
        """Cut and compile it, and compare two of its draws with the graph as it stands.

        Raises
        ------
        UnsupportedError
            Where the log density of one observation depends on the outcome of a later one.
        """
        dependence = self._dependence(observations)
        if not self.joint:
            dependence.require_factors()
        elif dependence.on_later:
            raise self._one_density()
        for separable in (False,) if dependence.on_earlier else (True, False):
            source = self._cut(observations, separable, dependence.reach, rebuild)
            if not self._agrees(source):
                continue
            if original and self.checked:
                self._require_demands(observations)
            if not self.known.description:
                return described(source, self.name, self.parts, original=original)
            require_possible(source, self.known.description, source.violated, original=original)
            return source
        raise UnsupportedError(
            f"The log density of {self.name} cannot be evaluated for many draws at once. Compute "
            "it and its derivatives yourself and use from_arrays."
        )

    def _simple(self) -> tuple[Variable, list[Variable]]:
        """Return the log density without what is superfluous, and what in it is free of y."""
        if "simple" not in self.cache:
            simple = simplified(self.logp, self.y)
            self.cache["simple"] = simple, parameters_of(simple, self.y)
        return self.cache["simple"]

    def _cut(
        self,
        observations: Observations,
        separable: bool,
        reach: int,
        rebuild: Callable[..., Source],
    ) -> GraphSource:
        simple, origins = self._simple()
        values = self._at_draw(origins, 0)
        grid = observations.shape
        on_grid = tuple(separable and _lies_on(value.shape, grid) for value in values)
        kind = separable, reach > 0, on_grid, None if separable else observations.values.shape
        if kind not in self.cache:
            on_theta = dependent_on(self.theta, origins)
            slots = tuple(
                Slot(_standing_for(v, len(grid) if on else 0), v, on, v in on_theta)
                for v, on in zip(origins, on_grid, strict=True)
            )
            known = {} if separable else self._lengths(observations)
            logp = rebuilt(simple, known | {slot.origin: slot.variable for slot in slots})
            y = known.get(self.y, self.y)
            self.cache[kind] = Density(y, logp, slots, separable, reach > 0), {}
        density, functions = self.cache[kind]
        slots = density.slots
        size = sum(value.nbytes for slot, value in zip(slots, values, strict=True) if slot.by_draw)
        keep = size * self.n_chains * self.n_draws <= _KEEP
        return GraphSource(
            observations,
            self.n_chains,
            self.n_draws,
            replace(
                self.known,
                description=self.known.description or self.name,
                discrete=self.discrete,
                given_earlier=self.known.given_earlier or reach > 0,
            ),
            density,
            DrawParameters(slots, separable, grid, self.theta, self.data, keep, functions),
            rebuild,
            has_atoms=self.has_atoms,
            differentiable=self.discrete or density.differentiable,
            log_marginal_likelihood=self.log_marginal_likelihood,
            stored=self.stored,
            reach=reach,
            find_generator=partial(self._generator, observations.shape, in_series=reach > 0),
            find_violated=partial(self._violated, observations),
        )

    def _lengths(self, observations: Observations) -> dict[Variable, Variable]:
        """Replace what depends on the number of observations, for these, and y by one of it."""
        import pytensor.tensor as pt

        lengths = lengths_of(self._simple()[0], [self.y])
        y = self._on_grid(observations, observations.values)
        values = self._at_draw(lengths, 0, y) if lengths else []
        known = {v: pt.constant(value) for v, value in zip(lengths, values, strict=True)}
        return {self.y: self.y.type.clone(shape=y.shape)("y"), **known}

    def _generator(self, grid: tuple[int, ...], *, in_series: bool) -> Generator | None:
        """Find out how to draw outcomes, one observation at a time where that can be done."""
        if self.outcome is None or in_series:  # a series would be drawn without earlier outcomes
            return None
        given = self.outcome, self.theta, self.data, grid
        at_draw = partial(self._at_draw, draw=0)
        plain = plain_generator(*given, at_draw, _KEEP / (self.n_chains * self.n_draws))
        return plain or whole_generator(*given, at_draw) or looping_generator(*given)

    def _at_draw(
        self, outputs: Sequence[Variable], draw: int, y: Numeric | None = None, chain: int = 0
    ) -> list[Numeric]:
        """Evaluate parts of the graph as it stands, at a draw."""
        key = tuple(outputs)
        if key not in self.cache:
            inputs = [*self.theta, *self.data] + ([] if y is None else [self.y])
            self.cache[key] = as_it_stands(inputs, outputs)
        given = [draws[chain, draw] for draws in self.theta.values()] + list(self.data.values())
        return self.cache[key](*given, *([] if y is None else [y.astype(self.y.dtype)]))

    def _logp(self, observations: Observations, draw: int, y: Array) -> Numeric:
        """Log density of one draw at outcomes (obs, d) by the graph in one piece, (obs,)."""
        (logp,) = self._at_draw(self._simple()[:1], draw, self._on_grid(observations, y))
        return np.broadcast_to(logp, observations.shape).ravel()

    def _on_grid(self, observations: Observations, y: Array) -> Array:
        """Arrange outcomes (obs, d) as the graph has them."""
        components = y.shape[1:] if self.y.ndim > self.logp.ndim else ()
        return y.reshape(*observations.shape, *components)

    def _one_density(self) -> UnsupportedError:
        return UnsupportedError(
            f"The likelihood {self.name} is one joint density of all outcomes: it does not "
            "factorise into observations, which leave-one-out needs. Condition on what ties them "
            "together: a latent process (pm.gp.Latent), or earlier outcomes as covariates. If all "
            "of them are one outcome, a vector, give several of these, one in each row."
        )

    def _dependence(self, observations: Observations) -> Dependence:
        """Find out on which outcomes the log density of an observation depends."""
        if self.joint:
            y = self._on_grid(observations, observations.values)
            (terms,) = self._at_draw(self._simple()[:1], 0, y)
            if terms.shape != observations.shape:
                raise self._one_density()
        first, last = (
            find_dependence(
                partial(self._logp, observations, draw),
                observations.values,
                discrete=self.discrete or self.has_atoms,
            )
            for draw in (0, -1)
        )
        return first | last

    def _violated(self, observations: Observations, chain: int, draw: int) -> str | None:
        """Let PyTensor check the parameters of a draw, which it says in words."""
        y = self._on_grid(observations, observations.values)
        for check in checks_in(self.logp):
            try:
                self._at_draw([check], draw, y, chain)
            except check.owner.op.exc_type:
                return f"{check.owner.op.msg} is demanded"
        return None

    def _require_demands(self, observations: Observations) -> None:
        """Refuse draws for which the library has no density, though its formula has a value.

        Weights of a mixture that do not add up to one are such parameters.
        """
        for chain in range(self.n_chains):
            for draw in np.unique(np.linspace(0, self.n_draws - 1, _CHECKED).astype(int)):
                demand = self._violated(observations, chain, int(draw))
                if demand is not None:
                    raise ParameterError(
                        f"A parameter of {self.name} is outside its domain in draw {draw} of "
                        f"chain {chain}: {demand}. Give the draws of this model, on the scale on "
                        "which it has its parameters."
                    )

    def _agrees(self, source: GraphSource) -> bool:
        """Compare some log densities of the first and the last draw with the whole graph's."""
        y = source.observations.values
        obs = np.array([len(y) - 1, 0][: max(1, len(y) - 1)])
        for draw in {0, source.n_draws - 1}:
            expected = self._logp(source.observations, draw, y)[obs]
            try:
                got = source.logp_at(y[None, obs], 0, slice(draw, draw + 1), obs)[0, 0]
            except (ValueError, IndexError, TypeError, AssertionError):
                return False
            if not np.allclose(got, expected, rtol=1e-8, atol=1e-8, equal_nan=True):
                return False
        return True


def _standing_for(variable: Variable, n_free: int) -> Variable:
    """Make a variable of the same kind, of which so many first axes may have any length."""
    from pytensor.tensor import TensorType

    return TensorType(variable.dtype, ((None,) * n_free + tuple(variable.type.shape)[n_free:]))()


def _lies_on(shape: tuple[int, ...], grid: tuple[int, ...]) -> bool:
    """Whether an array's first axes are those of the grid, where they are not broadcast."""
    lead = shape[: len(grid)]
    fits = len(lead) == len(grid) and all(a in (1, b) for a, b in zip(lead, grid, strict=True))
    return fits and prod(lead) > 1
