"""``lockquack check``: check files before they are combined."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lockquack.cli.commands import DOUBTFUL, FAILED, Command
from lockquack.cli.options import add_cluster, add_output, add_sources, progressbar
from lockquack.cli.wording import shell_words
from lockquack.errors import DerivativeError, LockquackError
from lockquack.words import by_reason

if TYPE_CHECKING:
    from lockquack.cli.output import Line, Result
    from lockquack.models.model import Model
    from lockquack.remarks import Remark

#: Effective draws per chain that diagnostics and averages need.
_FEWEST_EFFECTIVE = 100
#: Columns of the table that hold numbers.
_NUMBERS = ("chains", "draws", "observations", "worst k", "least ess")


@dataclass
class Finding:
    """What was found out about one model."""

    name: str
    file: str
    model: Model | None = None
    problems: list[str] = field(default_factory=list)  # it cannot be combined
    remarks: list[Remark] = field(default_factory=list)  # it can, but mind this
    #: Why it has no Hyvärinen score; empty: it has one.
    why_no_h: str = ""
    worst_k: float = float("nan")
    fewest_effective: float = float("nan")

    @property
    def verdict(self) -> Literal["problem", "remark", "fine"]:
        """The worst that was found."""
        return "problem" if self.problems else "remark" if self.remarks else "fine"

    @property
    def uses(self) -> list[str]:
        """What the model is good for."""
        if self.problems or self.model is None:
            return []
        known = {
            "log score": True,
            "Hyvärinen": not self.why_no_h,
            "evaluate": self.model.source.can.evaluate,
        }
        return [name for name, there in known.items() if there]


def _add_options(parser: ArgumentParser) -> None:
    add_sources(parser)
    add_cluster(parser)
    add_output(parser)


def _run(options: Namespace) -> int:
    from lockquack.cli.files import find_sources
    from lockquack.cli.output import hear_warnings, require_writable, write_result
    from lockquack.cli.sources import read_model, read_model_options
    from lockquack.parallel.cluster import cluster

    require_writable(options, files=[options.output])
    with cluster(options.cluster, options.workers), hear_warnings(options):
        sources = find_sources(options.files)
        about = read_model_options([source.name for source in sources], options)
        findings = []
        for source in sources:
            finding = Finding(source.name, source.title)
            try:
                finding.model = read_model(source, about[source.name], options)
                _examine(finding, finding.model, progressbar(options))
            except (LockquackError, OSError, ImportError) as error:
                unread = finding.model is None
                finding.problems.append(shell_words(error) if unread else _own_words(error))
            findings.append(finding)
        together = _together({f.name: f.model for f in findings if f.model is not None})
        write_result(_result(findings, together), options)
    if together or any(finding.problems for finding in findings):
        return FAILED
    remarked = any(finding.remarks for finding in findings)
    return DOUBTFUL if options.strict and remarked else 0


def _examine(finding: Finding, model: Model, progressbar: bool | None) -> None:
    """Check one model's derivatives, edges, tails and draws."""
    from lockquack.checks.derivatives import check
    from lockquack.checks.models import check_models
    from lockquack.draws.diagnostics import ess_mean
    from lockquack.prediction.examine import examine_pareto
    from lockquack.remarks.draws import DependentDraws
    from lockquack.rules import Hyvarinen, LogScore

    alone, source = {finding.name: model}, model.source
    finding.remarks += check_models(alone, LogScore())
    try:
        check_models(alone, Hyvarinen())
        if source.can.evaluate:
            check(model).require()
    except DerivativeError as error:
        finding.problems.append(_own_words(error))
    except LockquackError as error:
        finding.why_no_h = _own_words(error)
    pareto_k = model.loo(progressbar=progressbar).pareto_k
    finding.worst_k = float(pareto_k.max())
    finding.remarks += examine_pareto(
        {finding.name: source}, [pareto_k], model.observations, "log scores"
    )
    effective = [ess_mean(source.all_logp(obs)).min() for obs in source.observation_slices()]
    finding.fewest_effective = float(min(effective))
    if finding.fewest_effective < _FEWEST_EFFECTIVE * model.n_chains:
        finding.remarks.append(
            DependentDraws(finding.fewest_effective, _FEWEST_EFFECTIVE, model.n_chains)
        )


