"""Normalising the combination: quadrature and what it needs."""
