"""Right answers for the posteriors of tests/posteriors.py, computed without lockquack.

    .venv/bin/python scripts/reference_answers.py

writes tests/golden/posteriors.json anew, in about a minute. It needs the packages of the test
group only: numpy and scipy for closed forms and averages over draws, arviz-stats for PSIS, clarabel
for the weights (then Newton's method to rounding, and a bound on what is left to gain), mpmath to
differentiate predictive densities without a formula, and the trapezoidal rule on grids so dense
that denser and wider ones change nothing.

Keys are those of the reference answers that lie beside some checkouts in shared/data: ``raw`` is
the outcome in its own units, ``standardised`` in units of its standard deviation; the objective
of locking is Σ_i [2 w·lapl_i + (w·grad_i)²] − .01 Σ_k log w_k, without the last term where it
says ``no_prior``. Kinds of predictions:

``loo``                the mean of the draws' gradients, and of their curvatures plus the variance
                       of the gradients; densities by PSIS
``in_sample``          draws averaged with the weights of their densities
``loo_psis_weighted``  the same with Pareto-smoothed weights: derivatives as noisy as densities
``exact_loo``          Student-t of the regression fitted without the observation
``exact_in_sample``    Student-t of the regression
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import clarabel
import mpmath
import numpy as np
from arviz_stats.base import array_stats
from scipy import sparse, stats
from scipy.special import logsumexp, softmax

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.posteriors import (  # noqa: E402
    FAMILIES,
    N_CHAINS,
    N_DRAWS,
    Array,
    Family,
    Regression,
    Student,
)

TARGET = ROOT / "tests" / "golden" / "posteriors.json"
PRIOR = 0.01  # of every weight, its concentration less one

#: Subsets of the models that are combined.
SETS: dict[str, dict[str, list[str]]] = {
    "diabetes": {
        "all": ["demographics", "body", "blood", "bmi_s5", "full", "full_raw"],
        "core5": ["demographics", "body", "blood", "bmi_s5", "full"],
        "blocks": ["demographics", "body", "blood"],
        "pair": ["body", "blood"],
    },
    "engel": {
        "all": ["linear", "logarithmic", "exponential", "power", "curved", "curved_centred"],
        "core5": ["linear", "logarithmic", "exponential", "power", "curved"],
        "trio": ["logarithmic", "power", "curved"],
        "rough": ["linear", "logarithmic", "exponential"],
        "pair_y_logy": ["linear", "power"],
    },
}
#: On which scale densities are normalised.
DENSITY_SCALE = {"diabetes": "y", "engel": "logy"}
#: Exactly for all observations: where PSIS is right, draws must come close.
EXACTLY = {"diabetes": ["pair"], "engel": ["trio"]}
#: From the draws, at some observations.
FROM_DRAWS = {"diabetes": ["blocks"], "engel": ["core5", "rough"]}


class Jet(NamedTuple):
    """Log density at each observation, and its first two derivatives in the outcome."""

    logp: Array
    grad: Array
    lapl: Array

    def on(self, scale: str, fitted_to: str, y: Array) -> Jet:
        """Change the variable: the density of log y is y times that of y."""
        logp, grad, lapl = self
        if scale == fitted_to:
            return self
        if scale == "logy":
            return Jet(logp + np.log(y), y * grad + 1, y**2 * lapl + y * grad)
        return Jet(logp - np.log(y), (grad - 1) / y, (lapl - grad + 1) / y**2)

    def hyvarinen(self) -> float:
        """Sum of the scores, lower is better."""
        return float(np.sum(2 * self.lapl + self.grad**2))


# ---- predictions of one model


@dataclass(frozen=True)
class Drawn:
    """Densities of all draws at the observations, (n, S), and their derivatives."""

    regression: Regression
    mu: Array
    sigma: Array  # (S,)
    log_smoothed: Array  # log weights by PSIS, normalised
    pareto_k: Array

    @classmethod
    def of(cls, regression: Regression, draws: Array) -> Drawn:
        """Smooth the weights that leave each observation out."""
        flat = draws.reshape(-1, draws.shape[-1])
        mu, sigma = regression.X @ flat[:, :-1].T, flat[:, -1]
        logf = stats.norm.logpdf(regression.z[:, None], mu, sigma)
        log_smoothed, pareto_k = array_stats.psislw(logf, axis=-1)
        return cls(regression, mu, sigma, log_smoothed, pareto_k)

    @property
    def logf(self) -> Array:
        """Log densities of the draws."""
        return stats.norm.logpdf(self.regression.z[:, None], self.mu, self.sigma)

    @property
    def grad(self) -> Array:
        """Their derivatives; the second ones are −1/σ²."""
        return -(self.regression.z[:, None] - self.mu) / self.sigma**2

    def average(self, share: Array, logp: Array) -> Jet:
        """Average the draws with shares, (n, S) or (S,), that sum to one."""
        g = self.grad
        grad = np.sum(share * g, axis=1)
        lapl = np.sum(share * ((g - grad[:, None]) ** 2 - 1 / self.sigma**2), axis=1)
        return Jet(logp, grad, lapl)

    def jets(self) -> dict[str, Jet]:
        """Predictions of every kind."""
        logf, S = self.logf, self.sigma.size
        smoothed = self.log_smoothed + logf
        by_psis = logsumexp(smoothed, axis=1)
        plain = logsumexp(logf, axis=1) - np.log(S)
        return {
            "loo": self.average(np.full_like(logf, 1 / S), by_psis),
            "in_sample": self.average(softmax(logf, axis=1), plain),
            "loo_psis_weighted": self.average(softmax(smoothed, axis=1), by_psis),
            "exact_loo": Jet(*self.regression.exact("loo").jet(self.regression.z)),
            "exact_in_sample": Jet(*self.regression.exact("in_sample").jet(self.regression.z)),
        }

    def loo_without_chain(self, left_out: int) -> Jet:
        """Leave-one-out derivatives from the other chains."""
        share = np.ones((N_CHAINS, N_DRAWS))
        share[left_out] = 0.0
        return self.average(share.ravel() / share.sum(), np.zeros(len(self.mu)))


def check_by_differences(drawn: Drawn, jets: dict[str, Jet], i: int) -> None:
    """Differentiate the log of the average density itself, by differences with fifty digits."""
    log_weights = {
        "loo": -drawn.logf[i],
        "in_sample": np.zeros(drawn.sigma.size),
        "loo_psis_weighted": drawn.log_smoothed[i],
    }
    with mpmath.workdps(50):
        h = mpmath.mpf("1e-15") * float(drawn.sigma.mean())
        x = mpmath.mpf(drawn.regression.z[i])
        pairs = zip(drawn.mu[i], drawn.sigma, strict=True)
        scaled = [(mpmath.mpf(m), 1 / mpmath.mpf(s)) for m, s in pairs]
        f = [[r * mpmath.exp(-(((at - m) * r) ** 2) / 2) for m, r in scaled]
             for at in (x - h, x, x + h)]  # fmt: skip
        for kind, weights in log_weights.items():
            a = [mpmath.exp(v) for v in weights]
            low, mid, high = (mpmath.log(mpmath.fdot(a, densities)) for densities in f)
            theirs = float((high - low) / (2 * h)), float((high - 2 * mid + low) / h**2)
            np.testing.assert_allclose(jets[kind].grad[i], theirs[0], rtol=1e-10)
            np.testing.assert_allclose(jets[kind].lapl[i], theirs[1], rtol=1e-10)


def check_by_marginal_likelihood(regression: Regression, loo: Jet) -> None:
    """Derive the exact leave-one-out derivatives without leaving anything out.

    Those of log p(z_i given z_-i) are those of the log marginal likelihood, −ν/2 log RSS(z).
    """
    *_, rss, nu = regression.posterior()
    residual_maker = np.eye(regression.z.size) - regression.X @ np.linalg.pinv(regression.X)
    r = residual_maker @ regression.z
    np.testing.assert_allclose(loo.grad, -nu * r / rss, rtol=1e-8, atol=1e-12)
    lapl = -nu * np.diag(residual_maker) / rss + 2 * nu * (r / rss) ** 2
    np.testing.assert_allclose(loo.lapl, lapl, rtol=1e-8, atol=1e-12)


# ---- weights


def by_clarabel(P: Array, q: Array, L: Array, u: Array) -> Array:
    """Minimise ½ w'Pw + q'w − Σ_j u_j log(L_j·w) over the simplex, as a conic programme."""
    (m, K), size = L.shape, max(np.abs(P).max(initial=0), u.sum())
    # τ_j <= log of a linear form is (τ_j, 1, form) in the exponential cone.
    cone = np.zeros((m, 3, K + m))
    cone[np.arange(m), 0, K + np.arange(m)] = -1
    cone[:, 2, :K] = -L
    total = np.r_[np.ones(K), np.zeros(m)][None]
    sign = np.hstack([-np.eye(K), np.zeros((K, m))])
    A = sparse.csc_matrix(np.vstack([total, sign, cone.reshape(3 * m, K + m)]))
    b = np.concatenate([[1.0], np.zeros(K), np.tile([0.0, 1.0, 0.0], m)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(K)]
    cones += [clarabel.ExponentialConeT()] * m
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    quadratic = np.zeros((K + m, K + m))
    quadratic[:K, :K] = P / size
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(quadratic)), np.r_[q, -u] / size, A, b, cones, settings
    )
    result = solver.solve()
    assert "Solved" in str(result.status), result.status
    w = np.maximum(np.array(result.x[:K]), 0.0)
    return w / w.sum()


class Optimum(NamedTuple):
    """Weights on the simplex, and the objective there."""

    w: Array
    objective: float


def minimise(P: Array, q: Array, L: Array, u: Array, inside: bool = False) -> Optimum:
    """Solve the same problem to rounding: Newton's method on the face where Clarabel ends."""

    def f(w: Array) -> float:
        return float(w @ P @ w / 2 + q @ w - u @ np.log(L @ w))

    def slope(w: Array) -> Array:
        return P @ w + q - (u / (L @ w)) @ L

    theirs = by_clarabel(P, q, L, u)
    face = (theirs > 1e-6) | inside
    while True:
        w = on_face(P, slope, L, u, theirs, face)
        if not inside and (w[face] < 1e-9).any():
            face &= w >= 1e-9
            continue
        g = slope(w)
        # The objective is convex: nowhere is it lower than here by more than this.
        gap = g @ w - g.min()
        if gap < 1e-10 * max(1.0, np.abs(g) @ w):
            break
        assert not face[g.argmin()], gap
        face[g.argmin()] = True
    assert gap < 1e-9
    assert -1e-9 < f(np.maximum(theirs, 1e-300)) - f(w) < 1e-4
    return Optimum(w, f(w))


