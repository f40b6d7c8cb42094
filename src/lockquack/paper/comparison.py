"""One replication of the paper's comparison: fit all methods, score them on new data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lockquack.draws.blocks import Kind
from lockquack.fitting.densities import Densities
from lockquack.jets import Array, Jet, log_sum_exp, stack_jets
from lockquack.methods.gather import in_units
from lockquack.paper.methods import OURS, PAPER, SEQUENTIAL, FittedPool, fit
from lockquack.paper.scenarios import (
    SCENARIOS,
    Density,
    Draws,
    Scenario,
    log_marginal_likelihoods,
    loo_predictions,
    models_at,
    posterior_draws,
    predictions,
    sequential_predictions,
)
from lockquack.quadrature.nodes import Nodes
from lockquack.rules import Hyvarinen, LogScore
from lockquack.rules.base import Pooled
from lockquack.rules.wishes import INTEGRAL

N_TRAIN, N_TEST = 200, 50
Route = Literal["closed form", "draws"]
#: Spreads beyond the outermost locations that the line for normalisers reaches.
_REACH = 10.0
#: Distance of its points, in units of the smallest spread.
_STEP = 0.4
#: Methods whose search takes too long to repeat for every kind of scores.
_SLOW = ("hybrid", "hoelder")

Row = dict[str, Any]


@dataclass(frozen=True)
class HeldOut:
    """The models' predictions of new outcomes, and the truth's."""

    jets: Jet  # (K, n) and (K, n, 1), at the new outcomes
    line: Nodes  # (K, m, 1): the predictions are the same for all of them
    truth: Jet

    def scores(self, fitted: FittedPool) -> tuple[float, float]:
        """Total log score and total H score, larger is better, in the outcome's own units."""
        pool = fitted.operator.pool(self.jets, fitted.x)
        on_line = fitted.operator.pool_density(self.line.logp, fitted.x)
        log_norm = log_sum_exp(on_line + self.line.log_measure)
        return _totals(pool, log_norm)


def replicate(seed: np.random.SeedSequence) -> list[Row]:
    """Run all scenarios once; one row per scenario, route, kind of scores and method."""
    rows = []
    for scenario, child in zip(SCENARIOS, seed.spawn(len(SCENARIOS)), strict=True):
        rows += compare_methods(scenario, np.random.default_rng(child))
    return rows


def compare_methods(scenario: Scenario, rng: np.random.Generator) -> list[Row]:
    """Simulate data, fit every method in every way, and score it on new data."""
    spread = np.sqrt(scenario.variance)
    y = rng.normal(scenario.mean, spread, N_TRAIN)
    new = rng.normal(scenario.mean, spread, N_TEST)
    truth = scenario.truth.jet(new)
    log_ml = log_marginal_likelihoods(y)
    rows = []
    kinds: tuple[Kind, ...] = ("loo", "in-sample")
    test = closed_form_test(predictions(y), new, truth)
    for kind in kinds:
        densities = closed_form_densities(
            loo_predictions(y) if kind == "loo" else predictions(y), y
        )
        for name in (*PAPER, *OURS):
            if kind == "loo" or name not in _SLOW:
                found = fit(name, densities, log_ml)
                rows.append(_row(scenario, "closed form", kind, name, found, test))
    one_step_ahead = closed_form_densities(sequential_predictions(y), y)
    found = fit(SEQUENTIAL, one_step_ahead, log_ml)
    rows.append(_row(scenario, "closed form", "prequential", SEQUENTIAL, found, test))
    draws = posterior_draws(y, rng)
    test = draws_test(draws, new, truth)
    for kind in kinds:
        densities = draws_densities(draws, y, kind)
        for name in PAPER:
            found = fit(name, densities, log_ml)
            rows.append(_row(scenario, "draws", kind, name, found, test))
    return rows


def closed_form_densities(densities: Sequence[Density], y: Array) -> Densities:
    """Exact jets at the observations, in units of the outcome, and densities on a line."""
    unit = Hyvarinen().unit(y[:, None])
    jets = stack_jets([in_units(density.jet(y), unit) for density in densities])
    return Densities(jets, {INTEGRAL: (line_of(densities, y.size),)})


def closed_form_test(densities: Sequence[Density], new: Array, truth: Jet) -> HeldOut:
    """Exact predictions of new outcomes."""
    jets = stack_jets([density.jet(new) for density in densities])
    return HeldOut(jets, line_of(densities, 1, step=0.25 * _STEP), truth)


def line_of(densities: Sequence[Density], n: int, step: float = _STEP) -> Nodes:
    """Evaluate densities at equal distances.

    The trapezoidal rule over a line beyond which nothing is left converges faster than any
    power of the distance: here to rounding, for pools as smooth as their members.
    """
    grid = grid_of(densities, step)
    cells = np.zeros((grid.size, n))
    logp = np.stack([density.logp(grid[:, None]) + cells for density in densities])
    return Nodes(logp, np.full((grid.size, n), np.log(grid[1] - grid[0])))


def grid_of(densities: Sequence[Density], step: float = _STEP) -> Array:
    """Place points at equal distances, fine enough for the narrowest density, out to all tails."""
    low = min(each.location.min() - _REACH * each.spread.max() for each in densities)
    high = max(each.location.max() + _REACH * each.spread.max() for each in densities)
    distance = step * min(each.spread.min() for each in densities)
    return np.linspace(low, high, int(np.ceil((high - low) / distance)) + 1)


def draws_densities(draws: Draws, y: Array, kind: Kind) -> Densities:
    """Jets from posterior draws, leave-one-out densities by Pareto smoothing."""
    unit = Hyvarinen().unit(y[:, None])
    models = models_at(y, draws).values()
    jets = [model.passes.predict(kind, density=True).jet for model in models]
    return Densities(stack_jets([in_units(jet, unit) for jet in jets]))


def draws_test(draws: Draws, new: Array, truth: Jet) -> HeldOut:
    """Predictions of new outcomes by averages over draws."""
    models = models_at(new, draws).values()
    jets = stack_jets([model.passes.predict("held-out", density=True).jet for model in models])
    points = [
        Density.of("normal", **{k: np.ravel(v) for k, v in each.items()}) for each in draws.values()
    ]
    grid = grid_of(points)
    on_grid = [
        m.passes.predict("held-out", density=True).jet.logp for m in models_at(grid, draws).values()
    ]
    log_measure = np.full((grid.size, 1), np.log(grid[1] - grid[0]))
    return HeldOut(jets, Nodes(np.stack(on_grid)[..., None], log_measure), truth)


def _totals(jet: Jet, log_norm: Array) -> tuple[float, float]:
    pooled = Pooled(jet, {INTEGRAL: log_norm})
    return float(LogScore().score(pooled).sum()), float(Hyvarinen().score(pooled).sum())


def _row(
    scenario: Scenario, route: Route, kind: str, name: str, found: FittedPool, test: HeldOut
) -> Row:
    log_score, hyvarinen = test.scores(found)
    log_truth, hyvarinen_truth = _totals(test.truth, np.zeros(1))
    return {
        "scenario": scenario.number,
        "route": route,
        "scores": kind,
        "method": name,
        "w1": float(found.weights[0]),
        "log_score": log_score,
        "log_score_truth": log_truth,
        "hyvarinen": hyvarinen,
        "hyvarinen_truth": hyvarinen_truth,
        "phase": found.parameters.get("phase", np.nan),
        "power": found.parameters.get("power", np.nan),
        "mixture_exponent": found.parameters.get("mixture_exponent", np.nan),
        "converged": found.converged,
    }
