"""Remarks: each is produced, has its words, survives a file, and points at the user's line."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import lockquack as lq
from lockquack import cli, words
from lockquack.cli.output import hear_warnings
from lockquack.cli.wording import shell_words
from lockquack.errors import (
    LockquackError,
    LockquackWarning,
    ParameterError,
    ParetoWarning,
    naming,
)
from lockquack.methods.examine import examine_solution
from lockquack.models.containers import LOGP_GROUP
from lockquack.remarks import REMARKS, UnknownRemark, read_remark, remark_of, warn
from lockquack.remarks.densities import HighParetoK
from lockquack.remarks.draws import SingleChain
from lockquack.solvers.base import Solution
from lockquack.words import HYVARINEN, LOG_SCORE, Text, in_shell
from tests.helpers import unheard

every_kind = pytest.mark.parametrize("kind", REMARKS.values(), ids=lambda kind: kind.code)

# Every remark is produced: what a user does, by the code of what is then remarked on.

PRODUCERS = {}


def produces(code):
    def remember(act):
        PRODUCERS[code] = act
        return act

    return remember


def normal(y, mu, sigma=1.0):
    return lq.from_family("normal", y=y, mu=mu, sigma=sigma)


def clumps(rng, places, at=None, sigma=1.0):
    """Outcomes around two places, and two models around two others."""
    y = np.concatenate([rng.normal(m, 1.0, size=20) for m in at or places])
    mu = 0.05 * rng.normal(size=(2, 20))
    return {name: normal(y, mu + m, sigma) for name, m in zip("ab", places, strict=True)}


def as_arrays(models):
    """Keep what is known at the observed outcomes only."""
    return {name: lq.from_datatree(model.to_datatree()) for name, model in models.items()}


def surprised(rng):
    """A model of which one outcome is far out."""
    y = np.append(rng.normal(size=20), 40.0)
    mu, sigma = rng.normal(scale=0.5, size=(4, 500)), np.exp(0.4 * rng.normal(size=(4, 500)))
    return {"a": normal(y, mu, 2 * sigma)}


def sticky(rng):
    return normal(rng.normal(size=200), np.cumsum(0.3 * rng.normal(size=(2, 40)), axis=1))


def positive(rng):
    y = rng.gamma(3.0, 1.0, size=60)
    return lq.from_family("gamma", y=y, alpha=np.full((4, 25), 3.0), beta=1.0)


def disagreeing(rng, d=2, apart=9.0, spread=0.01):
    """Locked half and half, the pool lies between vectors that are far from each other."""
    y = np.full((2, d), 4.0)
    models = {
        name: lq.from_family(
            "mv_normal",
            y=y,
            mu=spread * rng.normal(size=(2, 20, d)) + at * np.eye(d)[0],
            cov=np.eye(d),
        )
        for name, at in (("a", 0.0), ("b", apart))
    }
    return lq.lock(models, prior=1e5, scale=1.0)


def solved(*, converged, starts):
    at = np.array
    return Solution(
        np.ones(1), at(1.0), at(0.1), at(1.0), at(converged), at(3), at("done"), starts=starts
    )


@produces("stopped-early")
def _(rng):
    warn(*examine_solution(solved(converged=False, starts=None)))


@produces("posterior-doubtful")
def _(rng):
    # Beta(.003, .003) reaches weights below the smallest number, where chains diverge.
    fit = lq.lock(lq.example_models())
    fit.posterior(100, prior=0.003, learning_rate=1e-5, random_seed=1)


@produces("several-optima")
def _(rng):
    warn(*examine_solution(solved(converged=True, starts=(1, 8))))


@produces("single-chain")
def _(rng):
    lq.lock({"a": normal(rng.normal(size=50), 0.05 * rng.normal(size=(1, 500)))})


@produces("hardly-any-draws")
def _(rng):
    lq.lock({"a": normal(rng.normal(size=30), 0.1 * rng.normal(size=(2, 2)))})


@produces("too-few-draws")
def _(rng):
    lq.lock({"a": sticky(rng)})


@produces("handful-of-draws")
def _(rng):
    models = {"a": normal([3.0, 0.0], rng.normal(size=(4, 200)), 0.01)}
    lq.lock(models, scores="held-out", scale=1.0)


@produces("uncertain-normaliser")
def _(rng):
    disagreeing(rng, d=5, apart=20.0, spread=5.0).predict().log_norm()


@produces("unreliable-draws")
def _(rng):
    disagreeing(rng).sample(300, method="mixture-is", random_seed=1)


@produces("pareto-k")
def _(rng):
    lq.stack(surprised(rng))


@produces("models-alike")
def _(rng):
    lq.stack(dict.fromkeys("ab", positive(rng)))


@produces("weights-undetermined")
def _(rng):
    y = rng.normal(0, 1.5, size=300)  # of centred normals, only Σ w / σ² matters
    lq.lock({str(sd): normal(y, np.zeros((4, 100)), sd) for sd in (1.0, 1.4, 2.0, 3.0)})


@produces("modes-apart")
def _(rng):
    lq.combine(clumps(rng, (-5.0, 5.0)), "linear", "hyvarinen", scores="in-sample")


@produces("unseen-groups")
def _(rng):
    side = np.where(np.arange(40) < 20, "left", "right")
    lq.stack(lq.example_models(), by=side, shrinkage=1.0).weights_at(["middle"])


@produces("few-observations")
def _(rng):
    lq.lock(
        {
            name: normal([0.3, 1.2], 0.1 * rng.normal(size=(4, 50)) + m)
            for name, m in zip("ab", (0, 1), strict=True)
        }
    )


@produces("few-decide")
def _(rng):
    y = np.append(rng.normal(size=49), 9.0)
    mu = 0.05 * rng.normal(size=(4, 50))
    lq.lock({"narrow": normal(y, mu), "shifted": normal(y, mu + 1.2, 1.1)})


@produces("divergences")
def _(rng):
    model = normal(rng.normal(size=40), 0.1 * rng.normal(size=(4, 50)))
    lq.stack({"a": lq.Model(replace(model.source, divergent=3))})


@produces("missing-covariate")
def _(rng):
    x = np.append(rng.normal(size=39), np.nan)
    lq.stack(clumps(rng, (-1.0, 1.0)), by={"x": x}, shrinkage=np.inf)


@produces("outcomes-unknown")
def _(rng):
    models = {name: model.to_datatree() for name, model in clumps(rng, (-1.0, 1.0)).items()}
    lq.stack(
        {**models, "b": xr.DataTree.from_dict({LOGP_GROUP: models["b"][LOGP_GROUP].to_dataset()})}
    )


@produces("stuck-chain")
def _(rng):
    mu = 0.1 * rng.normal(size=(4, 50))
    mu[2] = mu[2, 0]
    lq.lock({"a": normal(rng.normal(size=40), mu)})


@produces("suspect-derivatives")
def _(rng):
    y = rng.normal(size=40)
    in_theta = y - 0.1 * rng.normal(size=(4, 50, 1))
    bend = np.full(in_theta.shape, -1.0)
    lq.lock({"a": lq.from_arrays(logp=-(in_theta**2) / 2, grad=in_theta, curv=bend, y=y)})


@produces("suspect-log-density")
def _(rng):
    p = np.exp(-0.5 * (rng.normal(size=40) - 0.1 * rng.normal(size=(4, 50, 1))) ** 2)
    lq.stack({"a": lq.from_arrays(logp=p, y=rng.normal(size=40))})


@produces("repeated-outcome")
def _(rng):
    y = np.where(np.arange(40) < 15, 0.0, rng.normal(size=40))
    lq.lock({"a": normal(y, 0.1 * rng.normal(size=(4, 50)))})


@produces("coarse-outcomes")
def _(rng):
    y = 1e15 + rng.normal(size=40)
    lq.lock({"a": normal(y, 1e15 + rng.normal(size=(4, 50)))})


@produces("rounded-outcomes")
def _(rng):
    y = rng.normal(size=60).round()
    mu = 0.001 * rng.normal(size=(2, 30))
    atoms = [("normal", {"mu": mu + k, "sigma": 0.02}) for k in (-1.0, 0.0, 1.0)]
    spiky = lq.from_family("mixture", y=y, weights=[0.3, 0.4, 0.3], components=atoms)
    lq.stack({"spiky": spiky, "smooth": normal(y, mu)})


@produces("coded-outcome")
def _(rng):
    y = np.append(rng.normal(size=40), [-999.0, -999.0])
    lq.lock({"a": normal(y, 0.1 * rng.normal(size=(4, 50)))})


@produces("copied-observations")
def _(rng):
    y = np.tile(rng.normal(size=30), 2)
    lq.lock({"a": normal(y, 0.1 * rng.normal(size=(4, 50)))})


@produces("too-much-mass")
def _(rng):
    y = np.exp(rng.normal(size=60))
    z = np.log(y) - 0.1 * rng.normal(size=(2, 40, 1))
    lq.stack({"log y": lq.from_arrays(logp=-0.5 * z**2 - 0.92, y=y)})


@produces("inconsistent-derivatives")
def _(rng):
    y = rng.normal(size=60)
    z = y - 0.1 * rng.normal(size=(2, 40, 1))
    logp = -0.5 * z**2 - 0.92
    lq.lock({"f''/f": lq.from_arrays(logp=logp, grad=-z, curv=z**2 - 1.0, y=y)})


@produces("misled-score")
def _(rng):
    lq.quack(as_arrays(clumps(rng, (0.0, 8.0), at=(0.0, 0.0))))


@produces("unseen-weight")
def _(rng):
    lq.combine(clumps(rng, (0.0, 10.0), at=(0.0, 0.0)), "linear", "hyvarinen")


@produces("log-score-unknown")
def _(rng):
    lq.combine(as_arrays(clumps(rng, (0.0, 4.0), at=(0.0, 0.0))), "hybrid")


@produces("uncertain-pool")
def _(rng):
    lq.quack(as_arrays(clumps(rng, (0.0, 1.0), at=(0.0, 0.0))))


@produces("scores-disagree")
def _(rng):
    y = rng.normal(size=40)
    mu = 0.05 * rng.normal(size=(2, 20))
    flat = lq.from_family("student_t", y=y, nu=1.0, mu=mu + 100.0, sigma=1.0)
    lq.select({"narrow": normal(y, mu, 0.5), "flat and far": flat}, by="hyvarinen")


@produces("parameter-at-bound")
def _(rng):
    lq.combine(clumps(rng, (-1.5, 1.5), at=(-3.0, 3.0)), "hoelder", "log")


@produces("phases-at-cap")
def _(rng):
    lq.quack(clumps(rng, (-0.3, 0.3), at=(-2.5, 2.5), sigma=1.5), rule="hyvarinen")


@produces("slow-edge")
def _(rng):
    lq.lock({"gamma": positive(rng)}, rule=lq.Hyvarinen(transform=None))


@produces("different-supports")
def _(rng):
    gamma = positive(rng)
    lq.stack({"gamma": gamma, "normal": normal(gamma.observations.values[:, 0], np.ones((4, 25)))})


@produces("normaliser-unchecked")
def _(rng):
    lq.lock(as_arrays(clumps(rng, (-1.0, 1.0))), weights="nonnegative")


def told(rng, **facts):
    """A model that says more about its likelihood."""
    source = normal(rng.normal(size=50), 0.05 * rng.normal(size=(2, 500))).source
    return {"a": lq.Model(replace(source, likelihood=replace(source.likelihood, **facts)))}


@produces("given-earlier-outcomes")
def _(rng):
    lq.lock(told(rng, given_earlier=True))


@produces("not-scored")
def _(rng):
    models = told(rng, not_scored=("censored",))
    lq.stack({name: lq.from_datatree(model.to_datatree()) for name, model in models.items()})


@produces("given-earlier-outcomes")
def _(rng):
    lq.lock(told(rng, given_earlier=True))


@produces("not-scored")
def _(rng):
    models = told(rng, not_scored=("censored",))
    lq.stack({name: lq.from_datatree(model.to_datatree()) for name, model in models.items()})


@produces("no-moment")
def _(rng):
    draws = 0.1 * rng.normal(size=(2, 100))
    cauchy = lq.from_family("student_t", y=rng.normal(size=12), nu=1.0, mu=draws, sigma=1.0)
    lq.stack({"cauchy": cauchy}).predict().mean()


@produces("wrong-normaliser")
def _(rng):
    kind = np.arange(100) % 10  # one draw in ten is a spike that quadrature does not see
    mu = np.broadcast_to(np.select([kind == 0, kind == 1], [151.0, 300.0], 0.0), (2, 100))
    sigma = np.broadcast_to(np.select([kind == 0, kind == 2], [1e-4, 1e-5], 1.0), (2, 100))
    lq.lock({"spiky": normal([0.0, 0.1, 0.2], mu, sigma)}).predict().log_norm()


def scattered(rng, sd, *, mu=0.0, sigma=1.0, n=200):
    """Outcomes around what is predicted, as far as ``sd`` says, and a model that says ``sigma``."""
    y = np.broadcast_to(mu, n) + sd * rng.normal(size=n)
    return lq.stack({"a": normal(y, np.broadcast_to(mu, (2, 50, n)), sigma)})


@produces("nothing-to-recalibrate")
def _(rng):
    scattered(rng, 1.0).recalibrated()


@produces("strong-recalibration")
def _(rng):
    scattered(rng, 5.0).recalibrated()


@produces("still-miscalibrated")
def _(rng):
    scattered(rng, np.where(rng.random(200) < 0.5, 0.05, 2.0)).recalibrated()


@produces("calibration-depends")
def _(rng):
    x = np.linspace(0.0, 3.0, 200)
    scattered(rng, 0.3 + x, mu=10 * x, sigma=2.0).recalibrated()


def heard(act):
    """Do something; return what was warned of and where."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return caught


