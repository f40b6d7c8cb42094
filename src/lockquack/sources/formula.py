"""A likelihood written as text, ``student_t(nu=nu, mu=alpha + beta * x, sigma=sigma)``.

So that a file of draws, which does not say what density it is of, can be made a model from a
shell. Expressions are read by Python's own parser, and only what is listed here is computed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import expit

from lockquack.errors import ParameterError, ShapeError, unknown_name
from lockquack.families import FAMILIES, get_family
from lockquack.models.observations import SAMPLE_DIMS

#: Values of names: numbers, or arrays whose draws have the dimensions chain and draw.
Variables = Mapping[str, xr.DataArray]

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "inv_logit": expit,
}


@dataclass(frozen=True)
class Formula:
    """A family, the expressions of its parameters, and the transform of the outcome."""

    family: str
    parameters: Mapping[str, ast.expr] = field(default_factory=dict)
    transform: str | None = None

    def evaluate(self, variables: Variables) -> dict[str, Any]:
        """Compute the parameters from variables.

        Without expressions, each parameter is the variable of its name.
        """
        expressions = self.parameters or self._own_names(variables)
        # What differs in labels must not be cut down silently to what it shares.
        with xr.set_options(arithmetic_join="exact"):  # type: ignore[no-untyped-call]
            return {name: _evaluate(each, variables) for name, each in expressions.items()}

    def _own_names(self, variables: Variables) -> dict[str, ast.expr]:
        signatures = FAMILIES[self.family].signatures
        for signature in signatures:
            if all(name in variables for name in signature):
                return {name: ast.Name(name) for name in signature}
        wanted = ", ".join(signatures[0])
        example = ", ".join(f"{name}=..." for name in signatures[0])
        raise ParameterError(
            f"The parameters of {self.family} are {wanted}; the variables are "
            f"{_listed(variables)}. Say which is which: {self.family}({example})."
        )


def parse_formula(text: str) -> Formula:
    """Read a formula.

    Examples
    --------
    >>> formula = parse_formula("normal(mu=alpha + beta * x, sigma=sigma, transform=log)")
    >>> formula.family, list(formula.parameters), formula.transform
    ('normal', ['mu', 'sigma'], 'log')
    >>> parse_formula("norml")
    Traceback (most recent call last):
    lockquack.errors.UnknownNameError: Unknown family 'norml'. Did you mean 'normal'? ...
    """
    try:
        parsed = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise _unreadable(text) from error
    if isinstance(parsed, ast.Name):
        return Formula(_family(parsed.id))
    if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name) or parsed.args:
        raise _unreadable(text)
    given = {each.arg: each.value for each in parsed.keywords if each.arg is not None}
    if len(given) < len(parsed.keywords):
        raise _unreadable(text)
    transform = given.pop("transform", None)
    if not isinstance(transform, ast.Name | None):
        raise _unreadable(text)
    return Formula(_family(parsed.func.id), given, transform.id if transform else None)


def on_observations(given: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Let the first dimension that has the length of the observations be theirs.

    ArviZ calls it after each variable, mu_dim_0 or x_dim_0, if nobody says better.
    """
    own = [dim for dim in given.dims if dim not in SAMPLE_DIMS]
    if y.ndim == 0 or any(dim in y.dims for dim in own):
        return given
    for dim in own:
        if given.sizes[dim] == y.sizes[y.dims[0]]:
            return given.rename({dim: y.dims[0]})
    return given


def _evaluate(node: ast.expr, variables: Variables) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            if name not in variables:
                raise unknown_name("variable", name, map(str, variables))
            return variables[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, variables)
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return _product(_evaluate(left, variables), _evaluate(right, variables))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _combine(node, sign, _evaluate(left, variables), _evaluate(right, variables))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            if name not in FUNCTIONS:
                raise unknown_name("function", name, FUNCTIONS)
            return FUNCTIONS[name](_evaluate(argument, variables))
    raise ParameterError(
        f"Cannot compute {ast.unparse(node)!r}: write names of variables, numbers, + - * / **, "
        f"X @ beta and {', '.join(FUNCTIONS)}."
    )


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def _combine(node: ast.expr, sign: ast.operator, left: Any, right: Any) -> Any:
    try:
        return _OPERATORS[type(sign)](left, right)
    except ValueError as error:  # labels or lengths that differ
        raise ShapeError(
            f"The parts of {ast.unparse(node)!r} do not fit together: {dict(left.sizes)} and "
            f"{dict(right.sizes)}, or their labels differ."
        ) from error


def _product(X: Any, beta: Any) -> xr.DataArray:
    """Sum over the last axis of X and the first own one of beta, whatever they are called."""
    if not (isinstance(X, xr.DataArray) and isinstance(beta, xr.DataArray)):
        raise ShapeError("Both sides of @ must be arrays; use * for numbers.")
    covariate = [dim for dim in X.dims if dim not in SAMPLE_DIMS][-1:]
    coefficient = [dim for dim in beta.dims if dim not in SAMPLE_DIMS][:1]
    if (
        not (covariate and coefficient)
        or X.sizes[covariate[0]] != beta.sizes[coefficient[0]]
        or X.ndim < 2
    ):
        raise ShapeError(
            f"X @ beta needs X of (observations, covariates) and beta of (covariates); got "
            f"{dict(X.sizes)} and {dict(beta.sizes)}."
        )
    summed = "_covariate"
    left = X.drop_vars(covariate, errors="ignore").rename({covariate[0]: summed})
    right = beta.drop_vars(coefficient, errors="ignore").rename({coefficient[0]: summed})
    return xr.dot(left, right, dim=summed)


def _family(name: str) -> str:
    if name == "mixture":
        raise ParameterError("A mixture cannot be written as text; make it with lq.from_family.")
    return get_family(name).name


def _listed(names: Iterable[object], most: int = 12) -> str:
    listed = [str(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "none") + more


def _unreadable(text: str) -> ParameterError:
    return ParameterError(
        f"Cannot read the family {text!r}. Write it like normal(mu=mu, sigma=sigma), or "
        "normal(mu=alpha + beta * x, sigma=sigma, transform=log) for a model of log y."
    )
