"""The pages of the documentation: links, names, tables and the worked operator."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import lockquack as lq
from lockquack import errors
from lockquack.combination.combination import Combination
from lockquack.operators import OPERATORS, Operator
from lockquack.remarks import REMARKS
from tests import test_operators as contract

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    page for page in DOCS.rglob("*.md") if not {"_build", "api"} & set(page.relative_to(DOCS).parts)
)
FILES = [*PAGES, *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))]
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
over_files = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def prose(path):
    return FENCE.sub("", path.read_text())


def blocks(path, *kinds):
    """Code of the blocks of some kinds, without options of cells."""
    return [
        re.sub(r"\A(:.*\n)+\n?", "", match["code"])
        for match in FENCE.finditer(path.read_text())
        if match["kind"].strip() in kinds
    ]


def anchors(path):
    """Anchors of the headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@over_files
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)\s#:]*)(?:#([^)\s]*))?\)", prose(path)):
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), f"{path.name} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{path.name} links to {target}#{anchor}"


def test_every_page_is_in_the_navigation():
    listed = set()
    for page in PAGES:
        for tree in blocks(page, "{toctree}"):
            names = [line.split("<")[-1].strip("> ") for line in tree.split() if line != "*"]
            listed |= {(page.parent / name).resolve() for name in names}
    assert {page.with_suffix("") for page in PAGES} - listed == {DOCS / "index"}
    assert DOCS / "api" in listed


@over_files
def test_names_in_the_text_exist(path):
    text = path.read_text()
    for name in re.findall(r"\blq\.([A-Za-z]\w*)", text):
        assert name in lq.__all__, f"lq.{name}"
    for name in re.findall(r"`lockquack\.([\w.]+)`", text):
        found, parts = lq, name.split(".")
        for k, part in enumerate(parts):
            if not hasattr(found, part):
                importlib.import_module(".".join(["lockquack", *parts[: k + 1]]))
            found = getattr(found, part)


@over_files
def test_extras_in_the_text_exist(path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"(?:lockquack|'\.)\[([a-z,]+)\]", path.read_text()):
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), extras


@pytest.mark.parametrize(
    "name", ["quickstart.md", "pictures.md", "diagnostics.md", "operators.md", "theory.md"]
)
def test_methods_in_the_text_exist(name):
    fields = Combination.__dataclass_fields__
    for method in re.findall(r"\bfit\.([a-z]\w*)", (DOCS / name).read_text()):
        assert hasattr(Combination, method) or method in fields or method == "nc", method


@over_files
def test_code_is_python(path):
    for code in blocks(path, "python", "{code-cell} ipython3"):
        ast.parse(code)


def test_every_public_name_is_on_the_page_of_the_api():
    listed = re.findall(r"^   (\w+)$", (DOCS / "api.rst").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({*lq.__all__} - {"__version__"})


def test_every_error_and_warning_is_explained():
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.LockquackError | errors.LockquackWarning)
    ]
    text = (DOCS / "diagnostics.md").read_text()
    titles = re.findall(r"^### (\w+Warning)$", text, re.MULTILINE)
    for kind in kinds:
        assert f"`{kind.__name__}`" in text or kind.__name__ in titles, kind
    assert {getattr(errors, title) for title in titles} == {
        kind for kind in kinds if errors.LockquackWarning in kind.__bases__
    }


