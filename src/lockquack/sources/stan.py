"""Models fitted with Stan, by CmdStanPy or PyStan."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import ceil
from typing import Any, TypeVar

import numpy as np

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ParameterError, UnsupportedError, unknown_name
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.source import Source
from lockquack.registry import require_known
from lockquack.sources.arrays import from_arrays
from lockquack.sources.family import from_family
from lockquack.words import advice

T = TypeVar("T")

#: What a Stan program calls log densities and their derivatives, unless the user says otherwise.
LOG_LIK, GRAD, CURV = "log_lik", "grad_y", "curv_y"


@own_arithmetic
def from_cmdstanpy(
    fit: Any,
    *,
    y: Any,
    family: str | None = None,
    transform: str | None = None,
    log_lik: str | None = LOG_LIK,
    grad: str = GRAD,
    curv: str = CURV,
    component_dim: Hashable | None = None,
    likelihood: str | None = None,
    support: tuple[float, float] | None = None,
    weights: Any = None,
    **parameters: Any,
) -> Model:
    r"""Take a model from a CmdStanPy fit.

    .. math::

        \texttt{log\_lik} = \log f(y_i \mid \theta_s), \quad
        \texttt{grad\_y} = \partial_{y} \log f(y_i \mid \theta_s), \quad
        \texttt{curv\_y} = \partial^2_{y} \log f(y_i \mid \theta_s)

    There are two ways. Either the program's generated quantities hold ``log_lik`` and the
    derivatives ``grad_y`` and ``curv_y`` in the **observation** (:func:`stan_code` writes them
    for common families); with ``log_lik`` alone, the model has a log score only. Or the
    likelihood is named by ``family``, with its parameters taken from the fit, as in
    :func:`from_family`: then the density is known everywhere, not only at the observations.

    Derivatives in generated quantities cannot be checked, because the density is known at one
    point only; a named family is compared with ``log_lik`` where the fit has it. CmdStan writes
    six digits unless it is told ``sig_figs=18``.

    Parameters
    ----------
    fit
        ``CmdStanMCMC``, ``CmdStanGQ``, or another fit with draws.
    y
        The outcomes, (obs,) or (obs, component), **on their natural scale**. A DataArray passes
        on its labels.
    family
        The likelihood; see :func:`from_family`.
    transform
        ``"log"`` or another name of :func:`from_family` if the model is one of that function of y:
        the family; or, without one, what the generated quantities are of. They get the Jacobian.
    log_lik, grad, curv
        What the program calls them. ``log_lik=None``: do not compare the family with it, for
        instance because it lacks the Jacobian of the transform.
    component_dim
        Which dimension of a DataArray ``y`` holds the components of a vector outcome.
    likelihood, support
        Without a family, what the densities are of and where they end; see :func:`from_arrays`.
        Name a likelihood such as ``"gamma"`` or ``"laplace"``, which a score may have to refuse.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`. Of the
        family ``"mixture"``, as in :func:`from_family`, the weights of its components.
    **parameters
        The family's parameters: the name of a Stan variable; or a function of all of them, a
        mapping from names to arrays (chain, draw, ...); or what :func:`from_family` takes.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives.

    Examples
    --------
    >>> import lockquack as lq
    >>> lq.from_cmdstanpy(fit, y=y)  # doctest: +SKIP
    >>> lq.from_cmdstanpy(  # doctest: +SKIP
    ...     fit, y=y, family="student_t", nu="nu", sigma="sigma",
    ...     mu=lambda v: lq.linear_predictor(X, v["beta"], intercept=v["alpha"]),
    ... )
    """
    variables = fit if isinstance(fit, _Variables) else cmdstanpy_variables(fit)
    if family is None:
        if parameters:
            given = ", ".join(parameters)
            raise ParameterError(f"{given} without a family: say which by family=.")
        draws = generated_quantities(variables, log_lik, grad, curv)
        return from_arrays(
            y=y,
            support=support,
            component_dim=component_dim,
            likelihood=likelihood,
            transform=transform,
            weights=weights,
            **draws,
        )
    if likelihood is not None or support is not None:
        raise ParameterError(
            "family= says what the likelihood is: leave out likelihood= and support=."
        )
    parameters["weights"] = weights  # of the observations, or of the components of a mixture
    draws = {name: _parameter(given, variables) for name, given in parameters.items()}
    model = from_family(family, y=y, transform=transform, component_dim=component_dim, **draws)
    if log_lik is not None and log_lik in variables:
        compare_log_lik(model.source, log_lik, variables[log_lik])
    return model


@own_arithmetic
def from_pystan(fit: Any, *, y: Any, **options: Any) -> Model:
    """Take a model from a PyStan 3 fit; everything is as in :func:`from_cmdstanpy`.

    Parameters
    ----------
    fit
        What ``posterior.sample(...)`` returns. Draws of the warm-up are left out.
    y
        The outcomes, (obs,) or (obs, component), **on their natural scale**.
    **options
        Those of :func:`from_cmdstanpy`: ``family`` with its parameters, ``log_lik`` and so on.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives.

    Examples
    --------
    >>> import lockquack as lq
    >>> lq.from_pystan(fit, y=y, family="normal", mu="mu", sigma="sigma")  # doctest: +SKIP
    """
    return from_cmdstanpy(_pystan_variables(fit), y=y, **options)


class _Variables(Mapping[str, Array]):
    """The variables of a Stan program by name, (chain, draw, ...), read when they are asked for.

    Whichever interface they come from: :func:`from_cmdstanpy` takes them in place of a fit.
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], Array]) -> None:
        self._names = tuple(names)
        self._read = read

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise unknown_name("Stan variable", name, self._names)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def cmdstanpy_variables(fit: Any) -> _Variables:
    """Return the variables of a CmdStanPy fit, (chain, draw, ...), read when they are asked for."""
    if not (hasattr(fit, "stan_variable") and hasattr(fit, "draws")):
        raise UnsupportedError(
            f"A {type(fit).__name__} holds no draws that could be averaged over. Give a "
            "CmdStanMCMC, CmdStanGQ, CmdStanLaplace or CmdStanPathfinder."
        )
    # Generated quantities that were computed later come with the fit that they belong to.
    parts = [fit, *([fit.previous_fit] if hasattr(fit, "previous_fit") else [])]
    names = [name for part in parts for name in part.metadata.stan_vars]

    def read(name: str) -> Array:
        flat = np.asarray(fit.stan_variable(name), dtype=np.float64)
        return flat.reshape(getattr(fit, "chains", 1), -1, *flat.shape[1:])

    return _Variables(names, read)


def _pystan_variables(fit: Any) -> _Variables:
    if not all(hasattr(fit, field) for field in ("param_names", "dims", "num_chains")):
        raise UnsupportedError(
            f"A {type(fit).__name__} is not a fit of PyStan 3. Give what posterior.sample returns."
        )
    shapes = dict(zip(fit.param_names, fit.dims, strict=True))
    warmup = ceil(fit.num_warmup * fit.save_warmup / fit.num_thin)

    def read(name: str) -> Array:
        flat = np.asarray(fit[name], dtype=np.float64)
        # PyStan puts draws last, those of all chains at one iteration next to each other.
        draws = flat.reshape(*shapes[name], -1, fit.num_chains)
        return np.moveaxis(draws, (-1, -2), (0, 1))[:, warmup:]

    return _Variables(shapes, read)


def generated_quantities(
    variables: Mapping[str, T], log_lik: str | None, grad: str, curv: str
) -> dict[str, T]:
    """Find log densities and, if there are any, derivatives among the variables."""
    if log_lik is None or log_lik not in variables:
        raise UnsupportedError(
            f"The fit has no variable {log_lik!r}; it has {', '.join(variables)}. Add it to the "
            "generated quantities (",
            advice("lq.stan_code('normal')", "docs/howto/stan.md"),
            " shows how), say what it is called by ",
            advice("log_lik=", "--var-name"),
            ", or name the likelihood by ",
            advice("family= with its parameters", "--family"),
            ".",
        )
    wanted = {"logp": log_lik, "grad": grad, "curv": curv}
    found = {key: variables[name] for key, name in wanted.items() if name in variables}
    if len(found) == 2:
        (missing,) = wanted.keys() - found.keys()
        raise UnsupportedError(
            f"The fit has no variable {wanted[missing]!r}, but the other derivative. Both are "
            f"needed; say what it is called by {missing}=."
        )
    return found


def _parameter(given: Any, variables: _Variables) -> Any:
    if isinstance(given, str):
        return variables[given]
    return given(variables) if callable(given) else given


def compare_log_lik(source: Source, name: str, log_lik: Array) -> None:
    """Compare a family's log densities with the program's own, for the first and the last draw."""
    log_lik = log_lik.reshape(*log_lik.shape[:2], -1)
    if log_lik.shape != (source.n_chains, source.n_draws, source.n_obs):
        return
    everything = slice(0, source.n_obs)
    for chain, draw in ((0, 0), (source.n_chains - 1, source.n_draws - 1)):
        got = source.logp(chain, slice(draw, draw + 1), everything)[0]
        difference = np.abs(got - log_lik[chain, draw])
        # Draws come from files with six digits, so only what is plainly wrong is refused.
        if np.median(difference) > 0.01 * (1.0 + np.median(np.abs(got))):
            at = int(difference.argmax())
            raise ParameterError(
                f"{source.likelihood.description} has the log density {got[at]:.6g} at "
                f"{source.observations.describe(at)}, the fit's {name!r} is "
                f"{log_lik[chain, draw, at]:.6g}. Check the parameters, the transform and the "
                "order of y; ",
                advice("give log_lik=None", "use --ignore-log-lik"),
                " if it is another quantity, such as the density of the transformed outcome.",
            )


_LOOP = """generated quantities {
  vector[N] log_lik;
  vector[N] grad_y;
  vector[N] curv_y;
  for (i in 1:N) {
%s  }
}
"""

#: Log density and derivatives in y[i], for the families of Stan that are used most.
SNIPPETS = {
    "normal": """
    log_lik[i] = normal_lpdf(y[i] | mu[i], sigma);
    grad_y[i] = (mu[i] - y[i]) / square(sigma);
    curv_y[i] = -1 / square(sigma);
""",
    "normal of log y": """
    real g = (mu[i] - log(y[i])) / square(sigma);
    log_lik[i] = normal_lpdf(log(y[i]) | mu[i], sigma) - log(y[i]);
    grad_y[i] = (g - 1) / y[i];
    curv_y[i] = (1 - g - 1 / square(sigma)) / square(y[i]);
""",
    "normal of logit y": """
    real v = y[i] * (1 - y[i]);
    real g = (mu[i] - logit(y[i])) / square(sigma) + 2 * y[i] - 1;
    log_lik[i] = normal_lpdf(logit(y[i]) | mu[i], sigma) - log(v);
    grad_y[i] = g / v;
    curv_y[i] = (g * (2 * y[i] - 1) + 2 * v - 1 / square(sigma)) / square(v);
""",
    "student_t": """
    real z = (y[i] - mu[i]) / sigma;
    log_lik[i] = student_t_lpdf(y[i] | nu, mu[i], sigma);
    grad_y[i] = -(nu + 1) * z / (nu + square(z)) / sigma;
    curv_y[i] = -(nu + 1) * (nu - square(z)) / square(nu + square(z)) / square(sigma);
""",
    "lognormal": """
    real z = (log(y[i]) - mu[i]) / sigma;
    log_lik[i] = lognormal_lpdf(y[i] | mu[i], sigma);
    grad_y[i] = -(1 + z / sigma) / y[i];
    curv_y[i] = (1 + z / sigma - 1 / square(sigma)) / square(y[i]);
""",
    "gamma": """
    log_lik[i] = gamma_lpdf(y[i] | alpha, beta[i]);
    grad_y[i] = (alpha - 1) / y[i] - beta[i];
    curv_y[i] = -(alpha - 1) / square(y[i]);
""",
    "logistic": """
    real p = inv_logit((y[i] - mu[i]) / s);
    log_lik[i] = logistic_lpdf(y[i] | mu[i], s);
    grad_y[i] = (1 - 2 * p) / s;
    curv_y[i] = -2 * p * (1 - p) / square(s);
""",
    "beta": """
    log_lik[i] = beta_lpdf(y[i] | alpha[i], beta[i]);
    grad_y[i] = (alpha[i] - 1) / y[i] - (beta[i] - 1) / (1 - y[i]);
    curv_y[i] = -(alpha[i] - 1) / square(y[i]) - (beta[i] - 1) / square(1 - y[i]);
""",
}


@own_arithmetic
def stan_code(family: str, transform: str | None = None) -> str:
    """Write the generated quantities by which a Stan program returns derivatives by the outcome.

    The names of data and parameters, and which of them have an index, are for you to adapt:
    outcomes ``y[1:N]``, locations ``mu[i]`` per observation, scales that are shared.

    Parameters
    ----------
    family
        ``"normal"``, ``"student_t"``, ``"lognormal"``, ``"gamma"``, ``"logistic"`` or ``"beta"``.
    transform
        ``"log"`` or ``"logit"`` for a normal model of that function of y.

    Returns
    -------
    str
        A block of Stan code.

    Examples
    --------
    >>> print(stan_code("normal"))
    generated quantities {
      vector[N] log_lik;
      vector[N] grad_y;
      vector[N] curv_y;
      for (i in 1:N) {
        log_lik[i] = normal_lpdf(y[i] | mu[i], sigma);
        grad_y[i] = (mu[i] - y[i]) / square(sigma);
        curv_y[i] = -1 / square(sigma);
      }
    }
    """
    name = family if transform is None else f"{family} of {transform} y"
    require_known("Stan snippet", name, SNIPPETS)
    return _LOOP % SNIPPETS[name].lstrip("\n")
