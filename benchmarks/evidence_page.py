"""From the scores of benchmarks/heldout.py to docs/evidence.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from heldout_data import ENTRIES, MODELS, Entry
from numpy.typing import NDArray

Array = NDArray[np.float64]
TEMPLATE = Path(__file__).parent / "evidence.md"
REFERENCE = "stack"
BEST = "best model in hindsight"
LOG, CRPS, COVERED = 0, 1, 2
#: Methods whose difference to stacking is shown for every data set.
SHOWN = ("lock", "lock, plain H", "lock by log", "quack", "select", "equal")


@dataclass(frozen=True)
class DataSet:
    """Scores at each observation, averaged over repeats: method → (3, n)."""

    entry: Entry
    scores: dict[str, Array]
    repeats: int
    seconds: float

    @property
    def n(self) -> int:
        """How many observations there are."""
        return self.scores[REFERENCE].shape[1]

    @property
    def best(self) -> str:
        """The model that turned out best by the log score of all test parts."""
        models = [name for name in self.scores if name.startswith("model ")]
        return max(models, key=lambda name: self.scores[name][LOG].mean())

    def of(self, method: str) -> Array | None:
        """Scores of a method, if it could be used."""
        return self.scores.get(self.best if method == BEST else method)

    def ahead(self, method: str, other: str = REFERENCE) -> tuple[float, float] | None:
        """Mean difference of log scores to another method, and its paired standard error."""
        own, theirs = self.of(method), self.of(other)
        if own is None or theirs is None:
            return None
        apart = own[LOG] - theirs[LOG]
        return float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(apart.size))


#: Between a number and its error: they stay on one line.
PLUS_MINUS = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
OF = "\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}"


def collect(results: dict[str, Any]) -> list[DataSet]:
    """Put the repeats of each data set together."""
    found = []
    for entry in ENTRIES:
        runs = [run for key, run in results.items() if key.rpartition(" ")[0] == entry.name]
        if not runs:
            continue
        names = [name for name in runs[0]["scores"] if all(name in run["scores"] for run in runs)]
        scores = {name: np.mean([run["scores"][name] for run in runs], axis=0) for name in names}
        seconds = sum(run["seconds"] for run in runs)
        found.append(DataSet(entry, scores, len(runs), seconds))
    return found


def over_data_sets(values: Sequence[float], digits: int = 3, sign: str = "+") -> str:
    """Write a mean over data sets and its standard error."""
    if not values:
        return ""
    mean = _number(float(np.mean(values)), digits, sign)
    if len(values) < 2:
        return mean
    return f"{mean}{PLUS_MINUS}{np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"


def summary(sets: Sequence[DataSet], methods: Iterable[str]) -> str:
    """Compare every method with stacking and with the best model, over all data sets."""
    head = ["method", "data sets", "log score", "median", "ahead", "clearly ahead"]
    head += ["clearly behind", "CRPS, %", "coverage, %", "log score − best model's"]
    return table(head, [_summary_row(sets, method) for method in methods])


def _summary_row(sets: Sequence[DataSet], method: str) -> list[Any]:
    able = [each for each in sets if each.of(method) is not None]
    apart = [pair for each in able if (pair := each.ahead(method)) is not None]
    means = [mean for mean, _ in apart]
    clearly = [sum(s * mean > 2 * se > 0 for mean, se in apart) for s in (1, -1)]
    to_best = [pair[0] for each in able if (pair := each.ahead(method, BEST)) is not None]
    beside: list[Any] = ["", "", "", "", "", ""]
    if method != REFERENCE:
        median, crps = float(np.median(means)), [_crps_ratio(each, method) for each in able]
        beside = [over_data_sets(means), _number(median, 4), sum(mean > 0 for mean in means)]
        beside += [*clearly, over_data_sets(crps, 1)]
    covered = 100 * np.mean([_of(each, method)[COVERED].mean() for each in able])
    last = "" if method == BEST else over_data_sets(to_best)
    return [method, len(able), *beside, f"{covered:.1f}", last]


def by_kind(sets: Sequence[DataSet], methods: Iterable[str]) -> str:
    """Return the differences to stacking for each kind of outcome."""
    rows = []
    for method in methods:
        cells = []
        for kind in MODELS:
            apart = [e.ahead(method) for e in sets if e.entry.kind == kind]
            means = [pair[0] for pair in apart if pair is not None]
            ahead = f" ({sum(m > 0 for m in means)}{OF}{len(means)})" if means else ""
            cells.append(over_data_sets(means) + ahead)
        rows.append([method, *cells])
    numbers = [f"{kind} ({sum(e.entry.kind == kind for e in sets)})" for kind in MODELS]
    return table(["method", *numbers], rows)


def each_data_set(sets: Sequence[DataSet]) -> str:
    """Return the differences to stacking, with paired standard errors, of each data set."""
    rows = []
    for each in sets:
        best = each.best.removeprefix("model ")
        cells = [_pair(each.ahead(method)) for method in (BEST, *SHOWN)]
        rows.append([each.entry.name, each.entry.kind, each.n, best, *cells])
    return table(["data", "outcome", "n", "best model", "it alone", *SHOWN], rows)


def sources(sets: Sequence[DataSet]) -> str:
    """Say where each data set comes from, and what is regressed on what."""
    rows = [
        [
            each.entry.name,
            each.entry.wheel,
            f"`{each.entry.outcome}`",
            _names(each.entry.A),
            _names(each.entry.B),
        ]
        for each in sets
    ]
    return table(["data", "wheel", "outcome", "block A", "block B"], rows)


def model_list() -> str:
    """Return the models of each kind of outcome."""
    rows = [
        [kind, name, likelihood.title, " and ".join(blocks) or "nothing"]
        for kind, models in MODELS.items()
        for name, (likelihood, blocks) in models.items()
    ]
    return table(["outcome", "model", "errors", "covariates"], rows)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def write_page(results: dict[str, Any]) -> str:
    """Put everything into Markdown."""
    sets = collect(results)
    methods = _order(sets)
    others = [name for name in methods if name != REFERENCE]
    missing = {name: [e for e in sets if e.of(name) is None] for name in others}
    return TEMPLATE.read_text().format(
        count=len(sets),
        observations=f"{sum(each.n for each in sets):,}",
        repeats=_times(min(each.repeats for each in sets)),
        minutes=f"{sum(each.seconds for each in sets) / 60:.0f}",
        summary=summary(sets, methods),
        by_kind=by_kind(sets, others),
        each=each_data_set(sets),
        sources=sources(sets),
        models=model_list(),
        missing="; ".join(f"{name} on {len(those)}" for name, those in missing.items() if those),
        unfinished=_unfinished(sets),
        said={name: _said(sets, name) for name in others},
    )


def _unfinished(sets: Sequence[DataSet]) -> str:
    """Name the data sets that are on the list and have no results yet."""
    done = {each.entry.name for each in sets}
    left = [entry.name for entry in ENTRIES if entry.name not in done]
    return f"On the list, but not run yet: {', '.join(left)}.\n\n" if left else ""


def _said(sets: Sequence[DataSet], method: str) -> str:
    """Write the difference to stacking and how often it is positive, for use in a sentence."""
    apart = [pair[0] for each in sets if (pair := each.ahead(method)) is not None]
    return f"{over_data_sets(apart)}, ahead on {sum(m > 0 for m in apart)} of {len(apart)}"


def table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """Write a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _order(sets: Sequence[DataSet]) -> list[str]:
    """Methods by their mean difference to stacking, the best first."""
    names = {name: None for each in sets for name in each.scores if not name.startswith("model ")}

    def mean(name: str) -> float:
        return float(np.mean([pair[0] for e in sets if (pair := e.ahead(name)) is not None]))

    return sorted([*names, BEST], key=mean, reverse=True)


def _of(data: DataSet, method: str) -> Array:
    found = data.of(method)
    assert found is not None
    return found


def _crps_ratio(data: DataSet, method: str) -> float:
    return 100 * float(_of(data, method)[CRPS].mean() / _of(data, REFERENCE)[CRPS].mean() - 1)


def _pair(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{_number(pair[0], 3)}{PLUS_MINUS}{pair[1]:.3f}"


def _number(value: float, digits: int, sign: str = "+") -> str:
    return f"{value:{sign}.{digits}f}".replace("-", "−")


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)
