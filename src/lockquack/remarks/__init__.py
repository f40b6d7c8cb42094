"""Remarks on results: every kind, by its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockquack.remarks import (
    calibration,
    densities,
    draws,
    likelihoods,
    limits,
    numbers,
    solver,
    support,
    weights,
)
from lockquack.remarks.base import Remark, UnknownRemark
from lockquack.remarks.warning import remark_of, warn

_TOPICS = (
    solver,
    draws,
    densities,
    weights,
    limits,
    support,
    likelihoods,
    numbers,
    calibration,
)
#: All kinds, in the order in which the documentation explains them.
REMARKS: dict[str, type[Remark]] = {
    kind.code: kind
    for topic in _TOPICS
    for kind in vars(topic).values()
    if isinstance(kind, type) and issubclass(kind, Remark) and kind is not Remark
}


def read_remark(record: Mapping[str, Any]) -> Remark:
    """Make a remark again from what :meth:`Remark.record` returned, in this version or another.

    Examples
    --------
    >>> read_remark(draws.SingleChain(("normal",)).record())
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
    """Turn lists back into the tuples that JSON made them of."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


__all__ = ["REMARKS", "Remark", "UnknownRemark", "read_remark", "remark_of", "warn"]
