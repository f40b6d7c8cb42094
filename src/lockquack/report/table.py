"""How combinations are shown: as text in a terminal, as HTML in a notebook."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lockquack.draws.blocks import Kind
from lockquack.methods.gather import unit_of
from lockquack.plots.style import shortened
from lockquack.remarks import Remark
from lockquack.totals import total
from lockquack.words import Text

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

#: Models that a table shows, and letters of their names.
_ROWS_SHOWN, _NAME = 30, 28
#: Short headings of what stands beside the weights.
_HEADINGS = {"weight_5%": "5%", "weight_95%": "95%", "weight_min": "min", "weight_max": "max"}
KINDS: dict[Kind, str] = {
    "loo": "leave-one-out",
    "in-sample": "in-sample",
    "held-out": "held-out",
    "prequential": "one-step-ahead",
}


def as_text(fit: Combination) -> str:
    """Write the table with its header and footer."""
    below = [*solution_lines(fit), *map(note, fit.remarks)]
    return framed_text(header(fit), fit.to_dataframe(), below)


def framed_text(above: Sequence[str], table: pd.DataFrame, below: Sequence[str]) -> str:
    """Write a table between lines of text."""
    shown = rounded_table(table).to_string()
    return "\n".join([*map(_wrapped, above), "", shown, "", *map(_wrapped, below)])


def as_html(fit: Combination) -> str:
    """Write the same for a notebook."""
    notes = "".join(f"<li>{html.escape(remark.message)}</li>" for remark in fit.remarks)
    framed = framed_html(header(fit), fit.to_dataframe(), solution_lines(fit))
    return framed + (f"<ul>{notes}</ul>" if notes else "")


def framed_html(above: Sequence[str], table: pd.DataFrame, below: Sequence[str]) -> str:
    """Write the same for a notebook."""
    head, foot = ("<br>".join(map(html.escape, lines)) for lines in (above, below))
    shown = rounded_table(table).to_html(border=0, justify="right")
    shown = shown.replace("<table ", '<table style="text-align: right" ', 1)
    return f"<p>{head}</p>{shown}<p>{foot}</p>"


def header(fit: Combination) -> list[str]:
    """Say what was fitted, and to what."""
    return [what_was_fitted(fit), _on_a_line(settings(fit))]


def what_was_fitted(fit: Combination) -> str:
    """Name the operator, and how its weights were found."""
    way = f"weights by {fit.label};" if fit.fitter.is_formula else fit.fitter.way
    return f"{fit.operator.title}, {way} {score_name(fit)}"


def settings(fit: Combination) -> dict[str, str]:
    """Return what the weights were fitted to and under which prior and units, by name."""
    found = {"models": str(len(fit.names)), "observations": str(fit.observations.n)}
    if fit.observations.name is not None:
        found["outcome"] = fit.observations.name
    if fit.observations.weights is not None:
        found["case weights"] = f"sum {fit.observations.weights.sum():.6g}"
    if fit.fitter.is_formula:
        return found
    if fit.fitter.prior is not None:
        found["prior"] = fit.fitter.prior
    if fit.rule.needs_derivatives:
        units = (f"{unit:.4g}" for unit in unit_of(fit.rule, fit.observations))
        of_what = fit.observations.outcome if fit.rule.of_what == "y" else fit.rule.of_what
        found[f"unit of {of_what}"] = ", ".join(units)
        if not fit.rule.knows_support:
            found["support"] = "not known, so y itself is scored"
    return found


def score_name(fit: Combination) -> str:
    """Name the score of the table."""
    of_what = "" if fit.rule.of_what == "y" else f" of {fit.rule.of_what}"
    return f"the {KINDS[fit.scores]} {fit.rule.label} score{of_what} (larger is better)"


def solution_lines(fit: Combination) -> list[str]:
    """Write the parameters besides the weights, the certificate, and how scores were found."""
    shown = other_parameters(fit)
    varies = [] if fit.design is None else [fit.what_varies]
    parameters = [_on_a_line(shown), ""] if shown else []
    changed = what_was_recalibrated(fit)
    certificate = fit.fitter.certificate(fit.solution)
    return [*varies, *parameters, *changed, certificate, *fit.left_out_by, *fit._missing_log_scores]


def what_was_recalibrated(fit: Combination) -> list[str]:
    """Say by how much predictions were recalibrated, and what it is worth, if they were."""
    found = fit.recalibration
    if found is None:
        return []
    a_se, b_se = np.sqrt(np.diag(found.beta.cov))
    gain = total(found.beta.gains, fit.observations.weights)
    return [
        f"Recalibrated: a = {found.beta.a:.2f} ± {a_se:.2f}, b = {found.beta.b:.2f} ± {b_se:.2f} "
        f"(1 changes nothing); log score {gain:+.1f}; p-value of uniform probabilities "
        f"{found.before:.2g} before, {found.after:.2g} after"
    ]


def note(remark: Remark) -> str:
    """Write a remark as a line under the table."""
    return Text("Note: ", remark.message)


def rounded_table(table: pd.DataFrame) -> pd.DataFrame:
    """Round a combination's table for reading; of very many models, keep those with most weight."""
    more = len(table) - 1 - _ROWS_SHOWN
    if more > 0:
        most = table["weight"].iloc[1:].nlargest(_ROWS_SHOWN).index
        table = table.loc[[table.index[0], *most]]
    shown = pd.DataFrame(
        {
            _HEADINGS.get(str(name), name): [_rounded(str(name), value) for value in table[name]]
            for name in table
        },
        index=[shortened(str(name), _NAME) for name in table.index],
    )
    if more > 0:
        rest = pd.DataFrame("", index=[f"… {more} more"], columns=shown.columns)
        shown = pd.concat([shown, rest])
    return shown


def other_parameters(fit: Combination) -> dict[str, str]:
    """Write the parameters besides the weights, by name."""
    return {
        str(name).replace("_", " "): " ".join(f"{v:.3f}" for v in np.atleast_1d(values.values))
        for name, values in fit.parameters.data_vars.items()
    }


def _rounded(column: str, value: float) -> str:
    if np.isnan(value):
        return ""
    if abs(value) >= 1e7:
        return f"{value:.3e}"
    return f"{value:.{3 if column.startswith('weight') else 2 if column == 'mcse' else 1}f}"


def _on_a_line(values: Mapping[str, str]) -> str:
    return "   ".join(f"{name}: {value}" for name, value in values.items())


def _wrapped(line: str) -> str:
    return textwrap.fill(line, 88, subsequent_indent="  ")
