"""The no-U-turn sampler of nutpie, for densities whose gradients are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockquack.draws.diagnostics import ess_mean, rhat
from lockquack.jets import Array

#: Gives a log density and its gradient; neither finite where it cannot be evaluated.
LogDensity = Callable[[Array], tuple[float, Array]]
#: Steps of a chain by which it is tuned.
_TUNE = 400
#: Share of proposals to accept: more than usual, for the necks of hierarchical priors.
_ACCEPT = 0.9
#: Largest R-hat of chains that agree; of few draws, it is more by chance.
_RHAT, _RHAT_DRAWS = 1.01, 4.0
#: Smallest effective sample size for each chain, and as a share of the draws where these are few.
_ESS, _ESS_SHARE = 100.0, 0.1


@dataclass(frozen=True)
class ChainQuality:
    """How well chains went: what to look at before believing them."""

    chains: int
    draws: int  # of each chain
    divergences: int
    rhat: float  # the largest
    ess: float  # the smallest

    @property
    def is_reliable(self) -> bool:
        """Whether nothing speaks against the draws."""
        total = self.chains * self.draws
        agree = not self.rhat > max(_RHAT, 1.0 + _RHAT_DRAWS / self.draws)
        enough = not self.ess < min(_ESS * self.chains, _ESS_SHARE * total)
        return self.divergences == 0 and agree and enough

    @property
    def summary(self) -> str:
        """What was found, in words."""
        return (
            f"{self.chains} chains of {self.draws} draws by NUTS, {self.divergences} divergences, "
            f"R-hat at most {self.rhat:.3f}, effective sample size at least {self.ess:.0f}"
        )


def assess(quantities: Array, divergences: int) -> ChainQuality:
    """Assess draws of some quantities, (chain, draw, quantity); those that never vary are fine."""
    chains, draws = quantities.shape[:2]
    varying = quantities[..., np.ptp(quantities, axis=(0, 1)) > 0]
    if not varying.shape[2] or draws < 4:
        return ChainQuality(chains, draws, divergences, float("nan"), float("nan"))
    worst, least = float(rhat(varying).max()), float(ess_mean(varying).min())
    return ChainQuality(chains, draws, divergences, worst, least)


def draw_nuts(
    log_density: LogDensity,
    start: Array,
    *,
    chains: int,
    draws: int,
    rng: np.random.Generator,
    tune: int = _TUNE,
    jitter: float = 0.1,
) -> tuple[Array, int]:
    """Draw from a density, (chain, draw, D), from beside a start; return divergences too.

    The same generator gives the same draws, however many processors there are.
    """
    nutpie = _nutpie()
    size = start.size
    if not size:
        return np.empty((chains, draws, 0)), 0

    def evaluate(at: Array) -> tuple[float, Array]:
        with np.errstate(all="ignore"):  # it runs in a thread of its own, with numpy's defaults
            value, slopes = log_density(at)
        return (value, slopes) if np.isfinite(slopes).all() else (-np.inf, np.zeros(size))

    compiled = nutpie.compiled_pyfunc.from_pyfunc(
        size,
        lambda: evaluate,
        lambda *_: lambda at: {"z": np.array(at)},
        [np.dtype(np.float64)],
        [(size,)],
        ["z"],
        make_initial_point_fn=lambda seed: (
            start + jitter * np.random.default_rng(seed).normal(size=size)
        ),
    )
    found = nutpie.sample(
        compiled,
        draws=draws,
        tune=tune,
        chains=chains,
        cores=1,  # Python evaluates one at a time anyway
        seed=int(rng.integers(2**31)),
        save_warmup=False,
        progress_bar=False,
        target_accept=_ACCEPT,
    )
    divergences = int(found["sample_stats"]["diverging"].sum())
    return np.asarray(found["posterior"]["z"].values), divergences


def _nutpie() -> Any:
    try:
        import nutpie
        import nutpie.compiled_pyfunc
    except ImportError as error:
        raise ImportError(
            "Posteriors of weights are sampled by nutpie, which cannot be imported "
            f"({error}): pip install 'lockquack[nuts]'. fit.bootstrap() does without."
        ) from error
    return nutpie