def _together(models: Mapping[str, Model]) -> str:
    """Say why these models cannot be combined with each other; empty: they can."""
    from lockquack.checks.models import check_models
    from lockquack.rules import LogScore

    if len(models) < 2:
        return ""
    try:
        check_models(models, LogScore())
    except LockquackError as error:
        return shell_words(error)
    return ""


def _own_words(error: Exception) -> str:
    """Return what is wrong with a model without its name, which is printed in front."""
    return shell_words(error.reason if isinstance(error, LockquackError) else error)


def _result(findings: Sequence[Finding], together: str) -> Result:
    import pandas as pd

    from lockquack.cli.output import Result

    names = pd.Index([finding.name for finding in findings], name="model")
    rows = [_row(finding) for finding in findings]
    # As objects: a number that is missing would make floats of all.
    table = pd.DataFrame(rows, index=names, dtype=object)
    shown = table.assign(
        **{
            "worst k": [_rounded(value, 2) for value in table["worst k"]],
            "least ess": [_rounded(value, 0) for value in table["least ess"]],
        }
    )
    shown = shown.fillna("").astype(str).rename_axis(index=None)
    record = {"models": [_record(finding) for finding in findings], "together": together}
    title, below = "Models, one by one and together", _below(findings, together)
    return Result([title], shown, _NUMBERS, below, table, record)


def _row(finding: Finding) -> dict[str, Any]:
    model = finding.model
    return {
        "chains": model and model.n_chains,
        "draws": model and model.n_draws,
        "observations": model and model.observations.n,
        "likelihood": model and model.likelihood.description,
        "good for": ", ".join(finding.uses),
        "worst k": finding.worst_k,
        "least ess": finding.fewest_effective,
        "verdict": finding.verdict,
    }


def _record(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "file": finding.file,
        **_row(finding),
        "problems": finding.problems,
        "remarks": [remark.summary() for remark in finding.remarks],
        "no_hyvarinen": finding.why_no_h,
    }


def _below(findings: Sequence[Finding], together: str) -> list[Line]:
    """Write what stands under the table, problems first."""
    from lockquack.cli.output import Line

    problems = [
        Line(f"{f.name}: problem: {text}", "problem") for f in findings for text in f.problems
    ]
    if together:
        problems.append(Line(f"Together: problem: {together}", "problem"))
    others = [
        Line(f"{f.name}: remark: {shell_words(remark.message)}", "remark")
        for f in findings
        for remark in f.remarks
    ]
    lacking = by_reason({f.name: f.why_no_h for f in findings if f.why_no_h}, shell_words)
    others += [Line(f"{names}: no Hyvärinen score: {why}") for why, names in lacking.items()]
    if len(findings) > 1 and not problems:
        others.append(Line("Together: same observations in the same order; they can be combined."))
    return problems + others


def _rounded(value: float, digits: int) -> str:
    return "" if value != value else f"{value:.{digits}f}"


COMMAND = Command(
    name="check",
    summary="check files before they are combined",
    description="Check files before they are combined: what they hold, whether they are of the "
    "same observations, finite, with right derivatives, enough draws and trustworthy "
    "leave-one-out densities; and what each is good for: the log score (stacking), the Hyvärinen "
    "score (locking), or being evaluated anywhere (sampling, calibration). Exit status 0: they can "
    "be combined; 1: there are problems.",
    examples=("lockquack check normal.nc student.nc", "lockquack check *.nc --json"),
    add_options=_add_options,
    run=_run,
)
