"""The chains of a model as models of their own, for posteriors that do not mix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import UnsupportedError
from lockquack.jets import Array, Jet
from lockquack.models.delegating import DelegatingSource
from lockquack.models.model import Model
from lockquack.models.source import Source, Subset
from lockquack.sources.bulks import search_bulks
from lockquack.sources.reading import as_model


@dataclass(frozen=True, eq=False, repr=False)
class ChainSource(DelegatingSource):
    """One chain of another source, which reads it."""

    chain: int

    @classmethod
    def of(cls, source: Source, chain: int) -> ChainSource:
        """Take one chain of a source."""
        return cls(**{**source.common_fields(), "n_chains": 1}, source=source, chain=chain)

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return self.source.logp(self.chain, draws, obs)

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        return self.source.derivatives(self.chain, draws, obs)

    @override
    def logp_at(self, y: Array, chain: int, draws: slice, obs: Subset) -> Array:
        return self.source.logp_at(y, self.chain, draws, obs)

    @override
    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        return self.source.jets_at(y, self.chain, draws, obs, derivatives=derivatives)

    @override
    def split(self, obs: slice) -> None:
        return None  # it would be that of all chains

    @override
    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        """Find this chain's modes: those of all chains together may be far from them."""
        return search_bulks(self, obs, multiples, detailed=detailed)

    @override
    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Subset, rng: np.random.Generator
    ) -> Array:
        return self.source.draw_outcomes(self.chain, draws, obs, rng)

    @override
    def stored_logp(self, chain: int, draws: slice) -> Array | None:
        return self.source.stored_logp(self.chain, draws)

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        return one_chain(self.source.with_data(y, **data), self.chain)


@own_arithmetic
def split_chains(model: Any, *, name: str = "chain") -> dict[str, Model]:
    r"""Make one model of each chain, to be combined like any others.

    Where a posterior has several modes, chains that started at different places may never meet:
    :math:`\hat R` is large, and the draws of all chains together have the modes in proportions
    that say more about where the chains started than about the posterior. Stacking the chains [1]_,
    or locking them, gives them weights by how well they predict instead,

    .. math:: q(y) = \sum_c w_c \, \frac1S \sum_s f(y \mid \theta_{cs}),

    as if each chain was a model. That is no longer the posterior's own prediction, and often a
    better one where the model is wrong. Where chains agree, their models are alike and the
    weights mean nothing, which a remark says; do not split them then. Each model has the draws of
    one chain only, so leave-one-out needs long chains, and whether a chain mixes within its
    mode cannot be seen from it.

    Parameters
    ----------
    model
        A model with several chains, or whatever :func:`lock` takes for one.
    name
        What the models are called, before the number of the chain.

    Returns
    -------
    dict
        ``{"chain 0": model, "chain 1": model, ...}``. Each can do what the whole model can: be
        evaluated, sampled, taken to new data; draws that are on disk or with dask stay there.

    Examples
    --------
    Two chains in each of two modes, one of which predicts better:

    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(2.0, 1.0, size=50)
    >>> mode = np.array([-2.0, -2.0, 2.0, 2.0])[:, None]
    >>> mu = mode + 0.1 * rng.normal(size=(4, 300))
    >>> model = lq.from_family("normal", y=y, mu=mu, sigma=1.5)
    >>> chains = lq.split_chains(model)
    >>> list(chains)
    ['chain 0', 'chain 1', 'chain 2', 'chain 3']
    >>> fit = lq.stack({name: chains[name] for name in ("chain 0", "chain 2")})
    >>> fit.weights.round(2).to_series().to_dict()
    {'chain 0': 0.0, 'chain 2': 1.0}

    References
    ----------
    .. [1] Yao, Vehtari and Gelman (2022). Stacking for non-mixing Bayesian computations: the curse
       and blessing of multimodal posteriors. Journal of Machine Learning Research 23(79).
       arXiv:2006.12335.
    """
    source = as_model(model).source
    if not source.n_samples:
        raise UnsupportedError(
            f"{source.likelihood.description} has no draws, so it has no chains to split. Give the "
            "model that it was computed from."
        )
    return {f"{name} {chain}": Model(one_chain(source, chain)) for chain in range(source.n_chains)}


def one_chain(source: Source, chain: int) -> Source:
    """Return one chain of a source by itself: what it holds of it, or what it reads of it."""
    found = source.one_chain(chain) or ChainSource.of(source, chain)
    return replace(
        found,
        is_split=True,
        log_marginal_likelihood=None,  # that of a chain is not known
        divergent=0,
        outcome_draws=source.draws_of(chain),
    )
