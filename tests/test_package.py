"""The package as a stranger meets it: light to import, true README, working demonstration."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path

import pytest

import lockquack as lq
from lockquack import demo
from lockquack.fitting.table import pairs_table
from lockquack.testing import example_models

ROOT = Path(__file__).parents[1]


def test_import_is_light():
    script = (
        "import sys, lockquack; heavy = {'xarray', 'pandas', 'scipy', 'arviz_stats', 'arviz_base', "
        "'matplotlib', 'sklearn', 'tqdm', 'pymc', 'jax', 'numpyro'}; "
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_public_names_are_what_dir_shows():
    assert set(dir(lq)) == set(lq.__all__)
    for name in lq.__all__:
        assert getattr(lq, name) is not None
    # Modules that were imported meanwhile do not show.
    assert set(dir(lq)) == set(lq.__all__)
    assert lq.__dict__.keys() & {"combination", "models"}


def test_a_misspelt_name_is_suggested():
    with pytest.raises(AttributeError, match="no attribute 'lokc'. Did you mean 'lock'?"):
        _ = lq.lokc
    with pytest.raises(AttributeError, match="no attribute 'xyz'$"):
        _ = lq.xyz


@pytest.mark.parametrize(
    ("tried", "meant"),
    [
        ("from_arviz", "from_datatree"),
        ("from_idata", "from_datatree"),
        ("from_inferencedata", "from_datatree"),
        ("from_InferenceData", "from_datatree"),
        ("from_netcdf", "from_datatree"),
        ("from_zarr", "from_datatree"),
        ("from_stan", "from_cmdstanpy or from_pystan"),
        ("from_cmdstan", "from_cmdstanpy"),
        ("from_brms", "from_family"),
        ("from_loo", "from_elpd"),
        ("from_blackjax", "from_jax"),
        ("stacking", "stack"),
        ("loo_compare", "compare"),
    ],
)
def test_a_name_that_others_have_is_answered_by_what_it_means(tried, meant):
    with pytest.raises(AttributeError, match=f"no attribute '{tried}'. Use {meant}") as caught:
        getattr(lq, tried)
    assert "Did you mean" not in "".join(traceback.format_exception(caught.value))


def test_what_is_suggested_exists_and_what_exists_is_not_suggested_away():
    for names, what in lq._MEANT.items():
        assert not set(names.split()) & set(lq.__all__)
        assert re.search("|".join(lq._HOMES), what)


@pytest.mark.parametrize(
    ("near", "misspelt"),
    [
        ("locking", lambda m: lq.combine(m, "loking")),
        ("hyvarinen", lambda m: lq.combine(m, "locking", "hyvarinnen")),
        ("log", lambda m: lq.lock(m, rule="lgo")),
        ("simplex", lambda m: lq.lock(m, weights="simplx")),
        ("in-sample", lambda m: lq.lock(m, scores="insample")),
        ("held-out", lambda m: m["first"].collapse("heldout")),
        ("first", lambda m: lq.lock(m, prior={"frist": 1, "second": 1})),
        ("marginal_likelihood", lambda m: lq.select(m, "marginal_liklihood")),
        ("first", lambda m: lq.bma(m, {"frist": 1, "second": 1})),
        ("lock", lambda m: lq.compare(m, ["lokc"])),
        ("normal", lambda m: lq.from_family("nromal", y=[0.0])),
        ("student_t", lambda m: lq.from_family("StudentT", y=[0.0])),
        ("sigma", lambda m: lq.from_family("normal", y=[0.0], mu=0.0, simga=1.0)),
        ("log", lambda m: lq.from_family("normal", y=[1.0], transform="lgo", mu=0.0, sigma=1.0)),
        ("logit", lambda m: lq.Hyvarinen(transform="lgoit")),
        ("rejection", lambda m: lq.equal(m).sample(1, method="rejecton")),
        ("hdi", lambda m: lq.equal(m).interval(kind="hid")),
        ("first", lambda m: lq.equal(m).predict(x={"frist": [[0.0]], "second": [[0.0]]})),
        ("first", lambda m: lq.equal(m).predict(x={"frist": [[0.0]]})),
        ("first", lambda m: lq.equal(m).predict(models={"frist": m["first"]})),
    ],
)
def test_the_near_name_is_suggested_everywhere(near, misspelt):
    with pytest.raises(lq.errors.LockquackError, match=f"Did you mean '{near}'"):
        misspelt(example_models(8))


def test_a_model_that_is_left_out_of_new_covariates_is_named():
    fit = lq.equal(example_models(8))
    with pytest.raises(lq.errors.ParameterError, match="for model 'first' but not for 'second'"):
        fit.predict(x={"first": [[0.0]]})


SECTIONS = ["Parameters", "Returns", "Raises", "Attributes", "Examples", "References"]
#: Classes whose methods users call.
METHODS = {
    "Combination": None,
    "Prediction": None,
    "Model": None,
}


def public_names():
    public = {name: getattr(lq, name) for name in lq.__all__ if not name.startswith("_")}
    del public["errors"]  # a module
    for owner, chosen in METHODS.items():
        methods = dict(inspect.getmembers(getattr(lq, owner), inspect.isroutine))
        names = chosen or [name for name in methods if not name.startswith("_")]
        public |= {f"{owner}.{name}": methods[name] for name in names}
    return public


def test_every_public_name_has_a_docstring_with_an_example():
    public = public_names()
    assert len(public) > 60
    for name, each in public.items():
        found = re.findall(r"^(\w+)\n-{3,}$", inspect.getdoc(each), re.MULTILINE)
        assert found == sorted(found, key=SECTIONS.index), name
        assert "Examples" in found, name
        if inspect.isfunction(each):
            takes = [key for key in inspect.signature(each).parameters if key != "self"]
            assert not takes or "Parameters" in found, name
            gives = inspect.signature(each).return_annotation
            assert gives == "None" or "Returns" in found, name


def test_version_and_metadata_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "lockquack"
    assert lq.__version__.split(".dev")[0] in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def shown():
    return demo.run(random_seed=0)


def test_demo_numbers(shown):
    weights = shown.fit.weights
    assert weights.sel(model="demographics") == pytest.approx(0.0, abs=0.002)
    assert weights.sel(model="body") == pytest.approx(0.547, abs=0.01)
    assert weights.sel(model="blood") == pytest.approx(0.453, abs=0.01)
    assert shown.log_scores["[lock]"] == pytest.approx(-2414.8, abs=0.2)
    assert shown.log_scores["body"] == pytest.approx(-2439.6, abs=0.2)
    assert max(shown.log_scores, key=shown.log_scores.get) == "[lock]"


def test_demo_picture(shown, tmp_path):
    demo.draw(shown, tmp_path / "new" / "people.png")
    assert (tmp_path / "new" / "people.png").read_bytes().startswith(b"\x89PNG")


def test_readme_example_prints_what_the_readme_says(capsys):
    readme = (ROOT / "README.md").read_text()
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    shown = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)
    made = {}
    # Gaps at the level of rounding differ between machines.
    rounding = re.compile(r"by more than\s+\S+$", re.MULTILINE)
    for each, said in zip(code, shown, strict=True):
        exec(compile(each, "README.md", "exec"), made)
        printed = capsys.readouterr().out
        assert rounding.sub("", printed) == rounding.sub("", said)


def test_the_table_of_pairs_in_the_docs_is_that_of_the_registry():
    page = (ROOT / "docs" / "operators.md").read_text()
    assert pairs_table() in page
