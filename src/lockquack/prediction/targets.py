"""The pool of models at one observation, as the samplers need it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from typing_extensions import override

from lockquack.errors import UnsupportedError
from lockquack.jets import Array, stack_jets
from lockquack.models.source import Source
from lockquack.operators import Linear
from lockquack.operators.pool import Pool
from lockquack.prediction.members import PredictiveDensity
from lockquack.prediction.pooled import PooledDistribution
from lockquack.sampling.samplers import Target


class ModelTarget(Target):
    """A pool of models at one observation, whose own pool it is given."""

    def __init__(
        self,
        models: Mapping[str, Source],
        pool: Pool,
        observation: int,
        *,
        loo: bool,
    ) -> None:
        self.models, self.own, self.loo = models, pool, loo
        self.obs = slice(observation, observation + 1)
        self.members = [PredictiveDensity.of(model, self.obs, loo) for model in models.values()]
        self.d = self.members[0].source.observations.d
        self.weights = np.abs(pool.weights).reshape(pool.K)
        above = pool.mixture_above
        self.envelope = None if above is None else above.reshape(pool.K)
        self.narrow = pool.operator.vanishes_with_any
        self.is_mixture = pool.operator.normalised

    @override
    def log_components(self, y: Array) -> Array:
        row = np.zeros(1, dtype=np.intp)
        return np.stack([member.logpdf_at(y[:, None], row)[:, 0] for member in self.members])

    @override
    def pool(self, log_components: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return self.own(log_components, np.zeros(log_components.shape[-1], dtype=np.intp))

    @override
    def with_gradient(self, y: Array) -> tuple[Array, Array]:
        jets = stack_jets([member.jet_at(y, 0) for member in self.members])
        pooled = self.own.jet(jets, np.zeros(len(y), dtype=np.intp))
        return pooled.logp, pooled.grad

    def draw_component(self, k: int, n: int, rng: np.random.Generator) -> Array:
        """Draw from a model, (n, d); of a scalar outcome by inversion where it has no generator."""
        member = self.members[k]
        if member.source.can.draw:
            return member.draw(n, 0, rng)
        if self.d > 1:
            raise UnsupportedError(
                f"Model {list(self.models)[k]!r} ({member.source.likelihood.description}) has "
                f"outcomes of {self.d} components and no generator of random outcomes, so its "
                "combinations cannot be sampled. Make it with from_family, or give from_jax "
                "sample=."
            )
        return self._inverse[k].sample(n, rng)

    @cached_property
    def _inverse(self) -> list[PooledDistribution]:
        return [
            PooledDistribution.of(
                {name: model}, Pool(Linear(), np.ones(1), 1), loo=self.loo, slices=[self.obs]
            )
            for name, model in self.models.items()
        ]
