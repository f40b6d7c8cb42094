"""Distributions of NumPyro that make one event of many outcomes, taken apart.

Independent outcomes are what they are one by one. The density of a series is the product of its
steps, ``p(y_t | y_<t)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


def unwrapped(fn: Any) -> Any:
    """Take off what only masks or repeats a distribution."""
    from numpyro.distributions import ExpandedDistribution, MaskedDistribution

    while isinstance(fn, ExpandedDistribution | MaskedDistribution):
        fn = fn.base_dist
    return fn


def single(fn: Any) -> Any:
    """Return the distributions of single outcomes that an event consists of, or the same object."""
    from numpyro.distributions import EulerMaruyama, GaussianRandomWalk, Independent

    inner = unwrapped(fn)
    while isinstance(inner, Independent):
        inner = unwrapped(inner.base_dist)
        fn = inner
    if isinstance(inner, GaussianRandomWalk) and not inner.batch_shape:
        return _steps_class()(inner, _steps_of_walk)
    if isinstance(inner, EulerMaruyama) and not inner.batch_shape:
        return _steps_class()(inner, _steps_of_diffusion)
    return fn


@cache
def _steps_class() -> type:
    """Make the class of distributions of steps, which needs NumPyro."""
    from numpyro.distributions import Distribution, constraints

    class Steps(Distribution):  # type: ignore[misc]
        """The steps of a series, each given the outcomes before it."""

        pytree_data_fields = ("series",)
        pytree_aux_fields = ("log_densities",)

        def __init__(self, series: Any, log_densities: Callable[[Any, Any], Any]) -> None:
            self.series, self.log_densities = series, log_densities
            time, *event = series.event_shape
            super().__init__((time,), tuple(event))

        @property
        def support(self) -> Any:
            return constraints.independent(constraints.real, len(self.event_shape))

        def log_prob(self, value: Any) -> Any:
            return self.log_densities(self.series, value)

    return Steps


def _steps_of_walk(walk: Any, y: Any) -> Any:
    import jax.numpy as jnp
    from numpyro.distributions import Normal

    return Normal(0.0, walk.scale).log_prob(jnp.diff(y, prepend=0.0))


def _steps_of_diffusion(diffusion: Any, y: Any) -> Any:
    """Log densities of the first outcome, and of the steps of Euler and Maruyama."""
    import jax
    import jax.numpy as jnp
    from numpyro.distributions import Normal

    def as_step(values: Any) -> Any:
        """Let what is the same for all components of a step be broadcast."""
        return values.reshape(len(values), *(1,) * (y.ndim - values.ndim), *values.shape[1:])

    times = jnp.asarray(diffusion.t)
    drift, spread = map(as_step, jax.vmap(diffusion.sde_fn)(y[:-1], times[:-1]))
    dt = as_step(jnp.diff(times))
    steps = Normal(0.0, jnp.sqrt(dt) * spread).log_prob(y[1:] - y[:-1] - dt * drift)
    first = diffusion.init_dist.log_prob(y[0])
    return jnp.append(first, steps.reshape(len(steps), -1).sum(axis=1))
