"""What is remarked on a result: every kind of remark, by its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockquack.remarks.base import Remark, UnknownRemark
from lockquack.remarks.densities import (
    HighParetoK,
    UncertainNormaliser,
    UnreliableDraws,
    WrongNormaliser,
)
from lockquack.remarks.draws import (
    DependentDraws,
    HandfulOfDraws,
    HardlyAnyDraws,
    SingleChain,
    TooFewDraws,
)
from lockquack.remarks.solver import SeveralOptima, StoppedEarly
from lockquack.remarks.support import DifferentSupports, NormaliserUnchecked, SlowEdge
from lockquack.remarks.warning import remark_of, warn
from lockquack.remarks.weights import (
    ModelsAlike,
    ModesApart,
    ParameterAtBound,
    PhasesAtCap,
    WeightsUndetermined,
)

#: All kinds, in the order in which the documentation explains them.
REMARKS: dict[str, type[Remark]] = {
    kind.code: kind
    for kind in (
        StoppedEarly,
        SeveralOptima,
        SingleChain,
        HardlyAnyDraws,
        TooFewDraws,
        HandfulOfDraws,
        DependentDraws,
        UncertainNormaliser,
        UnreliableDraws,
        HighParetoK,
        ModelsAlike,
        WeightsUndetermined,
        ModesApart,
        ParameterAtBound,
        PhasesAtCap,
        SlowEdge,
        DifferentSupports,
        NormaliserUnchecked,
        WrongNormaliser,
    )
}


def read_remark(record: Mapping[str, Any]) -> Remark:
    """Make a remark again from what :meth:`Remark.record` returned, in this version or another.

    Examples
    --------
    >>> read_remark(SingleChain(("normal",)).record())
    SingleChain(models=('normal',))
    >>> read_remark({"code": "full-moon", "message": "The moon is full.", "fields": {}})
    UnknownRemark(text='The moon is full.')
    """
    kind, unknown = REMARKS.get(record["code"]), UnknownRemark(record["message"])
    if kind is None:
        return unknown
    try:
        remark = kind(**{name: _as_tuples(value) for name, value in record["fields"].items()})
        str(remark)
    except (TypeError, ValueError, KeyError):  # its fields were other ones in that version
        return unknown
    return remark


def _as_tuples(value: Any) -> Any:
    """Make tuples of lists again, which JSON made of them."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


__all__ = ["REMARKS", "Remark", "UnknownRemark", "read_remark", "remark_of", "warn"]
