"""Methods of a prediction, as shortcuts on the combination."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from lockquack.draws.blocks import HELD_OUT
from lockquack.prediction.prediction import Prediction

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

P = ParamSpec("P")
R = TypeVar("R")

_CHOICE = "bool | None"
_LOO = """\
loo
    Leave each observation out of the models that predict it, by Pareto-smoothed importance
    weights{default}.
progressbar
    Whether to show progress; by default in a terminal only."""
_CALIBRATES = "; by default, unless the observations are held out"


def shortcut(
    method: Callable[Concatenate[Prediction, P], R], *, calibrates: bool = False
) -> Callable[..., R]:
    """Let ``fit.method(..., loo=)`` be ``fit.predict(loo=).method(...)``.

    Signature and documentation are the method's, with ``loo`` and ``progressbar`` added. Where the
    method ``calibrates``, observations are left out of their own prediction by default.

    Examples
    --------
    >>> print(inspect.signature(shortcut(Prediction.log_norm)))
    (self, *, loo: 'bool | None' = None, progressbar: 'bool | None' = None) -> 'xr.DataArray'
    """

    @wraps(method)
    def ask(
        self: Combination,
        *args: Any,
        loo: bool | None = None,
        progressbar: bool | None = None,
        **options: Any,
    ) -> R:
        leaves_out = (calibrates and self.scores not in HELD_OUT) if loo is None else loo
        return method(self.predict(loo=leaves_out, progressbar=progressbar), *args, **options)

    own = inspect.signature(method)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_CHOICE)
        for name in ("loo", "progressbar")
    ]
    vars(ask)["__signature__"] = own.replace(parameters=[*own.parameters.values(), *more])
    ask.__doc__ = _with_parameters(inspect.getdoc(method) or "", calibrates)
    return ask


def _with_parameters(doc: str, calibrates: bool) -> str:
    """Add the two parameters to the documentation, before what the method returns."""
    described = _LOO.format(default=_CALIBRATES if calibrates else "")
    head, returns, tail = doc.partition("\nReturns\n-------\n")
    heading = "" if "\nParameters\n----------\n" in head else "\nParameters\n----------\n"
    return f"{head.rstrip()}\n{heading}{described}\n{returns}{tail}"
