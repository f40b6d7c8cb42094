"""The errors and warnings of lockquack, one class per thing that can go wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from lockquack.words import Text

if TYPE_CHECKING:
    from lockquack.remarks.base import Remark


class LockquackError(ValueError):
    """Base of every error that bad input causes.

    Its message is made of parts: strings, and advice in two wordings (see ``lockquack.words``).

    Attributes
    ----------
    reason
        What is wrong, and what to do.
    places
        Where it is wrong, the outermost first: a file, a model, a component. They stand in front
        of the reason.
    """

    def __init__(self, *parts: str, places: tuple[str, ...] = ()) -> None:
        self.reason, self.places = Text(*parts), places
        super().__init__(self.text)

    @property
    def text(self) -> Text:
        """The whole message."""
        return Text(*(f"{place}: " for place in self.places), self.reason)

    def within(self, place: str, hint: str = "") -> Self:
        """Return the error with one more place in front of it, and perhaps a hint at its end."""
        return type(self)(self.reason, hint, places=(place, *self.places))


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put the place in front of any error raised inside that does not name it already."""
    try:
        yield
    except LockquackError as error:
        if place in error.places:
            raise
        raise error.within(place) from error


def in_brief(error: Exception) -> str:
    """Name the kind of another library's error and what it says, in one line."""
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0][:200]}"


class ShapeError(LockquackError):
    """Arrays whose shapes do not fit together."""


class NonFiniteError(LockquackError):
    """NaN or infinite values."""


class ParameterError(LockquackError):
    """A parameter or an option that is missing, unknown or outside its domain."""


class SupportError(LockquackError):
    """An observation outside the support of a model."""


class ObservationMismatchError(LockquackError):
    """Models that do not describe the same observations in the same order."""


class TransformError(ObservationMismatchError):
    """A model of a transformed outcome that does not declare its transform."""


class SmoothnessError(LockquackError):
    """A likelihood without the derivatives that the score needs."""


class EdgeError(LockquackError):
    """A density that does not vanish at an edge of its support."""


class DerivativeError(LockquackError):
    """Derivatives that disagree with finite differences of the log density."""


class ImproperError(LockquackError):
    """A combination that cannot be normalised."""


class ScaleError(LockquackError):
    """An outcome from which no unit can be derived."""


class UnsupportedError(LockquackError):
    """Something that does not exist, or cannot be done with what was given."""


class UnknownNameError(LockquackError):
    """A name that is not in its registry."""


class OverwriteError(LockquackError):
    """A path at which something would be destroyed."""


class FileError(LockquackError):
    """A file that cannot be read, or that does not hold what it should."""


class ClusterError(LockquackError):
    """A cluster that was closed, lost its workers or has no memory left."""


class LockquackWarning(UserWarning):
    """Base of every warning.

    Attributes
    ----------
    remark
        What is warned of, with its code, its meaning and what to do about it.
    """

    remark: Remark | None = None


class ConvergenceWarning(LockquackWarning):
    """A solver that did not reach its certificate, or searches that end at different places."""


class MonteCarloWarning(LockquackWarning):
    """Draws of a posterior, or of the combination, too few or too dependent to be trusted."""


class ParetoWarning(LockquackWarning):
    """Importance weights whose tail is too heavy for leave-one-out densities."""


class EdgeWarning(LockquackWarning):
    """Densities that vanish at an edge, but slowly."""


class QuadratureWarning(LockquackWarning):
    """A normaliser whose error is larger than it should be."""


class CalibrationWarning(LockquackWarning):
    """Predictions whose recalibration does nothing, or hides what is wrong with them."""


class IdentifiabilityWarning(LockquackWarning):
    """Models that the score cannot tell apart, or parameters that it does not determine."""


class InfluenceWarning(LockquackWarning):
    """Observations without which the answer would be another one."""


class BlindScoreWarning(LockquackWarning):
    """A score that looks at densities near the observations only, where that is not enough."""


class SupportWarning(LockquackWarning):
    """Models that disagree about which outcomes are possible, or a pool that may be improper."""


class LikelihoodWarning(LockquackWarning):
    """Scores of something else than all outcomes, each predicted from all others."""


def first_line(error: Exception) -> str:
    r"""Return what an error of another library says, without its explanations.

    Examples
    --------
    >>> first_line(ValueError("shapes differ.\nSee the manual."))
    'shapes differ'
    """
    return str(error).split("\n", 1)[0].rstrip(". ")


def unknown_name(kind: str, got: object, known: Iterable[str]) -> UnknownNameError:
    """Build the error for a misspelt name, with the nearest known one suggested."""
    names = sorted(known)
    near = difflib.get_close_matches(str(got).lower(), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"Unknown {kind} {got!r}.{hint} Known: {', '.join(names)}.")
