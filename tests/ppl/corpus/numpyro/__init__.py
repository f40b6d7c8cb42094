"""NumPyro models in the manner of its examples and tutorials."""

from tests.ppl.corpus.numpyro import (  # noqa: F401
    hierarchies,
    likelihoods,
    outcomes,
    regressions,
    series,
)
from tests.ppl.corpus.numpyro.example import CORPUS

__all__ = ["CORPUS"]
