"""Sources whose log density is a PyTensor graph: what the adapters of PyMC and Bambi build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.errors import UnsupportedError
from lockquack.jets import Array, Jet, Numeric
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import Observations
from lockquack.models.source import Abilities, Source, Subset
from lockquack.sources.density import DensitySource, described
from lockquack.sources.probing import separating
from lockquack.sources.pytensor_compiling import evaluated
from lockquack.sources.pytensor_densities import AT_ONCE, Density, Slot
from lockquack.sources.pytensor_parameters import DrawParameters, Parameters, window
from lockquack.sources.pytensor_rewriting import (
    Variable,
    dependent_on,
    parameters_of,
    rebuilt,
    simplified,
)
from lockquack.sources.pytensor_sampling import Generator, plain_generator, whole_generator

#: Bytes of parameters that are kept rather than computed again.
_KEEP = 2**27


@dataclass(frozen=True, eq=False, repr=False)
class GraphSource(DensitySource):
    """Draws of a density's parameters, and the density as compiled functions."""

    density: Density
    parameters: Parameters
    #: Makes the same source at other outcomes and data.
    rebuild: Callable[..., Source]
    #: Finds out where random outcomes come from, if from anywhere.
    find_generator: Callable[[], Generator | None] = field(default=lambda: None, kw_only=True)

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        return self.rebuild(y, **data)

    @cached_property
    def _generator(self) -> Generator | None:
        return self.find_generator()

    @property
    @override
    def can(self) -> Abilities:
        return replace(super().can, has_generator=lambda: self._generator is not None)

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
        """Evaluate at all observations, where a graph does not let single ones be taken out."""
        everywhere = np.repeat(self.observations.values[None], len(y), axis=0)
        everywhere[:, obs] = y
        values = self.parameters.tile(chain, draws, slice(0, self.n_obs))
        grid = self.observations.shape
        jet = self._in_pieces(everywhere, values, grid, draws, derivatives=derivatives)
        return jet[:, :, obs]

    def _in_pieces(
        self,
        y: Array,
        values: Sequence[Numeric],
        grid: tuple[int, ...],
        draws: slice,
        *,
        derivatives: bool,
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
            )
            for start in range(0, n_draws, length)
        ]
        return jets[0] if len(jets) == 1 else _joined(jets)


def _joined(jets: Sequence[Jet]) -> Jet:
    """Join along the draws."""
    return Jet(
        np.concatenate([jet.logp for jet in jets], axis=1),
        np.concatenate([jet.grad for jet in jets], axis=1),
        np.concatenate([jet.curv for jet in jets], axis=1),
    )


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
    #: The outcomes as random variables, if they can be written as such.
    outcome: Variable | None = None
    #: What was compiled for other data of the same model.
    cache: dict[Any, Any] = field(default_factory=dict)

    def source(self, observations: Observations, rebuild: Callable[..., Source]) -> GraphSource:
        """Cut and compile it, and compare two of its draws with the graph as it stands.

        Raises
        ------
        UnsupportedError
            Where the log density of one observation depends on the outcome of another.
        """
        self._require_factors(observations)
        for separable in (True, False):
            source = self._cut(observations, separable, rebuild)
            if self._agrees(source):
                return described(source, self.name, self.parts)
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
        self, observations: Observations, separable: bool, rebuild: Callable[..., Source]
    ) -> GraphSource:
        simple, origins = self._simple()
        values = self._at_draw(origins, 0)
        grid = observations.shape
        on_grid = tuple(separable and _lies_on(value.shape, grid) for value in values)
        if (separable, on_grid) not in self.cache:
            on_theta = dependent_on(self.theta, origins)
            slots = tuple(
                Slot(_standing_for(v, len(grid) if on else 0), v, on, v in on_theta)
                for v, on in zip(origins, on_grid, strict=True)
            )
            logp = rebuilt(simple, {slot.origin: slot.variable for slot in slots})
            self.cache[separable, on_grid] = Density(self.y, logp, slots, separable), {}
        density, functions = self.cache[separable, on_grid]
        slots = density.slots
        size = sum(value.nbytes for slot, value in zip(slots, values, strict=True) if slot.by_draw)
        keep = size * self.n_chains * self.n_draws <= _KEEP
        return GraphSource(
            observations,
            self.n_chains,
            self.n_draws,
            Likelihood(self.name, discrete=self.discrete),
            density,
            DrawParameters(slots, separable, grid, self.theta, self.data, keep, functions),
            rebuild,
            has_atoms=self.has_atoms,
            differentiable=self.discrete or density.differentiable,
            log_marginal_likelihood=self.log_marginal_likelihood,
            stored=self.stored,
            find_generator=partial(self._generator, observations.shape),
        )

    def _generator(self, grid: tuple[int, ...]) -> Generator | None:
        """Find out how to draw outcomes, one observation at a time where that can be done."""
        if self.outcome is None:
            return None
        given = self.outcome, self.theta, self.data, grid
        at_draw = partial(self._at_draw, draw=0)
        plain = plain_generator(*given, at_draw, _KEEP / (self.n_chains * self.n_draws))
        return plain or whole_generator(*given)

    def _at_draw(
        self, outputs: Sequence[Variable], draw: int, y: Numeric | None = None
    ) -> list[Numeric]:
        given = {variable: draws[0, draw] for variable, draws in self.theta.items()}
        if y is not None:
            given[self.y] = y.astype(self.y.dtype)
        return evaluated(outputs, {**given, **self.data})

    def _logp(self, observations: Observations, y: Array, draw: int) -> Numeric:
        """Log density of one draw at outcomes (obs, d) by the graph in one piece, (obs,)."""
        components = y.shape[1:] if self.y.ndim > self.logp.ndim else ()
        grid = y.reshape(*observations.shape, *components)
        (logp,) = self._at_draw(self._simple()[:1], draw, grid)
        return np.broadcast_to(logp, observations.shape).ravel()

    def _require_factors(self, observations: Observations) -> None:
        """Change some outcomes: the log densities of all others must stay as they are."""
        y = observations.values
        before = self._logp(observations, y, 0)
        for some in separating(len(y)):
            moved = y.copy()
            # Other outcomes that occurred, where only whole numbers are possible.
            moved[some] = y[some][::-1] if self.discrete else y[some] * 1.001 + 1e-3 * y.std()
            after = self._logp(observations, moved, 0)
            if not np.array_equal(before[~some], after[~some], equal_nan=True):
                raise UnsupportedError(
                    "The log density of one observation depends on the outcome of another, so the "
                    "likelihood does not factorise. Give earlier outcomes as covariates."
                )

    def _agrees(self, source: GraphSource) -> bool:
        """Compare some log densities of the first and the last draw with the whole graph's."""
        y = source.observations.values
        obs = np.array([len(y) - 1, 0][: max(1, len(y) - 1)])
        for draw in {0, source.n_draws - 1}:
            expected = self._logp(source.observations, y, draw)[obs]
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
