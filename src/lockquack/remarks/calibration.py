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
    title = "There is nothing to recalibrate"
    meaning = (
        "The two numbers of the transform cannot be told from 1, which changes nothing: as far as "
        "these observations tell, the combination is calibrated already, or it is wrong in a way "
        "that a beta transform cannot mend. What the transform does is noise."
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
            f"Recalibration does nothing that could be told from noise: a = {self.a:.2f} ± "
            f"{self.a_se:.2f}, b = {self.b:.2f} ± {self.b_se:.2f} (p = {self.p_value:.2g})."
        )


@dataclass(frozen=True)
class StillMiscalibrated(Remark):
    """Predictions that a beta transform cannot calibrate."""

    code = "still-miscalibrated"
    category = CalibrationWarning
    title = "Recalibration is not enough"
    meaning = (
        "The probabilities of the outcomes are not uniform after recalibration either. A beta "
        "transform corrects predictions that are all too wide, too narrow, too high or too low; "
        "it cannot add a mode, or a tail, that the models lack."
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
            "The probabilities of the outcomes are not uniform after recalibration: p = "
            f"{self.after:.2g}, before {self.before:.2g}."
        )


@dataclass(frozen=True)
class StrongRecalibration(Remark):
    """A transform so strong that something else must be wrong."""

    code = "strong-recalibration"
    category = CalibrationWarning
    title = "The recalibration is strong"
    meaning = (
        "Predictions are stretched or squeezed by about three times or more, or moved by as much: "
        "the models are wrong about their own uncertainty, and the transform hides it. In "
        "particular, its tails are made from the few outcomes that are there."
    )
    remedy = (
        "Find out why the models are so sure or so unsure: a missing covariate, dependent "
        "observations, a likelihood with the wrong tails, a prior that decides."
    )
    example = (0.18, 0.21)

    a: float
    b: float

    def _message(self) -> str:
        return (
            f"The recalibration is strong: a = {self.a:.3g}, b = {self.b:.3g} where 1 changes "
            "nothing. It hides what is wrong with the models."
        )


@dataclass(frozen=True)
class CalibrationDepends(Remark):
    """Miscalibration that differs between small and large predictions."""

    code = "calibration-depends"
    category = CalibrationWarning
    title = "Calibration depends on what is predicted"
    meaning = (
        "After recalibration, outcomes are too high or too low (in level), or too near or too far "
        "(in spread), depending on how large the prediction is. One transform for all averages "
        "over that: coverage is right overall, and wrong for small and for large predictions."
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
        return (
            f"Calibration in {self.what} depends on the prediction: after recalibration, its rank "
            f"correlation with the predicted median is {self.correlation:.2f} "
            f"(p = {self.p_value:.2g})."
        )
