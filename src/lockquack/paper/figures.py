"""The paper's five figures, one function each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockquack.paper.demo import GRID, Curve
from lockquack.paper.methods import OURS, SEQUENTIAL, TITLES
from lockquack.paper.overfitting import INTERPOLATES
from lockquack.paper.sampling import Sampled
from lockquack.paper.scenarios import SCENARIOS
from lockquack.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, remove_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ORDER = tuple(TITLES)


def weights_figure(table: pd.DataFrame) -> Figure:
    """Figure 1: weight of M1 by every method, over replications."""
    chosen = _main_route(table)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, len(SCENARIOS), sharey=True)
    for axis, scenario in zip(axes, SCENARIOS, strict=True):
        part = chosen[chosen["scenario"] == scenario.number]
        _boxes(axis, [part.loc[part["method"] == name, "w1"].to_numpy() for name in _ORDER])
        axis.set_title(scenario.title, fontsize=10, loc="left")
        axis.set_xlim(-0.04, 1.04)
        axis.set_xticks([0, 0.5, 1])
    figure.supxlabel("weight of M1", fontsize=10)
    _legend(figure)
    return figure


def scores_figure(table: pd.DataFrame) -> Figure:
    """Figure 2: scores on new data, minus those of the truth, over replications."""
    chosen = _main_route(table)
    figure = Figure(figsize=(11, 7.6), layout="constrained")
    rows = figure.subplots(2, len(SCENARIOS), sharey=True, sharex=False)
    names = {"log_score": "log score", "hyvarinen": "−H"}
    for axes, (column, label) in zip(rows, names.items(), strict=True):
        for axis, scenario in zip(axes, SCENARIOS, strict=True):
            part = chosen[chosen["scenario"] == scenario.number]
            behind = part[column] - part[f"{column}_truth"]
            _boxes(axis, [behind[part["method"] == name].to_numpy() for name in _ORDER])
            axis.axvline(0.0, color=BLACK, lw=0.8, ls=":")
            axis.set_title(scenario.title, fontsize=10, loc="left")
            axis.set_xlabel(f"{label} − truth's", fontsize=9)
    _legend(figure)
    return figure


def _main_route(table: pd.DataFrame) -> pd.DataFrame:
    scored = (table["scores"] == "loo") | (table["method"] == SEQUENTIAL)
    return table[(table["route"] == "closed form") & scored]


def _legend(figure: Figure) -> None:
    """Explain colours and marks."""
    colours = {"the paper's other methods": SKY, "the paper's locking": GREEN, "ours": ORANGE}
    handles: list[Artist] = [
        Patch(facecolor=colour, edgecolor=BLACK, lw=0.7, label=label)
        for label, colour in colours.items()
    ]
    handles.append(Line2D([], [], marker="D", ls="", mfc="white", mec=BLACK, ms=4, label="mean"))
    handles.append(Line2D([], [], color=BLACK, lw=1.4, label="median, quartiles, 5 to 95 %"))
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False, fontsize=9)


def _boxes(axis: Axes, values: Sequence[np.ndarray]) -> None:
    places = np.arange(len(values))[::-1]
    drawn = axis.boxplot(
        list(values), positions=places, orientation="horizontal", whis=(5, 95), widths=0.62,
        showfliers=False, patch_artist=True, medianprops={"color": BLACK, "lw": 1.4},
    )  # fmt: skip
    colours = [GREEN if name == "lock" else ORANGE if name in OURS else SKY for name in _ORDER]
    for patch, colour in zip(drawn["boxes"], colours, strict=True):
        patch.set(facecolor=colour, edgecolor=BLACK, linewidth=0.7)
    for place, each in zip(places, values, strict=True):
        axis.plot(each.mean(), place, marker="D", ms=4, mfc="white", mec=BLACK, mew=0.9)
    axis.set_yticks(places, [TITLES[name] for name in _ORDER], fontsize=9)
    remove_frame(axis)


def sampling_figure(sampled: Sequence[Sampled]) -> Figure:
    """Figure 3: the locked prediction, its components, the truth, and both kinds of draws."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    for axis, each in zip(figure.subplots(2, 2).flat, sampled, strict=True):
        for k, component in enumerate(each.components):
            label = "M1 and M2" if k == 0 else None
            axis.plot(each.grid, np.exp(component.logp(each.grid)), color=GREY, lw=1.4, label=label)
        ends = np.quantile(each.exact, [0.0005, 0.9995])
        bins = np.linspace(ends[0], ends[1], 42).tolist()
        kinds = {"importance-sampled": (each.importance, SKY), "exact": (each.exact, ORANGE)}
        for label, (draws, colour) in kinds.items():
            axis.hist(draws, bins, density=True, histtype="step", color=colour, lw=1.3, label=label)
        axis.plot(each.grid, np.exp(each.locked), color=BLUE, lw=2, label="locked")
        truth = each.scenario.truth.logp(each.grid)
        axis.plot(each.grid, np.exp(truth), color=VERMILION, lw=1.8, ls="--", label="truth")
        middle, width = ends.mean(), np.ptp(ends)
        axis.set_xlim(middle - 0.75 * width, middle + 0.75 * width)
        row = each.row()
        axis.set_title(
            f"{each.scenario.title};  w₁ = {row['w1']:.2f}, acceptance {row['acceptance']:.2f}, "
            f"ESS {row['importance_ess'] / row['n_draws']:.2f} per draw",
            fontsize=9.5, loc="left",
        )  # fmt: skip
        axis.set_yticks([])
        axis.set_ylim(bottom=0)
        remove_frame(axis)
        axis.spines["left"].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