def on_face(
    P: Array, slope: Callable[[Array], Array], L: Array, u: Array, start: Array, face: Array
) -> Array:
    """Newton's method on one face of the simplex, which it may leave where there are no logs."""
    w = np.where(face, np.maximum(start, 1e-6), 0.0)
    w, k = w / w.sum(), int(face.sum())
    for _ in range(100):
        root = L[:, face] * (np.sqrt(u) / (L @ w))[:, None]
        system = np.ones((k + 1, k + 1))
        system[:k, :k] = P[np.ix_(face, face)] + root.T @ root
        system[k, k] = 0.0
        step = np.linalg.solve(system, np.r_[-slope(w)[face], 0.0])[:k]
        shrink = np.max(-step / w[face])
        length = min(1.0, 0.9 / shrink) if u.size and shrink > 0 else 1.0
        w[face] += length * step
        if np.abs(step).max() < 1e-15:
            break
    return w


def stacking(logp: Array) -> dict[str, Any]:
    """Maximise Σ_i log Σ_k w_k p_ik."""
    K, top = logp.shape[1], logp.max(axis=1)
    densities = np.exp(logp - top[:, None])
    best = minimise(np.zeros((K, K)), np.zeros(K), densities, np.ones(len(logp)))
    return {"weights": best.w, "log_score": top.sum() - best.objective}


