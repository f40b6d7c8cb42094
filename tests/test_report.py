"""The report: one page that says what is there, in a real browser."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

import lockquack as lq
from lockquack.errors import LockquackWarning
from lockquack.remarks import REMARKS, UnknownRemark
from lockquack.report import write_report
from lockquack.report.contents import Missing, gather_contents
from lockquack.report.figures import draw_inline
from lockquack.report.markup import explanation
from lockquack.report.page import as_page
from lockquack.report.picker import worth_a_look

HOSTILE = "<b>x</b> \"q\" $a$ & </script><script>document.title='hacked'</script>"
METHODS = ["lock", "stack"]


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(7)
    y, mu = rng.normal(size=40), 0.1 * rng.normal(size=(4, 100))
    return {
        "left": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=1.0),
        HOSTILE: lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.2),
    }


@pytest.fixture(scope="module")
def fit(models):
    return lq.lock(models, random_seed=3)


@pytest.fixture(scope="module")
def page(fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    assert fit.report(path, methods=METHODS, command="lockquack report a.nc 'b c.nc'") == path
    return path


@pytest.fixture(scope="module")
def text(page):
    return page.read_text(encoding="utf-8")


def plain(html):
    """Text of a page, without its markup."""
    body = re.sub(r"<(style|svg|script|option).*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def test_it_says_what_was_combined_and_how(fit, text):
    said = plain(text)
    for name in fit.names:
        assert name in said
    for row in fit.to_dataframe().iloc[1:].itertuples():
        assert f"{row.weight:.3f} {row.weight_se:.3f}" in said
    for words in ("Dirichlet(1.01)", "leave-one-out Hyvärinen score", "Certified", "unit of y"):
        assert words in said
    assert "lockquack report a.nc 'b c.nc'" in said
    assert f"lockquack {lq.__version__}" in said
    assert f"numpy {np.__version__}" in said
    assert "random seed 3" in said
    assert f"{fit.observations.n} PSIS" in said


def test_scores_and_calibration_are_those_of_the_library(fit, text):
    said = plain(text)
    table = lq.compare(fit.models, METHODS, random_seed=3)
    for elpd in table["elpd"]:
        assert f"{elpd:.1f}".replace("-", "−") in said
    for coverage in fit.coverage()["0.9"]:
        assert f"{100 * coverage:.1f}" in said
    assert text.count("<svg") == 7


def test_it_needs_no_network(text):
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    without_names = without_names.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//\w+\.\w|@import|src=|url\((?!#)|fetch|XMLHttp", without_names)


def test_data_of_the_script_are_those_of_the_library(fit, text):
    data = json.loads(re.search(r'id="picker-data">(.*?)</script>', text, re.DOTALL)[1])
    assert [curve["name"] for curve in data["curves"]] == [*fit.names, "lock"]
    assert len(data["panels"]) == 40
    logpdf = fit.logpdf(loo=True).values
    models = [lq.equal({name: model}).logpdf(loo=True).values for name, model in fit.models.items()]
    low, high = fit.interval(0.9, loo=True).values
    for i, panel in enumerate(data["panels"]):
        assert panel["observed"] == fit.observations.values[i, 0]
        assert panel["weights"] == pytest.approx(fit.weights.values, abs=6e-4)
        at = [float(each.replace("−", "-")) for each in panel["at"]]
        assert at == pytest.approx([*(each[i] for each in models), logpdf[i]], abs=0.011)
        ends = [float(end) for end in panel["interval"][-1].replace("−", "-").split(" to ")]
        assert ends == pytest.approx([low[i], high[i]], abs=0.05)
        assert 990 <= max(max(curve) for curve in panel["curves"]) <= 999


def test_of_many_observations_those_that_decide_are_among_the_choice(rng):
    y = np.append(rng.normal(size=299), 6.0)
    mu = 0.1 * rng.normal(size=(2, 50))
    models = {str(s): lq.from_family("student_t", y=y, nu=5.0, mu=mu, sigma=s) for s in (0.7, 1.5)}
    fit = lq.lock(models, scores="held-out")
    influence = fit.influence(progressbar=False)
    chosen = worth_a_look(fit, influence)
    assert len(chosen) <= 120
    assert set(np.argsort(-influence.moved.values)[:30]) <= set(chosen)
    assert {int(y.argmin()), int(y.argmax())} <= set(chosen)
    assert chosen == sorted(set(chosen))
    assert worth_a_look(lq.lock(lq.example_models()), None) == list(range(40))


def test_weights_of_the_chosen_observation_are_its_own(rng, tmp_path):
    group = np.repeat(["a", "b"], 20)
    y = np.where(group == "a", 0.0, 3.0) + rng.normal(size=40)
    mu = 0.1 * rng.normal(size=(2, 50))
    models = {str(m): lq.from_family("normal", y=y, mu=mu + m, sigma=1.0) for m in (0.0, 3.0)}
    fit = lq.stack(models, by=group, shrinkage=0.0, scores="held-out")
    text = fit.report(tmp_path / "r.html", methods=()).read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="picker-data">(.*?)</script>', text, re.DOTALL)[1])
    shown = np.array([panel["weights"] for panel in data["panels"]])
    np.testing.assert_allclose(shown, fit.weights.transpose(..., "model").values, atol=6e-4)
    assert shown[0, 0] > 0.9 > 0.1 > shown[-1, 0]


def test_ids_are_unique(text):
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    for name in re.findall(r'(?:href="#|url\(#)([^")]*)', text):
        assert name in ids


def test_models_known_at_the_observed_outcomes_only(models, tmp_path):
    """As the command line has them: from files."""
    read = {}
    for name, model in zip("ab", models.values(), strict=True):
        model.save(tmp_path / f"{name}.nc")
        read[name] = lq.from_datatree(tmp_path / f"{name}.nc")
    said = plain(lq.lock(read).report(tmp_path / "r.html", methods=METHODS).read_text())
    assert "Calibration is not known here. Model 'a' is known at the observed outcomes only" in said
    assert "No picture here." in said
    assert "Where no log score is shown" in said
    assert "Most weight: a" in said


def test_a_combination_read_from_a_file(fit, tmp_path):
    fit.save(tmp_path / "fit.nc")
    path = write_report(lq.load(tmp_path / "fit.nc"), tmp_path / "r.html", title="Ours & theirs")
    text = path.read_text()
    assert "<title>Ours &amp; theirs</title>" in text
    said = plain(text)
    assert said.count("was read from a file") == 3
    assert text.count("<svg") == 3


def test_counts_one_chain_and_remarks(tmp_path):
    rng = np.random.default_rng(1)
    y = rng.poisson(4.0, size=30).astype(float)
    mu = 4.0 + 0.2 * rng.normal(size=(1, 100))
    models = {
        "poisson": lq.from_family("poisson", y=y, mu=mu),
        "wide": lq.from_family("negative_binomial", y=y, mu=mu, alpha=2.0),
    }
    with pytest.warns(lq.errors.MonteCarloWarning, match="one chain"):
        fit = lq.combine(models, lq.Locking(), lq.LogScore())
    said = plain(fit.report(tmp_path / "r.html", methods=(), obs=[3]).read_text())
    assert fit.remarks[0].message in said
    assert "What to do: Run at least two chains, better four." in said
    assert "No methods were asked for." in said
    assert "observation 3" in (tmp_path / "r.html").read_text()


def test_parameters_and_one_model(models, tmp_path):
    hybrid = lq.combine(models, lq.Hybrid(), lq.Hyvarinen())
    said = plain(hybrid.report(tmp_path / "r.html", thorough=False).read_text())
    exponent = float(hybrid.parameters["mixture_exponent"])
    assert f"mixture exponent {exponent:.3f} exponents" in said
    one = lq.lock({"left": models["left"]})
    said = plain(one.report(tmp_path / "r.html", thorough=False).read_text())
    assert "It predicts what its best model, left, predicts." in said


def test_vector_outcomes(tmp_path):
    rng = np.random.default_rng(1)
    y, mu = rng.normal(size=(12, 2)), 0.1 * rng.normal(size=(2, 50, 1, 2))
    models = {
        str(shift): lq.from_family("mv_normal", y=y, mu=mu + shift, cov=np.eye(2))
        for shift in (-0.5, 0.5)
    }
    said = plain(lq.lock(models).report(tmp_path / "r.html", thorough=False).read_text())
    assert "has an outcome with 2 components" in said
    assert "It takes long and was not asked for." in said


def test_remarks_on_the_way_are_in_the_page_not_on_the_screen():
    rng = np.random.default_rng(2)
    y = np.append(rng.normal(size=9), 9.0)
    mu = y.mean() + rng.normal(size=(4, 100)) / np.sqrt(10)
    models = {str(s): lq.from_family("normal", y=y, mu=mu, sigma=s) for s in (0.9, 1.0)}
    fit = lq.lock(models)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LockquackWarning)
        contents = gather_contents(
            fit, methods=METHODS, cv=5, obs=None, thorough=None, progressbar=False
        )
    assert contents.pareto["above"].sum() > 0
    assert not isinstance(contents.calibration, Missing)
    pareto = [remark for remark in contents.remarks if remark.code == "pareto-k"]
    assert [remark.models for remark in pareto] == [tuple(models)]
    said = plain(as_page(contents, None, None))
    assert all(remark.message in said for remark in pareto)
    assert said.count("What to do: Let lq.refit(model, fit) fit the model again") == 1


def test_what_takes_long_is_left_out_and_said(fit, monkeypatch, tmp_path):
    monkeypatch.setattr("lockquack.report.contents._AFFORDABLE", 10.0)
    said = plain(fit.report(tmp_path / "r.html").read_text())
    assert said.count("It was left out because it takes long") == 2
    assert "thorough=True" in said


def test_mistakes_are_not_hidden(fit, tmp_path):
    with pytest.raises(lq.errors.UnknownNameError, match="stakc"):
        fit.report(tmp_path / "r.html", methods=["stakc"])
    with pytest.raises(lq.errors.ParameterError, match="no observation 99"):
        fit.report(tmp_path / "r.html", methods=(), obs=[99], thorough=False)


def test_pictures_can_be_light_and_dark():
    svg = draw_inline("line", lambda axes: axes[0].plot([0, 1], color="black"), 1.0)
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert "#000000" not in svg


def test_a_remark_of_another_version_is_shown_too(fit, tmp_path):
    strange = replace(fit, remarks=(UnknownRemark("The moon is full."),))
    said = plain(strange.report(tmp_path / "r.html", methods=(), thorough=False).read_text())
    assert "Remark The moon is full. What it means: Something to know" in said


def test_code_in_explanations_looks_like_code():
    assert explanation("Do:", "use `a < b`, or `c`.") == (
        "<p>Do: use <code>a &lt; b</code>, or <code>c</code>.</p>"
    )
    for code, kind in REMARKS.items():
        assert "`" not in explanation("", kind.meaning + kind.remedy), code


# In a browser.

MEASURE = """
<script>
const found = [];
addEventListener("error", event => found.push(String(event.message)));
function measure(width) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.style.width = width + "px";
    frame.style.height = "800px";
    frame.onload = () => {
      const page = frame.contentDocument, root = page.documentElement;
      const style = frame.contentWindow.getComputedStyle(page.body);
      const text = page.querySelector("svg text");
      const of = id => page.getElementById("picker-" + id);
      const before = of("picture").getAttribute("aria-label");
      of("on").click();
      const after = of("picture").getAttribute("aria-label");
      of("obs").value = "39";
      of("obs").dispatchEvent(new Event("change"));
      resolve({
        before, after, last: of("picture").getAttribute("aria-label"),
        said: of("said").textContent, rows: of("table").rows.length,
        curves: page.querySelectorAll("#picker-picture path").length,
        ended: [of("back").disabled, of("on").disabled],
        still: frame.contentWindow.getComputedStyle(page.querySelector(".still")).display,
        linked: [...page.querySelectorAll("nav a")].map(
          a => page.querySelector(a.getAttribute("href")) !== null),
        reached: [...page.querySelectorAll("a, select, button, [tabindex]")].every(
          each => { each.focus(); return page.activeElement === each || each.disabled; }),
        overview: page.querySelector("#what").getBoundingClientRect().top
          + frame.contentWindow.scrollY,
        width, overflow: root.scrollWidth - root.clientWidth, title: page.title,
        paper: style.backgroundColor, ink: style.color,
        letters: frame.contentWindow.getComputedStyle(text).fill,
        bold: page.querySelectorAll("b").length, scripts: page.scripts.length,
        tall: root.scrollHeight, pictures: page.querySelectorAll("svg").length,
        narrowest: Math.min(...[...page.querySelectorAll("svg")].map(
          svg => svg.getBoundingClientRect().width).filter(width => width > 0)),
        loaded: frame.contentWindow.performance.getEntriesByType("resource").map(r => r.name),
      });
    };
    frame.srcdoc = PAGE;
    document.body.append(frame);
  });
}
Promise.all([360, 800, 1400].map(measure)).then(readings => {
  const holder = document.createElement("pre");
  holder.id = "readings";
  holder.textContent = JSON.stringify({readings, found});
  document.body.append(holder);
});
</script>
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_in_a_browser(browser, text, tmp_path, dark):
    given = json.dumps(text).replace("</", "<\\/")
    script = MEASURE.replace("PAGE", given)
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><body>{script}</body>", encoding="utf-8")
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
            "--virtual-time-budget=5000", "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "frames.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    shown = re.search(r'<pre id="readings">(.*?)</pre>', done.stdout, re.DOTALL)[1]
    seen = json.loads(unescape(shown))
    assert seen["found"] == []
    assert "CONSOLE" not in done.stderr, "no errors"
    for reading in seen["readings"]:
        assert reading["overflow"] <= 0, reading["width"]
        assert reading["title"].startswith("Lock: left, <b>x</b>")
        assert (reading["bold"], reading["scripts"]) == (0, 2), "names are text"
        assert reading["before"].startswith("Predictive densities of observation 0: y = ")
        assert reading["after"].startswith("Predictive densities of observation 1: y = ")
        assert "highest under" in reading["last"]
        assert reading["said"].startswith("observation 39: y = ")
        assert (reading["rows"], reading["curves"]) == (4, 4), "two models, a pool and its ground"
        assert reading["ended"] == [False, True]
        assert reading["still"] == "none"
        assert reading["reached"], "by the keyboard"
        assert len(reading["linked"]) == 9
        assert all(reading["linked"])
        assert reading["loaded"] == []
        assert reading["pictures"] == 6 + 1
        assert reading["narrowest"] > 250
        paper, ink = brightness(reading["paper"]), brightness(reading["ink"])
        assert (paper < 60 and ink > 180) if dark else (paper > 240 and ink < 80)
        assert reading["letters"] == reading["ink"]
    assert seen["readings"][0]["tall"] > seen["readings"][2]["tall"]
    assert seen["readings"][2]["overview"] < 800, "fits a screen"


def brightness(colour):
    return np.mean([int(part) for part in re.findall(r"\d+", colour)[:3]])


def test_notebooks_show_models_as_tables(models):
    shown = models["left"]._repr_html_()
    assert shown.count("<tr>") == 5
    assert "4 chains of 100" in shown
    known = lq.from_arrays(logp=np.zeros((2, 10, 3)), y=np.zeros(3), likelihood="<i>")
    shown = known._repr_html_()
    assert "for the log score only" in shown
    assert "the observed outcomes only" in shown
    assert "<i>" not in shown


def test_the_overview_scores_observations_by_weights_fitted_without_them(fit, text):
    gain, error = fit.influence().total
    overview = plain(text[text.index('id="overview"') : text.index('id="what"')])
    assert f"{abs(gain):.1f} ± {error:.1f}" in overview
    assert "each observation scored by weights fitted without it" in overview
    assert fit.influence().against in overview
