"""Models given as a JAX function: the log density of one observation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lockquack.adapters.evaluable import DensityPredictive, described
from lockquack.adapters.parameters import samples_first
from lockquack.errors import LockquackError, ParameterError, ShapeError, SupportError
from lockquack.families import find_family
from lockquack.families.refused import find_refused
from lockquack.jets import Array, Jet, Numeric
from lockquack.labels import labels_of, require_same_labels
from lockquack.numeric import as_numeric
from lockquack.observations import Observations, as_observations, require_inside
from lockquack.predictive import Likelihood, Predictive, Selection

#: Numbers that one compiled call works on: its intermediate results stay in a core's cache.
_AT_ONCE = 2**16
#: Fewest outcomes, and fewest and most draws, of a compiled call: smaller requests are padded.
_FEWEST_OUTCOMES = 128
_FEWEST_DRAWS, _MOST_DRAWS = 16, 512
#: Chunks of draws that are remembered: the one being read and its predecessor.
_REMEMBERED = 2

#: Log densities of one draw: outcomes (p,) or (p, d), parameters, observations (p,) → (p,).
Density = Callable[[Any, Any, Any], Any]


class Evaluator:
    """A log density in JAX, compiled and evaluated with its derivatives in float64.

    For a draw's log densities ℓ_i(y_i), each a function of its own outcome only, one
    directional derivative gives all ∂ℓ_i, and the derivative of that derivative all ∂²ℓ_i; for
    vector outcomes one pair per component. Requests are padded to few different sizes, because
    each size is compiled once.
    """

    def __init__(self, density: Density, params: Any, d: int | None) -> None:
        self.density = density
        self.params = params  # a pytree of arrays (chain, draw, ...)
        self.d = d  # components of an outcome, None: it is a scalar
        self._compiled: dict[bool, Callable[..., Any]] = {}

    def jets(
        self, y: Array, rows: NDArray[np.intp], chain: int, draws: slice, *, derivatives: bool
    ) -> Jet:
        """Jets (draws, p) of some draws at outcomes y, (p, d), of the observations rows, (p,)."""
        import jax

        p = len(rows)
        at = np.minimum(np.arange(_padded(p)), p - 1)
        outcomes = y[at] if self.d is not None else y[at, 0]
        chosen = np.arange(*draws.indices(jax.tree.leaves(self.params)[0].shape[1]))
        step = self._padded_draws(chosen.size, p)
        parts = []
        for start in range(0, chosen.size, step):
            some = chosen[start : start + step]
            padded = np.pad(some, (0, step - some.size), mode="edge")
            theta = jax.tree.map(lambda draws, at=padded: draws[chain, at], self.params)
            with double_precision():
                result = self._function(derivatives)(outcomes, theta, rows[at])
            parts.append([np.asarray(part)[: some.size, :p] for part in result])
        joined = [
            np.concatenate(each) if len(parts) > 1 else each[0] for each in zip(*parts, strict=True)
        ]
        logp, *rest = joined
        if not derivatives:
            nothing = np.empty((*logp.shape, 0))
            return Jet(logp, nothing, nothing)
        grad, curv = (part.reshape(*logp.shape, -1) for part in rest)
        return Jet(logp, grad, curv)

    def draws_at_once(self, p: int) -> int:
        """Draws that a compiled call takes for p outcomes."""
        return min(max(_AT_ONCE // (_padded(p) * (self.d or 1)), 1), _MOST_DRAWS)

    def _padded_draws(self, count: int, p: int) -> int:
        """Round up to one of a few numbers of draws."""
        size = self.draws_at_once(p)
        while size >= 8 * count and size > _FEWEST_DRAWS:
            size //= 8
        return size

    def _function(self, derivatives: bool) -> Callable[..., Any]:
        import jax

        if derivatives not in self._compiled:
            one_draw = self._jet if derivatives else self._logp
            self._compiled[derivatives] = jax.jit(jax.vmap(one_draw, in_axes=(None, 0, None)))
        return self._compiled[derivatives]

    def _logp(self, y: Any, theta: Any, rows: Any) -> tuple[Any]:
        return (self.density(y, theta, rows),)

    def _jet(self, y: Any, theta: Any, rows: Any) -> tuple[Any, Any, Any]:
        import jax
        import jax.numpy as jnp

        def logp(at: Any) -> Any:
            return self.density(at, theta, rows)

        def along(direction: Any) -> tuple[Any, Any, Any]:
            step = jnp.broadcast_to(direction, y.shape)
            first = lambda at: jax.jvp(logp, (at,), (step,))  # noqa: E731
            (value, slope), (_, bend) = jax.jvp(first, (y,), (step,))
            return value, slope, bend

        if self.d is None:
            value, slope, bend = along(1.0)
        else:
            each = jax.vmap(along, out_axes=(None, -1, -1))
            value, slope, bend = each(jnp.eye(self.d))
        # Outside the support autodiff sees a constant.
        known = jnp.isfinite(value) if self.d is None else jnp.isfinite(value)[:, None]
        return value, jnp.where(known, slope, jnp.nan), jnp.where(known, bend, jnp.nan)


def _padded(count: int) -> int:
    """Round up to a power of two."""
    return max(_FEWEST_OUTCOMES, 1 << (count - 1).bit_length())


@contextmanager
def double_precision() -> Iterator[None]:
    """Let JAX compute in float64 inside, whatever the session's setting."""
    import jax

    with jax.enable_x64(True):
        try:
            yield
        except (ValueError, RuntimeError) as error:
            if any(sign in str(error) for sign in _MIXED_PRECISION):
                raise LockquackError(
                    "JAX met a numpy array that it had compiled in single precision before. Hand "
                    "all arrays to the function as arguments (model_kwargs=, data=), or make them "
                    "JAX arrays by jnp.asarray."
                ) from error
            raise


