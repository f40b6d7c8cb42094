"""Warning of remarks."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import FrameType

from lockquack.errors import LockquackWarning
from lockquack.remarks.base import Remark, UnknownRemark

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def warn(*remarks: Remark) -> None:
    """Warn of remarks at the line outside this package from which it was called."""
    # From Python 3.12 on, skip_file_prefixes= would do; 3.11 has to count.
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    for remark in remarks:
        warning = remark.category(remark.message)
        warning.remark = remark
        warnings.warn(warning, stacklevel=level)


def remark_of(warning: Warning | str) -> Remark | None:
    """Return what one of this package's warnings is about; None for those of others."""
    if not isinstance(warning, LockquackWarning):
        return None
    return warning.remark or UnknownRemark(str(warning))
