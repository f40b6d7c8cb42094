"""Remarks as warnings."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import FrameType

from lockquack.errors import LockquackWarning
from lockquack.remarks.base import Remark, UnknownRemark

#: Code that a user does not call: this package, and what remembers its properties.
_OURS = (f"{Path(__file__).parents[1]}{os.sep}", str(functools.__file__))


def warn(*remarks: Remark, already_said: Mapping[str, set[Hashable]] | None = None) -> None:
    """Warn of remarks at the line outside this package from which it was called.

    ``already_said`` holds the remarks made on each model before, by name; they are not repeated.
    """
    remarks = tuple(remark for remark in remarks if _is_new(remark, already_said or {}))
    # From Python 3.12 on, skip_file_prefixes= would do; 3.11 has to count.
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    for remark in remarks:
        warning = remark.category(remark.message)
        warning.remark = remark
        warnings.warn(warning, stacklevel=level)


def _is_new(remark: Remark, already_said: Mapping[str, set[Hashable]]) -> bool:
    """Whether it has not been said of all its models, or of this fit; note that it is now."""
    topic: Hashable = remark.code if remark.subjects else remark
    said = [already_said[name] for name in remark.subjects or already_said if name in already_said]
    new = not said or any(topic not in topics for topics in said)
    for topics in said:
        topics.add(topic)
    return new


def remark_of(warning: Warning | str) -> Remark | None:
    """Return what one of this package's warnings is about; None for those of others."""
    if not isinstance(warning, LockquackWarning):
        return None
    return warning.remark or UnknownRemark(str(warning))