def test_every_remark_is_shown():
    text = (DOCS / "diagnostics.md").read_text()
    shown = re.findall(r"^### (\w+)$.*?^```\{explained\} \1$", text, re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted({kind.category.__name__ for kind in REMARKS.values()})


def test_the_page_on_warnings_has_all_words_of_a_remark(extension):
    pytest.importorskip("sphinx")
    as_markdown = extension("explained").as_markdown
    for code, kind in REMARKS.items():
        entry = as_markdown(kind)
        for words in (code, kind.title, str(kind.of_example()), kind.meaning, kind.remedy):
            assert words in entry, code


def test_the_glossary_defines_what_it_lists():
    rows = re.findall(r"^\|(.*)\|(.*)\|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)[2:]
    assert len(rows) > 30
    terms = [re.fullmatch(r" \*\*(\S.*)\*\* ", term)[1] for term, _ in rows]
    assert all(re.fullmatch(r" .{15,}[.…] ", meaning) for _, meaning in rows)
    assert terms == sorted(terms, key=lambda term: term.lower().replace("ö", "o"))


# How the site is built


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    return importlib.import_module


@pytest.mark.parametrize(
    "loading",
    [
        '<script async="async" src="https://cdn.example.org/x.js"></script>',
        "<script src=https://example.org/x.js></script>",
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        '<link href="https://example.org/y.css" rel="stylesheet" />',
        '<img alt="badge" src="https://example.org/a.svg">',
        '@import url("https://example.org/b.css");',
        "src: url(https://example.org/b.woff2)",
    ],
)
def test_a_page_that_loads_something_from_elsewhere_is_noticed(extension, loading):
    assert extension("offline").from_elsewhere(f"<p>before</p>{loading}")


def test_links_that_readers_may_follow_are_not(extension):
    page = (
        '<a href="https://example.org">there</a><script src="_static/x.js"></script>'
        '<link rel="index" href="genindex.html"><math xmlns="http://www.w3.org/1998/Math/MathML">'
    )
    assert not extension("offline").from_elsewhere(page)


def test_classes_of_others_are_looked_up_by_their_public_names(extension):
    shorter = extension("public_names").shorter_names
    found = shorter("xarray.core.dataarray.DataArray")
    assert found == ["xarray.core.DataArray", "xarray.DataArray"]
    assert shorter("str") == []


# Pages that are run elsewhere


def test_recordings_are_of_the_code_of_their_pages(extension):
    recorded = extension("recorded")
    pages = recorded.recorded_pages()
    assert {page.stem for page in pages} >= {"pymc", "bambi", "numpyro", "stan", "jax"}
    for page in pages:  # whether lockquack prints what it did is for the build to say
        code = recorded.digest(recorded.cells(page.read_text()))
        assert recorded.Recording.read(page).code == code, f"make record PAGES={page}"
    kept = set(recorded.RECORDINGS.rglob("*.json"))
    assert kept == {recorded.file_of(page) for page in pages}, "and there are no others"


def test_every_cell_with_something_to_show_shows_it(extension):
    recorded = extension("recorded")
    for page in recorded.recorded_pages():
        code = recorded.cells(page.read_text())
        outputs = recorded.Recording.read(page).outputs
        assert len(code) == len(outputs)
        for each, shown in zip(code, outputs, strict=True):
            if isinstance(ast.parse(each).body[-1], ast.Expr):
                assert shown, f"{page.name}: {each}"
        text = recorded.file_of(page).read_text()
        assert "Traceback" not in text
        assert "site-packages" not in text, "nothing of the machine"


def test_a_recording_of_other_code_or_words_is_noticed(extension, monkeypatch, tmp_path):
    recorded = extension("recorded")
    monkeypatch.setattr(recorded, "DOCS", tmp_path)
    monkeypatch.setattr(recorded, "RECORDINGS", tmp_path / "recorded")
    page = tmp_path / "page.md"
    top = "---\nmystnb:\n  execution_mode: cache\n---\n"
    page.write_text(f"{top}```{{code-cell}} ipython3\n:tags: [hide-input]\n\n1 + 1\n```\n")
    assert recorded.recorded_pages() == [page]
    assert "has no recording" in recorded.whats_stale(page)
    code = recorded.cells(page.read_text())
    assert code == ["1 + 1"]
    made = recorded.Recording(recorded.digest(code), recorded.prints(), {"lockquack": "1"}, [[]])
    made.write(page)
    assert recorded.whats_stale(page) == ""
    monkeypatch.setattr(recorded, "prints", lambda: "other words")
    assert "printed something else" in recorded.whats_stale(page)
    page.write_text(page.read_text().replace("1 + 1", "1 + 2"))
    assert "is of other code" in recorded.whats_stale(page)
    page.write_text(page.read_text().replace("cache", "force"))
    assert recorded.recorded_pages() == []


def test_other_words_or_numbers_of_lockquack_are_noticed(extension, monkeypatch):
    recorded = extension("recorded")
    now = recorded.prints()
    for name, other in {
        "header": lambda fit: ["Another heading."],
        "solution_lines": lambda fit: [f"{fit.weights.values.max() + 0.01:.3f}"],
    }.items():
        recorded.prints.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(f"lockquack.report.table.{name}", other)
            assert recorded.prints() != now
    recorded.prints.cache_clear()
    assert recorded.prints() == now


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("lock  0.381 ± 0.049", "lock 0.379 ± 0.051", True),
        ("lock  0.381", "stack  0.381", False),
        ("elpd −1361.3", "elpd −1361.9", True),
        ("elpd −1361.3", "elpd −961.3", False),
        ("within 1.5e-13", "within 3e-14", True),
        ("worst at observation 3", "worst at observation 47", True),
        ("1 of 60", "1 of 60 and more", False),
        ("[-0.50  0.01]", "[0.50  0.01]", False),
    ],
)
def test_other_draws_are_told_from_other_results(extension, old, new, same):
    said = [extension("recorded").said([{"text": text}]) for text in (old, new)]
    assert (extension("recorded").differs(*said) == "") is same


