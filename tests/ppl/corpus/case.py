"""What is said of a model of the corpus.

The modules of this package import no probabilistic programming language at their top, only inside
the functions that build models: the tables in ``docs/howto/models.md`` are made from what is said
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """A model that somebody would bring, and what becomes of it.

    ``goes_in`` is ``"H"`` for a density whose derivatives are right, so that every rule takes it,
    ``"H of log y"`` or ``"H of logit y"`` for one that the Hyvärinen score takes in these
    coordinates, ``"log"`` for one that log scores take and the Hyvärinen score refuses, and
    ``"no"`` for a model that is refused as it is. ``reason`` says why not more, in words of the
    documentation, and ``says`` is a part of the message that the user reads. ``remark`` is the
    code of what is remarked on where the model is used.
    """

    name: str
    title: str
    kind: str
    build: Callable[[], Any]
    goes_in: str = "H"
    reason: str = ""
    says: str = ""
    remark: str = ""
    #: Whether it is among the few that are always tested.
    quick: bool = False

    def __post_init__(self) -> None:
        if self.goes_in not in ("H", "H of log y", "H of logit y", "log", "no"):
            raise ValueError(f"goes_in of {self.name!r} is {self.goes_in!r}")
        if (self.goes_in == "H") != (self.says == ""):
            raise ValueError(f"{self.name!r} must say why it does not go in, and only then")
        if not self.reason and (self.says or self.remark):
            raise ValueError(f"{self.name!r} must have a reason, unless it goes in as it is")

    @property
    def transform(self) -> str | None:
        """Coordinates in which the Hyvärinen score takes it: None for those of y."""
        return self.goes_in.split()[2] if self.goes_in.startswith("H of") else None


class Corpus:
    """The cases of one library, in the order in which they are written."""

    def __init__(self, library: str) -> None:
        self.library = library
        self._cases: dict[str, Case] = {}

    def case(
        self, kind: str, title: str, **facts: Any
    ) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """Enter the function below, which builds a model, under its own name."""

        def enter(build: Callable[[], Any]) -> Callable[[], Any]:
            name = build.__name__
            if name in self._cases:
                raise ValueError(f"two cases of {self.library} are called {name!r}")
            self._cases[name] = Case(name, title, kind, build, **facts)
            return build

        return enter

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases.values())

    def __len__(self) -> int:
        return len(self._cases)

    def names(self) -> list[str]:
        """Return what parametrised tests are called."""
        return list(self._cases)

    def __getitem__(self, name: str) -> Case:
        return self._cases[name]
