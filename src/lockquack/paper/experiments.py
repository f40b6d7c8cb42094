"""The experiments by name: what ``lockquack paper`` runs, writes and prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lockquack.paper import comparison, overfitting
from lockquack.paper.demo import combined_curves, component_curves, write_page
from lockquack.paper.methods import OURS, PAPER
from lockquack.paper.runner import Runner, write_table
from lockquack.paper.sampling import sample_scenarios
from lockquack.paper.style import save


@dataclass(frozen=True)
class Order:
    """What to run and where to put it."""

    runner: Runner
    replications: int = 100
    formats: Sequence[str] = ("png",)

    @property
    def folder(self) -> Path:
        """Where tables and figures go."""
        return self.runner.folder


@dataclass(frozen=True)
class Report:
    """What an experiment wrote, and its summary to print."""

    files: Sequence[Path]
    summary: str


def weights(order: Order) -> Report:
    """Run the comparison; weights of M1 by every method (figure 1)."""
    from lockquack.paper.figures import weights_figure

    table = _compared(order)
    files = write_table(table, order.folder, "comparison")
    files += save(weights_figure(table), order.folder, "weights", order.formats)
    mean = _summary(table.assign(value=table["w1"]), "closed form", "loo")
    draws = _summary(table.assign(value=table["w1"]), "draws", "loo")
    head = f"Mean weight of M1 over {order.replications} replications, leave-one-out"
    foot = f"Largest differences between the two: {_differences(table)}."
    return Report(files, f"{head}\n{mean}\n\nThe same from posterior draws\n{draws}\n{foot}")


def scores(order: Order) -> Report:
    """Run the comparison; scores on new data by every method (figure 2)."""
    from lockquack.paper.figures import scores_figure

    table = _compared(order)
    files = write_table(table, order.folder, "comparison")
    files += save(scores_figure(table), order.folder, "scores", order.formats)
    parts = []
    for column, label in (("log_score", "log score"), ("hyvarinen", "Hyvärinen score, −H")):
        behind = table.assign(value=table[column] - table[f"{column}_truth"])
        head = f"Mean {label} of {comparison.N_TEST} new points, minus the truth's"
        parts.append(f"{head}\n{_summary(behind, 'closed form', 'loo')}")
    return Report(files, "\n\n".join(parts))


def sampling(order: Order) -> Report:
    """Draw from the locked prediction (figure 3)."""
    from lockquack.paper.figures import sampling_figure

    sampled = sample_scenarios(order.runner.seed_of("sampling", 0))
    table = pd.DataFrame([each.row() for each in sampled])
    draws = [
        pd.DataFrame({"scenario": each.scenario.number, "kind": kind, "y": values})
        for each in sampled
        for kind, values in (("importance", each.importance), ("exact", each.exact))
    ]
    files = write_table(table, order.folder, "sampling")
    files += write_table(pd.concat(draws), order.folder, "sampling-draws")
    files += save(sampling_figure(sampled), order.folder, "sampling", order.formats)
    return Report(
        files, f"Draws from the locked prediction\n{table.round(4).to_string(index=False)}"
    )


def overfit(order: Order) -> Report:
    """Score regressions of growing size in-sample and leave-one-out (figure 4)."""
    from lockquack.paper.figures import overfitting_figure

    table = order.runner.run("overfitting", overfitting.replicate, order.replications)
    files = write_table(table, order.folder, "overfitting")
    files += save(overfitting_figure(table), order.folder, "overfitting", order.formats)
    shown = table[table["p"].isin([1, 5, 10, 20, 50, 80, 90, 95, 98, 100])]
    middle = shown.drop(columns="replication").groupby("p").median()
    head = f"Median over {order.replications} replications of mean scores, larger is better"
    return Report(files, f"{head}\n{middle.round(3).to_string()}")


def demo(order: Order) -> Report:
    """Combine two densities by every operator (figure 5, and a page to play with)."""
    from lockquack.paper.figures import demo_figure

    components, combined = component_curves(), combined_curves()
    table = pd.DataFrame([row for curve in (*components, *combined) for row in curve.rows()])
    files = write_table(table, order.folder, "demo")
    files += save(demo_figure(components, combined), order.folder, "demo", order.formats)
    files.append(write_page(order.folder / "demo.html"))
    lines = [f"  {curve.title:<28}{curve.normaliser:8.4f}" for curve in combined]
    return Report(files, "Normalisers of the combinations of two densities\n" + "\n".join(lines))


#: What can be asked for, in the order of the paper's figures.
EXPERIMENTS: dict[str, Callable[[Order], Report]] = {
    "weights": weights,
    "scores": scores,
    "sampling": sampling,
    "overfitting": overfit,
    "demo": demo,
}


def _compared(order: Order) -> pd.DataFrame:
    return order.runner.run("comparison", comparison.replicate, order.replications)


def _summary(table: pd.DataFrame, route: str, kind: str) -> str:
    chosen = table[(table["route"] == route) & (table["scores"] == kind)]
    names = [name for name in (*PAPER, *OURS) if (chosen["method"] == name).any()]
    mean = chosen.pivot_table(index="method", columns="scenario", values="value").loc[names]
    return str(mean.round(3).to_string())


def _differences(table: pd.DataFrame) -> str:
    """Say how far draws are from the closed form, but for choices, which can tip over."""
    chosen = table[~table["method"].str.startswith("select")]
    index = ["replication", "scenario", "scores", "method"]
    parts = []
    for column, label in (("w1", "weight"), ("log_score", "log score")):
        wide = chosen.pivot_table(index=index, columns="route", values=column).dropna()
        apart = (wide["closed form"] - wide["draws"]).abs()
        worst = [f"{value:.3f}" for value in apart.groupby("scenario").max()]
        parts.append(f"{label} {', '.join(worst)} in scenarios 1 to 4")
    return "; ".join(parts)
