"""The experiments by name: what ``lockquack paper`` runs, writes and prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from lockquack.files.places import write_text, written_whole
from lockquack.paper import comparison, overfitting
from lockquack.paper.demo import combined_curves, component_curves, page
from lockquack.paper.methods import SEQUENTIAL, TITLES
from lockquack.paper.runner import Runner
from lockquack.paper.sampling import sample_scenarios

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Formats of figures. Without dates in them, the same numbers give the same file.
FORMATS: dict[str, dict[str, None]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}


@dataclass(frozen=True)
class Settings:
    """What to run and where to put it."""

    runner: Runner
    replications: int = 100
    formats: Sequence[str] = ("png",)

    def path(self, name: str) -> Path:
        """Return the path of a file; make its folder."""
        self.runner.folder.mkdir(parents=True, exist_ok=True)
        return self.runner.folder / name

    def write_table(self, table: pd.DataFrame, name: str) -> list[Path]:
        """Write a table as CSV and, if pyarrow is there, as Parquet; return the files."""
        paths = [self.path(f"{name}.csv")]
        with written_whole(paths[0]) as unfinished:
            table.to_csv(unfinished, index=False, float_format="%.10g")
        if find_spec("pyarrow") is not None:
            paths.append(self.path(f"{name}.parquet"))
            with written_whole(paths[1]) as unfinished:
                table.to_parquet(unfinished, index=False)
        return paths

    def write_figure(self, figure: Figure, name: str) -> list[Path]:
        """Write a figure in each format; return the files."""
        paths = {kind: self.path(f"{name}.{kind}") for kind in self.formats}
        for kind, path in paths.items():
            with written_whole(path) as unfinished:
                figure.savefig(unfinished, format=kind, dpi=110, metadata=FORMATS[kind])
        return list(paths.values())


@dataclass(frozen=True)
class Outputs:
    """What an experiment wrote, and its summary to print."""

    files: Sequence[Path]
    summary: str


def weights(settings: Settings) -> Outputs:
    """Run the comparison; weights of M1 by every method (figure 1)."""
    from lockquack.paper.figures import weights_figure

    table = _compared(settings)
    files = settings.write_table(table, "comparison")
    files += settings.write_figure(weights_figure(table), "weights")
    mean, draws = (_summary(table, table["w1"], route) for route in ("closed form", "draws"))
    head = f"Mean weight of M1 over {settings.replications} replications, leave-one-out"
    foot = f"Largest differences between the two: {_differences(table)}."
    return Outputs(files, f"{head}\n{mean}\n\nThe same from posterior draws\n{draws}\n{foot}")


def scores(settings: Settings) -> Outputs:
    """Run the comparison; scores on new data by every method (figure 2)."""
    from lockquack.paper.figures import scores_figure

    table = _compared(settings)
    files = settings.write_table(table, "comparison")
    files += settings.write_figure(scores_figure(table), "scores")
    parts = []
    for column, label in (("log_score", "log score"), ("hyvarinen", "Hyvärinen score, −H")):
        behind = table[column] - table[f"{column}_truth"]
        head = f"Mean {label} of {comparison.N_TEST} new points, minus the truth's"
        parts.append(f"{head}\n{_summary(table, behind, 'closed form')}")
    return Outputs(files, "\n\n".join(parts))


def sampling(settings: Settings) -> Outputs:
    """Draw from the locked prediction (figure 3)."""
    from lockquack.paper.figures import sampling_figure

    sampled = sample_scenarios(settings.runner.seed_of("sampling", 0))
    table = pd.DataFrame([each.row() for each in sampled])
    draws = [
        pd.DataFrame({"scenario": each.scenario.number, "kind": kind, "y": values})
        for each in sampled
        for kind, values in (("importance", each.importance), ("exact", each.exact))
    ]
    files = settings.write_table(table, "sampling")
    files += settings.write_table(pd.concat(draws), "sampling-draws")
    files += settings.write_figure(sampling_figure(sampled), "sampling")
    return Outputs(
        files, f"Draws from the locked prediction\n{table.round(4).to_string(index=False)}"
    )


def overfit(settings: Settings) -> Outputs:
    """Score regressions of growing size in-sample and leave-one-out (figure 4)."""
    from lockquack.paper.figures import overfitting_figure

    table = settings.runner.run("overfitting", overfitting.replicate, settings.replications)
    files = settings.write_table(table, "overfitting")
    files += settings.write_figure(overfitting_figure(table), "overfitting")
    shown = table[table["p"].isin([1, 5, 10, 20, 50, 80, 90, 95, 98, 100])]
    middle = shown.drop(columns="replication").groupby("p").median()
    head = f"Median over {settings.replications} replications of mean scores, larger is better"
    return Outputs(files, f"{head}\n{middle.round(3).to_string()}")


def demo(settings: Settings) -> Outputs:
    """Combine two densities by every operator (figure 5, and a page to play with)."""
    from lockquack.paper.figures import demo_figure

    components, combined = component_curves(), combined_curves()
    table = pd.DataFrame([row for curve in (*components, *combined) for row in curve.rows()])
    files = settings.write_table(table, "demo")
    files += settings.write_figure(demo_figure(components, combined), "demo")
    files.append(settings.path("demo.html"))
    write_text(files[-1], page())
    lines = [f"  {curve.title:<28}{curve.normaliser:8.4f}" for curve in combined]
    return Outputs(files, "Normalisers of the combinations of two densities\n" + "\n".join(lines))


#: What can be asked for, in the order of the paper's figures.
EXPERIMENTS: dict[str, Callable[[Settings], Outputs]] = {
    "weights": weights,
    "scores": scores,
    "sampling": sampling,
    "overfitting": overfit,
    "demo": demo,
}


def _compared(settings: Settings) -> pd.DataFrame:
    return settings.runner.run("comparison", comparison.replicate, settings.replications)


def _summary(table: pd.DataFrame, values: pd.Series, route: str) -> str:
    """Write means by method and scenario, of weights fitted to leave-one-out predictions."""
    chosen = table.assign(value=values)
    scored = (table["scores"] == "loo") | (table["method"] == SEQUENTIAL)
    chosen = chosen[(table["route"] == route) & scored]
    names = [name for name in TITLES if (chosen["method"] == name).any()]
    mean = chosen.pivot_table(index="method", columns="scenario", values="value").loc[names]
    return str(mean.round(3).to_string())


def _differences(table: pd.DataFrame) -> str:
    """Write how far draws are from the closed form, without selection, which can jump."""
    chosen = table[~table["method"].str.startswith("select")]
    index = ["replication", "scenario", "scores", "method"]
    parts = []
    for column, label in (("w1", "weight"), ("log_score", "log score")):
        wide = chosen.pivot_table(index=index, columns="route", values=column).dropna()
        apart = (wide["closed form"] - wide["draws"]).abs()
        worst = [f"{value:.3f}" for value in apart.groupby("scenario").max()]
        parts.append(f"{label} {', '.join(worst)} in scenarios 1 to 4")
    return "; ".join(parts)