#: How JAX fails on an array that it remembers with another precision.
_MIXED_PRECISION = ("Cannot lower jaxpr with verifier errors", "RuntimeProgramInputMismatch")
_LIBRARIES = ("jax", "numpyro", "numpy", "scipy")


def own_arrays(value: Any) -> Any:
    """Copy the numpy arrays that a container holds, or that a function uses from outside.

    JAX (0.10 and 0.12) remembers an array that it compiled into a function together with the
    precision that it had then, and fails on the same array in the other precision. So the arrays
    of the user's session must not be seen in float64.
    """
    return _Copies().of(value)


class _Copies:
    """Copies of what has arrays inside; what has none stays the same object."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Copy anything that is known to have arrays inside."""
        if id(value) in self.made:
            return self.made[id(value)]
        if isinstance(value, np.ndarray):
            return value.copy()
        if type(value) in (list, tuple):
            parts = [self.of(part) for part in value]
            return type(value)(parts) if _differ(parts, value) else value
        if type(value) is dict:
            parts = [self.of(part) for part in value.values()]
            return dict(zip(value, parts, strict=True)) if _differ(parts, value.values()) else value
        if isinstance(value, partial):
            func, args = self.of(value.func), self.of(value.args)
            return partial(func, *args, **self.of(value.keywords))
        if isinstance(value, MethodType):
            return MethodType(self.of(value.__func__), self._object(value.__self__))
        if isinstance(value, FunctionType):
            return self._function(value)
        # What NumPyro wraps around a model.
        return self._object(value) if callable(getattr(value, "fn", None)) else value

    def _object(self, value: Any) -> Any:
        twin = self.made[id(value)] = copy(value)
        vars(twin).update({name: self.of(part) for name, part in vars(value).items()})
        return twin

    def _function(self, function: FunctionType) -> FunctionType:
        """Make the same function of copies of what it looks up, helpers of its module included."""
        if (function.__module__ or "").split(".")[0] in _LIBRARIES:
            return function
        names = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        twin = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells or None
        )
        twin.__kwdefaults__ = function.__kwdefaults__
        self.made[id(function)] = twin
        for name in _names_in(function.__code__) & names.keys():
            module = getattr(names[name], "__module__", function.__module__)
            if module == function.__module__ or not isinstance(names[name], FunctionType):
                names[name] = self.of(names[name])
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a name that is not bound yet
                cell.cell_contents = self.of(original.cell_contents)
        return twin