#: Found by ``lockquack check`` only; see below.
CHECKED = {"dependent-draws"}


def test_every_remark_is_produced_somewhere():
    assert set(PRODUCERS) | CHECKED == set(REMARKS)


@pytest.mark.parametrize("code", PRODUCERS)
def test_remarks_are_warned_of_and_survive_json(rng, code):
    caught = heard(lambda: PRODUCERS[code](rng))
    remarks = [each.message.remark for each in caught]
    assert code in [remark.code for remark in remarks]
    for each, remark in zip(caught, remarks, strict=True):
        assert each.category is remark.category
        assert str(each.message) == remark.message == str(remark)
        assert each.filename == __file__
        again = read_remark(json.loads(json.dumps(remark.record())))
        assert again == remark
        assert hash(again) == hash(remark)


def test_the_command_line_remarks_by_code(rng, tmp_path, capsys):
    for name, model in (("sticky", sticky(rng)), ("far", surprised(rng)["a"])):
        model.save(tmp_path / f"{name}.nc")
    files = [str(tmp_path / "sticky.nc"), str(tmp_path / "far.nc")]
    assert cli.main(["check", files[0], "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["models"]
    assert [each["code"] for each in found["remarks"]] == ["pareto-k", "dependent-draws"]
    assert cli.main(["check", files[1], "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["models"]
    (remark,) = found["remarks"]
    assert (remark["code"], remark["kind"]) == ("pareto-k", "ParetoWarning")
    assert "locking by the Hyvärinen score does not use them" in remark["message"]
    assert cli.main(["weights", files[1], "--operator", "linear", "--json"]) == 0
    said = capsys.readouterr()
    assert "pareto-k" in [each["code"] for each in json.loads(said.out)["notes"]]
    assert "note: Leave-one-out densities" in said.err


# What a kind of remark says.


@every_kind
def test_every_kind_has_its_words(kind):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    assert REMARKS[kind.code] is kind
    assert issubclass(kind.category, LockquackWarning)
    for text in (kind.meaning, kind.remedy, kind.of_example().message):
        assert re.fullmatch(r"[A-Z`].{8,}[.]", text), text
    assert kind.title[0].isupper()
    assert not kind.title.endswith(".")


def test_kinds_have_titles_of_their_own():
    assert len({kind.title for kind in REMARKS.values()}) == len(REMARKS)


@every_kind
def test_examples_survive_json(kind):
    example = kind.of_example()
    assert read_remark(json.loads(json.dumps(example.record()))) == example
    assert example != UnknownRemark(str(example))
    assert set(example.summary()) == {"code", "kind", "message"}


def test_equality_is_by_value():
    assert SingleChain(("a",)) == SingleChain(("a",)) != SingleChain(("b",))
    assert len({SingleChain(("a",)), SingleChain(("a",)), SingleChain(("b",))}) == 2


def test_remarks_are_a_low_layer():
    """They turn data into words; when to remark is known elsewhere."""
    folder = Path(lq.__file__).parent / "remarks"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("lockquack"):
                assert node.module.split(".")[1] in ("errors", "remarks", "words"), path


# Files of this version and of others.


def test_remarks_of_another_version_keep_their_text():
    message, known = "The moon is full.", HighParetoK.of_example().record()["fields"]
    for record in (
        {"code": "full-moon", "message": message, "fields": {"phase": 1.0}},
        {"code": "single-chain", "message": message, "fields": {"names": ["a"]}},
        {"code": "pareto-k", "message": message, "fields": {**known, "affected": "moods"}},
    ):
        remark = read_remark(record)
        assert remark == UnknownRemark(message)
        assert remark.message == message
        assert read_remark(remark.record()) == remark


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_saved_fits_keep_remarks_as_they_are(rng, tmp_path):
    fit = lq.stack(surprised(rng))
    fit = replace(fit, remarks=(*fit.remarks, UnknownRemark("The moon is full.")))
    fit.save(tmp_path / "fit.nc")
    back = lq.load(tmp_path / "fit.nc")
    assert back.remarks == fit.remarks
    assert back.remarks[0].code == "pareto-k"
    assert str(back) == str(fit)


# Warnings.


def test_warnings_come_from_the_users_line(rng, tmp_path):
    """However deep in the package they arise."""
    pytest.importorskip("matplotlib").use("agg")
    model = surprised(rng)["a"]
    y = model.observations.values[:, 0]
    models = {"a": model, "one chain": normal(y, 0.1 * rng.normal(size=(1, 400)), 9.0)}
    fits = (lq.lock, lq.stack, lq.quack, lq.combine, lq.equal, lq.pseudo_bma, lq.select)
    for method in fits:
        caught = heard(lambda method=method: method(unheard(models)))
        assert {each.filename for each in caught} == {__file__}, method
    fit = lq.lock({"a": model})
    questions = (
        lambda fit: fit.logpdf(loo=True),
        lambda fit: fit.predict(loo=True).log_norm(),
        lambda fit: fit.pit(loo=True),
        lambda fit: fit.coverage(loo=True),
        lambda fit: fit.plot_pit(loo=True),
        lambda fit: fit.sample(10, loo=True, random_seed=1),
        lambda fit: fit.predict(loo=True).logpdf(),
        lambda fit: fit.predict(loo=True).logpdf(0.0),
        lambda fit: fit.predict(loo=True).log_norm(),
        lambda fit: fit.predict(loo=True).pit(),
        lambda fit: fit.predict(loo=True).sample(10, random_seed=1),
    )
    for i, ask in enumerate(questions):
        fresh = replace(fit, models=unheard(fit.models))  # nothing is said twice
        caught = heard(lambda ask=ask, fresh=fresh: ask(fresh))
        assert {each.filename for each in caught} == {__file__}, i
        assert {each.message.remark.code for each in caught} == {"pareto-k"}, i


def test_nothing_is_said_twice_about_the_same_models(rng):
    """A study of the same models by many methods: each thing is said once, of all models."""
    model = surprised(rng)["a"]
    y = model.observations.values[:, 0]
    models = {"a": model, "one chain": normal(y, 0.1 * rng.normal(size=(1, 400)), 9.0)}
    methods = (lq.stack, lq.equal, lq.pseudo_bma, lq.select, lq.lock)

    def study():
        for method in methods:
            fit = method(models)
            fit.logpdf(loo=True)
            fit.coverage()
        lq.compare(models, ["stack", "equal"], cv=3)

    said = [each.message.remark.code for each in heard(study)]
    assert "pareto-k" in said
    assert "single-chain" in said
    assert len(said) == len(set(said)) < 8
    assert heard(study) == []
    # What a fit knows it keeps, said or not; and of other models it is said again.
    assert "pareto-k" in {remark.code for remark in lq.stack(models).remarks}
    assert "pareto-k" in {
        each.message.remark.code for each in heard(lambda: lq.stack(unheard(models)))
    }


def test_one_remark_for_all_models_with_unreliable_densities(rng):
    model = surprised(rng)["a"]
    models = {name: lq.Model(model.source) for name in ("first", "second")}
    (warning,) = heard(lambda: lq.equal(models))
    remark = warning.message.remark
    assert remark.models == ("first", "second")
    k_hat = model.loo().pareto_k
    assert remark.counts == ((k_hat > remark.limit).sum(),) * 2
    assert remark.worst == k_hat.max()


def test_warnings_of_components_of_vectors_come_from_the_users_line(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = disagreeing(rng, d=5, apart=20.0, spread=5.0)
    caught = heard(lambda: fit.logpdf())
    assert {each.filename for each in caught} == {__file__}
    assert "uncertain-normaliser" in {each.message.remark.code for each in caught}


def test_a_warning_is_heard_once_and_with_its_remark():
    class Options:
        quiet, traceback = False, False

    with hear_warnings(Options) as found:
        for _ in range(2):
            warn(SingleChain(("a",)))
        warnings.warn("of another library", UserWarning, stacklevel=1)
        warnings.warn("without a remark", LockquackWarning, stacklevel=1)
    assert found == [SingleChain(("a",)), UnknownRemark("without a remark")]


def test_what_is_not_ours_has_no_remark():
    assert remark_of(UserWarning("x")) is None
    assert remark_of("x") is None


# Two wordings of one message.


def test_texts_keep_both_wordings():
    text = Text("Use ", LOG_SCORE, ", or ", HYVARINEN, ".")
    assert text == "Use LogScore(), or Hyvarinen()."
    assert text.shell == "Use --rule log, or --rule hyvarinen."
    assert ("Model 'a': " + text).shell == "Model 'a': Use --rule log, or --rule hyvarinen."
    assert (text + " Or not.").shell == "Use --rule log, or --rule hyvarinen. Or not."
    assert in_shell("plain") == "plain"
    for again in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text), Text(text)):
        assert (again, again.shell) == (text, text.shell)


def test_all_advice_has_two_wordings():
    found = {name: value for name, value in vars(words).items() if isinstance(value, Text)}
    assert len(found) >= 5
    for name, text in found.items():
        assert text != text.shell, name
        assert "--" in text.shell, name


def test_errors_keep_both_wordings_wherever_they_pass():
    inner = ParameterError("Use ", LOG_SCORE, ".")
    assert str(inner) == "Use LogScore()."
    error = inner.within("Model 'a'", " Please.").within("fit.nc")
    assert type(error) is ParameterError
    assert error.places == ("fit.nc", "Model 'a'")
    assert str(error) == "fit.nc: Model 'a': Use LogScore(). Please."
    assert error.text.shell == "fit.nc: Model 'a': Use --rule log. Please."
    assert shell_words(error) == error.text.shell
    assert error.reason == "Use LogScore(). Please."
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.text.shell, again.places) == (
        str(error),
        error.text.shell,
        error.places,
    )


def test_a_place_is_named_once():
    with (
        pytest.raises(LockquackError, match="^outer: inner: wrong$") as caught,
        naming("outer"),
        naming("inner"),
        naming("outer"),
        naming("inner"),
    ):
        raise LockquackError("wrong")
    assert caught.value.places == ("outer", "inner")


def test_an_error_of_a_model_in_a_file_names_both_once(tmp_path):
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(LockquackError) as caught:
        lq.from_datatree(tmp_path / "text.nc")
    assert str(caught.value).count("text.nc: ") == 1
    assert caught.value.places == (str(tmp_path / "text.nc"),)


def test_what_was_left_out_of_a_comparison_keeps_both_wordings(rng):
    logp = rng.normal(size=(2, 50, 6))
    models = {name: lq.from_arrays(logp=logp + i, y=np.arange(6.0)) for i, name in enumerate("ab")}
    with pytest.warns(ParetoWarning):
        left_out = lq.compare(models, cv=2).copy().attrs["left_out"]
    assert "from_family" in left_out["lock"]
    assert "--family" in in_shell(left_out["lock"])
    with pytest.raises(LockquackError) as caught:
        lq.compare(models, ["lock"])
    assert str(caught.value) == f"Method 'lock': {left_out['lock']}"
    assert "--family" in shell_words(caught.value)
