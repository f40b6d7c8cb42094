"""Files that are damaged, changed, somebody else's or from the future: a message, no wrong answer.

Each is made from one that was saved, by a change that is the same every time. Whoever reads it
must be told which file cannot be used and why, unless nothing that matters was changed.
"""

from __future__ import annotations

import json
import shutil
import struct
import warnings
from itertools import product

import numpy as np
import pytest
import xarray as xr

import lockquack as lq
from lockquack.cli import main
from lockquack.errors import FileError, LockquackError, LockquackWarning
from lockquack.testing import example_models

NETCDF_OF_OTHERS = {
    "empty": b"",
    "text": b"model,weight\nfirst,0.5\n",
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(200),
    "archive": b"PK\x03\x04" + bytes(200),
    "classic, endless": b"CDF\x01" + b"\xff" * 60,
    "classic, large": b"CDF\x05" + b"\x7f" * 60,
    "HDF5, no more than its name": b"\x89HDF\r\n\x1a\n",
}


@pytest.fixture(scope="module")
def fit():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)  # of so few observations
        return lq.combine(example_models(12), lq.Superposition(), lq.Hyvarinen())


@pytest.fixture(scope="module")
def saved(fit, tmp_path_factory):
    """Save a combination and a model, each to a file and to a store."""
    folder = tmp_path_factory.mktemp("saved")
    for suffix in ("nc", "zarr"):
        fit.save(folder / f"fit.{suffix}")
        fit.models["first"].save(folder / f"model.{suffix}")
    return folder


READERS = {
    "fit": lq.load,
    "model": lambda path: lq.from_datatree(path, lazy=False),
    "lazy model": lambda path: lq.from_datatree(path, lazy=True),
}


def numbers(result):
    """Return all that a file is read for."""
    if isinstance(result, lq.Combination):
        return [result.weights.values, result.pointwise.values, result.parameters["phases"].values]
    jet = result.collapse("in-sample").jet
    return [jet.logp, jet.grad, jet.curv, result.observations.values]


def require_message_or_truth(kind, path, truth):
    """Read a file; return whether it was refused."""
    said = None
    try:
        found = numbers(READERS[kind](path))
    except LockquackError as error:
        said = str(error)
    if said is not None:
        # What is found later, chunk by chunk, is of a model, which has a name of its own.
        assert str(path) in said or (kind == "lazy model" and "is nan at" in said)
        assert "\n" not in said
        return True
    for one, other in zip(found, truth, strict=True):
        np.testing.assert_array_equal(one, other)
    return False


def rewritten(path, target, change, **options):
    """Write a combination again, with a change, as another program would."""
    options |= {"engine": "zarr", "consolidated": False} if path.suffix == ".zarr" else {}
    with xr.open_dataset(path, **options) as opened:
        dataset = change(opened.load())
    if target.suffix == ".zarr":
        dataset.drop_encoding().to_zarr(target, zarr_format=2, consolidated=False)
    else:
        dataset.drop_encoding().to_netcdf(target, engine="h5netcdf")
    return target


# Bytes


@pytest.mark.parametrize("kind", ["fit", "model", "lazy model"])
def test_files_that_end_early(saved, tmp_path, kind):
    whole = (saved / f"{kind.split()[-1]}.nc").read_bytes()
    for share in (0.001, 0.05, 0.3, 0.6, 0.9, 0.999):
        path = tmp_path / f"{share}.nc"
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(FileError, match=path.name):
            numbers(READERS[kind](path))


@pytest.mark.parametrize(("kind", "content"), list(product(READERS, NETCDF_OF_OTHERS)))
def test_files_of_another_kind(tmp_path, kind, content):
    path = tmp_path / "given.nc"
    path.write_bytes(NETCDF_OF_OTHERS[content])
    with pytest.raises(FileError, match=r"given\.nc: This is not a NetCDF file or Zarr store"):
        READERS[kind](path)


