"""Models given as a JAX function: the log density of one observation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import LockquackError, ParameterError, ShapeError, first_line
from lockquack.families import find_family
from lockquack.families.refused import find_refused
from lockquack.jets import Numeric
from lockquack.models.labels import from_pandas, labels_of, merge_labels, require_same_labels
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import (
    Observations,
    as_observations,
    as_support,
    require_inside,
)
from lockquack.models.source import Source
from lockquack.models.transformed import on_natural_scale, on_scale_of_model
from lockquack.numeric import as_numeric
from lockquack.sources.density import described
from lockquack.sources.jax_evaluation import Density, Evaluator, JaxSource
from lockquack.sources.jax_indices import stays_inside
from lockquack.sources.jax_precision import double_precision, own_arrays
from lockquack.sources.jax_sampling import Sampler
from lockquack.sources.parameters import samples_first


@own_arithmetic
def from_jax(
    log_density: Callable[..., Any],
    params: Any,
    *,
    y: Any,
    data: Mapping[str, Any] | None = None,
    support: tuple[float, float] | None = None,
    component_dim: Hashable | None = None,
    likelihood: str | None = None,
    sample: Callable[..., Any] | None = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    r"""Take a model from a JAX function that gives the log density of one observation.

    .. math:: \texttt{log\_density}(y_i, \theta_s, \texttt{**}x_i) = \log f(y_i \mid \theta_s, x_i)

    The derivatives with respect to y are JAX's own, forward over forward, and everything is
    computed in float64 whatever the session's setting, which is left as it was.

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
        Draws of the parameters: a dict of arrays (chain, draw, ...), or any pytree of such; or
        an ArviZ container with a posterior, or that Dataset.
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
    sample
        A function of a JAX random key, one draw of the parameters, and the data of one
        observation by keyword, that returns one random outcome. Combinations of vector outcomes
        can be sampled if all their models have one; scalar outcomes do without.
    transform
        ``"log"`` or another name of :func:`from_family` if the function is the log density of that
        function of y, and ``sample`` draws it. ``y`` is given **on its natural scale**,
        ``support`` on that of the model.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`.

    Returns
    -------
    Model
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
    <Model normal; chain: 4, draw: 1000, obs_id: 50, components: 1>
    """
    log_density = own_arrays(log_density)
    natural = as_observations(y, component_dim)
    observations = on_scale_of_model(natural, transform)
    theta = read_draws(params)
    table = _read_data(data or {}, observations)
    _require_one_number(log_density, theta, observations, table)
    _require_known_groups(log_density, theta, observations, table)
    name = likelihood or "JAX density"
    discrete = _is_discrete(name)
    ends = _read_support(support, observations)

    def rebuild(y: Any, data: Mapping[str, Any]) -> Source:
        return from_jax(
            log_density,
            theta,
            y=y,
            data=data,
            support=support,
            component_dim=component_dim,
            likelihood=likelihood,
            sample=sample,
        ).source

    n_chains, n_draws = sample_shape(theta)
    density = _over_observations(log_density, table, ends, discrete)
    source = JaxSource(
        observations,
        n_chains=n_chains,
        n_draws=n_draws,
        likelihood=Likelihood(name, discrete=discrete),
        evaluator=Evaluator(density, theta, _components(observations)),
        rebuild=rebuild,
        names=frozenset(table),
        sampler=None if sample is None else _sampler(sample, theta, table, observations),
    )
    natural_source = on_natural_scale(described(source, name), transform, natural)
    return Model(natural_source).with_weights(weights)


def _sampler(
    sample: Callable[..., Any],
    theta: Any,
    table: Mapping[str, Numeric],
    observations: Observations,
) -> Sampler:
    """Make random outcomes of many observations from a function for one."""
    import jax
    import jax.numpy as jnp

    d = _components(observations)
    sample = own_arrays(sample)

    def random(key: Any, theta: Any, rows: Any) -> Any:
        each = {name: jnp.asarray(values)[rows] for name, values in table.items()}
        keys = jax.random.split(key, len(rows))
        return jax.vmap(lambda key, row: sample(key, theta, **row))(keys, each)

    sampler = Sampler([random], theta, d)
    if not sampler.works:
        raise ParameterError(
            "sample(key, params, **data) does not return one outcome of one observation, "
            f"{'a number' if d is None else f'a vector ({d},)'}, with data {list(table) or 'none'}."
        )
    return sampler


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

    params = _posterior(params)
    if isinstance(params, xr.Dataset):
        params = {str(name): values for name, values in params.data_vars.items()}
    is_labelled = lambda leaf: isinstance(leaf, xr.DataArray)  # noqa: E731
    labelled, structure = jax.tree.flatten_with_path(params, is_leaf=is_labelled)
    leaves = [_read_leaf(jax.tree_util.keystr(path), leaf) for path, leaf in labelled]
    merge_labels({jax.tree_util.keystr(path): leaf for path, leaf in labelled})
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


def _posterior(params: Any) -> Any:
    """Take the posterior out of an ArviZ container."""
    if isinstance(params, xr.DataTree):
        return params.children.get("posterior", params).to_dataset()
    is_container = callable(getattr(params, "groups", None)) and hasattr(params, "posterior")
    return params.posterior if is_container else params


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
        given = from_pandas(given, observations.dims[0], "", named=False)
        if isinstance(given, xr.DataArray):
            require_same_labels(f"data[{name!r}]", labels_of(given), observations.index)
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
    ends = as_support(support)
    require_inside("support", observations.values, ends, observations)
    return ends


def _is_discrete(name: str) -> bool:
    family, refused = find_family(name), find_refused(name)
    return bool((family and family.discrete) or (refused and refused.discrete))


def _require_known_groups(
    log_density: Callable[..., Any],
    theta: Any,
    observations: Observations,
    table: Mapping[str, Numeric],
) -> None:
    """Refuse indices among the data that are too large for the parameters."""
    import jax

    draw = jax.tree.map(lambda draws: draws[0, 0], theta)
    y = observations.values if _components(observations) else observations.values[:, 0]
    indices = {name: values for name, values in table.items() if values.dtype.kind in "iu"}

    def all_of_them(draw: Any, rows: Any) -> Any:
        return jax.vmap(lambda y, row: log_density(y, draw, **row))(y, rows)

    if not indices or stays_inside(all_of_them, draw, dict(table)):
        return
    for name, values in indices.items():
        zeros = {**table, name: np.zeros_like(values)}
        if stays_inside(all_of_them, draw, zeros):
            raise ParameterError(
                f"data[{name!r}] has indices up to {values.max()}, and the parameters have fewer "
                "elements; JAX would take the last one in place of those that are missing. Count "
                "groups from 0, and predict only groups that the draws are of."
            )
    raise ParameterError(
        f"An index among the data {list(indices)} is too large for the parameters; JAX would take "
        "their last element instead. Count groups from 0, and predict only groups that the draws "
        "are of."
    )


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
                f"with data {list(row) or 'none'}: {first_line(error)}."
            ) from error
    if getattr(shape, "shape", None) != ():
        raise ShapeError(
            "log_density must return one number, the log density of one observation; it returns "
            f"{shape}. It is mapped over observations and draws by lockquack."
        )
