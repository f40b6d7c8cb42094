"""Quacking: the quantum superposition of densities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from lockquack.errors import ParameterError
from lockquack.jets import Array, Jet, Numeric, PoolDerivatives, column, join_jets, log_sum_exp
from lockquack.numeric import as_numeric
from lockquack.operators.base import Normaliser, Operator, Positions
from lockquack.operators.power import PowerPool, log_column
from lockquack.operators.space import Phases, Space
from lockquack.quadrature.nodes import Nodes
from lockquack.words import LOG_SCORE

#: Largest difference of phases for rules that reward zeros of the density.
_CAP = 0.99 * np.pi


class Superposition(PowerPool):
    r"""Superposition of the models' square roots, with phases that let them interfere.

    .. math:: q(y) \propto \Bigl|\sum_k \sqrt{w_k\, \pi_k(y)}\, e^{i\alpha_k}\Bigr|^2,
        \qquad w \ge 0, \; \sum_k w_k = 1

    Equal phases add, opposite ones cancel where two models agree. The normaliser has the closed
    form :math:`Z = \sum_{jk} \sqrt{w_j w_k} \cos(\alpha_j - \alpha_k) B_{jk}` with the overlaps
    :math:`B_{jk} = \int \sqrt{\pi_j \pi_k}`.

    Only differences of phases matter, and their common sign does not: phases are reported
    relative to the model of the largest weight, the largest of them positive. Opposite phases
    make zeros of the density, which the Hyvärinen score rewards although it should not; fitted
    by it, all phases are kept within .99 π of each other. Do not read much into phases where the
    models hardly overlap.

    Parameters
    ----------
    phases
        ``None`` to fit them, or given: one angle for all models (they then add up, as with 0) or
        one for each, in radians.
    capped
        Keep the phases within .99 π of each other. The Hyvärinen score always does.

    Examples
    --------
    Two equal densities with opposite phases cancel; with equal phases they double:

    >>> import numpy as np
    >>> same = np.zeros((2, 1))
    >>> x = np.array([0.5, 0.5, 0.0, 0.0])
    >>> np.exp(Superposition().pool_density(same, x)).round(12).item()
    2.0
    """

    name = "superposition"
    verb = "quack"
    needs_density = True
    normalised = False
    of_models = ("phases",)

    def __init__(self, phases: ArrayLike | None = None, *, capped: bool = False) -> None:
        self.phases = None if phases is None else _angles(phases)
        self.capped = capped

    @property
    @override
    def options(self) -> dict[str, Any]:
        given = {} if self.phases is None else {"phases": self.phases}
        return {**given, "capped": True} if self.capped else given

    def without_zeros(self) -> Superposition:
        """Return the operator with phases in less than half a turn, where nothing cancels."""
        if self.phases is None:
            return Superposition(capped=True)
        if np.ptp(self.phases) > _CAP:
            raise ParameterError(
                f"The phases {self.phases} differ by more than .99 π, which makes zeros of the "
                "density, and the Hyvärinen score rewards those. Use ",
                LOG_SCORE,
                ".",
            )
        return self

    def space(self, concentration: Array) -> Space:
        """Weights on the simplex, and phases if they are fitted."""
        K, weights = concentration.size, super().space(concentration)
        if self.phases is None:
            phases = Phases("phases", K, _CAP if self.capped else None)
            return Space((*weights.blocks, phases))
        self._given_phases(K)
        return weights

    def mixture_above(self, x: Array, K: int) -> Array:
        """Coefficients of a mixture above the pool: K times the mean of K squared amplitudes."""
        weights = self.weights(x, K)
        return weights * np.count_nonzero(weights, axis=0)

    @override
    def terms(self, jets: Jet, x: Array) -> tuple[Jet, Numeric, float]:
        K, ndim = jets.logp.shape[0], jets.logp.ndim
        weights, phases = self._split(x, K)
        return jets, 0.5 * log_column(weights, ndim) + 1j * column(phases, ndim), 0.5

    @override
    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        r"""Bound the closed form, whose overlaps are not known.

        An overlap is not negative, and at most the root of the two integrals' product. So terms
        with a positive cosine are between zero and that, those with a negative one the reverse.
        """
        if np.isposinf(high).any():
            return Operator.log_norm_bounds(self, x, low, high)
        weights, phases = self._split(x, len(low))
        phases = column(phases, low.ndim)
        cos = np.cos(phases[:, None] - phases[None])
        with np.errstate(divide="ignore"):
            logs = column(np.log(weights), low.ndim) + np.stack([low, high])
        size = logs[1].max(axis=0)
        parts = np.exp(logs - size)
        root = np.sqrt(parts[1][:, None] * parts[1][None])
        for k in range(len(root)):
            root[k, k] = 0.0
        lost, gained = ((np.maximum(sign * cos, 0.0) * root).sum(axis=(0, 1)) for sign in (-1, 1))
        with np.errstate(divide="ignore"):
            least = np.log(np.maximum(parts[0].sum(axis=0) - lost, 0.0))
            return least + size, np.log(parts[1].sum(axis=0) + gained) + size

    @override
    def by_parameter(self, slopes: PoolDerivatives) -> Jet:
        by_log_weight = slopes.by_log_amplitude.times(np.array(0.5))
        if self.phases is not None:
            return by_log_weight
        return join_jets([by_log_weight, slopes.by_phase])

    def parameters(self, x: Array, K: int) -> dict[str, Array]:
        """Phases relative to that of the model with the largest weight."""
        weights, phases = self._split(x, K)
        relative = np.where(weights > 0, phases - phases[weights.argmax()], 0.0)
        relative = relative - 2 * np.pi * np.round(relative / (2 * np.pi))
        sign = np.sign(relative[np.abs(relative).argmax()]) or 1.0
        return {"phases": sign * relative + 0.0}

    @override
    def select(self, models: Positions, K: int) -> tuple[Operator, Positions]:
        if self.phases is None:
            return self, np.concatenate([models, K + models])
        return Superposition(self._given_phases(K)[models], capped=self.capped), models

    def normaliser(self, nodes: Nodes) -> Normaliser:
        """Prepare the closed form: the overlaps of all pairs of densities."""
        return OverlapNorm(self, nodes)

    def _split(self, x: Array, K: int) -> tuple[Array, Array]:
        if self.phases is None:
            return x[:K], x[K:]
        return x, np.broadcast_to(column(self._given_phases(K), x.ndim), x.shape)

    def _given_phases(self, K: int) -> Array:
        given = np.asarray(self.phases)
        if given.size not in (1, K):
            raise ParameterError(
                f"There are {given.size} phases and {K} models; give one for each, or one for all."
            )
        return np.broadcast_to(given, (K,))


class OverlapNorm(Normaliser):
    r"""The quadratic form :math:`\sum_{jk} \Re(\bar a_j a_k) B_{jk}` at each observation."""

    def __init__(self, operator: Superposition, nodes: Nodes) -> None:
        self.operator = operator
        K, _, self.n_obs = nodes.logp.shape
        logs = np.empty((K, K, self.n_obs))
        for j in range(K):
            pairs = (nodes.logp[j] + nodes.logp[j:]) / 2 + nodes.log_measure
            logs[j, j:] = logs[j:, j] = log_sum_exp(pairs, axis=1)
        # Densities may come with a constant; what is exponentiated is free of it.
        self.log_size = logs.max(axis=(0, 1))
        self.overlap = np.exp(logs - self.log_size)

    @override
    def log_norm(self, x: Array) -> Array:
        return self.tangents(x)[0]

    @override
    def tangents(self, x: Array) -> tuple[Array, Array]:
        weights, phases = self.operator._split(x, len(self.overlap))
        amplitude = np.sqrt(weights) * np.exp(1j * phases)
        # conj(a_j) Σ_k B_jk a_k: real parts add up to Z, imaginary ones turn with the phase.
        sums = "jkn,k->jn" if amplitude.ndim == 1 else "jkn,kn->jn"
        parts = column(np.conj(amplitude), 2) * np.einsum(sums, self.overlap, amplitude)
        total = parts.real.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = parts.real / total
            if self.operator.phases is None:
                slopes = np.concatenate([slopes, 2 * parts.imag / total])
            return np.log(total) + self.log_size, slopes


def _angles(given: Any) -> tuple[float, ...]:
    angles = as_numeric("phases", given, ParameterError)
    if angles.ndim > 1 or not np.isfinite(angles).all():
        raise ParameterError(f"phases must be finite angles, one or one per model; got {given!r}.")
    return tuple(np.atleast_1d(angles).astype(float).tolist())
