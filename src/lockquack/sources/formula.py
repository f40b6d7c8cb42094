"""A likelihood written as text, ``student_t(nu=nu, mu=alpha + beta * x, sigma=sigma)``.

So that a file of draws, which does not say what density it is of, can be made a model from a
shell. Expressions are read by Python's own parser, and only what is listed here is computed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import expit

from lockquack.errors import ParameterError, ShapeError, unknown_name
from lockquack.families import FAMILIES, get_family
from lockquack.models.labels import labels_of, require_same_labels, require_same_order
from lockquack.models.observations import SAMPLE_DIMS

#: Values of names: numbers, or arrays whose draws have the dimensions chain and draw.
Variables = Mapping[str, xr.DataArray]

#: The attribute that says how the elements of an array without labels are counted.
COUNTED_FROM = "lockquack_counted_from"

#: Characters of a formula that are read.
_LONGEST = 10_000

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

    def evaluate(self, variables: Variables, y: xr.DataArray | None = None) -> dict[str, Any]:
        """Compute the parameters from variables; one of the length of y is along y.

        Without expressions, each parameter is the variable of its name.
        """
        expressions = self.parameters or self._own_names(variables)
        names = _Names(variables, y)
        # What differs in labels must not be cut down silently to what it shares.
        with (
            xr.set_options(arithmetic_join="exact"),  # type: ignore[no-untyped-call]
            np.errstate(all="ignore"),  # what is not finite is refused as a parameter
        ):
            try:
                return {name: _evaluate(each, names) for name, each in expressions.items()}
            except RecursionError as error:
                raise ParameterError(
                    f"The parameters of {self.family} are nested too deeply. Compute parts of them "
                    "where the file is made."
                ) from error

    def _own_names(self, variables: Variables) -> dict[str, ast.expr]:
        signatures = FAMILIES[self.family].signatures
        for signature in signatures:
            if all(name in variables for name in signature):
                return {name: ast.Name(name) for name in signature}
        wanted = ", ".join(signatures[0])
        example = ", ".join(
            f"{name}={name if name in variables else '...'}" for name in signatures[0]
        )
        raise ParameterError(
            f"The parameters of {self.family} are {wanted}; the variables are "
            f"{_listed(variables)}. Say which is which, by variables, numbers or formulas: "
            f"{self.family}({example})."
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
    if len(text) > _LONGEST:
        raise ParameterError(
            f"The family {text[:40]!r}... has {len(text)} characters; at most {_LONGEST} are read."
        )
    try:
        parsed = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Parts that are nested too deeply end the parser in one of the last two.
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
    theirs = labels_of(y).get(str(y.dims[0]))
    for dim in own:
        if given.sizes[dim] == y.sizes[y.dims[0]]:
            if theirs is not None and dim in given.indexes:
                require_same_order(str(given.name), labels_of(given)[str(dim)], theirs)
            # Its labels are another dimension's, and say nothing else about those of y.
            return given.drop_vars([dim], errors="ignore").rename({dim: y.dims[0]})
    return given


@dataclass(frozen=True)
class _Names:
    """What names in an expression stand for."""

    variables: Variables
    y: xr.DataArray | None

    def __getitem__(self, name: str) -> xr.DataArray:
        """Look up a variable, along y where it has its length."""
        given = self.whole(name)
        return given if self.y is None else on_observations(given, self.y)

    def whole(self, name: str) -> xr.DataArray:
        """Look up a variable as it is."""
        if name not in self.variables:
            raise unknown_name("variable", name, map(str, self.variables))
        return self.variables[name]

    def element(self, name: str, indices: Sequence[ast.expr]) -> xr.DataArray:
        """Take elements of a variable by their labels: one, or one for each observation."""
        given = self.whole(name)
        own = [str(dim) for dim in given.dims if dim not in SAMPLE_DIMS]
        if len(indices) != len(own):
            raise ParameterError(
                f"{name!r} has {len(own)} index(es), of lengths "
                f"{[given.sizes[dim] for dim in own]}; got {len(indices)}: "
                f"{name}[{', '.join(map(ast.unparse, indices))}]."
            )
        places = {
            dim: self._position(name, _labels(name, given, dim), index)
            for dim, index in zip(own, indices, strict=True)
        }
        return given.isel(places).drop_vars(own, errors="ignore")

    def _position(self, name: str, labels: list[Any], index: ast.expr) -> Any:
        match index:
            case ast.Constant(value=int() | str() as label):
                wanted = xr.DataArray(label)
            case ast.Name(id=label) if label in labels and label not in self.variables:
                wanted = xr.DataArray(label)
            case ast.Name(id=other) if other not in labels:
                wanted = self[other]
            case ast.Name(id=both):
                raise ParameterError(
                    f"{name}[{both}] may be the element labelled {both!r}, or that which the "
                    f"variable {both!r} says. Write {name}['{both}'] for the former; rename one."
                )
            case _:
                raise ParameterError(
                    f"Cannot read the index of {name}[{ast.unparse(index)}]: write a label, such "
                    f"as {name}[{labels[0]}], or a variable that holds labels."
                )
        if any(dim in wanted.dims for dim in SAMPLE_DIMS):
            raise ParameterError(
                f"An index of {name!r} must be data; {ast.unparse(index)} has draws."
            )
        return _found(name, labels, wanted)


def _labels(name: str, given: xr.DataArray, dim: str) -> list[Any]:
    """Labels of the elements along a dimension; integers where the file only counts them."""
    if dim in given.coords:
        return list(given[dim].values.tolist())
    first = given.attrs.get(COUNTED_FROM)
    if first is None:
        raise ParameterError(
            f"The {given.sizes[dim]} elements of {name!r} have no labels, so it is not clear "
            "whether they are counted from 0 or from 1. Label them in the file (coords= of "
            "ArviZ), or use X @ beta."
        )
    return list(range(first, first + given.sizes[dim]))


def _found(name: str, labels: list[Any], wanted: xr.DataArray) -> xr.DataArray:
    """Positions of labels; numbers that are whole may be written as any number."""
    places = {label: at for at, label in enumerate(labels)}
    flat = wanted.values.ravel().tolist()
    unknown = [label for label in flat if label not in places]
    if unknown:
        counted = f", counted from {labels[0]}" if labels[0] in (0, 1) else ""
        raise ParameterError(
            f"{name!r} has no element {unknown[0]!r}: its labels are {_listed(labels)}{counted}."
        )
    positions = np.array([places[label] for label in flat], dtype=np.intp)
    return wanted.copy(data=positions.reshape(wanted.shape))


def _evaluate(node: ast.expr, names: _Names) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _number(number)
        case ast.Name(id=name):
            return names[name]
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=indices)):
            return names.element(name, indices)
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            return names.element(name, [index])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, names)
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return _product(_evaluate(left, names), _evaluate(right, names))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _combine(node, sign, _evaluate(left, names), _evaluate(right, names))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            if name not in FUNCTIONS:
                raise unknown_name("function", name, FUNCTIONS)
            return FUNCTIONS[name](_evaluate(argument, names))
    raise ParameterError(
        f"Cannot compute {ast.unparse(node)!r}: write names of variables, their elements such as "
        f"beta[1], numbers, + - * / **, X @ beta and {', '.join(FUNCTIONS)}."
    )


def _number(number: float) -> np.float64:
    """Read a number as numpy's, which divides by zero and overflows without an error."""
    try:
        return np.float64(number)
    except OverflowError:  # a whole number of hundreds of digits
        return np.float64(np.inf)


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
    _require_same_covariates(X, str(covariate[0]), beta, str(coefficient[0]))
    summed = "_covariate"
    left = X.drop_vars(covariate, errors="ignore").rename({covariate[0]: summed})
    right = beta.drop_vars(coefficient, errors="ignore").rename({coefficient[0]: summed})
    return xr.dot(left, right, dim=summed)


def _require_same_covariates(X: xr.DataArray, column: str, beta: xr.DataArray, row: str) -> None:
    """Refuse coefficients that are labelled like the columns of X, but in another order."""
    columns, coefficients = labels_of(X).get(column), labels_of(beta).get(row)
    if columns is not None and coefficients is not None:
        if row == column:
            require_same_labels(str(beta.name), {row: coefficients}, {row: columns}, str(X.name))
        require_same_order(str(beta.name), coefficients, columns, str(X.name))


def _family(name: str) -> str:
    if name == "mixture":
        raise ParameterError("A mixture cannot be written as text; make it with lq.from_family.")
    return get_family(name).name


def _listed(names: Iterable[object]) -> str:
    listed, most = [str(name) for name in names], 12
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "none") + more


def _unreadable(text: str) -> ParameterError:
    shown = text if len(text) < 200 else f"{text[:200]}..."
    return ParameterError(
        f"Cannot read the family {shown!r}. Write it like normal(mu=mu, sigma=sigma), or "
        "normal(mu=alpha + beta * x, sigma=sigma, transform=log) for a model for log y."
    )
