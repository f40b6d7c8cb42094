r"""Models of a transformed outcome, brought to the scale of the outcome itself.

A source of :math:`z = t(y)` is wrapped: what users see are outcomes y, with the density
:math:`p_z(t(y))\,|t'(y)|` and its derivatives in y; see :mod:`lockquack.transforms`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.errors import ParameterError, SupportError
from lockquack.families.base import Edge, Split, outside
from lockquack.jets import Array, Jet
from lockquack.models.changed import ChangedSource
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import Observations, require_inside
from lockquack.models.source import Abilities, Source, Subset
from lockquack.numeric import as_numeric
from lockquack.transforms import Change, Transform, get_transform

#: Where a density ends of which nothing is known: it is taken for smooth on the whole line.
_WHOLE_LINE = (Edge(-np.inf, np.inf), Edge(np.inf, np.inf))


@dataclass(frozen=True, eq=False, repr=False)
class TransformedSource(ChangedSource):
    """The draws of a model of z = t(y), as a model of y."""

    transform: Transform
    #: Name of the transform.
    label: str

    @classmethod
    def of(cls, source: Source, label: str, observations: Observations) -> TransformedSource:
        """Bring a model of t(y) to these outcomes y, whose images are those of the source."""
        transform = get_transform(label)
        changed: dict[str, Any] = {
            "observations": observations,
            "likelihood": _of_outcome(source.likelihood, transform, label),
        }
        if source.log_marginal_likelihood is not None:
            jacobian = transform.change(observations.values).logp(0.0).sum()
            changed["log_marginal_likelihood"] = source.log_marginal_likelihood + float(jacobian)
        if source.outcome_draws is not None:
            drawn = _backward(transform, source.outcome_draws.values)
            changed["outcome_draws"] = source.outcome_draws.copy(data=drawn)
        facts = {**source.common_fields(), **changed}
        return cls(**facts, source=source, transform=transform, label=label)

    @property
    @override
    def can(self) -> Abilities:
        can = self.source.can
        low, high = self.source.likelihood.support or (-np.inf, np.inf)
        first, last = self.transform.image
        whole = can.integrate_to_one and first <= low and high <= last
        return replace(can, read_in_place=False, integrate_to_one=whole)

    @override
    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        jet = self.source.jets_at(self._images(y, obs), chain, draws, obs, derivatives=derivatives)
        logp = self._with_jacobian(y, jet.logp)
        if not derivatives:
            return replace(jet, logp=logp)
        return Jet(logp, *self.transform.derivatives(y[:, None], jet.grad, jet.curv))

    @override
    def logp_at(self, y: Array, chain: int, draws: slice, obs: Subset) -> Array:
        return self._with_jacobian(y, self.source.logp_at(self._images(y, obs), chain, draws, obs))

    @override
    def split(self, obs: slice) -> Split | None:
        of_z = self.source.split(obs)
        if of_z is None:
            return None
        inner = of_z.of_outcome

        def of_outcome(y: Array) -> tuple[Array, ...]:
            base, *others = inner(self.transform.forward(y))
            return self.transform.logp(y, base), *others

        return replace(of_z, of_outcome=of_outcome)

    @override
    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        points = self.source.bulks(obs, multiples, detailed=detailed)
        return self.transform.backward(np.clip(points, *self.transform.image))

    @override
    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Subset, rng: np.random.Generator
    ) -> Array:
        return _backward(self.transform, self.source.draw_outcomes(chain, draws, obs, rng))

    @override
    def stored_logp(self, chain: int, draws: slice) -> Array | None:
        stored = self.source.stored_logp(chain, draws)
        return None if stored is None else self._change.logp(stored)

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        there = self.source.with_data(_images(y, self.transform, self.label), **data)
        return on_natural_scale(there, self.label)

    @override
    def one_chain(self, chain: int) -> TransformedSource | None:
        source = self.source.one_chain(chain)
        return None if source is None else self.of(source, self.label, self.observations)

    @override
    def _find_change(self) -> Change:
        return self.transform.change(self.observations.values)

    def _images(self, y: Array, obs: Subset) -> Array:
        """Return t(y); where there is none, an image that there is, whose density is not used."""
        z = self.transform.forward(y)
        missing = np.isnan(z)
        return np.where(missing, self.source.observations.values[obs], z) if missing.any() else z

    def _with_jacobian(self, y: Array, logp: Array) -> Array:
        """Bring log densities (point, draws, obs) of z to outcomes (point, obs, component)."""
        return self.transform.logp(y[:, None], logp, multivariate=True)


def on_natural_scale(
    source: Source, label: str | None, observations: Observations | None = None
) -> Source:
    """Bring a model of a function of the outcome, given by its name, to the outcome itself.

    Parameters
    ----------
    source
        The model as it was fitted: its observations are t(y).
    label
        Name of the transform t, such as ``"log"``; None: the model is one of y.
    observations
        The outcomes y themselves, where they are known better than from t(y).
    """
    if label is None:
        return source
    as_transform(label)
    if source.likelihood.discrete:
        raise discrete_outcome(source.likelihood.description)
    if observations is None:
        observations = preimages(source.observations, label)
    return TransformedSource.of(source, label, observations)


def discrete_outcome(description: str) -> ParameterError:
    """Say that there are no functions of whole numbers here."""
    return ParameterError(
        f"{description} is discrete; a model of a function of whole numbers is not supported. "
        "Leave transform out."
    )


def as_transform(label: str) -> Transform:
    """Read the name of a transform."""
    if not isinstance(label, str):
        raise ParameterError(
            f"A transform is given by its name, such as 'log'; got a {type(label).__name__}."
        )
    return get_transform(label)


def on_scale_of_model(observations: Observations, label: str | None) -> Observations:
    """Return the outcomes as a model of a function of them sees them."""
    if label is None:
        return observations
    transform = as_transform(label)
    require_inside(f"transform {label!r}", observations.values, transform.domain, observations)
    return replace(observations, values=transform.forward(observations.values), name=None)


def preimages(images: Observations, label: str) -> Observations:
    """Return the outcomes y of which t(y) is known; they have no name then."""
    transform = as_transform(label)
    require_inside(
        f"transform {label!r}, which says that the model is of {label} y,",
        images.values,
        transform.image,
        images,
    )
    values = transform.backward(images.values)
    require_inside(f"transform {label!r}, undone,", values, transform.domain, images)
    values.setflags(write=False)
    return replace(images, values=values, name=None)


def _backward(transform: Transform, z: Array) -> Array:
    """Return outcomes; NaN where there is none."""
    z = np.asarray(z, dtype=np.float64)
    return transform.backward(np.where(outside(z, transform.image), np.nan, z))


def _images(y: Any, transform: Transform, label: str) -> Any:
    """Transform outcomes as users give them, with their labels."""
    given = as_numeric("y", y).astype(np.float64)
    bad = outside(given, transform.domain)
    if bad.any():
        low, high = transform.domain
        raise SupportError(
            f"The transform {label!r} needs values in ({low:g}, {high:g}); {bad.sum()} outcome(s) "
            f"are not, first {given[bad][0]:g}."
        )
    values = transform.forward(given)
    if isinstance(y, xr.DataArray):
        return y.copy(data=values)
    if isinstance(y, pd.Series):
        return pd.Series(values, index=y.index, name=y.name)
    if isinstance(y, pd.DataFrame):
        return pd.DataFrame(values, index=y.index, columns=y.columns)
    return values


def _of_outcome(likelihood: Likelihood, transform: Transform, label: str) -> Likelihood:
    return replace(
        likelihood,
        description=f"{likelihood.description} of {label} y",
        edges=transform.edges(likelihood.edges or _WHOLE_LINE),
    )
