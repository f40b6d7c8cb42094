"""lockquack: PSIS leave-one-out log densities and certified stacking."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from contest import report
from problems import n_models, read

import lockquack as lq
from lockquack.solvers.mixture_proportions import mixture_proportions

task, folder = sys.argv[1], Path(sys.argv[2])
warnings.simplefilter("ignore")
if task == "draws":
    y = read(folder, "y")
    draws = {str(k): read(folder, f"logp_{k}") for k in range(n_models(folder))}
    lq.stack({k: lq.from_arrays(logp=v[..., :50], y=y[:50]) for k, v in draws.items()})  # imports
    report(
        lambda: lq.stack(
            {k: lq.from_arrays(logp=logp, y=y) for k, logp in draws.items()}
        ).weights.values.tolist()
    )
else:
    elpd = read(folder, "elpd")
    report(lambda: mixture_proportions(elpd).x.tolist())
