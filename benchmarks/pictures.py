"""The picture of the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

COLOURS = {
    "lockquack, lock": "#0072b2",
    "lockquack, stack": "#009e73",
    "arviz-stats": "#d55e00",
    "bayesblend": "#cc79a7",
    "R loo": "#7f7f7f",
}
#: Nats below the optimum that still count as the answer.
CLOSE = 0.01


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw contests, passes and growth side by side."""
    figure = plt.figure(figsize=(10, 11), layout="constrained")
    axes = figure.subplot_mosaic([["draws", "elpds"], ["passes", "growth"], ["workers", "key"]])
    for name, draw_part in (
        ("draws", _draw_draws),
        ("elpds", _draw_elpds),
        ("passes", _draw_passes),
        ("growth", _draw_growth),
        ("workers", _draw_workers),
    ):
        draw_part(axes[name], results[name])
    axes["key"].legend(*axes["workers"].get_legend_handles_labels(), frameon=False, loc="center")
    axes["key"].axis("off")
    for axis in axes.values():
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_draws(axis: Any, rows: list[dict[str, Any]]) -> None:
    for who, colour in COLOURS.items():
        mine = [row for row in rows if row["who"] == who and "seconds" in row]
        if mine:
            sizes, seconds = [row["n"] for row in mine], [row["seconds"] for row in mine]
            axis.loglog(sizes, seconds, "o-", color=colour, label=who)
    axis.set(
        title="From draws to weights, K = 4, S = 4,000", xlabel="observations", ylabel="seconds"
    )
    axis.legend(frameon=False, fontsize=9)


def _draw_elpds(axis: Any, rows: list[dict[str, Any]]) -> None:
    sizes = list(dict.fromkeys((row["K"], row["n"]) for row in rows))
    for who, colour in COLOURS.items():
        for row in rows:
            if row["who"] == who and "seconds" in row:
                close = row["below"] < CLOSE
                axis.semilogy(
                    sizes.index((row["K"], row["n"])),
                    row["seconds"],
                    "o",
                    color=colour,
                    fillstyle="full" if close else "none",
                    markersize=8,
                )
    axis.set_xticks(range(len(sizes)), [f"{K} ×\n{n:,}" for K, n in sizes], fontsize=9)
    axis.set_xlim(-0.5, len(sizes) - 0.5)
    axis.set(
        title="From log densities to stacking weights",
        xlabel=f"models × observations (hollow: {CLOSE} nats below)",
        ylabel="seconds",
    )


def _draw_passes(axis: Any, rows: list[dict[str, Any]]) -> None:
    shown = [row for row in rows if row["ratio"] is not None]
    labels = [
        f"{row['work']},\n{row['threads']} thread{'s' * (row['threads'] > 1)}" for row in shown
    ]
    bars = axis.barh(
        labels[::-1], [row["ratio"] for row in shown[::-1]], color="#0072b2", height=0.6
    )
    axis.bar_label(bars, fmt="%.1f", padding=3)
    axis.axvline(1.0, color="#7f7f7f", linewidth=1)
    axis.set(
        title="The pass over draws", xlabel="times np.sum (leave-one-out), plain numpy (in-sample)"
    )


def _draw_growth(axis: Any, rows: list[dict[str, Any]]) -> None:
    for row, colour in zip(rows, ("#0072b2", "#009e73", "#d55e00"), strict=True):
        factor = [place / row["places"][0] for place in row["places"]]
        ratio = [second / row["seconds"][0] for second in row["seconds"]]
        axis.loglog(
            factor,
            ratio,
            "o-",
            color=colour,
            label=f"{row['axis']}: exponent {row['exponent']:.2f}",
        )
    axis.plot([1, 16], [1, 16], color="#7f7f7f", linewidth=1, linestyle="--")
    axis.set(
        title="Growth of the time of the passes",
        xlabel="size, times the smallest",
        ylabel="time, times the smallest",
    )
    axis.legend(frameon=False, fontsize=9)


def _draw_workers(axis: Any, rows: list[dict[str, Any]]) -> None:
    works = list(dict.fromkeys(row["work"] for row in rows))
    for row in rows:
        axis.plot(
            row["places"],
            [second / row["seconds"][0] for second in row["seconds"]],
            "o-" if row["by"] == "workers" else "s--",
            color=("#7f7f7f", "#0072b2", "#009e73", "#d55e00")[works.index(row["work"])],
            label=f"{row['work']}, {row['by']}: exponent {row['exponent']:.2f}",
        )
    places = rows[0]["places"]
    axis.plot(places, [1 / place for place in places], color="#7f7f7f", linewidth=1, linestyle=":")
    axis.set_xticks(places)
    axis.set(
        title="Threads, and workers of a cluster",
        xlabel="how many (dotted: twice as many take half the time)",
        ylabel="time, times that of one",
        ylim=(0.0, None),
    )