def _differ(parts: Iterable[Any], originals: Iterable[Any]) -> bool:
    return any(part is not original for part, original in zip(parts, originals, strict=True))


def _names_in(code: CodeType) -> set[str]:
    """Names that a function and the functions inside it look up."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


@dataclass(frozen=True, eq=False, repr=False)
class JaxPredictive(DensityPredictive):
    """Draws of the parameters of a density that JAX evaluates."""

    evaluator: Evaluator
    #: Makes the same posterior's model of other observations, from y and their data.
    elsewhere: Callable[[Any, Mapping[str, Any]], Predictive]

    def jets_at(
        self, y: Array, chain: int, draws: slice, obs: Selection, *, derivatives: bool
    ) -> Jet:
        """Evaluate at outcomes y, (point, obs, d) → Jet of (point, draws, obs)."""
        rows = np.arange(self.n_obs)[obs]
        jet = self.evaluator.jets(
            y.reshape(-1, y.shape[2]),
            np.tile(rows, len(y)),
            chain,
            draws,
            derivatives=derivatives,
        )

        def points_first(part: Array) -> Array:
            split = part.reshape(len(part), len(y), rows.size, *part.shape[2:])
            return np.moveaxis(split, 1, 0)

        return Jet(*map(points_first, (jet.logp, jet.grad, jet.curv)))

    def with_data(self, y: Any, /, **data: Any) -> Predictive:
        """Return the same posterior's predictions of other outcomes, with other data.

        Parameters
        ----------
        y
            The outcomes at which to predict.
        **data
            Their covariates, as the model was given its own; for a NumPyro model the arguments
            that change.
        """
        return self.elsewhere(y, data)

    def _tile(self, chain: int, draws: slice, obs: slice, *, derivatives: bool) -> Jet:
        """Evaluate whole chunks of draws and remember them: passes read small tiles in order."""
        if draws.step not in (None, 1):
            return super()._tile(chain, draws, obs, derivatives=derivatives)
        start, stop, _ = draws.indices(self.n_draws)
        size = self.evaluator.draws_at_once(obs.stop - obs.start)
        parts = []
        for first in range(start - start % size, stop, size):
            chunk = self._chunk(chain, slice(first, first + size), obs, derivatives)
            parts.append(chunk[:, max(start - first, 0) : stop - first])
        if len(parts) == 1:
            return parts[0]
        fields = zip(*((part.logp, part.grad, part.curv) for part in parts), strict=True)
        return Jet(*(np.concatenate(each, axis=1) for each in fields))

    def _chunk(self, chain: int, draws: slice, obs: slice, derivatives: bool) -> Jet:
        # Compiling costs more than derivatives in one number do: there is one function for both.
        derivatives = self.has_derivatives and (derivatives or self.evaluator.d is None)
        place = (chain, draws.start, obs.start, obs.stop)
        for key in ((place, True), (place, derivatives)):
            if key in self._last:
                return self._last[key]
        y = self.observations.values[None, obs]
        jet = self.jets_at(y, chain, draws, obs, derivatives=derivatives)
        while len(self._last) >= _REMEMBERED:
            del self._last[next(iter(self._last))]
        self._last[place, derivatives] = jet
        return jet


def from_jax(
    log_density: Callable[..., Any],
    params: Any,
    *,
    y: Any,
    data: Mapping[str, Any] | None = None,
    support: tuple[float, float] | None = None,
    component_dim: Hashable | None = None,
    likelihood: str | None = None,
) -> Predictive:
    r"""Take a model from a JAX function that gives the log density of one observation.

    .. math:: \texttt{log\_density}(y_i, \theta_s, \texttt{**}x_i) = \log f(y_i \mid \theta_s, x_i)

    The derivatives in y are JAX's own, forward over forward, and everything is computed in
    float64 whatever the session's setting, which is left as it was.

    Automatic differentiation does not see kinks, jumps and atoms: name the likelihood where it
    is a Laplace, uniform, truncated, censored or discrete one, so that scores that need a
    smooth density refuse it. Where the support ends, and how the density behaves there, is
    looked up by name or else found by looking at the density; give ``support`` where the
    function is not −inf or NaN outside.

    Parameters
    ----------
    log_density
        A function of one outcome (a number, or a vector (d,)), one draw of the parameters, and
        the data of one observation by keyword. It returns one number.
    params
        Draws of the parameters: a dict of arrays (chain, draw, ...), or any pytree of such. A
        Dataset, such as ``idata.posterior``, will do.
    y
        The outcomes, (obs,) or (obs, component). A DataArray passes on its labels.
    data
        What differs between observations, such as covariates and group indices: arrays (obs, ...).
    support
        Lower and upper end of the outcomes that are possible, if not all reals.
    component_dim
        Which dimension of a DataArray ``y`` holds the components of a vector outcome.
    likelihood
        What the density is of, such as ``"weibull"``: for messages and tables, and to look up
        whether it is smooth.

    Returns
    -------
    Predictive
        A model for :func:`lockquack.lock` and its relatives; its method ``with_data(y, **data)``
        gives the same posterior's predictions of other outcomes.

    Examples
    --------
    >>> import lockquack as lq
    >>> from jax.scipy import stats  # doctest: +SKIP
    >>> def log_density(y, params, x, school):
    ...     mu = params["alpha"][school] + params["beta"] * x
    ...     return stats.norm.logpdf(y, mu, params["sigma"])
    >>> lq.from_jax(  # doctest: +SKIP
    ...     log_density, idata.posterior, y=y, data={"x": x, "school": school},
    ...     likelihood="normal",
    ... )
    <JaxPredictive normal; chain: 4, draw: 1000, obs_id: 50, components: 1>
    """
    log_density = own_arrays(log_density)
    observations = as_observations(y, component_dim)
    theta = read_draws(params)
    table = _read_data(data or {}, observations)
    _require_one_number(log_density, theta, observations, table)
    name = likelihood or "JAX density"
    discrete = _is_discrete(name)
    ends = _read_support(support, observations)

    def elsewhere(y: Any, data: Mapping[str, Any]) -> Predictive:
        return from_jax(
            log_density,
            theta,
            y=y,
            data=data,
            support=support,
            component_dim=component_dim,
            likelihood=likelihood,
        )

    n_chains, n_draws = sample_shape(theta)
    density = _over_observations(log_density, table, ends, discrete)
    model = JaxPredictive(
        observations,
        n_chains=n_chains,
        n_draws=n_draws,
        likelihood=Likelihood(name, discrete=discrete),
        evaluator=Evaluator(density, theta, _components(observations)),
        elsewhere=elsewhere,
    )
    return described(model, name)


def _over_observations(
    log_density: Callable[..., Any],
    table: Mapping[str, Numeric],
    ends: tuple[float, float] | None,
    discrete: bool,
) -> Density:
    """Make the density of one observation one of many, −inf outside the support."""

    def density(y: Any, theta: Any, rows: Any) -> Any:
        import jax
        import jax.numpy as jnp

        each = {name: jnp.asarray(values)[rows] for name, values in table.items()}
        outcome = y.astype(int) if discrete else y
        logp = jax.vmap(lambda at, row: log_density(at, theta, **row))(outcome, each)
        if ends is None:
            return logp
        inside = (y > ends[0]) & (y < ends[1])
        return jnp.where(inside if y.ndim == 1 else inside.all(axis=1), logp, -jnp.inf)

    return density


def read_draws(params: Any) -> Any:
    """Read a pytree of draws as numpy arrays (chain, draw, ...), in float64 where they are real."""
    import jax

    if isinstance(params, xr.Dataset):
        params = {str(name): values for name, values in params.data_vars.items()}
    is_labelled = lambda leaf: isinstance(leaf, xr.DataArray)  # noqa: E731
    labelled, structure = jax.tree.flatten_with_path(params, is_leaf=is_labelled)
    leaves = [_read_leaf(jax.tree_util.keystr(path), leaf) for path, leaf in labelled]
    shapes = {leaf.shape[:2] for leaf in leaves}
    if len(shapes) != 1 or 0 in next(iter(shapes)):
        listed = ", ".join(
            f"{jax.tree_util.keystr(path)}: {leaf.shape}"
            for (path, _), leaf in zip(labelled, leaves, strict=True)
        )
        raise ParameterError(
            "The parameters must have the same chains and draws, at least one, as their first two "
            f"axes; got {listed or 'no parameters'}."
        )
    return jax.tree.unflatten(structure, leaves)


def _read_leaf(name: str, given: Any) -> Numeric:
    if isinstance(given, xr.DataArray):
        given = samples_first(name, given)
    values = as_numeric(f"Parameter {name}", given, ParameterError)
    if values.ndim < 2:
        raise ParameterError(
            f"Parameter {name} has shape {values.shape}; it must be (chain, draw, ...). For a "
            "single chain, add its axis: array[None]. What is the same in all draws belongs into "
            "the function, or into data."
        )
    if values.dtype.kind == "f":
        values = np.asarray(values, dtype=np.float64)
        bad = np.argwhere(~np.isfinite(values))
        if bad.size:
            raise ParameterError(
                f"Parameter {name} must be finite; it is {values[tuple(bad[0])]} at chain "
                f"{bad[0][0]}, draw {bad[0][1]}, and {len(bad) - 1} more of its values are not."
            )
    return values


def sample_shape(theta: Any) -> tuple[int, int]:
    """Return chains and draws of parameters that were read."""
    import jax

    chains, draws = jax.tree.leaves(theta)[0].shape[:2]
    return int(chains), int(draws)


def _components(observations: Observations) -> int | None:
    return None if observations.component_dim is None else observations.d


def _read_data(data: Mapping[str, Any], observations: Observations) -> dict[str, Numeric]:
    """Bring the data of the observations to (obs, ...)."""
    table = {}
    for name, given in data.items():
        if isinstance(given, xr.DataArray):
            require_same_labels(f"data[{name!r}]", labels_of(given), observations.labels)
        values = as_numeric(f"data[{name!r}]", given, ParameterError)
        grid = len(observations.shape)
        if values.shape[:grid] == observations.shape:
            values = values.reshape(observations.n, *values.shape[grid:])
        elif values.shape[:1] != (observations.n,):
            raise ShapeError(
                f"data[{name!r}] has shape {values.shape}; its first axis must be the "
                f"observations, of which there are {observations.n}. What they share belongs into "
                "the function."
            )
        table[name] = np.array(values, dtype=np.float64 if values.dtype.kind == "f" else None)
    return table


def _read_support(
    support: tuple[float, float] | None, observations: Observations
) -> tuple[float, float] | None:
    if support is None:
        return None
    ends = as_numeric("support", support, SupportError)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise SupportError(
            f"support must be two numbers, the lower first, such as (0, np.inf); got {support!r}."
        )
    low, high = float(ends[0]), float(ends[1])
    require_inside("support", observations.values, (low, high), observations)
    return low, high


def _is_discrete(name: str) -> bool:
    family, refused = find_family(name), find_refused(name)
    return bool((family and family.discrete) or (refused and refused.discrete))


def _require_one_number(
    log_density: Callable[..., Any],
    theta: Any,
    observations: Observations,
    table: Mapping[str, Numeric],
) -> None:
    """Try the function on one observation and one draw."""
    import jax

    outcome = observations.values[0] if _components(observations) else observations.values[0, 0]
    draw = jax.tree.map(lambda draws: draws[0, 0], theta)
    row = {name: values[0] for name, values in table.items()}
    with double_precision():
        try:
            shape = jax.eval_shape(
                lambda y, draw, row: log_density(y, draw, **row), outcome, draw, row
            )
        except Exception as error:
            raise LockquackError(
                "log_density(y, params, **data) does not run for one observation and one draw, "
                f"with data {list(row) or 'none'}: {error}"
            ) from error
    if getattr(shape, "shape", None) != ():
        raise ShapeError(
            "log_density must return one number, the log density of one observation; it returns "
            f"{shape}. It is mapped over observations and draws by lockquack."
        )
