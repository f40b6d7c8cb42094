"""Pages whose cells need a probabilistic programming language: run elsewhere, shown here.

A page that says ``execution_mode: cache`` at its top is run by ``make record`` where PyMC, Bambi,
NumPyro and Stan are installed; what its cells gave is a file in ``docs/recorded``. When the site is
built, that becomes the cache of MyST-NB. A recording of other code, or of a lockquack that printed
something else, ends the build.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
RECORDINGS = DOCS / "recorded"
_TOP = re.compile(r"\A---\n(.*?)^---\n", re.MULTILINE | re.DOTALL)
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ROUNDING = re.compile(r"\d(\.\d+)?e-\d+")
#: Which observation is the worst may depend on the draws.
_NAMED = re.compile(r"\bobservation \d+")
_NUMBER = re.compile(r"(?<![A-Za-z])[-−+]?(?:\d[\d,]*)?\.?\d+(?:[eE][-+−]?\d+)?%?")
_SPACE = re.compile(r"[\s|=-]+")
_OPTIONS = re.compile(r"\A(:.*\n)+\n?")


@dataclass(frozen=True)
class Recording:
    """What the cells of a page gave, and what they were run with."""

    code: str  # digest of the cells
    prints: str  # digest of what lockquack printed then
    versions: dict[str, str]
    outputs: list[list[dict[str, Any]]]  # those of each cell, as notebooks have them

    @classmethod
    def read(cls, page: Path) -> Recording | None:
        """Read the recording of a page, if there is one."""
        path = file_of(page)
        return cls(**json.loads(path.read_text("utf-8"))) if path.exists() else None

    def write(self, page: Path) -> None:
        """Write it to where it is looked for."""
        path = file_of(page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", "utf-8")


def file_of(page: Path) -> Path:
    """Return the place of a page's recording."""
    return RECORDINGS / page.resolve().relative_to(DOCS).with_suffix(".json")


def recorded_pages() -> list[Path]:
    """All pages that are run elsewhere."""
    found = (page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
    return sorted(page for page in found if is_recorded(page.read_text("utf-8")))


def is_recorded(text: str) -> bool:
    """Whether a page says at its top that it is run elsewhere."""
    top = _TOP.match(text)
    return top is not None and "execution_mode: cache" in top[1]


def cells(text: str) -> list[str]:
    """Code of the cells of a page, without their options."""
    return [_OPTIONS.sub("", code).rstrip("\n") for code in _CELL.findall(text)]


def digest(code: list[str]) -> str:
    """Fingerprint of some cells."""
    return hashlib.sha256("\0".join(code).encode()).hexdigest()


@cache
def prints() -> str:
    """Fingerprint of what lockquack prints of a few models, in words and numbers.

    It changes with every change of the tables, and with every change of their numbers that a
    reader could see. Numbers at the level of rounding are left out.
    """
    import warnings

    import lockquack as lq

    models = lq.example_models()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [lq.lock(models), lq.stack(models, by=[0.0, 1.0] * 20), lq.quack(models)]
        new = fits[0].interval(0.9).to_pandas().round(2)
        compared = lq.compare(models, ["lock", "stack", "select"], progressbar=False)
        wide = lq.compare(_several(), ["lock", "stack", "equal"], progressbar=False)
        checked = lq.check(next(iter(models.values())), thorough=True)
    said = "\n".join(map(str, [*fits, new, compared, wide, checked, *models.values()]))
    return hashlib.sha256(_ROUNDING.sub("", said).encode()).hexdigest()


def _several() -> dict[str, Any]:
    """Make models whose comparison is wide, and has something to remark on."""
    import lockquack as lq

    rng = np.random.default_rng(1)
    y, mu = rng.standard_t(3, size=40), 0.2 * rng.normal(size=(4, 100))
    return {
        f"normal about {shift:g}": lq.from_family("normal", y=y, mu=mu + shift, sigma=1.0)
        for shift in (-1.0, 0.0, 1.0)
    } | {"heavy tails": lq.from_family("student_t", y=y, nu=3.0, mu=mu, sigma=1.0)}


def whats_stale(page: Path) -> str:
    """Say why the recording of a page must not be shown; nothing if it may."""
    recording, name = Recording.read(page), page.relative_to(DOCS)
    if recording is None:
        return f"{name} has no recording: run `make record` and commit docs/recorded."
    if recording.code != digest(cells(page.read_text("utf-8"))):
        return f"The recording of {name} is of other code: run `make record PAGES=docs/{name}`."
    if recording.prints != prints():
        return (
            f"The recording of {name} is of a lockquack that printed something else: run "
            f"`make record PAGES=docs/{name}`."
        )
    return ""


def said(outputs: list[dict[str, Any]]) -> str:
    """Return the text of the outputs of a cell."""
    return "\n".join(
        "".join(output.get("text") or output["data"].get("text/plain", "")) for output in outputs
    )


def differs(old: str, new: str) -> str:
    """Say how two texts differ by more than other random draws could explain."""
    old, new = (_NAMED.sub("observation", text) for text in (old, new))
    words = [_SPACE.sub(" ", _NUMBER.sub("#", text)).strip() for text in (old, new)]
    if words[0] != words[1]:
        return f"words\n{old}\n--- now\n{new}"
    old_numbers, new_numbers = (
        np.array([float(re.sub("[,%]", "", n.replace("−", "-"))) for n in _NUMBER.findall(text)])
        for text in (old, new)
    )
    size = np.abs(old_numbers)
    far = np.abs(new_numbers - old_numbers) > np.where(size <= 1.0, 0.3, 0.5 + 0.15 * size)
    return f"numbers\n{old}\n--- now\n{new}" if far.any() else ""


def _fill_cache(app: Sphinx) -> None:
    """Make the cache in which MyST-NB looks for the outputs of a page."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn
    from myst_nb.core.read import read_myst_markdown_notebook
    from nbformat import from_dict
    from sphinx.errors import ExtensionError

    pages = recorded_pages()
    stale = [why for page in pages if (why := whats_stale(page))]
    if stale:
        raise ExtensionError("\n".join(stale))
    place = Path(app.doctreedir) / "recorded"
    app.config.nb_execution_cache_path = app.env.mystnb_config.execution_cache_path = str(place)
    cache = get_cache(str(place))
    for page in pages:
        notebook = read_myst_markdown_notebook(page.read_text("utf-8"), add_source_map=True)
        notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        runnable = [cell for cell in notebook.cells if cell.cell_type == "code"]
        recording = Recording.read(page)
        assert recording is not None, "or it would be stale"
        for cell, outputs in zip(runnable, recording.outputs, strict=True):
            cell.outputs = [from_dict(output) for output in outputs]
        bundle = CacheBundleIn(notebook, str(page))
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _say_what_with(app: Sphinx, name: str, source: list[str]) -> None:
    """End a recorded page with the versions that it was run with."""
    page = Path(app.env.doc2path(name))
    if page.suffix == ".md" and is_recorded(source[0]):
        recording = Recording.read(page)
        assert recording is not None, "or it would be stale"
        app.env.note_dependency(file_of(page))
        versions = ", ".join(f"{name} {number}" for name, number in recording.versions.items())
        source[0] += f"\n\n---\n\n<small>The outputs above were recorded with {versions}.</small>\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at the recordings before pages are read; pages are read with what they say."""
    app.connect("env-before-read-docs", lambda app, *_: _fill_cache(app))
    app.connect("source-read", _say_what_with)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
