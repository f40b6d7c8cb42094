"""A combination as one page of HTML that a colleague can open.

Needs matplotlib: ``pip install 'lockquack[report]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination


def write_report(
    fit: Combination,
    path: str | Path = "report.html",
    *,
    title: str | None = None,
    command: str | None = None,
    methods: Sequence[str] | Mapping[str, Any] | None = None,
    cv: int | ArrayLike = 10,
    obs: Iterable[Any] | None = None,
    thorough: bool | None = None,
    progressbar: bool | None = None,
) -> Path:
    """Write a report: one HTML file that needs no other and no network.

    An overview, what was combined and how, weights with uncertainty, influence, scores side by
    side, calibration before and after, predictions of an observation that the reader chooses (by a
    small script of its own; without it, and on paper, of a few), and remarks with what to do about
    each. Where
    something cannot be had, as calibration from models that are known at the observed outcomes
    only, the page says why.

    Parameters
    ----------
    fit
        The combination.
    path
        Where to write it, by default ``report.html`` in the current folder; folders are made.
    title
        Heading of the page.
    command
        What made the report, as a reader could type it.
    methods
        The methods to compare, as for :func:`compare`: by default all that these models allow; an
        empty list for none.
    cv
        As for :func:`compare`.
    obs
        Observations whose predictions are drawn, each as for :meth:`Combination.plot_density`.
    thorough
        Whether to compare methods and to examine calibration, which takes about as long as
        :func:`compare` and :meth:`Combination.coverage`; by default where that is minutes at most.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    pathlib.Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import lockquack as lq
    >>> from lockquack.report import write_report
    >>> models = lq.example_models()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(lq.lock(models), Path(folder) / "report.html", methods=["lock"])
    ...     page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    True
    """
    from lockquack.files.places import require_file_place, write_text
    from lockquack.plots.style import require_matplotlib

    require_matplotlib()
    from lockquack.report.contents import gather_contents
    from lockquack.report.page import as_page

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    require_file_place(path)
    contents = gather_contents(
        fit, methods=methods, cv=cv, obs=obs, thorough=thorough, progressbar=progressbar
    )
    write_text(path, as_page(contents, title, command))
    return path
