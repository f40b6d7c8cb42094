"""Run the pages that need a probabilistic programming language, and keep what their cells gave.

``python scripts/record_pages.py`` records those whose code or lockquack has changed, ``--all``
every one, a path only that page. ``--check`` runs them too, keeps nothing, and fails where a page
would now print something else: other words, or numbers further away than other random draws would
bring them. The site shows the recordings: see docs/_extensions/recorded.py.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

import recorded  # noqa: E402
from recorded import Recording, cells, digest  # noqa: E402

import lockquack  # noqa: E402

#: What a page may use, by the name under which it is imported, and the name of its distribution.
LIBRARIES = {
    "pymc": "pymc", "bambi": "bambi", "numpyro": "numpyro", "jax": "jax", "stan": "pystan",
    "arviz": "arviz", "statsmodels": "statsmodels", "sklearn": "scikit-learn",
    "vega_datasets": "vega_datasets", "numpy": "numpy",
}  # fmt: skip


def run(page: Path) -> Recording:
    """Run the cells of a page in a new kernel; an error ends it."""
    code = cells(page.read_text("utf-8"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in code])
    os.environ["MATPLOTLIBRC"] = str(ROOT / "docs" / "matplotlibrc")
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=1200, resources={"metadata": {"path": folder}}, kernel_name="python3"
        ).execute()
    outputs = [kept(cell.outputs) for cell in notebook.cells]
    return Recording(digest(code), recorded.prints(), versions(code), outputs)


def versions(code: list[str]) -> dict[str, str]:
    """Return the versions of what a page imports."""
    imported = set(re.findall(r"(?:^|[,;] ?)\s*(?:import|from) (\w+)", "\n".join(code), re.M))
    imported |= set(re.findall(r"\bimport [^\n]*?, (\w+)", "\n".join(code)))
    found = {"lockquack": lockquack.__version__}
    for name, distribution in LIBRARIES.items():
        if name in imported:
            try:
                found[distribution] = version(distribution)
            except PackageNotFoundError:
                raise SystemExit(f"{distribution} is not installed here.") from None
    return found


def kept(outputs: list[Any]) -> list[dict[str, Any]]:
    """Keep of the outputs of a cell what a page shows: not what libraries log while they sample."""
    shown = []
    for each in outputs:
        if each.get("name") == "stderr":
            continue
        output = {key: value for key, value in each.items() if key != "execution_count"}
        if output["output_type"] == "execute_result":
            output["execution_count"] = None
        if "data" in output:
            output["data"] = {
                kind: value
                for kind, value in output["data"].items()
                if kind in {"text/plain", "text/html", "image/png", "image/svg+xml"}
            }
            output["metadata"] = {}
        if "".join(output.get("text", "x")).strip():
            shown.append(output)
    return shown


def check(page: Path) -> list[str]:
    """Run a page and say where it differs from its recording."""
    why = recorded.whats_stale(page)
    if why:
        return [why]
    old = Recording.read(page)
    try:
        new = run(page)
    except CellExecutionError as error:  # the other pages are still of interest
        return [f"{page.name} ends with an error:\n{error}"]
    assert old is not None, "or it would be stale"
    pairs = enumerate(zip(old.outputs, new.outputs, strict=True), start=1)
    compared = (
        (k, recorded.differs(recorded.said(before), recorded.said(after)))
        for k, (before, after) in pairs
    )
    return [f"{page.name}, cell {k}: other {what}" for k, what in compared if what]


def main() -> int:
    """Record, or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="those to run; by default all stale")
    parser.add_argument("--all", action="store_true", help="also those that are not stale")
    parser.add_argument("--check", action="store_true", help="compare, keep nothing")
    given = parser.parse_args()
    pages = [page.resolve() for page in given.pages] or recorded.recorded_pages()
    if not (given.pages or given.all or given.check):
        pages = [page for page in pages if recorded.whats_stale(page)]
    wrong: list[str] = []
    for page in pages:
        began = time.perf_counter()
        if given.check:
            wrong += check(page)
        else:
            run(page).write(page)
        print(f"{page.relative_to(ROOT)}: {time.perf_counter() - began:.0f} s", flush=True)
    if wrong:
        print("\n\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
