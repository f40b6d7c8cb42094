"""Distributions of one number, on arrays: quadrature, distribution functions, quantiles."""