def test_how_tos_are_run_and_not_only_shown():
    """A block of Python that is not run stands where running it would need a machine of its own."""
    shown = {page.name for page in (DOCS / "howto").glob("*.md") if blocks(page, "python")}
    assert shown <= {"cross-validation.md"}


@pytest.mark.parametrize(
    ("written_in", "shown_in", "link", "expected"),
    [
        (
            "CONTRIBUTING.md",
            "docs/contributing.md",
            "docs/design.md#who-may-know-whom",
            "design.md#who-may-know-whom",
        ),
        ("CONTRIBUTING.md", "docs/contributing.md", "CHANGELOG.md", "changelog.md"),
        ("docs/howto/stan.md", "docs/howto/stan.md", "../../CHANGELOG.md", "../changelog.md"),
        ("docs/theory.md", "docs/theory.md", "paper.md#errata", "paper.md#errata"),
        ("docs/citing.md", "docs/citing.md", "../CITATION.cff", "../CITATION.cff"),
        ("docs/paper.md", "docs/paper.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/paper.md", "docs/paper.md", "#errata", "#errata"),
    ],
)
def test_links_in_the_repository_become_links_of_the_site(
    extension, written_in, shown_in, link, expected
):
    shown = extension("outside").relink(f"see [it]({link}).", written_in, shown_in)
    assert shown == f"see [it]({expected})."


# The operator and the source of the page on adding one


@pytest.fixture(scope="module")
def halfway() -> Operator:
    code = blocks(DOCS / "extending.md", "{code-cell} ipython3")[0]
    names: dict[str, type[Operator]] = {}
    exec(code, names)
    return names["Halfway"]()


@pytest.mark.parametrize("d", [0, 3])
def test_the_worked_operator_has_the_derivatives_of_its_density(halfway, d):
    contract.test_derivatives_match_finite_differences(halfway, d)
    contract.test_push_matches_finite_differences(halfway, d)


def test_the_worked_operator_keeps_the_contract(halfway, rng, monkeypatch):
    contract.test_one_hot_weights_return_that_model(halfway)
    contract.test_permuting_models_permutes(halfway)
    contract.test_the_density_is_that_of_the_jet(halfway)
    contract.test_impossible_outcomes_make_no_nan(halfway, rng)
    for shift in (-800.0, 800.0):
        contract.test_a_common_shift_of_logp_shifts_the_pool(halfway, shift)
        contract.test_densities_up_to_a_constant_normalise_too(halfway, shift)
    for seed in (8, 9):
        contract.test_only_a_normalised_pool_integrates_to_one(halfway, seed)
    contract.test_pools_of_total_one_commute_with_a_change_of_variable(halfway, "log")
    monkeypatch.setitem(OPERATORS, "halfway", type(halfway))
    contract.test_its_description_makes_it_again(halfway)
    contract.test_its_repr_is_python(halfway)


def test_the_worked_source_is_a_model_like_any_other(rng):
    cells = blocks(DOCS / "extending.md", "{code-cell} ipython3")
    names = {}
    exec(next(code for code in cells if "def from_secant" in code), names)
    model = names["from_secant"](0.1 * rng.normal(size=(4, 50)), y=rng.normal(size=5))
    assert lq.check(model, thorough=True).ok
    fit = lq.equal({"alone": model})
    assert fit.logpdf().values == pytest.approx(model.collapse("in-sample").jet.logp, rel=1e-10)
    assert fit.predict().cdf(model.observations.values[:, 0]).values == pytest.approx(
        2 / np.pi * np.arctan(np.exp(np.pi / 2 * model.observations.values[:, 0])), abs=0.05
    )
