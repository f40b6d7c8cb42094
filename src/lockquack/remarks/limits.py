"""Remarks on scores that see densities near the observations only, where that is not enough."""

from __future__ import annotations

from dataclasses import dataclass

from lockquack.errors import BlindScoreWarning
from lockquack.remarks.base import Remark, listed
from lockquack.words import LOG_SCORE, STACKING, Text, advice

_EVALUABLE = advice(
    "models from from_family or a PPL adapter, whose pools can be normalised",
    "a likelihood by --family, so that the pool can be normalised",
)


def _number(at_most: float) -> str:
    return "any number" if at_most == float("inf") else f"{at_most:.1f}"


def _left_out(models: tuple[str, ...]) -> str:
    """Name the models that were left out, if there are any."""
    return f" Left out: {listed(models)}." if models else ""


@dataclass(frozen=True)
class MisledScore(Remark):
    """A pool that the score prefers and that predicts worse than one model alone."""

    code = "misled-score"
    category = BlindScoreWarning
    title = "The score chose a bad pool"
    meaning = (
        "The Hyvärinen score, like the pairwise score of counts, does not use the normalising "
        "constant, so it can prefer a pool that has most of its mass where nothing was observed. "
        "The log score of a pool has bounds that "
        "need no normalising constant; here even the upper bound is below the log score of one "
        "model alone. So the pool was rejected: the weights are the next best that pass this "
        "test, if necessary without the models that are named as left out. The result is then "
        "the same as if these had not been given."
    )
    remedy = (
        "Fit by the log score: `rule='log'`, which needs models that can be evaluated anywhere, or "
        "`lq.stack`, which does not. Check whether a model that predicts so badly should be there."
    )
    example = ("Hyvärinen", -1649.2, "right", -276.4, ("far",))

    rule: str
    #: What the log score of the pool that the score prefers is at most.
    at_most: float
    #: The best model by itself, and its log score.
    model: str
    alone: float
    left_out: tuple[str, ...]

    def _message(self) -> str:
        return Text(
            f"The pool with the best {self.rule} score has a log score of at most "
            f"{self.at_most:.1f}; model {self.model!r} alone has {self.alone:.1f}. That pool was "
            f"rejected and the next best one used.{_left_out(self.left_out)} Use ",
            LOG_SCORE,
            " or ",
            STACKING,
            ".",
        )


@dataclass(frozen=True)
class UnseenWeight(Remark):
    """Weights that the score does not depend on."""

    code = "unseen-weight"
    category = BlindScoreWarning
    title = "A weight that the score does not depend on"
    meaning = (
        "The model has almost no share in the pool at any observation: its mass lies where "
        "nothing was observed. The score is the same for any weight, so only the prior determines "
        "it. If the mass given to it would lower the log score by more than 4, the model is left "
        "out, and its weight has no standard error and no interval. Otherwise it keeps the weight "
        "that the prior gives it, with the prior's interval."
    )
    remedy = "Leave the model out, or fit by the log score: `rule='log'`, or `lq.stack`."
    example = ("Hyvärinen", ("far",), True)

    rule: str
    models: tuple[str, ...]
    left_out: bool

    def _message(self) -> str:
        what = (
            "It was left out, because weight on it only takes mass from the others; its weight has "
            "no interval"
            if self.left_out
            else "Its standard error and interval are those of the prior"
        )
        return Text(
            f"The {self.rule} score does not depend on the weight of {listed(self.models)}, which "
            f"has almost no share in the pool at any observation. {what}. Use ",
            LOG_SCORE,
            " or ",
            STACKING,
            ".",
        )


@dataclass(frozen=True)
class LogScoreUnknown(Remark):
    """A pool of which it is not known whether it predicts better than one of its models."""

    code = "log-score-unknown"
    category = BlindScoreWarning
    title = "The pool may be worse than one model"
    meaning = (
        "The weights were fitted by a score that does not use the normalising constant, and the "
        "models are known at the observed outcomes only. So only bounds on the log score of the "
        "pool are known, and the log score of the best model alone lies between them."
    )
    remedy = (
        "Make the models with `from_family` or an adapter: then the log score is computed. Or "
        "use `lq.stack` or `lq.lock`."
    )
    example = (-405.1, 303.2, "right", -276.4)

    at_least: float
    at_most: float
    model: str
    alone: float

    def _message(self) -> str:
        return Text(
            "This pool may predict worse than one model: its log score lies between "
            f"{self.at_least:.1f} and {_number(self.at_most)}, that of model {self.model!r} alone "
            f"is {self.alone:.1f}. To compute it, give ",
            _EVALUABLE,
            ".",
        )


@dataclass(frozen=True)
class UncertainPool(Remark):
    """A pool that was rejected because it is not known whether it predicts better than a model."""

    code = "uncertain-pool"
    category = BlindScoreWarning
    title = "The log score of the best pool is too uncertain"
    meaning = (
        "The models are known at the observed outcomes only, so the pool was fitted by a score "
        "that does not use the normalising constant. Only bounds on the log score of the pool "
        "that this score prefers are known, and it may be below that of one of its models. Such "
        "pools usually are: the score rewards phases that remove density between the "
        "observations. So it was rejected. The weights are those of the best pool whose log score "
        "is certainly not more than 4 below that of the best model alone, if necessary without "
        "the models that are named as left out. From densities at the outcomes alone, no pool of "
        "any kind is certain to have a higher log score than the best mixture, which `lq.stack` "
        "finds."
    )
    remedy = (
        "Make the models with `from_family` or an adapter: then the log score of pools is "
        "computed, and the weights are fitted by it. Or use `lq.stack`, whose log score is known, "
        "or `lq.lock`. `rule='hyvarinen'` keeps the pool that the score prefers."
    )
    example = ("Hyvärinen", -227.1, -7.7, "right", -128.7, ("wide",))

    rule: str
    at_least: float
    at_most: float
    model: str
    alone: float
    left_out: tuple[str, ...]

    def _message(self) -> str:
        return Text(
            f"The pool with the best {self.rule} score has a log score between "
            f"{self.at_least:.1f} and {_number(self.at_most)}; model {self.model!r} alone has "
            f"{self.alone:.1f}. It was replaced by a pool whose log score is certainly not more "
            f"than 4 below that of {self.model!r}.{_left_out(self.left_out)} Use ",
            STACKING,
            ", or give ",
            _EVALUABLE,
            ".",
        )


@dataclass(frozen=True)
class ScoresDisagree(Remark):
    """A model that one score chooses and another rejects."""

    code = "scores-disagree"
    category = BlindScoreWarning
    title = "The log score prefers another model"
    meaning = (
        "The model was chosen by a score that uses only the shape of densities near the "
        "observations. By the log score another model is clearly better."
    )
    remedy = "Choose by the log score, the default of `lq.select`, or combine the models."
    example = ("wide", -412.0, "narrow", -276.4)

    chosen: str
    log_score: float
    model: str
    alone: float

    def _message(self) -> str:
        return (
            f"By the log score {self.model!r} ({self.alone:.1f}) is better than the chosen "
            f"{self.chosen!r} ({self.log_score:.1f})."
        )
