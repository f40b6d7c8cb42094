"""Random operators and rules, from the registries: a new one is fuzzed without change."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

import lockquack as lq
from lockquack.errors import LockquackError
from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.fitters import can_be_fitted, fitter_for
from lockquack.operators import OPERATORS, Operator
from lockquack.rules import RULES, Rule

#: Besides what their names alone determine.
_OPTIONS = [
    lq.Locking("nonnegative"),
    lq.Superposition(phases=0),
    lq.Superposition(capped=True),
    lq.Hoelder(-1),
    lq.Hoelder(0.3),
    lq.Hoelder(2),
]
FLAT = [*(kind() for kind in OPERATORS.values()), *_OPTIONS]
_RULES = [kind() for kind in RULES.values()]
PAIRS = [(operator, rule) for operator in FLAT for rule in _RULES if can_be_fitted(operator, rule)]
CONVEX = [pair for pair in PAIRS if issubclass(fitter_for(*pair), ConvexFitter)]
OTHERS = [pair for pair in PAIRS if pair not in CONVEX]


@st.composite
def operators(draw, names, depth=2) -> Operator:
    """Draw an operator of models of these names: a plain one, or a pool of pools."""
    if depth == 0 or len(names) < 2 or draw(st.integers(0, 2)) < 2:
        return draw(st.sampled_from(FLAT))
    members = []
    for _ in range(draw(st.integers(1, 3))):
        some = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        inner = draw(operators(some, depth - 1))
        members.append((inner, some) if draw(st.booleans()) else some[0])
    outer = draw(st.sampled_from([op for op in FLAT if not isinstance(op, lq.Selection)]))
    return lq.Nested(outer, members)


def parameters_of(operator: Operator, K: int, rng: np.random.Generator) -> np.ndarray:
    """Draw parameters of an operator, nothing special about them."""
    space = operator.space(np.ones(K))
    return space.natural(0.7 * rng.normal(size=space.size))


def fit_or_none(models: Mapping[str, lq.Model], operator: Operator, rule: Rule, **options):
    """Fit, or return None where the models are refused; anything but our own error is a finding."""
    try:
        return lq.combine(models, operator, rule, **options)
    except LockquackError:
        return None
