"""Progress bars for work that takes time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    total: int, description: str, shown: bool | None
) -> Iterator[Callable[[int], object]]:
    """Yield a function that advances a bar of ``total`` steps.

    The bar goes to standard error, appears when the work takes more than half a second, and
    disappears when it is done. ``shown=None`` shows it in a terminal only.
    """
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # In a notebook without widgets the bar is text, which needs no warning.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm

    disable = None if shown is None else not shown
    with tqdm(total=total, desc=description, disable=disable, leave=False, delay=0.5) as bar:
        yield bar.update
