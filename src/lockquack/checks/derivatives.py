"""Whether a model's derivatives are those of its log density in the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockquack.arithmetic import own_arithmetic
from lockquack.checks.findings import Check, ComparedQuantity, Quantity, Where
from lockquack.errors import ObservationMismatchError, ParameterError, UnsupportedError
from lockquack.jets import Array, join_jets, stack_jets
from lockquack.models.model import Model
from lockquack.models.source import Source
from lockquack.numeric import as_generator, cut
from lockquack.sources.reading import as_model

#: Draws and observations that are checked, and the largest error that passes.
_FEW_DRAWS, _FEW_OBSERVATIONS, _LOOSE = 3, 4, 1e-3
_MANY_DRAWS, _TIGHT = 16, 1e-5
#: Log densities of the libraries themselves may be in single precision.
_STORED = 1e-3
#: Lengths of steps, in units in which a log density changes by about one.
_LENGTHS = (3e-2, 3e-3, 3e-4, 3e-5)
#: Five points, and their weights in the first and second derivative, of fourth order.
_STENCIL = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
_FIRST = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / 12
_SECOND = np.array([-1.0, 16.0, -30.0, 16.0, -1.0]) / 12
#: Observations whose differences are taken at once.
_AT_ONCE = 1024


@own_arithmetic
def check(
    model: Any,
    *,
    against: Model | None = None,
    thorough: bool = False,
    random_seed: int | np.random.Generator | None = 0,
) -> Check:
    r"""Compare a model's derivatives with finite differences of its log density in y.

    .. math:: \partial_y \ell \approx \frac{\ell_{-2} - 8 \ell_{-1} + 8 \ell_{1} - \ell_{2}}{12 h},
        \quad \partial_y^2 \ell \approx
        \frac{-\ell_{-2} + 16 \ell_{-1} - 30 \ell + 16 \ell_{1} - \ell_{2}}{12 h^2}

    The commonest mistake that it catches is a gradient taken in the parameters instead of the
    outcome. Where the draws came with a log likelihood that the library itself had computed, the
    log densities are compared with that too. Every fit by the Hyvärinen score does this with a
    few draws and observations, and raises an error where they disagree.

    It cannot see what is wrong in the log density as well, such as a Jacobian that was forgotten
    or a kink between the points that it evaluates.

    Parameters
    ----------
    model
        The model, or whatever :func:`lock` takes for one.
    against
        Another source of the same model and the same draws whose density can be evaluated, for
        a model that holds arrays only.
    thorough
        Check all observations, sixteen draws, and outcomes near the observed ones, instead of a
        few draws and observations; and be strict.
    random_seed
        Seed or generator that chooses the draws to check.

    Returns
    -------
    Check
        A table, which prints itself; ``.ok`` tells whether all agreed, ``.worst`` where they
        agreed least, and ``.require()`` raises an error if they did not. Errors of derivatives
        are relative to the size that they have around there: u for the gradient and u² for the
        curvature, u² the sum of the squared gradient and the curvature.

    Raises
    ------
    UnsupportedError
        If there is nothing to compare with: arrays and files hold densities at the observed
        outcomes only, and discrete likelihoods have no derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y, mu = np.array([0.3, 1.2]), np.zeros((4, 100))
    >>> model = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    >>> lq.check(model).ok
    True

    Arrays with the gradient in the mean, which has the other sign:

    >>> residual = y - mu[..., None]
    >>> logp = -0.5 * residual**2 - 0.5 * np.log(2 * np.pi)
    >>> wrong = lq.from_arrays(logp=logp, grad=residual, curv=-np.ones_like(logp), y=y)
    >>> print(lq.check(wrong, against=model).worst.describe())
    at observation 1 the first derivative of the log density in y is -1.2 by finite differences,
    but the model gives 1.2 (chain ...)
    """
    if not isinstance(against, Model | None):
        raise ParameterError(
            "against= must be one model whose density can be evaluated, as from_family or an "
            f"adapter makes it; got {type(against).__name__}."
        )
    source, density = _to_compare(
        as_model(model).source, None if against is None else against.source
    )
    rng = as_generator(random_seed)
    sample = _Sample.choose(source, thorough=thorough, rng=rng)
    tolerance = _TIGHT if thorough else _LOOSE
    rows = [*_compare_densities(source, density, sample, tolerance)]
    y = source.observations.values[sample.obs]
    given = sample.read(source)
    unit = _steepness(*given, source.observations.values)
    rows += _compare_derivatives(density, sample, y, given, unit, tolerance, "observed")
    if thorough and source.can.evaluate:
        beside = _beside(source, sample, y, unit, rng)
        rows += _compare_derivatives(
            density, sample, beside, sample.evaluate(source, beside), unit, tolerance, "elsewhere"
        )
    return Check(source.likelihood.description, tuple(rows))


def _to_compare(source: Source, against: Source | None) -> tuple[Source, Source]:
    """Find the derivatives, and the log density that they are compared with."""
    source.require_derivatives()
    if against is None:
        if not source.can.evaluate:
            raise UnsupportedError(
                f"{source.likelihood.description} holds values at the observed outcomes only, so "
                "its derivatives cannot be checked by themselves. Give against= the same draws as "
                "a model that can be evaluated, by from_family or a PPL adapter."
            )
        return source, source
    if not against.can.evaluate:
        raise UnsupportedError(
            f"against= must be a model whose density can be evaluated; "
            f"{against.likelihood.description} holds values at the observed outcomes only."
        )
    for what, a, b in (
        ("chains", source.n_chains, against.n_chains),
        ("draws", source.n_draws, against.n_draws),
        ("observations", source.n_obs, against.n_obs),
        ("components", source.observations.d, against.observations.d),
    ):
        if a != b:
            raise ObservationMismatchError(
                f"The model has {a} {what}, against= has {b}. They must be the same draws of the "
                "same model at the same observations."
            )
    if not np.allclose(source.observations.values, against.observations.values, rtol=1e-6):
        raise ObservationMismatchError("The model and against= have different outcomes.")
    return source, against


@dataclass(frozen=True)
class _Sample:
    """Draws and observations that are checked."""

    draws: tuple[tuple[int, int], ...]  # chain, draw
    obs: np.ndarray[tuple[int], np.dtype[np.intp]]
    model: Source  # whose they are

    @classmethod
    def choose(cls, model: Source, *, thorough: bool, rng: np.random.Generator) -> _Sample:
        n_draws = min(model.n_samples, _MANY_DRAWS if thorough else _FEW_DRAWS)
        chosen = np.sort(rng.choice(model.n_samples, size=n_draws, replace=False))
        n_obs = model.n_obs if thorough else _FEW_OBSERVATIONS
        obs = np.unique(np.linspace(0, model.n_obs - 1, n_obs).astype(np.intp))
        pairs = tuple((int(at) // model.n_draws, int(at) % model.n_draws) for at in chosen)
        return cls(pairs, obs, model)

    @property
    def slices(self) -> list[slice]:
        """The observations as slices, which is how they are read."""
        if self.obs.size < self.model.n_obs:
            return [slice(int(i), int(i) + 1) for i in self.obs]
        return self.blocks

    @property
    def blocks(self) -> list[slice]:
        """The chosen observations in groups, by their position among these."""
        return cut(slice(0, self.obs.size), _AT_ONCE)

    def logp(self, model: Source) -> Array:
        """Read log densities at the observed outcomes, (draw, obs)."""
        rows = [
            [model.logp(chain, slice(draw, draw + 1), obs)[0] for obs in self.slices]
            for chain, draw in self.draws
        ]
        return np.stack([np.concatenate(row) for row in rows])

    def stored(self, model: Source) -> Array | None:
        """Read log likelihoods that came with the draws, (draw, obs)."""
        rows = [model.stored_logp(chain, slice(draw, draw + 1)) for chain, draw in self.draws]
        found = [row[0, self.obs] for row in rows if row is not None]
        return np.stack(found) if len(found) == len(rows) else None

    def read(self, model: Source) -> tuple[Array, Array]:
        """Read derivatives at the observed outcomes, each (draw, obs, d)."""
        rows = []
        for chain, draw in self.draws:
            tiles = [model.derivatives(chain, slice(draw, draw + 1), obs) for obs in self.slices]
            rows.append([np.concatenate(part, axis=1)[0] for part in zip(*tiles, strict=True)])
        grad, curv = (np.stack(part) for part in zip(*rows, strict=True))
        return grad, curv

    def evaluate(self, model: Source, y: Array) -> tuple[Array, Array]:
        """Evaluate derivatives at other outcomes, each (draw, obs, d)."""
        rows = []
        for chain, draw in self.draws:
            some = slice(draw, draw + 1)
            jets = [
                model.jets_at(y[None, block], chain, some, self.obs[block], derivatives=True)[0, 0]
                for block in self.blocks
            ]
            rows.append(join_jets(jets))
        jet = stack_jets(rows)
        return jet.grad, jet.curv

    def logp_at(self, model: Source, y: Array, draw: int) -> Array:
        """Evaluate log densities of one of the draws at outcomes (point, obs, d), (point, obs)."""
        chain, at = self.draws[draw]
        parts = [
            model.logp_at(y[:, block], chain, slice(at, at + 1), self.obs[block])[:, 0]
            for block in self.blocks
        ]
        return np.concatenate(parts, axis=1)

    def compare(
        self,
        what: Quantity,
        where: Where,
        error: Array,
        tolerance: float,
        got: Array,
        expected: Array,
    ) -> ComparedQuantity:
        """Summarise errors, (draw, obs) or (draw, obs, d); NaN where nothing was compared."""
        compared = ~np.isnan(error)
        worst = np.unravel_index(np.argmax(np.where(compared, error, -1.0)), error.shape)
        chain, draw = self.draws[worst[0]]
        return ComparedQuantity(
            what,
            where,
            int(compared.sum()),
            float(error[worst]) if compared.any() else 0.0,
            tolerance,
            self.model.observations.describe(int(self.obs[worst[1]])),
            chain,
            draw,
            int(worst[2]) if len(worst) > 2 else 0,
            float(got[worst]),
            float(expected[worst]),
        )


def _compare_densities(
    source: Source, density: Source, sample: _Sample, tolerance: float
) -> Iterator[ComparedQuantity]:
    """Compare log densities at the observed outcomes with those evaluated, and those stored."""
    got = sample.logp(source)
    y = source.observations.values[sample.obs]
    evaluated = np.stack([sample.logp_at(density, y[None], s)[0] for s in range(len(got))])
    tolerance = max(tolerance, _STORED if density is not source else 0.0)
    yield sample.compare(
        "log density", "observed", _relative(got, evaluated), tolerance, got, evaluated
    )
    stored = sample.stored(source)
    if stored is not None:
        yield sample.compare(
            "stored log likelihood", "observed", _relative(got, stored), _STORED, got, stored
        )


def _relative(got: Array, expected: Array) -> Array:
    error = np.abs(got - expected) / np.maximum(1.0, np.abs(expected))
    return np.where(np.isnan(error), np.inf, error)


def _steepness(grad: Array, curv: Array, y: Array) -> Array:
    """Return one over the distance in which a log density changes by about one, (obs, d)."""
    unit = np.sqrt(np.median(np.abs(curv) + grad**2, axis=0))
    # Where both derivatives happen to vanish, the other observations tell what is steep; where
    # they vanish everywhere, which is hardly right, the outcomes themselves.
    unit = np.maximum(unit, 0.03 * np.nanquantile(unit, 0.9, axis=0))
    spread = np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
    return np.where(unit > 0, unit, 1.0 / spread)


def _beside(
    source: Source, sample: _Sample, y: Array, unit: Array, rng: np.random.Generator
) -> Array:
    """Choose outcomes up to two units from the observed ones that are possible in all draws.

    NaN where there is none.
    """
    moved = y + rng.uniform(-2.0, 2.0, size=y.shape) / unit
    with np.errstate(all="ignore"):
        logp = np.stack(
            [sample.logp_at(source, moved[None], s)[0] for s in range(len(sample.draws))]
        )
    return np.where(np.isfinite(logp.sum(axis=0))[:, None], moved, np.nan)


def _compare_derivatives(
    density: Source,
    sample: _Sample,
    y: Array,
    given: Sequence[Array],
    unit: Array,
    tolerance: float,
    where: Where,
) -> list[ComparedQuantity]:
    """Compare derivatives with differences over steps of several lengths; the best one counts.

    A step that suits the derivatives at hand can be too long for the density around, and too
    short for float64. What rounding alone can do is no error.
    """
    grad, curv = given
    best = [np.full(grad.shape, np.inf), np.full(curv.shape, np.inf)]
    found = [np.full(grad.shape, np.nan), np.full(curv.shape, np.nan)]
    tried = np.zeros(y.shape, dtype=np.bool_)
    for length in _LENGTHS:
        for draw in range(len(grad)):
            slope, bend, step, rounding = _differences(density, sample, y, unit, length, draw)
            tried |= np.isfinite(step)
            for k, (difference, exact, size, power) in enumerate(
                ((slope, grad[draw], unit, 1), (bend, curv[draw], unit**2, 2))
            ):
                with np.errstate(invalid="ignore", divide="ignore"):
                    excess = np.abs(difference - exact) - rounding / step**power
                    error = np.maximum(excess, 0.0) / size
                better = error < best[k][draw]  # never where it is not a number
                best[k][draw] = np.where(better, error, best[k][draw])
                found[k][draw] = np.where(better, difference, found[k][draw])
        if max(each.max() for each in best) < 0.1 * tolerance:
            break
    skipped = ~tried  # where all happens within the distance of two numbers, float64 cannot tell
    names: tuple[Quantity, Quantity] = ("gradient", "curvature")
    return [
        sample.compare(name, where, np.where(skipped, np.nan, error), tolerance, exact, difference)
        for name, error, exact, difference in zip(names, best, given, found, strict=True)
    ]


def _differences(
    density: Source, sample: _Sample, y: Array, unit: Array, length: float, draw: int
) -> tuple[Array, Array, Array, Array]:
    """Return first and second differences of one draw, steps, and rounding errors; all (obs, d)."""
    slope, bend, steps, rounding = (np.full(y.shape, np.nan) for _ in range(4))
    for j in range(y.shape[1]):
        with np.errstate(all="ignore"):
            step = length / unit[:, j]
            # Below it, neighbouring numbers are too far apart.
            step = np.where(step > 1e-10 * np.abs(y[:, j]), step, np.nan)
            points = np.repeat(y[None], _STENCIL.size, axis=0)
            points[:, :, j] += _STENCIL[:, None] * step
            step = (points[3, :, j] - points[1, :, j]) / 2
            step = np.where(np.isfinite(step), step, np.nan)
            logp = sample.logp_at(density, density.likelihood.on_circle(points), draw)
            slope[:, j], bend[:, j] = _FIRST @ logp / step, _SECOND @ logp / step**2
        steps[:, j] = step
        noise = np.abs(logp[2]) + unit[:, j] * np.abs(y[:, j])
        rounding[:, j] = 16 * np.finfo(np.float64).eps * noise
    return slope, bend, steps, rounding
