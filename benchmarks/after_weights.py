"""Processor time, and accuracy, of what comes after the weights: densities, draws, tables.

``python benchmarks/after_weights.py [--old FOLDER] [--only normal ...]`` measures this tree and,
beside it, another checkout of the project, each in processes of their own and in turn. The models
are three regressions of diabetes (n = 442, 4,000 draws): normal, as in the demonstration, and the
same linear predictors in other families.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
Array = np.ndarray[Any, Any]
FAMILIES = ("normal", "student_t", "gamma", "lognormal", "skew_normal")
#: Of these, a probabilistic program; where PyMC is installed.
CASES = (*FAMILIES, "pymc")
#: Observations whose normalisers are compared with an independent rule, and its nodes.
CHECKED, FINE = (0, 100, 200, 300, 441), 4001
#: The last commit before anything was done to make it faster.
BEFORE = "f728ce7"
COLUMNS = ([0, 1], [2, 3], [4, 5, 6, 7, 8, 9])


def diabetes(
    family: str, copies: int = 1, draws: int = 1000, chosen: Sequence[Sequence[int]] = COLUMNS
) -> dict[str, Any]:
    """Regressions, three by default, with exact draws, around least squares of y or of log y."""
    from sklearn.datasets import load_diabetes

    import lockquack as lq

    data = load_diabetes()
    y, features = np.tile(data.target, copies), np.tile(data.data, (copies, 1))
    is_log = family in ("gamma", "lognormal")
    z = np.log(y) if is_log else y
    rng = np.random.default_rng(0)
    models = {}
    shape = (4, draws)
    for columns in chosen:
        X = np.column_stack([np.ones(len(y)), features[:, columns]])
        estimate, residual = np.linalg.lstsq(X, z)[:2]
        scale = np.sqrt(residual.item() / rng.chisquare(len(y) - X.shape[1], size=shape))
        root = np.linalg.inv(np.linalg.cholesky(X.T @ X)).T
        noise = rng.normal(size=(*shape, X.shape[1])) @ root.T
        beta = estimate + scale[..., None] * noise
        mu = lq.linear_predictor(X, beta)
        own: dict[str, Any] = {"mu": mu, "sigma": scale}
        if family == "student_t":
            own["nu"] = 4.0 + rng.gamma(20.0, 0.2, size=shape)
        if family == "skew_normal":
            own["alpha"] = rng.normal(1.0, 0.1, size=shape)
        if family == "gamma":
            mean = np.exp(np.einsum("np,cdp->cdn", X, beta))
            alpha = 1.0 / np.square(scale)
            own = {"alpha": alpha, "beta": alpha[..., None] / mean}
        models["+".join(data.feature_names[j] for j in columns)] = lq.from_family(
            family, y=y, **own
        )
    return models


def pymc_models() -> dict[str, Any]:
    """Make PyMC models of the first two regressions, with draws of their exact posteriors."""
    import pymc as pm
    from arviz_base import from_dict
    from sklearn.datasets import load_diabetes

    import lockquack as lq

    data, models = load_diabetes(), {}
    rng = np.random.default_rng(0)
    for columns in COLUMNS[:2]:
        X = np.column_stack([np.ones(len(data.target)), data.data[:, columns]])
        estimate, residual = np.linalg.lstsq(X, data.target)[:2]
        scale = np.sqrt(residual.item() / rng.chisquare(len(X) - X.shape[1], size=(4, 1000)))
        root = np.linalg.inv(np.linalg.cholesky(X.T @ X)).T
        beta = estimate + scale[..., None] * (rng.normal(size=(4, 1000, X.shape[1])) @ root.T)
        with pm.Model() as model:
            b = pm.Flat("b", shape=X.shape[1])
            sigma = pm.HalfFlat("sigma")
            pm.Normal("y", X @ b, sigma, observed=data.target)
        draws = from_dict({"posterior": {"b": beta, "sigma": scale}})
        models["+".join(data.feature_names[j] for j in columns)] = lq.from_pymc(model, draws)
    return models


def spend(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of some work, all threads together, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def measure(case: str) -> dict[str, Any]:
    """Measure one set of models; every question is asked of a fit that knows nothing yet."""
    import lockquack as lq

    warnings.simplefilter("ignore")
    build = pymc_models if case == "pymc" else lambda: diabetes(case)
    _warm_up(build)
    seconds: dict[str, float] = {}
    seconds["lock"], fit = spend(lambda: lq.lock(build()))
    norms = fit.predict(loo=True)
    seconds["logpdf"], _ = spend(norms.logpdf)
    asked: dict[str, Callable[[Any], Any]] = {
        "sample": lambda fit: fit.sample(1000, random_seed=1),
        "coverage": lambda fit: fit.coverage(),
        "report": lambda fit: _report(fit),
    }
    for name, ask in asked.items():
        fresh = lq.lock(build())
        seconds[name], _ = spend(lambda ask=ask, fresh=fresh: ask(fresh))
    models = build()
    seconds["compare"], _ = spend(lambda: lq.compare(models))
    error = np.nan if case == "pymc" else worst_error(fit, norms)
    return {"seconds": seconds, "error": error}


def _warm_up(build: Callable[[], Any]) -> None:
    """Compile what is compiled once, and load what is loaded once."""
    import lockquack as lq

    fit = lq.lock(build())
    fit.predict(loo=True).logpdf()
    fit.sample(1000, random_seed=0)
    _report(lq.lock(lq.example_models()))


def _report(fit: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fit.report(Path(folder) / "report.html")


def worst_error(fit: Any, prediction: Any) -> float:
    """Largest relative error of some normalisers, by a plain sum over many nodes in log space."""
    from scipy.special import logsumexp

    from lockquack.draws.psis import psis

    log_norm = prediction.log_norm().values
    weights = fit.weights.values
    worst = 0.0
    for i in CHECKED:
        obs = slice(i, i + 1)
        sources = [model.source for model in fit.models.values()]
        where = np.concatenate(
            [s.bulks(obs, np.array([-14.0, 14.0]), detailed=False) for s in sources]
        )
        support = sources[0].likelihood.support or (-np.inf, np.inf)
        if np.isfinite(support[0]):
            z = np.linspace(np.log(where.max()) - 12.0, np.log(where.max()) + 6.0, FINE)
            y, slope = np.exp(z), z
        else:
            middle, scale = where.mean(), np.ptp(where) / 28
            x = np.linspace(-12.0, 12.0, FINE)  # far enough for Student t with few degrees
            y, z = middle + scale * np.sinh(x), x
            slope = np.log(scale * np.cosh(x))
        logp = []
        for source in sources:
            log_weights, _ = psis(source.all_logp(obs))
            terms = [
                source.logp_at(y[:, None, None], c, slice(0, source.n_draws), obs)[..., 0]
                + log_weights[c, :, 0]
                for c in range(source.n_chains)
            ]
            logp.append(logsumexp(np.concatenate(terms, axis=1), axis=1))
        exact = logsumexp(weights @ np.stack(logp) + slope) + np.log(z[1] - z[0])
        worst = max(worst, abs(float(np.expm1(log_norm[i] - exact))))
    return worst


def plain_numpy() -> float:
    """Processor seconds of the three normal regressions on 40 nodes per observation, in numpy."""
    models = diabetes("normal")
    drawn = []
    for model in models.values():
        p = [model.source._parameters(c, slice(0, 1000), slice(0, 442)) for c in range(4)]
        mu = np.concatenate([np.broadcast_to(each["mu"], (1000, 442)) for each in p])
        drawn.append((mu, np.concatenate([each["sigma"].reshape(1000, 1) for each in p])))

    def work() -> None:
        for mu, sigma in drawn:
            for i in range(mu.shape[1]):
                y = mu[:, i].mean() + sigma.mean() * np.linspace(-8, 8, 40)[:, None]
                z = (y - mu[:, i]) / sigma[:, 0]
                logp = -0.5 * z * z - np.log(sigma[:, 0])
                peak = logp.max(axis=1, keepdims=True)
                np.log(np.exp(logp - peak).sum(axis=1)) + peak[:, 0]

    return min(spend(work)[0] for _ in range(2))


def measure_large() -> dict[str, Any]:
    """Normalise 10,166 observations, each left out: the diabetes data 23 times over."""
    import lockquack as lq

    warnings.simplefilter("ignore")
    _warm_up(lambda: diabetes("normal"))
    fit = lq.lock(diabetes("normal", copies=23))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, _ = spend(fit.predict(loo=True).logpdf)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": {"logpdf": seconds}, "error": np.nan, "megabytes": (after - before) / 1024}


def measure_growth() -> dict[str, Any]:
    """Fit exponents to the time of normalised leave-one-out densities, in n, S and K."""
    import lockquack as lq

    warnings.simplefilter("ignore")
    _warm_up(lambda: diabetes("normal"))
    alone = [[j] for j in range(8)]
    axes: dict[str, tuple[list[int], Callable[[int], dict[str, Any]]]] = {
        "observations n": ([442 * k for k in (1, 4, 9)], lambda n: diabetes("normal", n // 442)),
        "draws S": ([2000, 8000, 16000], lambda S: diabetes("normal", draws=S // 4)),
        "models K": ([2, 4, 8], lambda K: diabetes("normal", chosen=alone[:K])),
    }
    rows = []
    for axis, (places, build) in axes.items():
        seconds = []
        for size in places:
            norms = lq.lock(build(size)).predict(loo=True)
            seconds.append(spend(norms.logpdf)[0])
        exponent = float(np.polyfit(np.log(places), np.log(seconds), 1)[0])
        rows.append({"axis": axis, "places": places, "seconds": seconds, "exponent": exponent})
    return {"growth": rows}


def measure_after() -> dict[str, Any]:
    """Measure all families, many observations, plain numpy, and growth, each in its own process.

    The families once more as they were ``BEFORE``, where the history is here.
    """
    found = {case: ask(ROOT, case) for case in (*CASES, "large", "numpy", "growth")}
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "before.tar"
        told = subprocess.run(
            ["git", "archive", "--output", archive, BEFORE, "src"], cwd=ROOT, capture_output=True
        )
        if told.returncode == 0:
            shutil.unpack_archive(archive, folder, filter="data")
            found["before"] = {case: ask(Path(folder), case) for case in CASES}
    return found


def ask(folder: Path, case: str) -> dict[str, Any]:
    """Measure one case with the source of a folder, in a process of its own.

    As users run it: with as many threads of linear algebra as that has by default.
    """
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, __file__, "--measure", case],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failure": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, in turn, this tree and another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cases = [*CASES, "large", "numpy", "growth"]
    parser.add_argument("--old", type=Path, help="a checkout to compare with")
    parser.add_argument("--only", nargs="+", choices=cases, default=cases[:5])
    parser.add_argument("--measure", choices=cases, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        special = {
            "numpy": lambda: {"seconds": {"numpy": plain_numpy()}},
            "large": measure_large,
            "growth": measure_growth,
        }
        print(json.dumps(special.get(options.measure, lambda: measure(options.measure))()))
        return
    for case in options.only:
        found = {"new": ask(ROOT, case)}
        if options.old:
            found["old"] = ask(options.old, case)
        print(case, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
