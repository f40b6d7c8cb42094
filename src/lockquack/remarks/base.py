"""What a remark is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from lockquack.errors import LockquackWarning
from lockquack.words import Text


@dataclass(frozen=True)
class Remark(ABC):
    """Something to know about a result before trusting it.

    A kind of remark is a class: a code that never changes, and what it means and what to do about
    it in plain words, in which backticks mark code. Its fields are what there is to say about
    this result: names, counts, the worst observation. They are plain Python values, so that JSON
    can hold them. To add one, write the class in the module of its topic and issue it where it is
    found out.
    """

    code: ClassVar[str]
    category: ClassVar[type[LockquackWarning]]
    title: ClassVar[str]
    meaning: ClassVar[str]
    remedy: ClassVar[str]
    #: Values of the fields with which the documentation shows the message.
    example: ClassVar[tuple[Any, ...]]

    @property
    def message(self) -> Text:
        """What there is to say about this result, worded for Python and for a shell."""
        return Text(self._message())

    @abstractmethod
    def _message(self) -> str:
        """Write the message; a :class:`~lockquack.words.Text` where the wordings differ."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the models that it is about, whatever they are combined by; none: the fit."""
        return getattr(self, "models", ())

    @property
    def topic(self) -> Hashable:
        """What it is about: of remarks with the same topic, one is enough."""
        return (self.code, *self.subjects) if self.subjects else self

    def __str__(self) -> str:
        return str(self.message)

    @classmethod
    def of_example(cls) -> Self:
        """Make the remark that the documentation shows."""
        return cls(*cls.example)

    def record(self) -> dict[str, Any]:
        """Return all that JSON needs to hold it; see :func:`lockquack.remarks.read_remark`."""
        return {"code": self.code, "message": str(self), "fields": asdict(self)}

    def summary(self) -> dict[str, str]:
        """Return what the command line writes of it for machines."""
        return {"code": self.code, "kind": self.category.__name__, "message": self.message.shell}


@dataclass(frozen=True)
class UnknownRemark(Remark):
    """A remark that this version does not know, from a file that another version wrote."""

    code = "unknown"
    category = LockquackWarning
    title = "Remark"
    meaning = "Something to know before trusting the result."
    remedy = "Read the message, and the documentation of what it names."

    text: str

    def _message(self) -> str:
        return self.text


def listed(names: Iterable[str]) -> str:
    """Write names of models one after the other."""
    return ", ".join(map(repr, names))
