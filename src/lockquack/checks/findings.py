"""What a check of a model found."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockquack.errors import DerivativeError

if TYPE_CHECKING:
    import pandas as pd

Quantity = Literal["gradient", "curvature", "log density", "stored log likelihood"]
Where = Literal["observed", "elsewhere"]


@dataclass(frozen=True)
class ComparedQuantity:
    """One quantity, compared at many places, and the place where it is worst."""

    what: Quantity
    where: Where  # at the observed outcomes, or at others
    n: int
    #: The largest error, in units of the quantity's own size around there.
    error: float
    tolerance: float
    observation: str
    chain: int
    draw: int
    component: int
    got: float
    expected: float

    @property
    def ok(self) -> bool:
        """Whether the largest error is small."""
        return self.error <= self.tolerance

    def describe(self) -> str:
        """Say what was found at the worst place, and what was expected."""
        place = f"at {self.observation}"
        if self.what == "stored log likelihood":
            return (
                f"{place} the log density of chain {self.chain}, draw {self.draw} is "
                f"{self.got:.6g}, but the log likelihood stored with the draws is "
                f"{self.expected:.6g}"
            )
        if self.what == "log density":
            return (
                f"{place} the log density of chain {self.chain}, draw {self.draw} is "
                f"{self.got:.6g} by the pass over draws, but {self.expected:.6g} where it is "
                "evaluated"
            )
        order = {"gradient": "first", "curvature": "second"}[self.what]
        near = "" if self.where == "observed" else ", near the observed value,"
        return (
            f"{place}{near} the {order} derivative of the log density in y is "
            f"{self.expected:.6g} by finite differences, but the model gives {self.got:.6g} "
            f"(chain {self.chain}, draw {self.draw}, component {self.component})"
        )

    @property
    def remedy(self) -> str:
        """Say what to check where it is wrong."""
        if self.what == "stored log likelihood":
            return "Is it the model that was sampled, with the same data in the same order?"
        if self.what == "log density":
            return "Are these the same draws of the same model?"
        return "Derivatives must be taken in the observation y, not in the parameters."


@dataclass(frozen=True)
class Check:
    """What :func:`check` found. It is printed as a table."""

    description: str
    comparisons: tuple[ComparedQuantity, ...]

    @property
    def ok(self) -> bool:
        """Whether everything agreed."""
        return all(each.ok for each in self.comparisons)

    @property
    def worst(self) -> ComparedQuantity:
        """The comparison that is furthest from its tolerance, or nearest to it."""
        return max(self.comparisons, key=lambda each: each.error / each.tolerance)

    def require(self) -> None:
        """Raise a :class:`~lockquack.errors.DerivativeError` if anything disagreed."""
        if not self.ok:
            text = self.worst.describe()
            raise DerivativeError(f"{text}. {self.worst.remedy}")

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each quantity: how often compared, and how it was at worst."""
        import pandas as pd

        columns = ("n", "error", "tolerance", "observation", "chain", "draw", "got", "expected")
        index = pd.MultiIndex.from_tuples(
            [(each.what, each.where) for each in self.comparisons], names=["quantity", "at"]
        )
        return pd.DataFrame(
            {column: [getattr(each, column) for each in self.comparisons] for column in columns},
            index=index,
        )

    @property
    def _verdict(self) -> str:
        if self.ok:
            return "all agree"
        return f"NOT right: {self.worst.describe()}. {self.worst.remedy}"

    @property
    def _title(self) -> str:
        return f"Derivatives in y of {self.description}, against finite differences"

    def _formatted(self) -> pd.DataFrame:
        table = self.to_dataframe()[["n", "error", "tolerance", "observation"]]
        return table.assign(
            error=[f"{error:.1e}" for error in table["error"]],
            tolerance=[f"{tolerance:.0e}" for tolerance in table["tolerance"]],
        ).rename(columns={"n": "compared", "error": "worst error", "observation": "worst at"})

    def __repr__(self) -> str:
        table = self._formatted().to_string(sparsify=False)
        return "\n".join([self._title, "", table, "", self._verdict])

    def _repr_html_(self) -> str:
        table = self._formatted().to_html(border=0, justify="right", sparsify=False)
        return f"<p>{html.escape(self._title)}</p>{table}<p>{html.escape(self._verdict)}</p>"
