"""Combine the predictions of several Bayesian models by any operator."""

__version__ = "0.1.0.dev0"
