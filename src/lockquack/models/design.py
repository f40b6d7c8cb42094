"""Covariates once weights were fitted to them: functions of them at any observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.fitting.basis import Basis, features, groups, knots_of, splines, together
from lockquack.models.covariates import (
    Covariate,
    Covariates,
    Features,
    Groups,
    Spline,
    Values,
    as_covariates,
)
from lockquack.models.observations import Observations


@dataclass(frozen=True)
class Term(ABC):
    """What is known of a covariate once weights were fitted."""

    name: str
    kind: ClassVar[str]
    _by_kind: ClassVar[dict[str, type[Term]]] = {}

    def __init_subclass__(cls) -> None:
        cls._by_kind[cls.kind] = cls

    @classmethod
    @abstractmethod
    def learn(cls, covariate: Any, name: str, values: Values) -> Self:
        """Find out, from the observations that count, which functions there are."""

    @abstractmethod
    def basis(self, values: Values) -> Basis:
        """Return its functions at some observations."""

    @abstractmethod
    def covariate(self, values: Any) -> Covariate:
        """Take values for those of this covariate at other observations."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, in a few words."""

    @abstractmethod
    def grid(self) -> Values:
        """Return values at which to show the weights."""

    def labels(self) -> Values:
        """Return what to call these."""
        return _as_labels(self.grid())

    @property
    def size(self) -> int:
        """Number of functions."""
        return self.basis(self.grid()[:1]).size

    def describe(self) -> dict[str, Any]:
        """All that is known of it, as JSON can hold it."""
        return {"kind": self.kind, **vars(self)}

    @staticmethod
    def from_description(description: Mapping[str, Any]) -> Term:
        """Make it again."""
        kind = Term._by_kind[description["kind"]]
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in description.items()
            if name != "kind"
        }
        return kind(**known)


@dataclass(frozen=True)
class GroupTerm(Term):
    """Groups by their labels; None is that of observations without one."""

    levels: tuple[Any, ...]
    kind = "groups"

    @classmethod
    @override
    def learn(cls, covariate: Any, name: str, values: Values) -> Self:
        found = dict.fromkeys(map(_plain, pd.unique(values)))
        return cls(name, tuple(_sorted(list(found))))

    @override
    def basis(self, values: Values) -> Basis:
        return groups(self.codes(values), len(self.levels))

    def codes(self, values: Values) -> NDArray[np.intp]:
        """Return the position of each group among the levels; −1 is one that is not known."""
        number = {level: code for code, level in enumerate(self.levels)}
        codes, found = pd.factorize(values)  # missing ones are −1
        known = [number.get(_plain(each), -1) for each in (*found, None)]
        return np.array(known, dtype=np.intp)[codes]

    @override
    def covariate(self, values: Any) -> Covariate:
        return Groups(values, self.name)

    @property
    @override
    def title(self) -> str:
        return f"{self.name} ({len(self.levels)} groups)"

    @override
    def grid(self) -> Values:
        return np.array(self.levels, dtype=object)


@dataclass(frozen=True)
class SplineTerm(Term):
    """B-splines of a number."""

    knots: tuple[float, ...]
    degree: int
    kind = "spline"
    #: Values at which a curve is drawn.
    _n_values: ClassVar[int] = 41

    @classmethod
    @override
    def learn(cls, covariate: Any, name: str, values: Values) -> Self:
        if np.isnan(values).all():
            raise NonFiniteError(f"by: all values of {name!r} are missing.")
        knots, degree = knots_of(values, covariate.df, covariate.degree)
        return cls(name, tuple(knots.tolist()), degree)

    @override
    def basis(self, values: Values) -> Basis:
        return splines(values, np.array(self.knots), self.degree)

    @override
    def covariate(self, values: Any) -> Covariate:
        return Spline(values, name=self.name)

    @property
    @override
    def title(self) -> str:
        return f"{self.name} ({len(self.knots) - self.degree - 1} splines of degree {self.degree})"

    @override
    def grid(self) -> Values:
        return np.linspace(self.knots[0], self.knots[-1], self._n_values)


