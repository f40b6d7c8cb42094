"""Nobody's files are destroyed, and what is written is whole."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import lockquack as lq
from lockquack.cli import main
from lockquack.errors import OverwriteError
from lockquack.files import places
from lockquack.testing import example_models


@pytest.fixture(scope="module")
def fit():
    return lq.lock(example_models(12))


@pytest.fixture
def thesis(tmp_path):
    """Make a folder with something in it that took three years to write."""
    folder = tmp_path / "work"
    (folder / "chapters").mkdir(parents=True)
    (folder / "chapters" / "one.tex").write_text("Call me Ishmael.")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


WRITERS = {
    "fit.save": lambda fit, path: fit.save(path),
    "model.save": lambda fit, path: fit.models["first"].save(path),
    "model.to_zarr": lambda fit, path: fit.models["first"].to_zarr(path),
    "fit.report": lambda fit, path: fit.report(path, thorough=False),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["work", "work.zarr"])
def test_a_folder_with_something_in_it_is_refused(fit, thesis, writer, name):
    folder = thesis.rename(thesis.with_name(name))
    with pytest.raises(OverwriteError, match=r"holds chapters.*Give another path"):
        WRITERS[writer](fit, folder)
    assert contents(folder.parent) == {f"{name}/chapters/one.tex": b"Call me Ishmael."}


@pytest.mark.parametrize("writer", ["fit.save", "model.save", "model.to_zarr"])
def test_our_own_store_and_an_empty_folder_are_replaced(fit, tmp_path, writer):
    store = tmp_path / "store.zarr"
    store.mkdir()
    WRITERS[writer](fit, store)
    first = contents(store)
    assert first
    WRITERS[writer](fit, store)
    assert contents(store).keys() == first.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["store.zarr"]


def test_our_own_store_is_refused_once_it_holds_something_else(fit, tmp_path):
    store = tmp_path / "fit.zarr"
    fit.save(store)
    (store / "notes.txt").write_text("mine")
    with pytest.raises(OverwriteError, match=r"holds notes\.txt"):
        fit.save(store)
    (store / "notes.txt").unlink()
    (store / "weights").symlink_to(tmp_path)
    with pytest.raises(OverwriteError, match="holds weights"):
        fit.save(store)


def test_a_store_of_somebody_else_is_refused(fit, tmp_path):
    import xarray as xr

    store = tmp_path / "posterior.zarr"
    xr.Dataset({"mu": ("draw", np.zeros(3))}).to_zarr(store, zarr_format=2)
    before = contents(store)
    with pytest.raises(OverwriteError, match="a Zarr store of somebody else's"):
        fit.save(store)
    assert contents(store) == before


def test_the_shell_refuses_before_it_reads_anything(fit, thesis, tmp_path, capsys):
    model = tmp_path / "a.nc"
    fit.models["first"].save(model)
    for option in ("--save", "-o"):
        assert main(["weights", str(model), option, str(thesis)]) == 1
        assert "holds chapters" in capsys.readouterr().err
    assert contents(thesis) == {"chapters/one.tex": b"Call me Ishmael."}


@pytest.mark.parametrize(
    "command",
    [
        ["weights", "{a}", "{b}", "--save", "{b}"],
        ["weights", "{a}", "{b}", "-o", "{a}"],
        ["sample", "{a}", "{b}", "--family", "normal", "-o", "{b}"],
        ["report", "{a}", "{b}", "-o", "{a}"],
    ],
)
def test_an_output_that_is_also_an_input_is_refused(fit, tmp_path, capsys, command):
    paths = {"a": tmp_path / "a.nc", "b": tmp_path / "b.nc"}
    for name, model in zip(paths, fit.models.values(), strict=True):
        model.save(paths[name])
    before = contents(tmp_path)
    assert main([word.format(**paths) for word in command]) == 1
    assert "one of the files that are read" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_a_model_may_be_written_over_the_store_that_it_is_read_from(fit, tmp_path):
    store = tmp_path / "model.zarr"
    fit.models["first"].to_zarr(store)
    lazy = lq.from_datatree(store, lazy=True)
    lazy.to_zarr(store)
    again = lq.from_datatree(store, lazy=False)
    np.testing.assert_array_equal(
        again.collapse("loo").jet.grad, fit.models["first"].collapse("loo").jet.grad
    )


def test_the_fit_is_saved_even_if_nobody_reads_the_table(fit, tmp_path):
    for name, model in fit.models.items():
        model.save(tmp_path / f"{name}.nc")
    program = f"{sys.executable} -m lockquack weights first.nc second.nc --save fit.nc | true"
    subprocess.run(["bash", "-c", program], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_allclose(lq.load(tmp_path / "fit.nc").weights, fit.weights)


def test_what_fails_half_way_leaves_what_was_there(tmp_path):
    path = tmp_path / "result.txt"
    places.write_text(path, "old")

    def fail():
        with places.written_whole(path) as unfinished:
            unfinished.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert contents(tmp_path) == {"result.txt": b"old"}


@pytest.mark.parametrize("exchange", [True, False])
def test_folders_are_replaced_whole(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(places, "_exchange", lambda one, other: False)
    path = tmp_path / "store.zarr"
    for text in ("old", "new"):
        with places.written_whole(path) as unfinished:
            unfinished.mkdir()
            (unfinished / ".zgroup").write_text(text)
            (unfinished / ".zattrs").write_text(json.dumps(places.WRITTEN_BY))
    assert contents(tmp_path)["store.zarr/.zgroup"] == b"new"
    assert len(contents(tmp_path)) == 2


def test_two_writers_leave_one_whole_result(fit, tmp_path):
    path = tmp_path / "fit.nc"
    threads = [threading.Thread(target=lambda: fit.save(path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lq.load(path).names == fit.names
    assert [each.name for each in tmp_path.iterdir()] == ["fit.nc"]


def test_a_killed_writer_leaves_the_old_or_the_new(tmp_path):
    path = tmp_path / "big.txt"
    places.write_text(path, "old")
    program = (
        "from lockquack.files.places import write_text\n"
        "print('begun', flush=True)\n"
        f"while True: write_text({str(path)!r}, 'new' * 3_000_000)"
    )
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"begun\n"
    time.sleep(0.1)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert path.read_text() in ("old", "new" * 3_000_000)


def test_links_lead_to_what_is_replaced_and_rights_stay(tmp_path):
    path, link = tmp_path / "result.txt", tmp_path / "link.txt"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    places.write_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_device_is_written_to_and_stays(tmp_path):
    places.write_text(os.devnull, "nothing")
    assert not Path(os.devnull).is_file()
