"""What is said of a release in several places is the same; what publishes it refuses the rest."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

import lockquack as lq

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def check_release(tmp_path):
    for name in ("CITATION.cff", "CHANGELOG.md", "src/lockquack/__init__.py", "scripts/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name.replace("x.py", "check_release.py"), tmp_path / name)
    spec = importlib.util.spec_from_file_location("check_release", tmp_path / "scripts/x.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_tag_that_is_not_the_version_is_refused(check_release):
    found = check_release.problems("v9.9.9")
    assert f"the tag is v9.9.9, the version {lq.__version__}" in found[0]


def test_a_changelog_without_date_is_refused_and_one_with_a_date_is_not(check_release):
    changelog, tag = check_release.ROOT / "CHANGELOG.md", f"v{lq.__version__}"
    title = re.compile(rf"^## {re.escape(lq.__version__)} \(.*\)$", re.MULTILINE)
    for said, problems in (("unreleased", 1), ("2026-01-31", 0)):
        changelog.write_text(title.sub(f"## {lq.__version__} ({said})", changelog.read_text()))
        assert len(check_release.problems(tag)) == problems


def test_the_conda_recipe_needs_what_the_wheel_needs():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == lq.__version__
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    needed = {re.sub(r"\[.*\]|\s", "", need) for need in PROJECT["dependencies"]}
    run = {need.replace(" ", "") for need in recipe["requirements"]["run"]}
    # arviz-stats[xarray] is what needs it: conda knows no extras.
    assert run - {"python>=${{python_min}}", "xarray-einstats"} == needed


def test_workflows_call_make_targets_that_exist_and_pin_what_they_use():
    makefile = (ROOT / "Makefile").read_text()
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(files) == 4
    for file in files:
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            for step in job["steps"]:
                for target in re.findall(r"^make (\S+)", step.get("run", ""), re.MULTILINE):
                    assert re.search(rf"^{target}:.* ## ", makefile, re.MULTILINE), target
                assert re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + "0" * 40)), step


def test_versions_of_python_are_those_that_are_tested():
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    named = [kind.split(" :: ")[-1] for kind in PROJECT["classifiers"] if ":: 3." in kind]
    assert tests["jobs"]["tests"]["strategy"]["matrix"]["python"] == named


def test_every_source_that_the_paper_cites_is_in_its_bibliography():
    text = (ROOT / "joss" / "paper.md").read_text()
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "joss" / "paper.bib").read_text(), re.MULTILINE)
    assert sorted(set(re.findall(r"@([a-z]+\d*\w*)", text))) == sorted(entries)