def overfitting_figure(table: pd.DataFrame) -> Figure:
    """Figure 4: in-sample and leave-one-out scores of ever larger regressions."""
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    panels = {
        "log": "log score",
        "hyvarinen": "Hyvärinen score (−H)",
        "step_3": "−H by the formula of the paper's step 3",
    }
    by_size = table[table["p"] < INTERPOLATES].groupby("p")
    for axis, (column, title) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for kind, colour in (("in_sample", BLACK), ("loo", VERMILION)):
            drawn = by_size[f"{column}_{kind}"]
            middle = drawn.median()
            axis.fill_between(
                middle.index,
                drawn.quantile(0.1),
                drawn.quantile(0.9),
                color=colour,
                alpha=0.15,
                lw=0,
            )
            label = {"in_sample": "in-sample", "loo": "leave-one-out"}[kind]
            axis.plot(middle.index, middle, color=colour, lw=1.8, label=label)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("number of covariates, p", fontsize=9)
        remove_frame(axis)
    for axis, ends in zip(figure.axes[1:], ((-0.6, 3.0), (-0.6, 5.0)), strict=True):
        axis.set_ylim(ends)
    figure.axes[0].set_ylabel("mean over n = 100 observations", fontsize=9)
    figure.axes[0].legend(frameon=False, fontsize=9, loc="lower left")
    return figure


def demo_figure(components: Sequence[Curve], combined: Sequence[Curve]) -> Figure:
    """Figure 5: two densities under every operator."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    axes = figure.subplots(3, 3, sharex=True, sharey=True)
    panels = [("two densities", None), *((curve.title, curve) for curve in combined)]
    for axis, (title, curve) in zip(axes.flat, panels, strict=True):
        strong = curve is None
        for part, colour in zip(components, (BLUE, ORANGE), strict=True):
            shade = colour if strong else GREY
            axis.plot(GRID, part.density, color=shade, lw=1.8 if strong else 0.9)
        if curve is not None:
            axis.fill_between(GRID, curve.density, color=GREEN, alpha=0.25, lw=0)
            axis.plot(GRID, curve.density, color=GREEN, lw=2)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlim(-5, 5)
        axis.set_yticks([])
        remove_frame(axis)
        axis.spines["left"].set_visible(False)
    axes[0, 0].set_ylim(bottom=0)
    return figure
