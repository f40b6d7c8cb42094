"""The table that compares methods."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lockquack.fitting.uncertainty import FEWEST_OBSERVATIONS, are_too_few
from lockquack.jets import Array
from lockquack.methods.bench import Bench, Row
from lockquack.methods.gather import unit_of
from lockquack.methods.verdicts import (
    FEW,
    SIMILAR,
    differences,
    error_if_enough,
    judge,
)
from lockquack.models.leaving_out import lines_about_left_out
from lockquack.rules import Rule
from lockquack.totals import effective_number, total
from lockquack.words import by_reason

#: Verdicts of rows that cannot be distinguished from the best.
_NOT_WORSE = ("best", "noise")
#: Letters across a printed table, and columns that give way to weights where it is too narrow.
_WIDTH, _DISPENSABLE = 100, ("p_loo", "p_worse")
#: The column of all weights, where there is no room for one each.
_TOGETHER = "weights"


@dataclass(frozen=True)
class Leading:
    """A score that can decide: its columns, and how it is spoken of."""

    column: str
    #: In the head of a column, and in a sentence.
    short: str
    name: str
    ranked: str = "larger is better"
    of_error: str = ""

    @property
    def columns(self) -> tuple[str, str, str]:
        """Columns of the score, of its difference to the best, and of the error of that."""
        return self.column, f"{self.column}_diff", self.of_error or f"{self.column}_dse"

    @property
    def is_total(self) -> bool:
        """Whether it is a total over the observations, not a mean."""
        return self.column in ("elpd", "hyvarinen")

    @property
    def is_in_units_of_outcome(self) -> bool:
        """Whether it is shown in units of the outcome, not in those in which weights are fitted."""
        return self.column == "crps"


#: The scores that can decide, by their column.
LEADING = {
    each.column: each
    for each in (
        Leading("elpd", "elpd", "Log score", of_error="dse"),
        Leading("hyvarinen", "H", "Hyvärinen score"),
        Leading("crps", "crps", "CRPS", "mean CRPS in units of the outcome, smaller is better"),
        Leading(
            "energy",
            "energy",
            "Energy score",
            "mean energy score in units of the components' spreads, smaller is better",
        ),
    )
}


class Comparison(pd.DataFrame):
    """The table of :func:`compare`: a data frame that prints what it recommends above itself.

    Parts of it are plain data frames.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> table = lq.compare(example_models(), ["lock", "stack"])
    >>> print(table.advice)
    Recommended: model second alone, the simplest that cannot be distinguished from the best, lock.
    >>> table.loc[["lock", "second"], "elpd"].round(1).tolist()
    [-59.1, -63.0]
    """

    @property
    def recommended(self) -> str:
        """Name of the simplest row that cannot be distinguished from the best."""
        return str(self.attrs["recommended"])

    @property
    def advice(self) -> str:
        """What it recommends, in a sentence."""
        name, best = self.recommended, str(self.index[0])
        what = f"model {name} alone" if self.loc[name, "kind"] == "model" else name
        if name == best:
            worse = bool((self["verdict"].iloc[1:] == "worse").all()) and len(self) > 1
            why = "better than all others" if worse else "nothing simpler is as good"
            return f"Recommended: {what}, the best; {why}."
        return (
            f"Recommended: {what}, the simplest that cannot be distinguished from the best, {best}."
        )

    @property
    def heading(self) -> str:
        """What was compared, and how."""
        about = self.attrs
        weights = about["case_weights"]
        counted = "" if weights is None else f" (case weights: sum {weights:.6g})"
        return (
            f"Ways to combine {about['models']} models of {about['observations']} observations"
            f"{counted}, weights cross-validated in {about['folds']} folds ({self._led.ranked})"
        )

    @property
    def is_led_by_total(self) -> bool:
        """Whether a total over the observations decides: log score or H, larger is better."""
        return self._led.is_total

    @property
    def _led(self) -> Leading:
        """The score that decides."""
        return LEADING[self.attrs["led_by"]]

    @property
    def caution(self) -> str:
        """What to know of all standard errors; empty where there is nothing."""
        if self.attrs["too_few"]:
            return (
                f"Fewer than {FEWEST_OBSERVATIONS} observations do not tell how far scores would "
                "differ for others, so there are no standard errors and no verdicts."
            )
        if self.attrs["effective_observations"] >= FEW:
            return ""
        return f"Standard errors of fewer than {FEW} observations are rough."

    @property
    def without_mean(self) -> str:
        """Which rows have no RMSE because their predictions have no mean; empty where none."""
        if "rmse" not in self.attrs["metrics"]:
            return ""
        names = self.index[self["crps"].notna() & self["rmse"].isna()]
        listed = ", ".join(map(str, names))
        return (
            f"No rmse and r2, because tails are too heavy for a mean: {listed}." if listed else ""
        )

    def rounded(self, width: int = _WIDTH) -> pd.DataFrame:
        """Return what fits into that many letters, rounded for reading.

        Where it is too narrow, the effective numbers of parameters give way to the weights of the
        models, then ``p_worse``; then the weights share a column, in the models' order; and those
        that do not fit even so are left out. The score that decides comes first.

        Parameters
        ----------
        width
            Letters across.

        Returns
        -------
        pandas.DataFrame
            Texts.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> lq.compare(example_models(), ["lock", "stack"]).rounded()["verdict"].tolist()
        ['best', 'noise', 'noise', 'noise']
        """
        shown, led = pd.DataFrame(index=[str(name) for name in self.index]), self._led
        digits = 1 if led.is_total else _decimals(self[led.column].min())
        for column, name in zip(led.columns, (led.short, "diff", "se"), strict=True):
            shown[name] = [_text(value, digits) for value in self[column]]
        if led.column != "hyvarinen":
            shown["p_worse"] = [_text(value, 2) for value in self["p_worse"]]
        shown["verdict"] = list(self["verdict"])
        for name in self.attrs["metrics"]:
            if name != led.column:
                shown[name] = [_significant(value) for value in self[name]]
        if self["p_loo"].notna().any() and not self.attrs["metrics"]:
            shown["p_loo"] = [_text(value, 1) for value in self["p_loo"]]
        if (self["flags"] != "").any():
            shown["flags"] = list(self["flags"])
        for weights in (self._weights(), self._weights_in_one_column()):
            for dispensable in range(len(_DISPENSABLE) + 1):
                rest = shown.drop(columns=list(_DISPENSABLE[:dispensable]), errors="ignore")
                with_weights = pd.concat([rest, weights], axis=1)
                if _width(with_weights) <= width:
                    return with_weights
        return shown

    def _weights(self) -> pd.DataFrame:
        """Weights as texts, a column for each model."""
        columns = {f"w({name})": self[f"weight[{name}]"] for name in self.attrs["names"]}
        texts = {name: [_text(w, 2) for w in weights] for name, weights in columns.items()}
        return pd.DataFrame(texts, index=[str(name) for name in self.index])

    def _weights_in_one_column(self) -> pd.DataFrame:
        weights = self._weights()
        return pd.DataFrame({_TOGETHER: weights.agg(" ".join, axis=1)}, index=weights.index)

    def legend(self, width: int = _WIDTH) -> str:
        """Say whose weights they are, where one column of the rounded table has all of them."""
        if _TOGETHER not in self.rounded(width):
            return ""
        return f"Weights of {', '.join(self.attrs['names'])}, in this order."

    def left_out(self, word: Callable[[str], str] = str) -> list[str]:
        """Say which methods could not be used, and why: a line for each reason.

        Parameters
        ----------
        word
            How a reason is worded.

        Returns
        -------
        list of str
            Lines.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> lq.compare(example_models(), ["lock", "stack"]).left_out()
        []
        """
        reasons = by_reason(self.attrs["left_out"], word)
        return [f"Left out: {names}. {why}" for why, names in reasons.items()]

    def __repr__(self) -> str:
        above, below = (
            "\n".join(textwrap.fill(line, _WIDTH) for line in lines)
            for lines in self._around(_WIDTH)
        )
        return "\n\n".join(part for part in (above, self.rounded().to_string(), below) if part)

    def _repr_html_(self) -> str:
        width = 10**6
        above, below = ("<br>".join(map(html.escape, lines)) for lines in self._around(width))
        table = self.rounded(width).to_html(border=0, justify="right")
        return f"<p>{above}</p>{table}<p>{below}</p>"

    def _around(self, width: int) -> tuple[list[str], list[str]]:
        """Lines above and below a table of that many letters across."""
        why, how = self.attrs["why_led"], self.attrs.get("left_out_by", [])
        said = (self.legend(width), self.without_mean, why, *how, self.caution, *self.left_out())
        return [self.heading, self.advice], [line for line in said if line]


def tabulate(
    methods: Mapping[str, Row],
    bench: Bench,
    *,
    folds: int,
    left_out: Mapping[str, str],
    random_seed: int,
    measured: Sequence[Mapping[str, float]] | None = None,
) -> Comparison:
    """Make the table of methods and models, the best first."""
    counts = bench.case_weights
    led_by = _leading(methods, bench)
    rows, kinds = _with_models(methods, bench)
    table = _unsorted(rows, kinds, bench, led_by, random_seed)
    for name in measured[0] if measured else ():
        if name != led_by:
            table[name] = [each[name] for each in measured or ()]
    led = LEADING[led_by]
    behind = np.abs(table[led.columns[1]].to_numpy())
    table = table.iloc[np.argsort(np.where(np.isnan(behind), np.inf, behind), kind="stable")]
    table.insert(0, "rank", np.arange(len(table)))
    comparison = Comparison(table)
    too_few = are_too_few(bench.n_obs, counts)
    comparison.attrs = {
        "recommended": _simplest(
            table, {name: row.complexity for name, row in rows.items()}, any_verdict=too_few
        ),
        "led_by": led_by,
        "why_led": f"{bench.why_no_log} {led.name} decides." if bench.why_no_log else "",
        "models": len(bench.models),
        "names": tuple(bench.models),
        "observations": bench.n_obs,
        "case_weights": None if counts is None else float(counts.sum()),
        "effective_observations": effective_number(counts, bench.n_obs),
        "too_few": too_few,
        "folds": folds,
        "left_out": dict(left_out),
        "metrics": list(measured[0]) if measured else [],
        "left_out_by": lines_about_left_out(bench.sources, bench.scores),
    }
    return comparison


def _leading(methods: Mapping[str, Row], bench: Bench) -> str:
    """Say which score decides: what was asked for, or else the log score if any has one, or H."""
    if bench.distance is not None:
        return bench.distance.name
    scored = (total(row.log_scores, bench.case_weights) for row in methods.values())
    return "elpd" if any(map(np.isfinite, scored)) else "hyvarinen"


def _unsorted(
    rows: Mapping[str, Row], kinds: list[str], bench: Bench, led_by: str, random_seed: int
) -> pd.DataFrame:
    """Score and judge the rows, by the score that leads."""
    log_scores, h_scores, distances, weights = (
        np.stack([getattr(row, name) for row in rows.values()])
        for name in ("log_scores", "h_scores", "distance_scores", "weights")
    )
    distances = distances.round(12)  # rounding decides nothing; they are in units of the spread
    counts, nan, by_log = bench.case_weights, np.full(len(rows), np.nan), led_by == "elpd"
    log_apart, h_apart = differences(log_scores, counts), differences(h_scores, counts)
    scores = {"elpd": log_scores, "hyvarinen": h_scores}.get(led_by, distances)
    apart = differences(scores, counts)
    doubtful = np.stack([bench.high_k[w > 0].any(axis=0) for w in weights])
    elpd = total(log_scores, counts)
    knows_log = led_by != "hyvarinen"
    columns = {
        "elpd": elpd,
        "elpd_diff": log_apart.total if knows_log else nan,
        "dse": log_apart.se if knows_log else nan,
        "p_worse": apart.p_worse,
        "verdict": judge(
            scores,
            doubtful,
            in_nats=by_log,
            are_distances=bench.distance is not None,
            random_seed=random_seed,
            case_weights=counts,
        ),
        "flags": _flags(apart.total, doubtful, by_log),
        "hyvarinen": total(h_scores, counts),
        "hyvarinen_diff": h_apart.total,
        "hyvarinen_dse": h_apart.se,
        **(_distances(bench.distance, distances, bench) if bench.distance is not None else {}),
        "bad_k": doubtful.sum(axis=1),
        "kind": kinds,
        "p_loo": [row.p_loo for row in rows.values()],
        **{f"weight[{name}]": weights[:, k] for k, name in enumerate(bench.models)},
        "se": error_if_enough(log_scores, counts),
        "elpd_loo": elpd,
        "scale": "log",
    }
    return pd.DataFrame(columns, index=pd.Index(list(rows), name="method"))


def _distances(rule: Rule, scores: Array, bench: Bench) -> dict[str, Array]:
    """Mean distances, smaller is better, and what each has too much."""
    counts = bench.case_weights
    apart, n = differences(scores, counts), bench.n_obs if counts is None else counts.sum()
    found = (total(scores, counts), apart.total, apart.se)
    shown = LEADING[rule.name]
    unit = unit_of(rule, bench.observations)[0] if shown.is_in_units_of_outcome else 1.0
    return {
        column: np.abs(each) * (unit / n) for column, each in zip(shown.columns, found, strict=True)
    }


def _with_models(methods: Mapping[str, Row], bench: Bench) -> tuple[dict[str, Row], list[str]]:
    """Put the models beside the methods; one that is called like a method is called a model."""
    models = {
        f"{name} (model)" if name in methods else name: row
        for name, row in bench.single_models().items()
    }
    return {**methods, **models}, ["method"] * len(methods) + ["model"] * len(models)


def _simplest(
    table: pd.DataFrame, complexity: Mapping[str, int], *, any_verdict: bool = False
) -> str:
    """Name the simplest row that cannot be distinguished from the best; of equals, a model."""
    eligible = table.index[table["verdict"].isin((*_NOT_WORSE, *["unclear"] * any_verdict))]
    return str(min(eligible, key=lambda row: (complexity[row], table.loc[row, "kind"] != "model")))


def _flags(behind: Array, doubtful: Array, in_nats: bool) -> list[str]:
    """Name what makes a difference to the best unreliable, as ArviZ and loo do."""
    flags = []
    for each, bad in zip(behind, doubtful.sum(axis=1), strict=True):
        similar = in_nats and -SIMILAR < each < 0
        flags.append(
            ", ".join([f"|diff| < {SIMILAR:g}"] * int(similar) + [f"k̂: {bad}"] * int(bad > 0))
        )
    return flags


def _text(value: float, digits: int) -> str:
    return "" if np.isnan(value) else f"{value:z.{digits}f}"


def _decimals(value: float) -> int:
    """Return how many decimals show four digits of a number."""
    return int(np.clip(3 - np.floor(np.log10(value)), 0, 12)) if 0 < value < np.inf else 3


def _significant(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _width(table: pd.DataFrame) -> int:
    return len(table.to_string().splitlines()[0])
