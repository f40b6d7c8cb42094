"""New values for the data containers of a PyMC model, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockquack.errors import (
    LockquackError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnsupportedError,
    first_line,
    unknown_name,
)
from lockquack.jets import Numeric
from lockquack.models.observations import Observations
from lockquack.numeric import as_numeric
from lockquack.sources.pymc_outcomes import OutcomeGraph
from lockquack.sources.pytensor_rewriting import Variable, variables_of


@dataclass(frozen=True)
class Containers:
    """The ``pm.Data`` containers on which outcomes depend, with the values of the model."""

    variables: Mapping[str, Variable]
    values: Mapping[str, Numeric]
    #: Those that say which elements of others are meant, such as the group of an observation.
    indices: frozenset[str]
    #: Shape of the observations that the model was sampled with.
    shape: tuple[int, ...]
    #: Axes of the observations, and the variables that hold lengths of axes.
    dims: tuple[str, ...]
    lengths: Mapping[Variable, str]
    #: The one that holds the outcomes, if one does.
    outcome: str | None = None

    @classmethod
    def of(
        cls,
        graph: OutcomeGraph,
        shape: tuple[int, ...],
        dims: tuple[str, ...],
        outcome: str | None,
    ) -> Containers:
        """Read the containers of a graph; unnamed data are not for users to change."""
        variables = {name: graph.data[name][0] for name in graph.containers}
        chosen = _used_as_index(graph.logp)
        return cls(
            variables,
            {name: graph.data[name][1] for name in graph.containers},
            frozenset(name for name, variable in variables.items() if variable in chosen),
            shape,
            dims,
            graph.lengths,
            outcome,
        )

    @property
    def names(self) -> frozenset[str]:
        """Names of those that users may change."""
        return frozenset(self.variables) - {self.outcome}

    def read(self, data: Mapping[str, Any], y: Numeric) -> dict[Variable, Numeric]:
        """Read new values of some of them; that of the outcomes, if there is one, gets these."""
        sizes = dict(zip(self.dims, y.shape, strict=False))
        read: dict[Variable, Numeric] = {
            length: np.asarray(sizes[dim], length.dtype)
            for length, dim in self.lengths.items()
            if dim in sizes
        }
        if self.outcome is not None and self.outcome in self.variables:
            holder = self.variables[self.outcome]
            read[holder] = y.astype(holder.dtype)
        for name, given in data.items():
            if name == self.outcome:
                raise ParameterError(
                    f"Data {name!r} holds the outcomes: give new ones as y, not by name."
                )
            if name not in self.variables:
                raise self._unknown(name)
            variable = self.variables[name]
            values = self._of_its_type(name, as_numeric(f"Data {name!r}", given))
            if values.ndim != variable.ndim:
                raise ShapeError(
                    f"Data {name!r} must have {variable.ndim} dimensions; got {values.shape}."
                )
            self._require_no_code_of_missing(name, values)
            read[variable] = values
        return read

    def _of_its_type(self, name: str, given: Numeric) -> Numeric:
        """Return new values in the type of a container, which must be able to hold them."""
        if given.dtype.kind == "f" and np.isnan(given).any() and not self._lacks_some(name):
            row = int(np.argwhere(np.isnan(given))[0][0])
            raise NonFiniteError(
                f"Data {name!r} is NaN in row {row}: the model cannot predict from a value that "
                "is missing. Leave such rows out, or fill them in."
            )
        dtype = np.dtype(self.variables[name].dtype)
        if dtype.kind in "iu" and not np.array_equal(given, np.floor(given)):
            at = given[given != np.floor(given)][0]
            raise ParameterError(
                f"Data {name!r} has the value {at}; the model was sampled with whole numbers."
            )
        return np.asarray(given, dtype=dtype)

    def _lacks_some(self, name: str) -> bool:
        """Whether values were missing in the data that the model was sampled with."""
        own = np.asarray(self.values[name])
        return own.dtype.kind == "f" and bool(np.isnan(own).any())

    def numbers_of_rows(self, data: Mapping[str, Any]) -> set[int]:
        """How many observations new values are of, by those that have a row for each."""
        rows = self._with_rows()
        return {len(given) for name, given in data.items() if name in rows and np.ndim(given) > 0}

    def explain(
        self, error: Exception, data: Mapping[str, Any], observations: Observations
    ) -> LockquackError:
        """Say why the model cannot be evaluated at new values."""
        n = observations.shape[0]
        for name in sorted(self.indices & set(data)):
            values, known = np.asarray(data[name]), self.values[name]
            if isinstance(error, IndexError) and values.max() > known.max():
                return ParameterError(
                    f"Data {name!r} has the value {values.max()}, which is the number of a group "
                    "that the posterior has no draws for: the model was sampled with values from "
                    f"{known.min()} to {known.max()}. Predict groups that it has seen, or sample a "
                    "model that has the new group too; its effect is then drawn from its prior."
                )
        rows = self._with_rows()
        for name in [each for each in data if each in rows]:
            if len(data[name]) != n:
                return ShapeError(
                    f"Data {name!r} has {len(data[name])} rows; there are {n} new outcomes."
                )
        forgotten = [name for name in rows if name not in data and n != self.shape[0]]
        if forgotten:
            each = ", ".join(f"{name}=..." for name in forgotten)
            return ShapeError(
                f"The container {forgotten[0]!r} was not given: it still has the "
                f"{self.shape[0]} values that the model was sampled with, and there are {n} new "
                f"outcomes. Give it for these too: {each}"
            )
        return ShapeError(
            f"The model does not fit {observations.sizes} new outcomes: its covariates, or "
            "parameters of each observation, have another length. Covariates that change must be "
            "pm.Data containers and be given here by name; there are "
            f"{', '.join(sorted(self.names)) or 'none'}. ({first_line(error)})"
        )

    def _with_rows(self) -> list[str]:
        """Those that have a row for each observation."""
        n = self.shape[0]
        return [name for name in sorted(self.names) if np.shape(self.values[name])[:1] == (n,)]

    def _require_no_code_of_missing(self, name: str, values: Numeric) -> None:
        """Refuse −1 among the numbers of groups: it would be taken for the last group."""
        if name not in self.indices or not values.size or values.min() >= 0:
            return
        if np.min(self.values[name], initial=0) >= 0:
            raise ParameterError(
                f"Data {name!r} has the value {values.min()}, which would choose a group from the "
                "end. pandas gives -1 to categories that it does not know: the posterior has no "
                "draws for them."
            )

    def _unknown(self, name: str) -> LockquackError:
        if self.names:
            return unknown_name("data container", name, self.names)
        return UnsupportedError(
            f"The model has no pm.Data container, so {name!r} cannot be changed. Wrap covariates "
            f"in pm.Data({name!r}, ...) and sample again."
        )


def _used_as_index(output: Variable) -> set[Variable]:
    """Return the variables of a graph that choose elements of others, through whatever."""
    chosen: set[Variable] = set()
    for variable in variables_of([output]):
        node = variable.owner
        if node is not None and "AdvancedSubtensor" in type(node.op).__name__:
            chosen |= set(variables_of(node.inputs[1:]))
    return chosen
