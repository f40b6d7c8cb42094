"""arviz-stats: PSIS leave-one-out, and stacking as ``compare`` does it."""

from __future__ import annotations

import sys
import warnings
from inspect import signature
from pathlib import Path

import numpy as np
import xarray as xr
from arviz_base import from_dict
from arviz_stats import compare, loo
from arviz_stats.utils import ELPDData
from contest import report
from problems import n_models, read

task, folder = sys.argv[1], Path(sys.argv[2])
warnings.simplefilter("ignore")
names = [str(k) for k in range(n_models(folder))]
#: Before 1.0 it had to be told that these are of leave-one-out.
KIND = {"kind": "loo"} if "kind" in signature(ELPDData).parameters else {}


def weights_of(elpds: dict[str, ELPDData]) -> list[float]:
    """Stack; the table is sorted by elpd, so bring the models back into order."""
    table = compare(elpds, method="stacking")
    return [float(table.loc[name, "weight"]) for name in names]


if task == "draws":
    trees = {
        name: from_dict({"log_likelihood": {"y": read(folder, f"logp_{name}")}}) for name in names
    }
    report(
        lambda: weights_of(
            {k: loo(tree, var_name="y", pointwise=True, reff=1.0) for k, tree in trees.items()}
        )
    )
else:
    elpd = read(folder, "elpd")
    n = len(elpd)
    given = {}
    for k, name in enumerate(names):
        column = xr.DataArray(elpd[:, k], dims="obs")
        se = float(np.sqrt(n) * elpd[:, k].std())
        total = float(elpd[:, k].sum())
        given[name] = ELPDData(
            **KIND,
            elpd=total,
            se=se,
            p=1.0,
            n_samples=4000,
            n_data_points=n,
            scale="log",
            warning=False,
            good_k=0.7,
            elpd_i=column,
            pareto_k=xr.zeros_like(column),
        )
    report(lambda: weights_of(given))
