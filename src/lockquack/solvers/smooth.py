"""A smooth function of several numbers: its values, slopes and curvature at points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lockquack.errors import ShapeError
from lockquack.solvers.base import Array
from lockquack.solvers.differences import central_differences

#: The value and the gradient of f at z.
ValueAndGradient = Callable[[Array], tuple[float, Array]]


#: Step of the differences, where the errors of rounding and of truncation are about as large.
_DIFFERENCE = float(np.cbrt(np.finfo(np.float64).eps))
#: Shrinkages of that step, where f changes over shorter lengths or is not finite nearby.
_SHRINKAGES = (1.0, 1 / 16, 1 / 256, 1 / 4096)
#: Relative error of a Hessian by differences: no eigenvalue below it is told from zero.
_FLAT = 1e-10
#: Relative asymmetry of a Hessian that is good enough.
_SYMMETRIC = 1e-9


@dataclass(frozen=True)
class Point:
    """A point with the value and the gradient of f there, in units of the scale."""

    z: Array
    value: float
    gradient: Array

    @property
    def finite(self) -> bool:
        """Whether f and its gradient are known there."""
        return bool(np.isfinite(self.value) and np.isfinite(self.gradient).all())

    @property
    def norm(self) -> float:
        """The largest slope."""
        return float(np.abs(self.gradient).max(initial=0.0))


@dataclass(frozen=True)
class Curvature:
    """The Hessian of f in units of the scale, and its eigenvalues in ascending order."""

    hessian: Array
    eigenvalues: Array
    vectors: Array
    noise: float  # below which an eigenvalue is not told from zero

    @classmethod
    def of(cls, hessian: Array, error: float) -> Curvature:
        """Decompose a Hessian with entries of some error; an unknown one makes steepest descent."""
        if not np.isfinite(hessian).all():
            return cls(hessian, np.full(len(hessian), np.nan), np.eye(len(hessian)), _FLAT)
        eigenvalues, vectors = np.linalg.eigh(hessian)
        noise = _FLAT * float(np.abs(eigenvalues).max(initial=1.0)) + 4 * error
        return cls(hessian, eigenvalues, vectors, noise)

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue."""
        return float(self.eigenvalues.min(initial=np.inf))

    def newton_step(self, point: Point, tol: float) -> Array:
        """Return the step of :func:`newton`, at most as long as the point is far, or as one."""
        along = self.vectors.T @ point.gradient
        size = np.nan_to_num(np.abs(self.eigenvalues))
        flat = (size <= self.noise) & (np.abs(along) <= tol)
        step = -self.vectors @ np.where(flat, 0.0, along / np.maximum(size, self.noise))
        reach = max(1.0, float(np.linalg.norm(point.z)))
        return np.asarray(step * min(1.0, reach / max(float(np.linalg.norm(step)), reach)))


@dataclass(frozen=True)
class SmoothFunction:
    """A function to be minimised, in units of its scale."""

    objective: ValueAndGradient
    scale: float

    def at(self, z: Array) -> Point:
        """Evaluate f at a copy of z; trial points may be far out, where it overflows."""
        with np.errstate(all="ignore"):
            value, gradient = self.objective(z.copy())
            slope = np.array(gradient, dtype=np.float64) / self.scale
        if slope.shape != z.shape:
            raise ShapeError(f"The gradient has shape {slope.shape}: want {z.shape}, that of z.")
        return Point(z, float(value) / self.scale, slope)

    def curvature(self, z: Array) -> Curvature:
        """Return the Hessian at z, by the differences that make it the most symmetric.

        Its two halves come from different points, so what they differ by is an error, of
        truncation where the step is too long and of rounding where it is too short.
        """
        best, error = np.full((len(z), len(z)), np.nan), np.inf
        for shrinkage in _SHRINKAGES:
            raw = self._differences(z, shrinkage)
            asymmetry = float(np.abs(raw - raw.T).max(initial=0.0))
            if asymmetry >= error:
                break
            if asymmetry < error:  # false where it is NaN
                best, error = raw, asymmetry
            if error <= _SYMMETRIC * np.abs(best).max(initial=1.0):
                break
        return Curvature.of((best + best.T) / 2, error)

    def _differences(self, z: Array, shrinkage: float) -> Array:
        """Differentiate the gradient, a row for each entry of z; NaN where it is not finite."""

        def gradient(at: Array) -> Array:
            point = self.at(at)
            return point.gradient if point.finite else np.full_like(at, np.nan)

        return central_differences(
            gradient, z, shrinkage * _DIFFERENCE * np.maximum(1.0, np.abs(z))
        )
