"""One message in two wordings: what to write in Python, and what to type in a shell.

What went wrong is the same for both; what to do about it is not. So a message is a text of parts,
and the parts that give advice have a wording for each. The command line prints ``shell``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self


class Text(str):
    """A string in Python's wording that knows its wording for the command line, ``shell``.

    It is put together from strings and other texts. An f-string around it keeps Python's wording
    only: give the pieces as parts instead, or add them with ``+``.

    Examples
    --------
    >>> text = Text("Model 'a': ", "Use ", LOG_SCORE, ".")
    >>> text
    "Model 'a': Use LogScore()."
    >>> text.shell
    "Model 'a': Use --rule log."
    """

    shell: str

    def __new__(cls, *parts: str) -> Self:
        """Join the parts, in both wordings."""
        text = super().__new__(cls, "".join(parts))
        text.shell = "".join(map(in_shell, parts))
        return text

    def __add__(self, other: str) -> Text:
        return Text(self, other)

    def __radd__(self, other: str) -> Text:
        return Text(other, self)


def advice(python: str, shell: str) -> Text:
    """Word something for Python and for a shell."""
    text = Text(python)
    text.shell = shell
    return text


def in_shell(text: str) -> str:
    """Return a message in words of the command line; a plain string has no other."""
    return text.shell if isinstance(text, Text) else text


LOG_SCORE = advice("LogScore()", "--rule log")
BY_LOG_SCORE = advice('rule="log"', "--rule log")
HYVARINEN = advice("Hyvarinen()", "--rule hyvarinen")
WEIGHTED_BY_LOG = advice("Hyvarinen(transform='log')", "--score-transform log")
STACKING = advice("lq.stack", "--operator linear")
#: Where the density must be known away from the observed outcomes, or differentiated.
NAME_ITS_LIKELIHOOD = advice(
    "Make it with from_family or a PPL adapter.", "Name its likelihood by --family."
)
#: How to make a model of what a library left, by the library.
MAKE_MODEL = {
    "pymc": "lq.from_pymc(model, idata)",
    "bambi": "lq.from_bambi(model, idata)",
    "numpyro": "lq.from_numpyro(model, mcmc, model_kwargs=...)",
    "cmdstanpy": "lq.from_cmdstanpy(fit, y=y, family=...)",
    "stan": "lq.from_pystan(fit, y=y, family=...)",
}
#: Where the Hyvärinen score must do without what it needs.
GIVE_DERIVATIVES = advice(
    f"Make the model with {MAKE_MODEL['pymc']}, with lq.from_family and the draws of its "
    "parameters, or with another PPL adapter; or give from_arrays grad= and curv=. Log densities "
    f"are enough for {LOG_SCORE} and {STACKING}.",
    f"{NAME_ITS_LIKELIHOOD.shell} Log densities are enough for {STACKING.shell}.",
)


def by_reason(reasons: Mapping[str, str], word: Callable[[str], str] = str) -> dict[str, str]:
    """Turn name → reason into reason → names, so that nothing is said twice.

    Examples
    --------
    >>> by_reason({"lock": "No slope.", "quack": "No norm.", "hybrid": "No slope."})
    {'No slope.': 'lock, hybrid', 'No norm.': 'quack'}
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(word(reason), []).append(name)
    return {reason: ", ".join(each) for reason, each in names.items()}
