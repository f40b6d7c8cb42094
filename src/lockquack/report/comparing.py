"""The part of a report that compares methods."""

from __future__ import annotations

from lockquack.methods.comparison import Comparison
from lockquack.plots import plot_compare
from lockquack.report.contents import Missing
from lockquack.report.figures import draw_inline
from lockquack.report.markup import Column, figure, folded, numbers, paragraph, table

#: Models whose weights by every method fit into the table of methods.
FEW_MODELS = 6


def methods_side_by_side(comparison: Comparison | Missing) -> list[str]:
    """Show all methods and models side by side, or say why not."""
    if isinstance(comparison, Missing):
        return [paragraph(f"Methods were not compared. {comparison.why}", soft=True)]
    parts = [
        paragraph(
            "All methods and models side by side. Here the weights were fitted to some of the "
            "observations and scored on the others, fold by fold, so that no method is flattered. "
            "A difference of less than two standard errors is noise; one that so many comparisons "
            "could show by chance is unclear. CRPS (smaller is better) and RMSE are in units of "
            "the outcome; coverage and mean width are those of 90 % intervals."
        ),
        paragraph(
            " ".join(
                filter(None, (comparison.advice, comparison.attrs["why_led"], comparison.caution))
            )
        ),
    ]
    if len(comparison) > 1:
        height = 0.7 + 0.23 * len(comparison)
        drawn = draw_inline("compare", lambda axes: plot_compare(comparison, ax=axes[0]), height)
        parts.append(figure(drawn, "Differences to the best method, with two standard errors."))
    parts.append(table("method", comparison.index, _columns_of_methods(comparison)))
    if comparison.is_led_by_total and (comparison["verdict"] == "not known").any():
        missing = (
            "Where no log score is shown, it is not known: the combination has a normaliser, "
            "which takes the models' densities away from the observed outcomes. The Hyvärinen "
            "score needs none."
        )
        parts.append(paragraph(missing, soft=True))
    left_out = [paragraph(line, soft=True) for line in comparison.left_out()]
    if left_out:
        parts.append(folded("Methods that were left out, and why", *left_out))
    return parts


def _columns_of_methods(comparison: Comparison) -> list[Column]:
    """Verdicts, those scores that are known, and the weights of the models if they are few."""
    headings = {
        "elpd": "log score",
        "elpd_diff": "difference",
        "dse": "±\u00a0se",
        "hyvarinen": "Hyvärinen score",
        "hyvarinen_diff": "difference",
        "hyvarinen_dse": "±\u00a0se",
    }
    known = [column for column in headings if comparison[column].notna().any()]
    weights = [str(column) for column in comparison if str(column).startswith("weight[")]
    names = [column.removeprefix("weight[").removesuffix("]") for column in weights]
    return [
        ("verdict", list(comparison["verdict"])),
        ("flags", list(comparison["flags"])),
        *_distances(comparison),
        *(numbers(headings[column], comparison[column], 1) for column in known),
        *_metrics(comparison),
        *(
            numbers(f"weight of {name}", comparison[column], 2)
            for name, column in zip(names, weights, strict=True)
            if len(weights) <= FEW_MODELS
        ),
    ]


def _distances(comparison: Comparison) -> list[Column]:
    """CRPS or energy score, and the difference to the best, where it decides."""
    if comparison.is_led_by_total:
        return []
    shown = comparison.rounded()
    name = {"crps": "CRPS"}.get(str(shown.columns[0]), "energy score")
    headings = zip((name, "difference", "±\u00a0se"), shown.columns, strict=False)
    return [(heading, list(shown[column])) for heading, column in headings]


def _metrics(comparison: Comparison) -> list[Column]:
    """Measures of the held-out predictions, those that are known and not shown already."""
    names = [name for name in comparison.attrs["metrics"] if name != comparison.attrs["led_by"]]
    known = [name for name in names if comparison[name].notna().any()]
    said = {"crps": "CRPS", "rmse": "RMSE", "r2": "R²"}
    texts = {name: [f"{value:.3g}" for value in comparison[name]] for name in known}
    return [(said.get(name, name.partition("_")[0]), texts[name]) for name in known]
