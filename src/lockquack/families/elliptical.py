"""What the multivariate normal and Student t share: densities of a quadratic form."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lockquack.families.base import Family, Parameters
from lockquack.jets import Array, Jet


@dataclass(frozen=True)
class Whitened:
    """Offsets y − μ in the coordinates where the matrix is the identity."""

    offset: Array  # (..., d): u = L⁻¹(y − μ)
    inverse: Array  # (..., d, d): L⁻¹
    log_det: Array  # (...): log det L

    @property
    def d(self) -> int:
        """Dimension of the outcome."""
        return int(self.offset.shape[-1])

    @property
    def square(self) -> Array:
        """(y − μ)' Σ⁻¹ (y − μ)."""
        return np.asarray(np.einsum("...i,...i->...", self.offset, self.offset))

    @property
    def pull(self) -> Array:
        """Σ⁻¹ (y − μ)."""
        return _multiply(self.offset, self.inverse)

    @property
    def precision(self) -> Array:
        """Diagonal of Σ⁻¹."""
        return np.asarray(np.square(self.inverse).sum(axis=-2))


class Elliptical(Family):
    """A vector family with location ``mu`` and a positive definite matrix or its ``chol``."""

    multivariate = True
    #: Name of the matrix, where it is not given by ``chol``, its lower Cholesky factor.
    matrix: ClassVar[str]

    @abstractmethod
    def density(self, square: Array, log_det: Array, p: Parameters) -> Array:
        """Log density from (y − μ)' Σ⁻¹ (y − μ) and log det L."""

    @abstractmethod
    def slopes(self, white: Whitened, p: Parameters) -> tuple[Array, Array]:
        """Gradient and diagonal of the Hessian from the whitened offsets."""

    def logp(self, y: Array, p: Parameters) -> Array:
        if y.ndim == 4 and len(y) > _n_monomials(y.shape[-1]):  # many outcomes of each observation
            factor = self._factor(p)
            return self.density(_squares(y[:, 0], p["mu"], factor), _log_det(factor), p)
        white = self._whiten(y, p)
        return self.density(white.square, white.log_det, p)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        return self.slopes(self._whiten(y, p), p)

    def jet(self, y: Array, p: Parameters) -> Jet:
        white = self._whiten(y, p)
        logp = self.density(white.square, white.log_det, p)
        return Jet(logp, *self.slopes(white, p))

    def spread(self, p: Parameters) -> Array:
        if "chol" in p:
            return np.asarray(np.sqrt(np.square(p["chol"]).sum(axis=-1)))
        return np.sqrt(np.diagonal(p[self.matrix], axis1=-2, axis2=-1))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        white = self.radius(p, rng, size)[..., None] * rng.normal(size=(*size, p["mu"].shape[-1]))
        return np.asarray(p["mu"] + _multiply(white, np.swapaxes(self._factor(p), -1, -2)))

    def radius(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        """Lengthen standard normal draws by this, to have those of the family."""
        return np.ones(size)

    def check_domain(self, p: Parameters) -> None:
        if "chol" in p:
            lowest = np.diagonal(p["chol"], axis1=-2, axis2=-1).min()
            if lowest <= 0:
                raise self.invalid(
                    "chol", f"must have a positive diagonal; its smallest value is {lowest:g}"
                )
            highest = np.abs(np.triu(p["chol"], 1)).max()
            if highest > 0:
                raise self.invalid(
                    "chol", f"must be lower triangular; it has {highest:g} above the diagonal"
                )
            return
        matrix = p[self.matrix]
        skew = np.abs(matrix - np.swapaxes(matrix, -1, -2)).max()
        if skew > 1e-8 * np.abs(matrix).max():
            raise self.invalid(
                self.matrix, f"must be symmetric; opposite entries differ by {skew:g}"
            )
        self._factor(p)

    def _factor(self, p: Parameters) -> Array:
        if "chol" in p:
            return p["chol"]
        try:
            return np.asarray(np.linalg.cholesky(p[self.matrix]), dtype=np.float64)
        except np.linalg.LinAlgError:
            lowest = np.linalg.eigvalsh(p[self.matrix]).min()
            raise self.invalid(
                self.matrix, f"must be positive definite; its smallest eigenvalue is {lowest:g}"
            ) from None

    def _whiten(self, y: Array, p: Parameters) -> Whitened:
        factor = self._factor(p)
        inverse = np.asarray(np.linalg.inv(factor), dtype=np.float64)
        offset = _multiply(y - p["mu"], np.swapaxes(inverse, -1, -2))
        return Whitened(offset, inverse, _log_det(factor))


def _log_det(factor: Array) -> Array:
    return np.asarray(np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1))


def _squares(y: Array, mu: Array, factor: Array) -> Array:
    r"""(y − μ)' Σ⁻¹ (y − μ) of all draws, (point, n, d) → (point, draw, n), by one matrix product.

    A sum of monomials, with coefficients that the draws have. With :math:`\mu_0, L_0` for means
    over the draws and :math:`z = L_0^{-1}(y - \mu_0)`, it is
    :math:`|Az - b|^2 = z'A'Az - 2b'Az + b'b`. There :math:`A = L^{-1}L_0` is near the identity and
    :math:`b = L^{-1}(\mu - \mu_0)` near zero, so that hardly any digits cancel.
    """
    d = y.shape[-1]
    lead = np.broadcast_shapes(mu.shape[:-1], factor.shape[:-2])  # (draw, n)
    middle, typical = np.broadcast_to(mu, (*lead, d)).mean(axis=0), factor.mean(axis=0)
    z = _multiply(y - middle, np.swapaxes(np.linalg.inv(typical), -1, -2))
    inverse = np.linalg.inv(factor)
    slope = inverse @ typical
    shift = (inverse @ (mu - middle)[..., None])[..., 0]
    j, k = np.triu_indices(d)
    coefficients = (
        (np.swapaxes(slope, -1, -2) @ slope)[..., j, k] * np.where(j == k, 1.0, 2.0),
        -2.0 * (shift[..., None, :] @ slope)[..., 0, :],
        np.square(shift).sum(axis=-1, keepdims=True),
    )
    monomials = np.concatenate([z[..., j] * z[..., k], z, np.ones((*z.shape[:-1], 1))], axis=-1)
    of_draws = [np.broadcast_to(each, (*lead, each.shape[-1])) for each in coefficients]
    total = monomials.swapaxes(0, 1) @ np.concatenate(of_draws, axis=-1).transpose(1, 2, 0)
    return np.maximum(total, 0.0).transpose(1, 2, 0)


def _n_monomials(d: int) -> int:
    return (d + 1) * (d + 2) // 2


def _multiply(rows: Array, matrix: Array) -> Array:
    """Multiply vectors (..., d), as rows, by matrices (..., d, d)."""
    if matrix.ndim == 2:
        return np.asarray(rows @ matrix)
    if rows.ndim > 1 and matrix.shape[-3] == 1:
        # One matrix for all observations: one product per draw instead of one per cell.
        return np.asarray(rows @ matrix[..., 0, :, :])
    return np.asarray((rows[..., None, :] @ matrix)[..., 0, :])