@dataclass(frozen=True)
class FeatureTerm(Term):
    """Given functions."""

    columns: tuple[str, ...]
    kind = "features"

    @classmethod
    @override
    def learn(cls, covariate: Any, name: str, values: Values) -> Self:
        columns = getattr(covariate.values, "columns", range(values.shape[1]))
        return cls(name, tuple(str(each) for each in columns))

    @override
    def basis(self, values: Values) -> Basis:
        if values.shape[1] != len(self.columns):
            raise ShapeError(
                f"There are {len(self.columns)} features; got rows of {values.shape[1]}."
            )
        return features(values)

    @override
    def covariate(self, values: Any) -> Covariate:
        return Features(values, self.name)

    @property
    @override
    def title(self) -> str:
        return f"{self.name} ({len(self.columns)} features)"

    @override
    def grid(self) -> Values:
        return np.eye(len(self.columns))

    @override
    def labels(self) -> Values:
        return np.array(self.columns)


@dataclass(frozen=True)
class CovariateValues:
    """Values of the covariates, with their functions there and how to label them."""

    basis: Basis
    dim: str
    coords: Mapping[str, Values]


@dataclass(frozen=True)
class Design:
    """The covariates that weights depend on, and their functions."""

    terms: tuple[Term, ...]

    @property
    def names(self) -> list[str]:
        """Names of the covariates."""
        return [term.name for term in self.terms]

    @property
    def title(self) -> str:
        """What they are, in a few words."""
        return " and ".join(term.title for term in self.terms)

    def basis(self, values: Sequence[Values]) -> Basis:
        """Return all functions at some observations, of values for each covariate."""
        parts = [term.basis(each) for term, each in zip(self.terms, values, strict=True)]
        return parts[0] if len(parts) == 1 else together(parts)

    def read(self, by: Any, observations: Observations | None = None) -> list[Values]:
        """Read the covariates of other observations, given as they were or by name."""
        if isinstance(by, pd.DataFrame | Mapping | xr.Dataset) and not self._is_table(by):
            missing = [name for name in self.names if name not in by]
            if missing:
                raise ParameterError(
                    f"The weights depend on {missing[0]!r}, which by does not have; it has "
                    f"{', '.join(map(str, by))}."
                )
            by = Covariates(tuple(term.covariate(by[term.name]) for term in self.terms))
        given = by if isinstance(by, Covariates) else Covariates((self._alone(by),))
        if len(given.parts) != len(self.terms):
            raise ParameterError(
                f"The weights depend on {self.title}; by has {len(given.parts)} covariate(s). Give "
                "all of them, such as a DataFrame with these columns."
            )
        values = [
            term.covariate(part.values).read(observations)
            for term, part in zip(self.terms, given.parts, strict=True)
        ]
        if len({len(each) for each in values}) > 1:
            raise ShapeError(f"by has covariates of {[len(each) for each in values]} observations.")
        return values

    def at(self, by: Any) -> CovariateValues:
        """Return the functions at covariates that a user gives, labelled by these."""
        values = self.read(by)
        labels = {
            term.name: _as_labels(each)
            for term, each in zip(self.terms, values, strict=True)
            if each.ndim == 1
        }
        dim = self.names[0] if len(self.terms) == 1 and labels else "row"
        return CovariateValues(self.basis(values), dim, labels)

    def over_each(self) -> CovariateValues:
        """Return the functions over the range of each covariate, the others at their average."""
        if len(self.terms) == 1:
            return self.over(self.names[0])
        parts, names, labels = [], [], []
        for term in self.terms:
            at = term.grid()
            parts.append(self._averaging(at, term))
            names += [term.name] * len(at)
            labels += [str(label) for label in term.labels()]
        share = sparse.csr_array(sparse.vstack([part.share for part in parts]))
        coords = {"covariate": np.array(names), "value": np.array(labels)}
        return CovariateValues(Basis(share, parts[0].terms), "row", coords)

    def over(self, name: str) -> CovariateValues:
        """Return the functions over the range of one covariate, the others at their average."""
        term = self.terms[self.names.index(name)]
        return CovariateValues(self._averaging(term.grid(), term), name, {name: term.labels()})

    def _averaging(self, at: Values, varied: Term) -> Basis:
        parts = [
            varied.basis(at)
            if term is varied
            else features(np.full((len(at), term.size), 1.0 / term.size))
            for term in self.terms
        ]
        return parts[0] if len(parts) == 1 else together(parts)

    def unseen(self, by: Any) -> dict[str, tuple[str, ...]]:
        """Return groups that were not among the observations, by covariate."""
        found = {}
        for term, values in zip(self.terms, self.read(by), strict=True):
            if isinstance(term, GroupTerm) and (new := values[term.codes(values) < 0]).size:
                found[term.name] = tuple(dict.fromkeys(map(str, new)))
        return found

    def _is_table(self, by: Any) -> bool:
        """Whether a table is the values of a single covariate."""
        return isinstance(by, pd.DataFrame) and isinstance(self.terms[0], FeatureTerm)

    def _alone(self, by: Any) -> Covariate:
        return by if isinstance(by, Covariate) else self.terms[0].covariate(by)

    def describe(self) -> list[dict[str, Any]]:
        """All that is known of the covariates, as JSON can hold it."""
        return [term.describe() for term in self.terms]

    @classmethod
    def from_description(cls, description: Sequence[Mapping[str, Any]]) -> Design:
        """Make it again."""
        return cls(tuple(map(Term.from_description, description)))


