"""Solvers that certify their answers."""

from lockquack.solvers.base import Solution
from lockquack.solvers.simplex_qp import simplex_qp

__all__ = ["Solution", "simplex_qp"]
