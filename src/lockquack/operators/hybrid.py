"""The hybrid of mixing and locking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import override

from lockquack.jets import Array, Jet
from lockquack.numeric import as_positive
from lockquack.operators.base import Operator, Positions
from lockquack.operators.linear import Linear
from lockquack.operators.locking import Locking
from lockquack.operators.nested import CompositeOperator, Member
from lockquack.operators.space import Real, Space


class SignedLocking(Locking):
    """A log-linear pool with exponents of any sign."""

    name = "signed-locking"

    def __init__(self, sd: float) -> None:
        super().__init__("nonnegative")
        self.sd = sd

    def space(self, concentration: Array) -> Space:
        """Exponents with a Gaussian prior."""
        return Space((Real("weights", concentration.size, self.sd),))

    def mixture_above(self, x: Array, K: int) -> None:
        """Return none: a negative exponent makes the pool larger than its members."""
        return

    def pool(self, jets: Jet, x: Array) -> Jet:
        """Pool jets into one; it is zero where all members are, whatever the exponents."""
        with np.errstate(invalid="ignore"):
            pooled = super().pool(jets, x)
        nowhere = np.isneginf(jets.logp).all(axis=0)
        return replace(pooled, logp=np.where(nowhere, -np.inf, pooled.logp))

    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate the pool in the exponents."""
        return jets


class Hybrid(CompositeOperator):
    r"""Hybrid of the mixture and the log-linear pool, the practical form of quacking.

    .. math:: q(y) \propto \Bigl(\sum_k \beta_k \pi_k(y)\Bigr)^{w_0} \prod_k \pi_k(y)^{w_k}

    with β on the simplex and, by default, :math:`w \ge 0`, :math:`w_0 + \sum_k w_k = 1`. With
    :math:`w_0 = 1` it is the mixture, with :math:`w_0 = 0` locking. It is a log-linear pool of
    the models and their mixture. The weight of a model is its share :math:`w_k + w_0 \beta_k`;
    the exponents and β are among the parameters.

    The Hyvärinen score hardly sees β where the models are far apart.

    Parameters
    ----------
    signed
        Let the exponents have any sign and sum, as the paper does, under a Gaussian prior. They
        are poorly determined (±500 in the paper's own example), and the result may have no
        normaliser; it is refused where that is so, or where it cannot be checked.
    prior_sd
        Standard deviation of that prior, around equal exponents.

    Examples
    --------
    >>> import numpy as np
    >>> density = np.log([[0.2], [0.8]])
    >>> x = np.array([1.0, 0.0, 0.0, 0.5, 0.5])  # w0, w1, w2, β1, β2
    >>> np.exp(Hybrid().pool_density(density, x)).round(3).item()
    0.5
    """

    name = "hybrid"
    needs_density = True
    normalised = False
    of_models = ("exponents", "mixture_weights")

    def __init__(self, *, signed: bool = False, prior_sd: float = 1.0) -> None:
        self.signed, self.prior_sd = bool(signed), as_positive("prior_sd", prior_sd)
        self.always_integrable = not self.signed  # with a sum of one it is below a mixture

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {"signed": True, "prior_sd": self.prior_sd} if self.signed else {}

    def composite(self, K: int) -> tuple[Operator, tuple[Member, ...]]:
        """Return the log-linear pool of the mixture and each model."""
        outer = SignedLocking(self.prior_sd) if self.signed else Locking()
        each = [Member(np.array([k])) for k in range(K)]
        return outer, (Member(np.arange(K), Linear()), *each)

    @override
    def select(self, models: Positions, K: int) -> tuple[Operator, Positions]:
        return self, np.concatenate([[0], 1 + models, 1 + K + models])

    def parameters(self, x: Array, K: int) -> dict[str, Array]:
        """Exponent of the mixture, exponents of the models, and weights within the mixture."""
        return {
            "mixture_exponent": np.asarray(x[0]),
            "exponents": x[1 : K + 1],
            "mixture_weights": x[K + 1 :],
        }
