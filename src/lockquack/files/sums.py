"""Reading and writing sums over observations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import FileError, naming
from lockquack.files.contents import DAMAGED, Contents, read_kind, require_unchanged, signed
from lockquack.files.formats import read_dataset, write
from lockquack.fitting.sums import QuadraticSums, Spread
from lockquack.methods.summing import Summed
from lockquack.rules import RULES
from lockquack.rules.scaled import ScaledRule

_FORMAT_KEY, _FORMAT = "lockquack_running_format", 2


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
    for k, of_model in enumerate(sums.effects):
        for i, effect in enumerate(of_model):
            dims = (f"chain_{k}_{i}", f"block_{k}_{i}", "component")
            variables[f"influence_{k}_{i}"] = (dims, effect)
    dataset = xr.Dataset(
        variables,
        coords={"model": list(running.names)},
        attrs={
            _FORMAT_KEY: _FORMAT,
            "rule": running.rule.name,
            "rule_options": json.dumps(running.rule.options),
            "scores": running.scores,
            "random_seed": json.dumps(running.random_seed),
            "weight": sums.outcomes.weight,
            "count": sums.outcomes.count,
            "square_weight": sums.square_weight,
            "n_influences": json.dumps([len(each) for each in sums.effects]),
        },
    )
    write(signed(dataset), path)


def read_sums(path: str | Path) -> Summed:
    """Read the sums; see :meth:`RunningLock.load`."""
    dataset = read_dataset(path)
    with naming(str(path)):
        if dataset.attrs.get(_FORMAT_KEY) != _FORMAT:
            raise FileError(
                "This does not hold a RunningLock or RunningStack that this version can read. "
                "Combinations are read by lq.load."
            )
        require_unchanged(dataset)
        return _rebuild(Contents(dataset, ""), tuple(map(str, dataset["model"].values)))


def _rebuild(contents: Contents, names: tuple[str, ...]) -> Summed:
    outcomes = Spread(
        float(contents.number("weight")),
        int(contents.number("count")),
        contents.array("mean"),
        contents.array("squares"),
    )
    effects = tuple(
        tuple(contents.array(f"influence_{k}_{i}") for i in range(count))
        for k, count in enumerate(contents.json("n_influences"))
    )
    known = "square_second" in contents.arrays
    sums = QuadraticSums(
        len(names),
        outcomes,
        contents.array("first"),
        float(contents.number("square_weight")),
        contents.array("square_first"),
        contents.array("square_second") if known else np.empty((0, 0)),
        effects,
    )
    return Summed(
        names,
        _rule(contents),
        contents.attribute("scores", read_kind),
        sums,
        contents.array("concentration"),
        contents.json("random_seed"),
    )


def _rule(contents: Contents) -> ScaledRule:
    rule = contents.attribute("rule", RULES.__getitem__)(**contents.json("rule_options"))
    if not isinstance(rule, ScaledRule):
        raise FileError(f"Sums are not kept for {rule!r}. {DAMAGED}")
    return rule
