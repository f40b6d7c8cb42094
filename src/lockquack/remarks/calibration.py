"""Remarks on recalibrated combinations."""

from __future__ import annotations

from dataclasses import dataclass

from lockquack.errors import CalibrationWarning
from lockquack.remarks.base import Remark


@dataclass(frozen=True)
class NothingToRecalibrate(Remark):
    """Predictions that are calibrated as they are."""

    code = "nothing-to-recalibrate"
    category = CalibrationWarning
    title = "Nothing to recalibrate"
    meaning = (
        "The two parameters of the transform cannot be distinguished from 1, the values that "
        "change nothing: as far as these observations show, the combination is calibrated already, "
        "or it is wrong in a way that a beta transform cannot fix. What the transform does is "
        "noise."
    )
    remedy = "Use the combination as it was; `fit.coverage()` and `fit.plot_pit()` show why."
    example = (1.04, 0.08, 0.97, 0.07, 0.71)

    a: float
    a_se: float
    b: float
    b_se: float
    p_value: float

    def _message(self) -> str:
        return (
            f"Recalibration has no detectable effect: a = {self.a:.2f} ± "
            f"{self.a_se:.2f}, b = {self.b:.2f} ± {self.b_se:.2f} (p = {self.p_value:.2g})."
        )


@dataclass(frozen=True)
class StillMiscalibrated(Remark):
    """Predictions that a beta transform cannot calibrate."""

    code = "still-miscalibrated"
    category = CalibrationWarning
    title = "Recalibration is not enough"
    meaning = (
        "The PIT values are still not uniform after recalibration. A beta transform corrects "
        "predictions that are all too wide, too narrow, too high or too low; it cannot add a "
        "mode, or a tail, that the models lack."
    )
    remedy = (
        "Look at `fit.plot_pit()` and at the outcomes in the tails, and improve the models: a "
        "heavier tail, a mixture, another transform of the outcome."
    )
    example = (0.0005, 0.004)

    before: float
    after: float

    def _message(self) -> str:
        return (
            f"PIT values are still not uniform after recalibration: p = {self.after:.2g}, before "
            f"{self.before:.2g}."
        )


@dataclass(frozen=True)
class StrongRecalibration(Remark):
    """A transform so strong that something else must be wrong."""

    code = "strong-recalibration"
    category = CalibrationWarning
    title = "The recalibration is strong"
    meaning = (
        "Predictions are made wider or narrower by a factor of about three or more, or shifted by "
        "as much: the models are wrong about their own uncertainty, and the transform hides it. "
        "In particular, its tails are estimated from the few outcomes there."
    )
    remedy = (
        "Find out why the models are so wrong about their uncertainty: a missing covariate, "
        "dependent observations, a likelihood with the wrong tails, a prior that dominates."
    )
    example = (0.18, 0.21)

    a: float
    b: float

    def _message(self) -> str:
        return (
            f"The recalibration is strong: a = {self.a:.3g}, b = {self.b:.3g} (1 changes nothing). "
            "It hides what is wrong with the models."
        )


@dataclass(frozen=True)
class CalibrationDepends(Remark):
    """Miscalibration that differs between small and large predictions."""

    code = "calibration-depends"
    category = CalibrationWarning
    title = "Calibration depends on the prediction"
    meaning = (
        "After recalibration, outcomes are too high or too low (level), or too close to the "
        "centre or too far from it (spread), depending on how large the prediction is. One "
        "transform for all observations averages over that: coverage is right overall, and wrong "
        "for small and for large predictions."
    )
    remedy = (
        "Model it: a missing or nonlinear term for level, a variance that grows with the mean for "
        "spread; or let the weights depend on a covariate, `by=`."
    )
    example = ("spread", 0.38, 1e-6)

    #: ``"level"`` or ``"spread"``.
    what: str
    correlation: float
    p_value: float

    def _message(self) -> str:
        quantity = "PIT" if self.what == "level" else "|PIT − ½|"
        return (
            f"After recalibration, the {self.what} ({quantity}) correlates with the predicted "
            f"median: rank correlation {self.correlation:.2f} (p = {self.p_value:.2g})."
        )
