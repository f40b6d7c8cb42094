"""Reading and writing sums over observations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import LockquackError
from lockquack.files.formats import read_dataset, write
from lockquack.fitting.sums import LockingSums, Spread
from lockquack.methods.summing import Summed
from lockquack.rules import Hyvarinen

_FORMAT_KEY, _FORMAT = "lockquack_running_format", 1


def save_sums(running: Summed, path: str | Path) -> None:
    """Write the sums to NetCDF or Zarr; see :meth:`RunningLock.save`."""
    sums = running.sums
    variables: dict[str, Any] = {
        "mean": ("component", sums.outcomes.mean),
        "squares": ("component", sums.outcomes.squares),
        "first": ("feature", sums.first),
        "square_first": ("feature", sums.square_first),
        "concentration": ("model", running.concentration),
    }
    if sums.square_second.size:
        variables["square_second"] = (("feature", "feature_"), sums.square_second)
    for k, of_model in enumerate(sums.influences):
        for i, influence in enumerate(of_model):
            dims = (f"chain_{k}_{i}", f"block_{k}_{i}", "component")
            variables[f"influence_{k}_{i}"] = (dims, influence)
    dataset = xr.Dataset(
        variables,
        coords={"model": list(running.names)},
        attrs={
            _FORMAT_KEY: _FORMAT,
            "rule_options": json.dumps(running.rule.options),
            "scores": running.scores,
            "random_seed": json.dumps(running.random_seed),
            "weight": sums.outcomes.weight,
            "count": sums.outcomes.count,
            "square_weight": sums.square_weight,
            "n_influences": json.dumps([len(each) for each in sums.influences]),
        },
    )
    write(dataset, path)


def read_sums(path: str | Path) -> Summed:
    """Read the sums; see :meth:`RunningLock.load`."""
    dataset = read_dataset(path)
    attrs = dataset.attrs
    if attrs.get(_FORMAT_KEY) != _FORMAT:
        raise LockquackError(
            f"{path} does not hold a RunningLock that this version can read. Combinations are "
            "read by lq.load."
        )
    arrays = {str(name): array.values for name, array in dataset.data_vars.items()}
    names = tuple(map(str, dataset["model"].values))
    spread = Spread(float(attrs["weight"]), int(attrs["count"]), arrays["mean"], arrays["squares"])
    influences = tuple(
        tuple(arrays[f"influence_{k}_{i}"] for i in range(count))
        for k, count in enumerate(json.loads(attrs["n_influences"]))
    )
    sums = LockingSums(
        len(names),
        spread,
        arrays["first"],
        float(attrs["square_weight"]),
        arrays["square_first"],
        arrays.get("square_second", np.empty((0, 0))),
        influences,
    )
    rule = Hyvarinen.from_options(json.loads(attrs["rule_options"]))
    assert isinstance(rule, Hyvarinen)
    seed = json.loads(attrs["random_seed"])
    return Summed(names, rule, attrs["scores"], sums, arrays["concentration"], seed)