def locking(grad: Array, lapl: Array, sd: float) -> dict[str, Any]:
    """Minimise the Hyvärinen score of the log-linear pool."""
    K = grad.shape[1]

    def solved(unit: float, alpha: float) -> dict[str, Any]:
        P, q = 2 * unit**2 * grad.T @ grad, 2 * unit**2 * lapl.sum(axis=0)
        L, u = (np.eye(K), np.full(K, alpha)) if alpha else (np.empty((0, K)), np.empty(0))
        best = minimise(P, q, L, u, inside=alpha > 0)
        return {"weights": best.w, "objective": best.objective}

    return {
        "raw": solved(1.0, PRIOR),
        "standardised": solved(sd, PRIOR),
        "standardised_no_prior": solved(sd, 0.0),
    }


# ---- normalised densities


def on_grid(regression: Regression, scale: str, grid: Array) -> tuple[Array, Array]:
    """Where the regression's response is on the grid, and the log of the Jacobian."""
    if scale == regression.response:
        return grid, np.zeros_like(grid)
    return np.exp(grid), grid  # of log y, for a regression of y


def exact_log_norm(
    predictions: list[tuple[Regression, Student]],
    weights: Array,
    scale: str,
    width: float,
    nodes: int,
) -> Array:
    """Log normaliser of the locked exact leave-one-out predictions, for each observation."""
    own = [p for regression, p in predictions if regression.response == scale]
    low = np.min([p.loc - width * p.spread for p in own], axis=0)
    high = np.max([p.loc + width * p.spread for p in own], axis=0)
    grid = np.linspace(low, high, nodes, axis=1)
    logq = np.zeros_like(grid)
    for (regression, p), w in zip(predictions, weights, strict=True):
        z, jacobian = on_grid(regression, scale, grid)
        logq += w * (stats.t.logpdf(z, p.nu, p.loc[:, None], p.spread[:, None]) + jacobian)
    return logsumexp(logq, axis=1) + np.log(grid[:, 1] - grid[:, 0])


