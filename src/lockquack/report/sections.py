"""The sections of a report, one function each."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lockquack import __version__
from lockquack.draws.diagnostics import NOISE_ERRORS
from lockquack.methods.comparison import Comparison
from lockquack.models.leaving_out import counted_by_way
from lockquack.plots import plot_densities, plot_pit
from lockquack.prediction.pictures import weight_of
from lockquack.remarks import Remark
from lockquack.report.comparing import FEW_MODELS, methods_side_by_side
from lockquack.report.contents import PROBABILITIES, Choice, Contents, Missing, best_model
from lockquack.report.figures import draw_inline
from lockquack.report.markup import (
    Column,
    Section,
    bullets,
    code,
    definitions,
    explanation,
    figure,
    numbers,
    paragraph,
    section,
    side_by_side,
    table,
    titled_note,
)
from lockquack.report.picker import picker
from lockquack.report.table import (
    other_parameters,
    score_name,
    settings,
    what_was_fitted,
    what_was_recalibrated,
)
from lockquack.totals import effective_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lockquack.combination.combination import Combination

_SE = "±\u00a0se"
#: Columns of the table of scores, and their headings.
_SCORES = {"score": "score", "score_se": _SE, "diff": "difference", "diff_se": _SE}
_SCORES |= {"mcse": "mcse", "elpd": "elpd", "elpd_se": _SE}
#: Level of the test of uniformity.
_LEVEL = 0.05
#: Observations in the table of influence.
_MOST_INFLUENTIAL = 6
_PACKAGES = ("numpy", "scipy", "xarray", "arviz-base", "arviz-stats", "arviz")


def overview(contents: Contents) -> Section:
    """Say the most important in a few sentences, beside the weights: what fits a screen."""
    said = f'<div class="short">{bullets(_in_short(contents))}</div>'
    return section("Overview", side_by_side(said, _picture_of_weights(contents.fit)))


def _in_short(contents: Contents) -> list[str]:
    """Summarise the report in a few sentences."""
    fit = contents.fit
    said = [_most_weight(fit), _gain(fit)]
    if isinstance(contents.comparison, Comparison):
        said.append(contents.comparison.advice)
    if not isinstance(contents.calibration, Missing):
        own = contents.calibration.coverage.iloc[0]
        said.append(
            f"Intervals of 90 % probability contain {100 * own['0.9']:.1f} % of the outcomes; "
            f"{_calibration_verdict(own)}."
        )
    count = len(contents.remarks)
    said.append(
        f"{count} remark{'s' if count > 1 else ''}: see Diagnostics."
        if count
        else "There is nothing to warn of."
    )
    return said


def _most_weight(fit: Combination) -> str:
    rows = fit.to_dataframe().iloc[1:].sort_values("weight", ascending=False)
    said = []
    for name, row in rows.head(2).iterrows():
        ends = ""
        if not np.isnan(row["weight_5%"]):
            ends = f" (90 % interval {row['weight_5%']:.2f} to {row['weight_95%']:.2f})"
        if fit.design is not None:
            ends = f" ({row['weight_min']:.2f} to {row['weight_max']:.2f})"
        said.append(f"{name}, {row['weight']:.2f}{ends}")
    if fit.design is not None:
        by = " and ".join(fit.design.names)
        return f"Most weight on average (and its range by {by}): " + "; then ".join(said) + "."
    return "Most weight: " + "; then ".join(said) + "."


def _gain(fit: Combination) -> str:
    best = best_model(fit)
    row = fit.to_dataframe().loc[best]
    gain, error = -row["diff"], row["diff_se"]
    size = f"{abs(gain):.1f}" if np.isnan(error) else f"{abs(gain):.1f} ± {error:.1f}"
    if gain == error == 0:
        return f"It predicts what its best model, {best}, predicts."
    if abs(gain) <= NOISE_ERRORS * error:
        said = f"differs by no more than noise ({size}) from"
    else:
        said = f"is {size} {'better' if gain > 0 else 'worse'} than"
    return (
        f"Its {fit.rule.label} score {said} that of the best model, {best}, on the observations "
        "to which the weights were fitted."
    )


def what_was_combined(contents: Contents) -> Section:
    """Models, observations, operator, rule, prior, units, and how well it was solved."""
    fit = contents.fit
    known = {
        "operator": (type(fit.operator).__doc__ or repr(fit.operator)).strip().splitlines()[0],
        "weights": what_was_fitted(fit),
        **settings(fit),
        **other_parameters(fit),
        "solution": fit.fitter.certificate(fit.solution),
    }
    if fit.recalibration is not None:
        known["recalibration"] = what_was_recalibrated(fit)[0].partition(": ")[2]
    if fit.models is None:
        models = paragraph(
            "The combination was read from a file; its models are known by name only: "
            f"{', '.join(fit.names)}.",
            soft=True,
        )
    else:
        each = list(fit.models.values())
        where = {True: "any outcome", False: "observed outcomes only"}
        columns: list[Column] = [
            ("likelihood", [model.likelihood.description for model in each]),
            ("chains", [model.n_chains for model in each]),
            ("draws each", [model.n_draws for model in each]),
            ("known at", [where[model.source.can.evaluate] for model in each]),
        ]
        if fit.scores != "in-sample":
            ways = [counted_by_way(model.source.each_left_out_by) for model in each]
            columns.append(("left out by", ways))
        models = table("model", fit.models, columns)
    return section("What was combined", definitions(known), models)


def weights(fit: Combination) -> Section:
    """Weights with uncertainty."""
    rows = fit.to_dataframe().iloc[1:]
    ends = zip(rows["weight_5%"], rows["weight_95%"], strict=True)
    columns = [
        numbers("weight", rows["weight"], 3),
        numbers("standard error", rows["weight_se"], 3),
        ("90 % interval", ["" if np.isnan(a) else f"{a:.3f} to {b:.3f}" for a, b in ends]),
    ]
    return section(
        "Weights",
        paragraph(
            "A weight is the share of a model in the pool that predicts best. It is not the "
            "probability that the model is true: a wrong model has weight if it corrects another."
        ),
        table("model", rows.index, columns),
        *_varying_weights(fit),
    )


def _picture_of_weights(fit: Combination) -> str:
    """Draw the weights with their intervals."""
    drawn = draw_inline(
        "weights",
        lambda axes: fit.plot_weights(ax=axes[0]),
        0.7 + (0.38 if "phases" in fit.parameters else 0.26) * len(fit.names),
    )
    origin = fit.fitter.intervals_from
    return figure(
        drawn, f"Weights, with intervals of 90 % (thin) and of half as much (thick) from {origin}."
    )


def _varying_weights(fit: Combination) -> list[str]:
    """Weights over each covariate that they depend on, if they do."""
    if fit.design is None:
        return []
    parts = [paragraph(fit.what_varies)]
    for place, name in enumerate(fit.design.names):
        origin = fit.fitter.intervals_from
        caption = f"Weights by {name}, with intervals of 90 % from {origin}."
        drawn = draw_inline(f"weights-by-{place}", _drawing(fit, name), 2.8)
        parts.append(figure(drawn, caption))
    return parts


def _drawing(fit: Combination, covariate: str) -> Callable[[list[Axes]], object]:
    return lambda axes: fit.plot_weights_at(covariate, ax=axes[0])


def influence(contents: Contents) -> Section:
    """Draw the weights without each observation, and name those that matter most."""
    found = contents.influence
    if isinstance(found, Missing):
        return section("Influence", paragraph(f"Not known here. {found.why}", soft=True))
    rows = found.to_dataframe(_MOST_INFLUENTIAL)
    weights = [str(column) for column in rows if str(column).startswith("weight[")]
    columns = [numbers("moved", rows["moved"], 3)]
    if len(weights) <= FEW_MODELS:
        columns += [numbers(name.removeprefix("weight")[1:-1], rows[name], 3) for name in weights]
    columns.append(numbers("score difference", rows["difference"], 2))
    drawn = draw_inline("influence", lambda axes: found.plot(ax=axes[0]), 2.7)
    caption = "Change of each weight when one observation is left out and the weights fitted again."
    return section(
        "Influence of single observations",
        paragraph(
            "Weights without one observation, those first that move most weight to other models; "
            f"and what the observation adds to the score of the combination minus that of "
            f"{found.against}, scored by weights that were fitted without it."
        ),
        side_by_side(figure(drawn, caption), table("without", rows.index, columns)),
        *map(paragraph, found.lines),
    )


def scores(contents: Contents) -> Section:
    """Scores of the combination and its models, and of all methods side by side."""
    fit = contents.fit
    rows = fit.to_dataframe()
    columns = [
        numbers(title, rows[name], 2 if name == "mcse" else 1)
        for name, title in _SCORES.items()
        if name in rows
    ]
    beside = " elpd: the log score of the same predictions." if "elpd" in rows else ""
    best = best_model(fit)
    drawn = draw_inline("scores", lambda axes: fit.plot_scores(best, ax=axes[0]), 2.7)
    caption = (
        f"Combination minus {best}, the best model, at each observation. Below zero the model is "
        "better; the observations at which the combination loses most are labelled."
    )
    return section(
        "Scores",
        paragraph(
            f"Totals of {score_name(fit)}. Difference: to the combination, with its paired "
            "standard error; mcse: the part of the error that comes from the finite number of "
            "draws. The combination is scored on the observations to which its weights were "
            f"fitted, which flatters it a little.{beside}"
        ),
        side_by_side(table("model", rows.index, columns), figure(drawn, caption)),
        *methods_side_by_side(contents.comparison),
    )


def calibration(contents: Contents) -> Section:
    """Calibration of the models, before, and of the combination, after."""
    title, found = "Calibration, before and after", contents.calibration
    if isinstance(found, Missing):
        return section(title, paragraph(f"Calibration is not known here. {found.why}", soft=True))
    rows = found.coverage
    columns: list[Column] = [
        *(numbers(f"{100 * p:g}\u00a0%", 100 * rows[f"{p:g}"], 1) for p in PROBABILITIES),
        ("mean width", [f"{width:.4g}" for width in rows[f"width_{PROBABILITIES[-1]:g}"]]),
        ("p", ["< 0.001" if p < 0.001 else f"{p:.3f}" for p in rows["uniformity_p"]]),
        ("judged", [_calibration_verdict(row) for _, row in rows.iterrows()]),
    ]
    shown = table("prediction", rows.index, columns)
    drawn = ""
    if found.combinations:
        fit = contents.fit
        drawn = figure(
            draw_inline(
                "pit",
                lambda axes: plot_pit(
                    found.models,
                    found.combinations,
                    weights=weight_of(fit.predict()),
                    case_weights=fit.observations.weights,
                    ax=axes[0],
                ),
                3.2,
            ),
            "Distribution of the probabilities F(y) of the outcomes under their predictions, minus "
            "the uniform one. A line that leaves the band is not calibrated.",
        )
    observations = contents.fit.observations
    n = effective_number(observations.weights, observations.n)
    return section(
        title,
        paragraph(
            "Per cent of the outcomes inside intervals of 50 to 95 % probability, the mean width "
            f"of the latter, and the p-value of a test of calibration. Of {n:.0f} observations, "
            f"{100 * np.sqrt(0.09 / n):.1f} % is one standard error at 90 %. The models are what "
            "was there before; combinations are in brackets."
        ),
        drawn,
        shown,
    )


def _calibration_verdict(row: pd.Series) -> str:
    """Say in words whether intervals are calibrated."""
    if row["uniformity_p"] > _LEVEL:
        return "no sign of miscalibration"
    beyond = np.array([row[f"{p:g}"] - p for p in PROBABILITIES])
    if (beyond > 0).all():
        return "intervals too wide"
    if (beyond < 0).all():
        return "intervals too narrow"
    return "off in place or shape"


def predictions(contents: Contents) -> Section:
    """Draw densities of some observations."""
    panels = contents.densities
    if isinstance(panels, Missing):
        return section("Predictions", paragraph(f"No picture here. {panels.why}", soft=True))
    rows = -(-len(panels) // 2)
    fit = contents.fit
    drawn = draw_inline(
        "densities",
        lambda axes: plot_densities(
            panels,
            weights=weight_of(fit.predict()),
            xlabel=fit.observations.outcome,
            axes=_used(axes, len(panels)),
        ),
        0.8 + 1.5 * rows,
        rows,
        min(2, len(panels)),
    )
    how = "with the observation left out, " if fit.scores == "loo" else ""
    said = f"What models and combination predict, {how}and what was observed."
    still = f'<div class="still">{figure(drawn, said)}</div>'
    if isinstance(contents.choice, Missing):
        return section("Predictions", still)
    return section("Predictions", paragraph(said), _choose(fit, contents.choice), still)


def _choose(fit: Combination, among: Choice) -> str:
    """Let the reader choose an observation, with the weights that it has."""
    prediction, observations = fit.predict(), fit.observations
    weights = prediction.pool.weights.reshape(len(fit.names), -1)
    if weights.shape[1] > 1:
        weights = weights[:, list(among.positions)]
    each = np.broadcast_to(weights, (len(fit.names), len(among.panels)))
    overall = weight_of(prediction)
    return picker(among.panels, each, overall, observations.outcome, observations.n)


def _used(axes: list[Axes], count: int) -> list[Axes]:
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def diagnostics(contents: Contents) -> Section:
    """Remarks in plain words, with what to do about each."""
    parts = _remarks(contents.remarks) or [paragraph("There is nothing to warn of.")]
    if not isinstance(contents.pareto, Missing) and len(contents.pareto):
        rows = contents.pareto
        columns: list[Column] = [
            numbers("largest k̂", rows["largest"], 2),
            numbers("limit", rows["limit"], 2),
            ("observations above", list(rows["above"])),
            ("largest at", list(rows["worst"])),
        ]
        parts.append(
            paragraph(
                "Pareto k̂ tells whether log scores and densities that leave an observation out "
                "can be computed from draws that did not. Hyvärinen scores of the models, and of "
                "locking, do not depend on it."
            )
        )
        parts.append(table("model", rows.index, columns))
    return section("Diagnostics", *parts)


def _remarks(remarks: Sequence[Remark]) -> list[str]:
    """Explain each kind of remark once, below all that are of this kind."""
    kinds: dict[type[Remark], list[str]] = {}
    for each in remarks:
        kinds.setdefault(type(each), []).append(each.message)
    return [
        titled_note(
            kind.title,
            *map(paragraph, said),
            explanation("What it means:", kind.meaning, soft=True),
            explanation("What to do:", kind.remedy),
        )
        for kind, said in kinds.items()
    ]


def how_it_was_made(fit: Combination, command: str | None) -> Section:
    """Name the command and the versions."""
    versions = {"python": platform.python_version(), "lockquack": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return section(
        "How this was made",
        code(command) if command else "",
        definitions({"date": today, "random seed": str(fit.random_seed), **versions}),
    )
