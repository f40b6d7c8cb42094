"""bayesblend: stacking of in-sample densities (it has no PSIS)."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from bayesblend import Draws, MleStacking
from contest import report
from problems import n_models, read

task, folder = sys.argv[1], Path(sys.argv[2])
warnings.simplefilter("ignore")
if task == "draws":
    given = [read(folder, f"logp_{k}") for k in range(n_models(folder))]
    given = [logp.reshape(-1, logp.shape[-1]) for logp in given]
else:
    given = list(read(folder, "elpd").T[:, None, :])


def run() -> list[float]:
    """Average over the draws and stack."""
    fit = MleStacking({str(k): Draws(log_lik=logp) for k, logp in enumerate(given)}).fit()
    return [float(fit.weights[str(k)].item()) for k in range(len(given))]


report(run)