def drawn_log_norm(
    models: list[Drawn], weights: Array, scale: str, i: int, loo: bool, width: float, nodes: int
) -> float:
    """Log normaliser of the locked predictions of one observation, averaged over the draws."""
    own = [model for model in models if model.regression.response == scale]
    low = min((model.mu[i] - width * model.sigma).min() for model in own)
    high = max((model.mu[i] + width * model.sigma).max() for model in own)
    grid = np.linspace(low, high, nodes)
    logq = np.zeros(nodes)
    for model, w in zip(models, weights, strict=True):
        z, jacobian = on_grid(model.regression, scale, grid)
        log_share = model.log_smoothed[i] if loo else np.zeros(model.sigma.size)
        log_share = log_share - logsumexp(log_share)
        for part in np.array_split(np.arange(nodes), max(1, nodes // 200)):
            logf = stats.norm.logpdf(z[part, None], model.mu[i], model.sigma)
            logq[part] += w * (logsumexp(logf + log_share, axis=1) + jacobian[part])
    return float(logsumexp(logq) + np.log(grid[1] - grid[0]))


def steady(coarse: Array | float, fine: Array | float) -> Array:
    """Return the finer of two answers that must be the same."""
    np.testing.assert_allclose(coarse, fine, atol=1e-10)
    return np.asarray(fine)


# ---- all of it


def answers(name: str, family: Family) -> dict[str, Any]:
    """Everything about one family."""
    draws = family.draws()
    drawn = {k: Drawn.of(regression, draws[k]) for k, regression in family.regressions.items()}
    jets = {k: model.jets() for k, model in drawn.items()}
    worst = {int(model.pareto_k.argmax()) for model in drawn.values()}
    observations = sorted({*np.linspace(0, family.y.size - 1, 9).astype(int).tolist(), *worst})
    for k, model in drawn.items():
        check_by_differences(model, jets[k], int(model.pareto_k.argmax()))
        check_by_marginal_likelihood(model.regression, jets[k]["exact_loo"])
    pareto_k = np.column_stack([model.pareto_k for model in drawn.values()])
    scales, pointwise = {}, {"pareto_k": pareto_k[observations]}
    for scale in family.scales:
        here = {
            k: {kind: jet.on(scale, family.regressions[k].response, family.y)
                for kind, jet in by_kind.items()}
            for k, by_kind in jets.items()
        }  # fmt: skip
        scales[scale] = on_scale(SETS[name], drawn, here, scale, family.y)
        for kind in ("loo", "in_sample", "loo_psis_weighted"):
            for part in Jet._fields:
                columns = [getattr(here[k][kind], part)[observations] for k in drawn]
                pointwise[f"{scale}__{kind}__{part}"] = np.column_stack(columns)
    scale = DENSITY_SCALE[name]
    return {
        "family": name,
        "n": family.y.size,
        "order": list(drawn),
        "duplicates": family.duplicates,
        "models": {
            k: {
                "predictor": regression.predictor,
                "transform_of_y": {"y": "identity", "logy": "log"}[regression.response],
                "prior": f"flat in the coefficients, sigma^-{regression.power}",
                "first_draw": draws[k][0, 0],
                "last_draw": draws[k][-1, -1],
            }
            for k, regression in family.regressions.items()
        },
        "scales": scales,
        "normalised_loo_log_score": {
            subset: normalised_scores(family, jets, scales, scale, subset)
            for subset in EXACTLY[name]
        },
        "locked_densities": {
            subset: locked_densities(
                drawn, jets, family.y, scales[scale]["sets"][subset], scale, observations
            )
            for subset in FROM_DRAWS[name]
        },
        "observations": observations,
        "pointwise": pointwise,
    }


def on_scale(
    sets: dict[str, list[str]],
    drawn: dict[str, Drawn],
    jets: dict[str, dict[str, Jet]],
    scale: str,
    y: Array,
) -> dict[str, Any]:
    """Scores of the models and weights of the subsets, from jets on this scale."""
    sd = float(np.std(y if scale == "y" else np.log(y), ddof=1))

    def stacked(models: list[str], kind: str, part: str) -> Array:
        return np.column_stack([getattr(jets[k][kind], part) for k in models])

    subsets = {}
    for subset, models in sets.items():
        subsets[subset] = {
            "models": models,
            "stacking": {
                kind: stacking(stacked(models, kind, "logp"))
                for kind in ("loo", "in_sample", "exact_loo", "exact_in_sample")
            },
            "locking": {
                kind: locking(stacked(models, kind, "grad"), stacked(models, kind, "lapl"), sd)
                for kind in ("loo", "in_sample", "exact_loo")
            },
        }
    per_model = {k: scores_of(drawn[k], jets[k], scale, y) for k in drawn}
    return {"sd_used_for_standardising": sd, "per_model": per_model, "sets": subsets}


def scores_of(model: Drawn, jets: dict[str, Jet], scale: str, y: Array) -> dict[str, float]:
    """Scores of one model; Monte Carlo errors by a jackknife over chains."""
    response = model.regression.response
    parts = [model.loo_without_chain(c).on(scale, response, y).hyvarinen() for c in range(N_CHAINS)]
    jackknife = np.sqrt((N_CHAINS - 1) * np.var(parts))
    return {
        "elpd_loo_psis": jets["loo"].logp.sum(),
        "lppd_in_sample": jets["in_sample"].logp.sum(),
        "pareto_k_max": model.pareto_k.max(),
        "hyv_loo": jets["loo"].hyvarinen(),
        "hyv_loo_mcse": jackknife,
        "hyv_in_sample": jets["in_sample"].hyvarinen(),
        "exact_elpd_loo": jets["exact_loo"].logp.sum(),
        "exact_lppd_in_sample": jets["exact_in_sample"].logp.sum(),
        "exact_hyv_loo": jets["exact_loo"].hyvarinen(),
        "exact_hyv_in_sample": jets["exact_in_sample"].hyvarinen(),
    }


def normalised_scores(
    family: Family,
    jets: dict[str, dict[str, Jet]],
    scales: dict[str, Any],
    scale: str,
    subset: str,
) -> dict[str, Any]:
    """Sum over all observations of the log density of the locked exact predictions."""
    models = next(iter(scales.values()))["sets"][subset]["models"]
    regressions = [family.regressions[k] for k in models]
    predictions = [(regression, regression.exact("loo")) for regression in regressions]
    logp = densities({k: jets[k]["exact_loo"] for k in models}, regressions, scale, family.y)
    scores = {}
    for fitted_on, found in scales.items():
        weights = found["sets"][subset]["locking"]["exact_loo"]["standardised"]["weights"]
        log_norm = steady(
            exact_log_norm(predictions, weights, scale, 20.0, 2001),
            exact_log_norm(predictions, weights, scale, 30.0, 5001),
        )
        key = f"locking_w_from_{fitted_on}_exact_loo_standardised"
        scores[key] = np.sum(logp @ weights - log_norm)
    return {"density_scale": scale, "scores": scores}


def locked_densities(
    drawn: dict[str, Drawn],
    jets: dict[str, dict[str, Jet]],
    y: Array,
    found: dict[str, Any],
    scale: str,
    observations: list[int],
) -> dict[str, Any]:
    """Log density of the locked draws at some observations, and the log of its normaliser."""
    weights = found["locking"]["loo"]["standardised"]["weights"]
    models = [drawn[k] for k in found["models"]]
    regressions = [model.regression for model in models]
    result: dict[str, Any] = {
        "density_scale": scale,
        "models": found["models"],
        "weights": weights,
    }
    for kind in ("loo", "in_sample"):
        logp = densities({k: jets[k][kind] for k in found["models"]}, regressions, scale, y)
        log_norm = np.array([
            steady(
                drawn_log_norm(models, weights, scale, i, kind == "loo", 10.0, 151),
                drawn_log_norm(models, weights, scale, i, kind == "loo", 14.0, 401),
            )
            for i in observations
        ])  # fmt: skip
        result[kind] = {"logp": (logp @ weights)[observations] - log_norm, "log_norm": log_norm}
    return result


def densities(jets: dict[str, Jet], regressions: list[Regression], scale: str, y: Array) -> Array:
    """Log densities of the observations on a scale, one column for each model."""
    pairs = zip(jets.values(), regressions, strict=True)
    return np.column_stack([jet.on(scale, r.response, y).logp for jet, r in pairs])


def plain(value: Any) -> Any:
    """Arrays as lists, numbers with thirteen digits."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, str | int):
        return value
    if isinstance(value, Iterable) and not (isinstance(value, np.ndarray) and value.ndim == 0):
        return [plain(entry) for entry in value]
    return int(value) if isinstance(value, np.integer) else float(f"{float(value):.13g}")


def main() -> None:
    """Write the answers for all families."""
    libraries = ("numpy", "scipy", "arviz-stats", "clarabel", "mpmath")
    made_by = ", ".join(f"{library} {version(library)}" for library in libraries)
    families = {name: answers(name, make()) for name, make in FAMILIES.items()}
    assert "lockquack" not in sys.modules
    text = json.dumps(plain({"made_by": made_by, "families": families}), indent=1)
    # A list of numbers on one line.
    text = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found.group().split()), text)
    TARGET.write_text(text + "\n")


if __name__ == "__main__":
    main()
