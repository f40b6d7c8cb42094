"""A model as the weighted Hyvärinen score sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.models.model import LooDensity, Predictive
from lockquack.transforms import Transform


@dataclass(frozen=True, eq=False, repr=False)
class Stretched(Predictive):
    r"""The same draws with derivatives (√h g, h c + h' g) in place of (g, c).

    Two times the second plus the square of the first is the weighted score
    :math:`2 h' \partial\ell + 2h \partial^2 \ell + h (\partial\ell)^2`. The map is linear and the
    same for all draws and models, so that it commutes with every pool.
    """

    model: Predictive
    transform: Transform

    @classmethod
    def of(cls, model: Predictive, transform: Transform) -> Stretched:
        """Look at a model through the weight of a transform."""
        return cls(
            model.observations,
            n_chains=model.n_chains,
            n_draws=model.n_draws,
            likelihood=model.likelihood,
            model=model,
            transform=transform,
        )

    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        """Log densities of a tile, shape (draws, obs)."""
        return self.model.logp(chain, draws, obs)

    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        """Weighted derivatives of a tile, each of shape (draws, obs, component)."""
        grad, curv = self.model.derivatives(chain, draws, obs)
        root, slope = (each[obs] for each in self._stretch)
        return root * grad, root * root * curv + slope * grad

    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        """Average the draws; those that are not at hand are weighted where they are."""
        there = self.model.stretched(*self._stretch) if derivatives else self.model
        if there is None:
            return super().pass_over_draws(kind, derivatives=derivatives, progress=progress)
        return there.pass_over_draws(kind, derivatives=derivatives, progress=progress)

    def loo(self, *, progressbar: bool | None = None) -> LooDensity:
        """Leave-one-out densities, those of the model itself."""
        return self.model.loo(progressbar=progressbar)

    @property
    def draws_are_contiguous(self) -> bool:
        """Whether neighbouring draws, not neighbouring observations, lie together in memory."""
        return self.model.draws_are_contiguous

    @property
    def is_thread_safe(self) -> bool:
        """Whether several threads may read tiles at once."""
        return self.model.is_thread_safe

    @property
    def is_computed(self) -> bool:
        """Whether reading takes so much work that it is worth sending elsewhere."""
        return self.model.is_computed

    def restrict(self, obs: slice) -> Self | None:
        """Return the same draws at some of the observations; None where it cannot be cut."""
        model = self.model.restrict(obs)
        if model is None:
            return None
        return replace(self, observations=model.observations, model=model)

    @cached_property
    def _stretch(self) -> tuple[Array, Array]:
        return self.transform.stretch(self.observations.values)