@pytest.mark.parametrize(("kind", "step"), [("fit", 997), ("model", 14983), ("lazy model", 29989)])
def test_single_bits_that_have_flipped(saved, tmp_path, kind, step):
    source = saved / f"{kind.split()[-1]}.nc"
    truth, whole = numbers(READERS[kind](source)), source.read_bytes()
    refused = 0
    for at in range(0, len(whole), step):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path = tmp_path / f"{at}.nc"
        path.write_bytes(changed)
        refused += require_message_or_truth(kind, path, truth)
    assert refused > 5


def test_a_heap_that_hdf5_would_go_through_for_ever(saved, tmp_path):
    """The free space at its end says that it is no bytes long."""
    content = bytearray((saved / "fit.nc").read_bytes())
    start = content.index(b"GCOL")
    at, end = start + 16, start + struct.unpack_from("<Q", content, start + 8)[0]
    while at < end:
        number, _, _, length = struct.unpack_from("<HHIQ", content, at)
        if number == 0:
            break
        at += 16 + -(-length // 8) * 8
    struct.pack_into("<Q", content, at + 8, 0)
    path = tmp_path / "fit.nc"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"fit\.nc: It is damaged: the heap of texts"):
        lq.load(path)


@pytest.mark.parametrize("kind", ["fit", "model", "lazy model"])
def test_parts_of_a_store_that_are_missing_cut_or_changed(saved, tmp_path, kind):
    source = saved / f"{kind.split()[-1]}.zarr"
    truth = numbers(READERS[kind](source))
    parts = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    changes = {
        "missing": lambda content: None,
        "empty": lambda content: b"",
        "cut": lambda content: content[: len(content) // 2],
        "other": lambda content: b"{}",
    }
    # One of the changes to each part, each of them to every fourth.
    for i, part in enumerate(parts):
        what = list(changes)[i % len(changes)]
        path = tmp_path / f"{i} {what}.zarr"
        shutil.copytree(source, path)
        content = changes[what]((path / part).read_bytes())
        (path / part).unlink()
        if content is not None:
            (path / part).write_bytes(content)
        if part.suffix or kind == "fit" or "y" in part.parts:
            require_message_or_truth(kind, path, truth)


@pytest.mark.parametrize("kind", ["model", "lazy model"])
def test_draws_in_a_store_that_have_changed(saved, tmp_path, kind):
    """A number with another bit is a number still; only a checksum can tell."""
    source = saved / "model.zarr"
    chunks = [path.relative_to(source) for path in source.rglob("y/0.*")]
    draws = [each for each in chunks if "observed_data" not in each.parts]
    assert len(draws) == 3
    for part in draws:
        path = tmp_path / f"{part.parts[0]}.zarr"
        shutil.copytree(source, path)
        content = bytearray((path / part).read_bytes())
        content[len(content) // 3] ^= 16
        (path / part).write_bytes(content)
        with pytest.raises(FileError, match=rf"{path.name}: .*may be damaged.*checksum"):
            READERS[kind](path).collapse("in-sample")


# What a combination must hold


def renamed(old, new):
    return lambda dataset: dataset.rename({old: new})


def without(name):
    return lambda dataset: dataset.drop_vars(name)


def with_values(name, change):
    return lambda dataset: dataset.assign({name: dataset[name].copy(data=change(dataset[name]))})


def with_attribute(name, value):
    return lambda dataset: dataset.assign_attrs({name: value})


def without_attribute(name):
    def change(dataset):
        dataset.attrs.pop(name)
        return dataset

    return change


def on_other_dims(name, dims):
    return lambda dataset: dataset.assign({name: (dims, dataset[name].values[..., None])})


#: What is changed, and what is said of it.
CHANGES = {
    "no parameters": (without("lockquack_parameters"), "no variable 'parameters'"),
    "no densities": (without("lockquack_logp"), "no variable 'logp'"),
    "no slopes": (without("lockquack_grad"), "no variable 'grad'"),
    "no outcomes": (without("lockquack_y"), "no variable 'y'"),
    "no errors": (without("lockquack_mcse"), "no variable 'mcse'"),
    "no prior": (without("lockquack_concentration"), "no variable 'concentration'"),
    "no names": (without("model"), "names of the models are not there"),
    "another name": (renamed("lockquack_logp", "logp_"), "no variable 'logp'"),
    "another dimension": (
        on_other_dims("lockquack_logp", ("model", "lockquack_observation", "more")),
        "'logp' must be numbers of the shape",
    ),
    "fewer models": (lambda dataset: dataset.isel(model=[0]), "there must be 2 of them, not 4"),
    "fewer observations": (
        lambda dataset: dataset.isel(lockquack_observation=slice(3)),
        "'logp' must be numbers of the shape",
    ),
    "text for numbers": (
        lambda dataset: dataset.assign(lockquack_mcse=("model", ["a", "b"])),
        "'mcse' must be numbers",
    ),
    "parameters that are NaN": (
        with_values("lockquack_parameters", lambda x: x * np.nan),
        "weights must be finite numbers",
    ),
    "parameters that are infinite": (
        with_values("lockquack_parameters", lambda x: x / 0),
        "must be finite numbers",
    ),
    "weights that sum to two": (
        with_values("lockquack_parameters", lambda x: 2 * x),
        "weights must sum to one",
    ),
    "negative weights": (
        with_values("lockquack_parameters", lambda x: x * [3, -1, 1, 1]),
        "weights must not be negative",
    ),
    "too many parameters": (
        lambda dataset: dataset.assign(
            lockquack_parameters=("many", np.tile(dataset["lockquack_parameters"], 2))
        ),
        "there must be 4 of them, not 8",
    ),
    "other weights": (
        with_values("lockquack_parameters", lambda x: np.array([0.5, 0.5, 0.0, 1.0])),
        "does not fit its digest",
    ),
    "another outcome": (
        with_values("lockquack_y", lambda y: y + 1),
        "does not fit its digest",
    ),
    "a later version": (with_attribute("lockquack_format", 99), "A later version of lockquack"),
    "an earlier version": (with_attribute("lockquack_format", 1), "in the format 1; this version"),
    "a version that is no number": (with_attribute("lockquack_format", "x"), "in the format x"),
    "no version": (without_attribute("lockquack_format"), "does not hold a combination"),
    "no digest": (without_attribute("digest"), "does not fit its digest"),
    "another digest": (with_attribute("digest", "0" * 32), "does not fit its digest"),
    "an operator of another kind": (
        with_attribute("operator", '{"name": "teleport", "options": {}}'),
        "sense of the attribute 'operator'",
    ),
    "an operator that is no JSON": (
        with_attribute("operator", "{"),
        "sense of the attribute 'operator'",
    ),
    "an operator with other options": (
        with_attribute("operator", '{"name": "locking", "options": {"zeal": 3}}'),
        "sense of the attribute 'operator'",
    ),
    "a rule of another kind": (with_attribute("rule", "fate"), "sense of the attribute 'rule'"),
    "options of a rule": (
        with_attribute("rule_options", '{"scale": {"a": 1}, "zeal": 1}'),
        "sense of the attribute 'rule_options'",
    ),
    "options of a fitter": (
        with_attribute("fitter_options", '{"zeal": 1}'),
        "sense of the attribute 'fitter_options'",
    ),
    "scores of another kind": (
        with_attribute("scores", "guess"),
        "sense of the attribute 'scores'",
    ),
    "remarks that are no list": (with_attribute("remarks", "[3]"), "attribute 'remarks'"),
    "other dimensions": (
        with_attribute("obs_dims", '["nowhere"]'),
        "sense of the observations",
    ),
    "an objective that is text": (
        with_attribute("objective", "small"),
        "sense of the attribute 'objective', 'small'",
    ),
}
CHANGES |= {
    f"no {name}": (without_attribute(name), f"no attribute '{name}'")
    for name in (
        *("operator", "rule", "rule_options", "scores", "label", "fitter_options", "random_seed"),
        *("component_dim", "outcome", "obs_dims", "objective", "gap", "objective_scale", "remarks"),
        *("converged", "iterations", "status", "starts", "stationarity"),
    )
}


@pytest.mark.parametrize("change", CHANGES)
def test_combinations_that_were_changed(saved, tmp_path, change):
    suffix = ("nc", "zarr")[list(CHANGES).index(change) % 2]
    apply, message = CHANGES[change]
    path = rewritten(saved / f"fit.{suffix}", tmp_path / f"changed.{suffix}", apply)
    with pytest.raises(FileError) as caught:
        lq.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_combination_that_was_copied_by_another_program_is_read(fit, saved, tmp_path, suffix):
    path = rewritten(saved / f"fit.{suffix}", tmp_path / f"copy.{suffix}", lambda same: same)
    assert not require_message_or_truth("fit", path, numbers(fit))


def test_a_combination_is_no_model_and_a_model_no_combination(saved):
    for suffix in ("nc", "zarr"):
        with pytest.raises(LockquackError, match=r"This is a combination, not a model"):
            lq.from_datatree(saved / f"fit.{suffix}")
        with pytest.raises(FileError, match=r"does not hold a combination. Models are read by"):
            lq.load(saved / f"model.{suffix}")


# What a model must hold


MODEL_CHANGES = {
    "no draws": ({"log_likelihood": lambda g: g.drop_vars("y")}, "'log_likelihood' is empty"),
    "no slopes": ({"log_likelihood_grad": lambda g: g.drop_vars("y")}, "does not hold the outcome"),
    "no outcomes": ({"observed_data": lambda g: g.drop_vars("y")}, "does not hold the outcome"),
    "no dimension of draws": (
        {"log_likelihood": lambda g: g.rename(chain="a", draw="b")},
        "chain",
    ),
    "slopes without draws": (
        {"log_likelihood_grad": lambda g: g.isel(chain=0, draw=0, drop=True)},
        "chain",
    ),
    "fewer observations": (
        {"observed_data": lambda g: g.isel(obs_id=slice(3))},
        "must have shape",
    ),
    "fewer draws of slopes": (
        {"log_likelihood_grad": lambda g: g.isel(draw=slice(3))},
        "draw",
    ),
    "densities that are text": (
        {"log_likelihood": lambda g: g.astype(str).astype(object)},
        "is not numeric",
    ),
    "densities that are NaN": ({"log_likelihood": lambda g: g * np.nan}, "is nan"),
    "a likelihood that is no JSON": (
        {
            "log_likelihood": lambda g: g.assign(
                y=g["y"].assign_attrs(lockquack_likelihood="{normal}")
            )
        },
        "sense of the attribute 'lockquack_likelihood'",
    ),
    "a likelihood of the future": (
        {
            "log_likelihood": lambda g: g.assign(
                y=g["y"].assign_attrs(
                    lockquack_likelihood=json.dumps({"description": "x", "edges": [], "warp": 9})
                )
            )
        },
        "a later version of lockquack wrote it",
    ),
}


@pytest.mark.parametrize(("change", "suffix"), list(product(MODEL_CHANGES, ["nc", "zarr"])))
def test_models_that_were_changed(saved, tmp_path, change, suffix):
    changes, message = MODEL_CHANGES[change]
    with xr.open_datatree(saved / "model.nc", engine="h5netcdf") as opened:
        groups = {name: child.to_dataset() for name, child in opened.load().children.items()}
    groups |= {name: apply(groups[name]) for name, apply in changes.items()}
    path = tmp_path / f"changed.{suffix}"
    tree = xr.DataTree.from_dict(groups)
    if suffix == "nc":
        tree.to_netcdf(path, engine="h5netcdf")
    else:
        tree.to_zarr(path, zarr_format=2, consolidated=False)
    with pytest.raises(LockquackError, match=message) as caught:
        lq.from_datatree(path, lazy=False)
    assert str(caught.value).startswith(f"{path}: ")


def test_what_another_library_wrote(tmp_path):
    path = tmp_path / "weather.nc"
    xr.Dataset({"t2m": (("time", "x"), np.zeros((3, 4)))}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match=r"weather\.nc: This does not hold a combination"):
        lq.load(path)
    with pytest.raises(LockquackError, match=r"weather\.nc: This is one group of a container"):
        lq.from_datatree(path)


# What declares more than there is


def test_a_small_file_that_declares_terabytes(saved, tmp_path):
    import h5py

    for kind, place in (("fit", "lockquack_logp"), ("model", "log_likelihood/y")):
        path = tmp_path / f"{kind}.nc"
        shutil.copy(saved / path.name, path)
        with h5py.File(path, "r+") as file:
            parent, _, name = place.rpartition("/")
            group = file[parent or "/"]
            group.create_dataset(f"{name}_more", shape=(10**12,), chunks=(2**20,), dtype="f8")
    for kind in READERS:
        path = tmp_path / f"{kind.split()[-1]}.nc"
        with pytest.raises(FileError, match=rf"{path.name}: It declares 8 TB of numbers"):
            READERS[kind](path)


@pytest.mark.parametrize("part", ["log_likelihood/y", "log_likelihood/draw", "observed_data/y"])
def test_a_small_store_that_declares_terabytes(saved, tmp_path, part):
    """One of the labels too, which are read as soon as a file is opened."""
    path = tmp_path / "model.zarr"
    shutil.copytree(saved / path.name, path)
    about = path / part / ".zarray"
    described = json.loads(about.read_text())
    described["shape"][-1] = 10**12
    about.write_text(json.dumps(described))
    for kind in ("model", "lazy model"):
        with pytest.raises(FileError, match=r"model\.zarr: It declares 8 [TP]B"):
            READERS[kind](path)


def test_more_than_this_machine_can_hold(saved, monkeypatch):
    from lockquack.files import sizes

    monkeypatch.setattr(sizes, "_memory", lambda: 50_000.0)
    with pytest.raises(FileError, match=r"holds \d+ kB of numbers; this machine has 50 kB"):
        lq.from_datatree(saved / "model.nc", lazy=False)
    lq.from_datatree(saved / "model.nc", lazy=True)


# From a shell


@pytest.mark.parametrize("name", ["fit.nc", "model.nc"])
def test_the_shell_names_the_file_too(saved, tmp_path, capsys, name):
    path = tmp_path / name
    path.write_bytes((saved / name).read_bytes()[:5000])
    for command in (["weights"], ["check"], ["sample", "-o", str(tmp_path / "draws.nc")]):
        assert main([command[0], str(path), *command[1:]]) == 1
        said = "".join("".join(capsys.readouterr()).split())
        assert str(path) in said
        assert "unexpected" not in said


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("name", ["status", "format", "digest"])
def test_attributes_that_are_lists(name, suffix, tmp_path):
    path = tmp_path / f"fit{suffix}"
    lq.lock(lq.example_models()).save(path)
    engine = {"engine": "zarr", "consolidated": False} if suffix == ".zarr" else {}
    with xr.open_dataset(path, **engine) as stored:
        changed = stored.load()
    key = next(each for each in changed.attrs if name in str(each))
    changed.attrs[key] = [1.5, 2.5]
    spoilt = tmp_path / f"spoilt{suffix}"
    changed.to_zarr(spoilt, zarr_format=2) if engine else changed.to_netcdf(spoilt)
    with pytest.raises(LockquackError, match=f"spoilt{suffix}"):
        lq.load(spoilt)
