"""lockquack: locking by the leave-one-out Hyvärinen score; it needs the derivatives."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from contest import report
from problems import n_models, read

import lockquack as lq

folder = Path(sys.argv[2])
warnings.simplefilter("ignore")
y = read(folder, "y")
parts = ("logp", "grad", "curv")
draws = [{name: read(folder, f"{name}_{k}") for name in parts} for k in range(n_models(folder))]


def run(n_obs: int) -> list[float]:
    """Lock the models, from arrays to weights with their standard errors."""
    models = {
        str(k): lq.from_arrays(y=y[:n_obs], **{name: a[..., :n_obs] for name, a in each.items()})
        for k, each in enumerate(draws)
    }
    return lq.lock(models).weights.values.tolist()


run(50)  # imports
report(lambda: run(len(y)))
