"""What the Bambi models of the corpus are built of: data, draws, and densities of Bambi's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

CHAINS, DRAWS = 2, 3
N = 12
RNG = np.random.default_rng(1)
X, Z = RNG.normal(3.0, 1.0, size=N), RNG.normal(size=N)
RATE = np.exp(0.2 + 0.3 * X + 0.2 * Z)
#: One row for each observation of all models.
DATA = pd.DataFrame(
    {
        "x": X,  # far from centred, as Bambi centres it
        "z": Z,
        "day": np.arange(N) % 6,
        "subject": np.repeat(["s1", "s2", "s3", "s4"], 3),
        "item": np.tile([11, 12, 13], 4),
        "condition": np.tile(["control", "treated"], 6),
        "exposure": RNG.uniform(0.5, 2.0, size=N),
        "y": 1.0 + 0.5 * X + 0.4 * RNG.normal(size=N),
        "positive": RATE * RNG.gamma(4.0, 0.25, size=N),
        "share": RNG.uniform(0.1, 0.9, size=N),
        "angle": RNG.vonmises(0.5, 2.0, size=N),
        "count": RNG.poisson(RATE),
        "some": RNG.poisson(RATE) + 1,
        "often_zero": RNG.poisson(RATE) * (RNG.random(N) < 0.6),
        "amount": RATE * RNG.gamma(4.0, 0.25, size=N) * (RNG.random(N) < 0.7),
        "event": RNG.integers(0, 2, size=N),
        "vote": np.tile(["yes", "no", "yes"], 4),
        "hits": RNG.integers(0, 6, size=N),
        "tries": RNG.integers(6, 9, size=N),
        "species": np.tile(["gull", "puffin", "tern"], 4),
        "rating": pd.Categorical(
            np.tile(["low", "middle", "high", "top"], 3),
            categories=["low", "middle", "high", "top"],
            ordered=True,
        ),
        "red": RNG.integers(1, 5, size=N),
        "green": RNG.integers(1, 5, size=N),
        "blue": RNG.integers(1, 5, size=N),
        "status": np.tile(["none", "right", "none", "left"], 3),
        "seen": np.tile(["none", "right"], 6),
        "weight": RNG.gamma(2.0, 0.5, size=N),
        "floor": RNG.uniform(-4.0, -2.0, size=N),
    }
)


@dataclass(frozen=True)
class Built:
    """A model of Bambi, draws of its parameters, and how Bambi itself evaluates it."""

    model: Any
    idata: Any
    #: Name of the column that holds the outcome; None: only the observed one can be evaluated.
    column: str | None
    #: The density by other means, from the parameters of the likelihood, where Bambi has none.
    by_hand: Callable[[np.ndarray[Any, Any], xr.Dataset], Any] | None = None

    def own_logp(self, y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Log densities at outcomes (observation, component), (chain, draw, observation)."""
        if self.by_hand is not None:
            return np.asarray(self.by_hand(y[:, 0], self.parameters()))
        changed = None
        if self.column is not None:
            changed = self.model.data.assign(**{self.column: y[:, 0]})
        found = self.model.compute_log_likelihood(self.idata, data=changed, inplace=False)
        group = found["log_likelihood"]
        return np.asarray(next(iter(group.data_vars.values())).transpose("chain", "draw", ...))

    def parameters(self) -> xr.Dataset:
        """Draws of the likelihood's parameters, at each observation, that Bambi computes."""
        predicted = self.model.predict(self.idata, kind="response_params", inplace=False)
        group = predicted["posterior"]
        return group.to_dataset() if isinstance(group, xr.DataTree) else group


def build(
    formula: Any,
    family: Any = "gaussian",
    *,
    column: str | None = "y",
    near: dict[str, Any] | None = None,
    by_hand: Any = None,
    data: pd.DataFrame = DATA,
    **options: Any,
) -> Built:
    """Build a model, with draws of its parameters near given values in place of a posterior."""
    import bambi as bmb

    model = bmb.Model(formula, data, family=family, **options)
    return with_draws(model, column=column, near=near, by_hand=by_hand)


def with_draws(
    model: Any,
    *,
    column: str | None = "y",
    near: dict[str, Any] | None = None,
    by_hand: Any = None,
) -> Built:
    """Build a model that was written elsewhere, with draws near given values."""
    model.build()
    return Built(model, _container(model, near or {}), column, by_hand)


def needs_family(name: str) -> None:
    """Skip a model whose family the installed version of Bambi does not have."""
    import bambi as bmb
    import pytest

    if name not in bmb.defaults.families.BUILTIN_FAMILIES:
        pytest.skip(f"Bambi {bmb.__version__} has no family {name!r}")


def _container(model: Any, near: dict[str, Any]) -> Any:
    """Hold made-up draws as ``model.fit`` holds draws of a posterior."""
    import arviz

    backend, rng = model.backend.model, np.random.default_rng(2)
    variables, coords = {}, {}
    for variable in backend.unobserved_RVs:
        name = variable.name
        # As Bambi leaves them after sampling: kinds of outcomes first, groups last.
        dims = sorted(backend.named_vars_to_dims.get(name, ()), key=_place)
        if name.endswith("_offset") or "__obs__" in dims:
            continue
        if dims:
            coords |= {dim: list(backend.coords[dim]) for dim in dims}
            shape = tuple(len(backend.coords[dim]) for dim in dims)
        else:
            shape = tuple(variable.shape.eval())
            dims = [f"{name}_dim_{i}" for i in range(len(shape))]
        noise = rng.normal(size=(CHAINS, DRAWS, *shape))
        bounded = backend.rvs_to_transforms.get(variable) is not None
        middle = np.asarray(near.get(name, 0.3 if bounded else 0.2), dtype=float)
        values = middle * np.exp(0.1 * noise) if bounded else middle + 0.1 * noise
        if name in near and middle.ndim:  # thresholds stay in their order
            values = middle + 0.05 * noise
        variables[name] = ("chain", "draw", *dims), values
    posterior = xr.Dataset(variables, coords)
    posterior = posterior.assign_coords(chain=range(CHAINS), draw=range(DRAWS))
    if arviz.__version__.startswith("0."):
        return arviz.InferenceData(posterior=posterior)
    return xr.DataTree.from_dict({"posterior": posterior})


def _place(dim: str) -> int:
    return dim.endswith("__expr_dim") + 2 * dim.endswith("__factor_dim")
