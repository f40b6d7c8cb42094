"""Errors and notes speak of Python; here they speak of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What messages of the library say → what to do in a shell. The first that fits a place counts.
_PHRASES = (
    (
        r"Make the model with from_family or a PPL adapter, or give from_arrays grad= and curv=\. "
        r"Log densities are enough for LogScore\(\) and lq\.stack\.",
        "Name its likelihood by --family. Log densities are enough for --operator linear.",
    ),
    (
        r"Make (it|the model) with from_family or a PPL adapter\.",
        "Name its likelihood by --family.",
    ),
    (r"Use from_family or a PPL adapter\.", "Name its likelihood by --family."),
    (r"Hyvarinen\(transform='(\w+)'\)", r"--score-transform \1"),
    (r"Hyvarinen\(\)", "--rule hyvarinen"),
    (r"LogScore\(\)", "--rule log"),
    (r"PairwiseScore\(\)", "--rule pairwise"),
    (r"mix them by stack", "--operator linear"),
    (r"lq\.stack", "--operator linear"),
    (r"\(lq\.stan_code\('normal'\) shows how\)", "(docs/howto/stan.md shows how)"),
    (r"by (?:log_lik|var_name)=", "by --var-name"),
    (r"by family= with its parameters", "by --family"),
    (r"give log_lik=None", "use --ignore-log-lik"),
    (r"with scale=", "by --scale"),
)


def shell_words(message: str) -> str:
    """Put a message into words of the command line, on one line.

    Examples
    --------
    >>> shell_words("Use Hyvarinen(transform='log'), or LogScore().")
    'Use --score-transform log, or --rule log.'
    """
    for phrase, shell in _PHRASES:
        message = re.sub(phrase, shell, message)
    return " ".join(message.split())


def by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    """Turn name → reason into reason → names, so that nothing is said twice.

    Examples
    --------
    >>> by_reason({"lock": "No slope.", "quack": "No norm.", "hybrid": "No slope."})
    {'No slope.': 'lock, hybrid', 'No norm.': 'quack'}
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(shell_words(reason), []).append(name)
    return {reason: ", ".join(each) for reason, each in names.items()}