#: What becomes of each kind of covariate.
_TERMS: dict[type[Covariate], type[Term]] = {
    Groups: GroupTerm,
    Spline: SplineTerm,
    Features: FeatureTerm,
}


@dataclass(frozen=True)
class ReadCovariates:
    """Covariates of the observations that were read before, for another fit to them."""

    design: Design
    basis: Basis


def read_by(by: Any, observations: Observations) -> tuple[Design, Basis]:
    """Read the covariates of the observations to which weights are fitted."""
    if isinstance(by, ReadCovariates):
        return by.design, by.basis
    covariates = as_covariates(by)
    values = [part.read(observations) for part in covariates.parts]
    weights = observations.weights
    counted = np.ones(observations.n, bool) if weights is None else weights > 0
    parts = zip(covariates.parts, covariates.names, values, strict=True)
    design = Design(
        tuple(_TERMS[type(part)].learn(part, name, each[counted]) for part, name, each in parts)
    )
    return design, design.basis(values)


def missing_numbers(by: Any, observations: Observations) -> dict[str, int]:
    """Count the observations at which each number that weights depend on is missing."""
    if by is None or isinstance(by, ReadCovariates):
        return {}
    covariates = as_covariates(by)
    counts = {
        name: int(np.isnan(part.read(observations)).sum())
        for part, name in zip(covariates.parts, covariates.names, strict=True)
        if isinstance(part, Spline)
    }
    return {name: count for name, count in counts.items() if count}


def _as_labels(values: Values) -> Values:
    """Return labels of one kind: numbers, or else strings, of which "missing" is one."""
    if values.dtype != object:
        return values
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        return np.array(values.tolist())
    return np.array(["missing" if _plain(each) is None else str(each) for each in values])


def _plain(label: Any) -> Any:
    """Return the label of a group as JSON can hold it; None where it is missing."""
    if label is None or label is pd.NA or (isinstance(label, float) and np.isnan(label)):
        return None
    plain = label.item() if isinstance(label, np.generic) else label
    return plain if isinstance(plain, bool | int | float | str) else str(plain)


def _sorted(levels: list[Any]) -> list[Any]:
    """Sort labels of one kind; others stay as they came, and the missing one is the last."""
    known = [level for level in levels if level is not None]
    missing = [None] * (len(known) < len(levels))
    if len({isinstance(level, str) for level in known}) < 2:
        known.sort()
    return [*known, *missing]
