"""A NumPyro model with its arguments, and what NumPyro itself computes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lockquack as lq
from tests.ppl.corpus.case import Corpus

Array = NDArray[np.float64]
CORPUS = Corpus("NumPyro")
CHAINS, DRAWS = 2, 3


@dataclass(frozen=True)
class Example:
    """A model and its arguments, the outcomes among them. Draws come from its prior."""

    model: Callable[..., Any]
    arguments: Mapping[str, Any]
    #: Arguments that hold the outcomes: one, or one for each component.
    outcome: tuple[str, ...] = ("y",)
    #: Sites whose log densities NumPyro computes; with several, their terms follow each other.
    sites: tuple[str, ...] = ("y",)
    #: What lockquack is told.
    site: Any = None
    #: Whether the terms of several sites are added.
    joint: bool = False
    #: Positions of the observations in the argument, where not all of it is observed.
    kept: Any = None
    #: Whether a term is given earlier outcomes, so that these stay as they are.
    series: bool = False
    #: Whether NumPyro itself cannot draw outcomes.
    without_generator: bool = False
    #: Whether NumPyro has one density of all outcomes, of which there are terms here.
    one_event: bool = False
    draws: Mapping[str, Any] | None = None
    #: Whether the model looks at its outcomes with numpy, so that it cannot be compiled.
    concrete: bool = False

    def posterior(self) -> dict[str, NDArray[Any]]:
        """Draws (chain, draw, ...), single as they are in a session of NumPyro."""
        import jax
        from numpyro.infer import Predictive

        if self.draws is not None:
            return {name: np.asarray(draws) for name, draws in self.draws.items()}
        prior = Predictive(self.model, num_samples=CHAINS * DRAWS)
        drawn = prior(jax.random.key(1), **self.arguments)
        return {
            name: np.asarray(values).reshape(CHAINS, DRAWS, *values.shape[1:])
            for name, values in drawn.items()
            if name not in self.sites
        }

    def to_model(self, posterior: Mapping[str, Any]) -> lq.Model:
        """Make it a model of lockquack."""
        options = {} if self.site is None else {"site": self.site}
        return lq.from_numpyro(self.model, posterior, model_kwargs=self.arguments, **options)

    def own_logp(self, posterior: Mapping[str, NDArray[Any]]) -> Callable[[Array], Array]:
        """Log densities by NumPyro, in float64, as a function of outcomes (obs, component)."""
        import jax
        from numpyro.infer import log_likelihood

        draws = self._draws(posterior)

        def terms(y: Any) -> Any:
            found = log_likelihood(self.model, draws, batch_ndims=2, **self._with(y))
            each = [found[name].reshape(CHAINS, DRAWS, -1) for name in self.sites]
            together = sum(each) if self.joint else jax.numpy.concatenate(each, axis=2)
            return together if together.shape[2] == len(y) else together[..., self.kept]

        compiled = jax.jit(jax.vmap(terms))

        def at(ys: Array) -> Array:
            """Log densities at several sets of outcomes."""
            with jax.enable_x64(True):
                if self.concrete:
                    return np.stack([np.asarray(terms(y)) for y in ys])
                return np.asarray(compiled(ys))

        def own_logp(y: Array) -> Array:
            if not self.series:
                return at(y[None])[0]
            # The others are data: move one outcome at a time.
            one = np.arange(len(y))[:, None] == np.arange(len(y))
            moved = np.where(one[..., None], y, self._observed(y.shape[1]))
            every = at(moved)
            return np.stack([every[i, ..., i] for i in range(len(y))], axis=2)

        return own_logp

    def own_joint(self, posterior: Mapping[str, NDArray[Any]]) -> Callable[[Array], Array]:
        """Log density of all outcomes by NumPyro, (chain, draw), as a function of them."""
        import jax
        from numpyro.infer import log_likelihood

        def own_joint(y: Array) -> Array:
            with jax.enable_x64(True):
                draws = self._draws(posterior)
                found = log_likelihood(self.model, draws, batch_ndims=2, **self._with(y))
                return np.asarray(found[self.sites[0]])

        return own_joint

    def _draws(self, posterior: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        return {name: _double(posterior[name]) for name in self._latent(posterior)}

    def _latent(self, posterior: Mapping[str, Any]) -> list[str]:
        """Sites that were drawn; what was computed from them is computed anew."""
        import jax
        from numpyro import handlers

        first = {name: jax.numpy.asarray(values[0, 0]) for name, values in posterior.items()}
        model = handlers.substitute(handlers.seed(self.model, 0), data=first)
        trace = handlers.trace(model).get_trace(**self.arguments)
        return [
            name
            for name in posterior
            if trace[name]["type"] == "sample" and not trace[name]["is_observed"]
        ]

    def _observed(self, d: int) -> Array:
        if len(self.outcome) > 1:
            return np.stack([np.asarray(self.arguments[name]) for name in self.outcome], axis=1)
        y = np.asarray(self.arguments[self.outcome[0]]).reshape(-1, d)
        return y if self.kept is None else y[self.kept]

    def _with(self, y: Any) -> dict[str, Any]:
        """Arguments with other outcomes; copies, because JAX remembers arrays and their types."""
        import jax
        import jax.numpy as jnp

        changed = {name: jax.tree.map(_double, value) for name, value in self.arguments.items()}
        if len(self.outcome) > 1:
            columns = {name: y[:, j] for j, name in enumerate(self.outcome)}
        else:
            (name,) = self.outcome
            whole = np.asarray(self.arguments[name])
            flat = jnp.asarray(whole, dtype=np.float64).reshape(-1, y.shape[1])
            flat = flat.at[slice(None) if self.kept is None else self.kept].set(y)
            columns = {name: flat.reshape(whole.shape)}
        return changed | {
            name: values.astype(_double_type(self.arguments[name]))
            for name, values in columns.items()
        }


def _double(value: Any) -> Any:
    """Copy an array, a real one in double."""
    if not hasattr(value, "dtype") or not hasattr(value, "astype"):
        return value
    return value.astype(_double_type(value))


def _double_type(value: Any) -> Any:
    dtype = np.asarray(value).dtype
    return np.float64 if dtype.kind == "f" else dtype
