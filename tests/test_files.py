"""Nobody's files are destroyed, and what is written is whole."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import lockquack as lq
from lockquack.cli import main
from lockquack.errors import OverwriteError, ParetoWarning
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
@pytest.mark.parametrize("kind", ["text", "netcdf"])
def test_a_file_of_somebody_else_is_refused(fit, tmp_path, writer, kind):
    file = tmp_path / "notes.nc"
    if kind == "text":
        file.write_text("mine")
    else:
        xr.Dataset({"mu": ("draw", np.zeros(3))}).to_netcdf(file, engine="h5netcdf")
    before = contents(tmp_path)
    with pytest.raises(OverwriteError, match="lockquack did not write"):
        WRITERS[writer](fit, file)
    assert contents(tmp_path) == before


def test_a_fit_replaces_a_fit_and_no_model_that_it_was_made_of(fit, tmp_path):
    paths = {name: tmp_path / f"{name}.nc" for name in fit.models}
    for name, path in paths.items():
        fit.models[name].save(path)
        fit.models[name].save(path)
    before = contents(tmp_path)
    with pytest.warns(ParetoWarning):
        stacked = lq.equal(paths)
    with pytest.raises(OverwriteError, match="holds something else, such as a model"):
        stacked.save(paths["first"])
    assert contents(tmp_path) == before
    for _ in range(2):
        stacked.save(tmp_path / "fit.nc")
    assert lq.load(tmp_path / "fit.nc").label == "equal"
    with pytest.raises(OverwriteError, match="holds something else"):
        fit.models["first"].save(tmp_path / "fit.nc")


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


# What else may stand at a place


def test_a_store_to_which_something_was_added_is_refused(fit, tmp_path):
    store = tmp_path / "model.zarr"
    fit.models["first"].save(store)
    mine = xr.Dataset({"mu": ("draw", np.arange(3.0))})
    mine.to_zarr(store, group="my_analysis", mode="a", zarr_format=2, consolidated=False)
    before = contents(store)
    for writer in ("fit.save", "model.save", "model.to_zarr"):
        with pytest.raises(OverwriteError, match="holds my_analysis, which was added to it"):
            WRITERS[writer](fit, store)
    assert contents(store) == before


def test_what_is_put_into_a_folder_meanwhile_stays(tmp_path):
    place = tmp_path / "store.zarr"
    place.mkdir()

    def write():
        with places.written_whole(place) as unfinished:
            unfinished.mkdir()
            (place / "notes.txt").write_text("mine")

    with pytest.raises(OverwriteError, match=r"holds notes\.txt"):
        write()
    assert contents(tmp_path) == {"store.zarr/notes.txt": b"mine"}


def test_a_page_does_not_take_the_place_of_a_folder(fit, tmp_path, capsys):
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(OverwriteError, match="is a folder. Give the path of a file"):
        fit.report(folder)
    fit.models["first"].save(tmp_path / "a.nc")
    assert main(["weights", str(tmp_path / "a.nc"), "-o", str(folder)]) == 1
    assert "is a folder" in capsys.readouterr().err
    assert folder.is_dir()


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_an_input_under_another_name_is_an_input(fit, tmp_path, capsys, link):
    model, alias = tmp_path / "a.nc", tmp_path / "b.nc"
    fit.models["first"].save(model)
    link(model, alias)
    assert main(["weights", str(model), "--save", str(alias)]) == 1
    assert "one of the files that are read" in capsys.readouterr().err


def test_nothing_is_put_into_a_store_that_is_read(fit, tmp_path, capsys):
    store = tmp_path / "a.zarr"
    fit.models["first"].save(store)
    before = contents(store)
    assert main(["weights", str(store), "-o", str(store / "table.csv")]) == 1
    assert "one of the files that are read" in capsys.readouterr().err
    assert contents(store) == before


def test_two_results_need_two_places(fit, tmp_path, capsys):
    model, place = tmp_path / "a.nc", tmp_path / "result.nc"
    fit.models["first"].save(model)
    same = tmp_path / "other" / ".." / "result.nc"
    (tmp_path / "other").mkdir()
    assert main(["weights", str(model), "--save", str(place), "-o", str(same)]) == 1
    assert "Two results" in capsys.readouterr().err
    assert not place.exists()


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_in_which_nothing_can_be_written(fit, tmp_path, monkeypatch, exists):
    folder = tmp_path / "theirs"
    folder.mkdir()
    if exists:
        fit.save(folder / "fit.nc")
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder and allowed(path, mode))
    with pytest.raises(PermissionError, match=r"fit\.nc cannot be written"):
        fit.save(folder / "fit.nc")


@pytest.mark.parametrize("name", ["a" * 240 + ".nc", "b" * 200 + "." + "c" * 50])
def test_a_long_name_is_no_problem(fit, tmp_path, name):
    fit.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a\0b.nc", "nowhere/fit.nc", "file.txt/fit.nc"])
def test_paths_that_lead_nowhere(fit, tmp_path, name):
    (tmp_path / "file.txt").write_text("text")
    with pytest.raises((FileNotFoundError, OverwriteError), match="no folder|no path"):
        fit.save(f"{tmp_path}/{name}")


def test_the_result_can_go_to_standard_output(fit, tmp_path):
    fit.models["first"].save(tmp_path / "a.nc")
    program = [sys.executable, "-m", "lockquack", "weights", "a.nc", "--quiet", "-o", "/dev/stdout"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "models: 1" in done.stdout
    with (tmp_path / "log.txt").open("w") as log:
        log.write("what was done before")
        log.flush()
        done = subprocess.run(
            program, cwd=tmp_path, stdout=log, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"being written already" in done.stderr
    assert (tmp_path / "log.txt").read_text() == "what was done before"


# A disk that is full


def test_what_is_still_on_its_way_when_a_store_fails_is_removed_too(tmp_path):
    def bring_back(folder):
        time.sleep(0.05)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "0.0").write_bytes(b"late")

    def fail(late):
        with places.written_whole(tmp_path / "a.zarr") as unfinished:
            unfinished.mkdir()
            late.submit(bring_back, unfinished)
            raise OSError("no room")

    with ThreadPoolExecutor(1) as late, pytest.raises(OSError, match="no room"):
        fail(late)
    assert not any(tmp_path.iterdir())


FULL = """
import os, resource, signal, sys
from pathlib import Path
import lockquack as lq
from lockquack.testing import example_models

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fit = lq.lock(example_models(12))
model, folder = fit.models["first"], Path(sys.argv[1])
writers = {
    "fit.nc": fit.save,
    "fit.zarr": fit.save,
    "model.nc": model.save,
    "model.zarr": model.to_zarr,
    "page.html": lambda path: fit.report(path, thorough=False),
}
for name, write in writers.items():
    write(folder / name)

def contents():
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

before = contents()
for limit in (0, 3_000, 12_000, 50_000):
    for name, write in writers.items():
        if name == "page.html" and limit > 0:
            continue  # takes long
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            write(folder / name)
            failed = False
        except OSError as error:
            failed = True
            assert error.filename == str(folder / name), (name, error)
            print(name, error.strerror)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        now = contents()
        assert now.keys() == before.keys()
        if failed:
            assert now == before, name
        before = now
"""


def test_a_full_disk_leaves_what_was_there_and_ends_nobody(tmp_path):
    """HDF5 that could not finish a file used to take the process down when it ended."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    failed = {line.split()[0] for line in done.stdout.splitlines()}
    assert failed == {"fit.nc", "fit.zarr", "model.nc", "model.zarr", "page.html"}
    assert lq.load(tmp_path / "fit.nc").names == lq.load(tmp_path / "fit.zarr").names


def test_a_full_disk_without_hdf5(fit, tmp_path, monkeypatch):
    """Fits are written by scipy where h5netcdf is not installed."""
    from lockquack.files import formats

    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    fit.save(tmp_path / "fit.nc")
    assert lq.load(tmp_path / "fit.nc").names == fit.names

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    before = contents(tmp_path)
    with pytest.raises(OSError, match="No space left on device: .*fit.nc"):
        fit.save(tmp_path / "fit.nc")
    assert contents(tmp_path) == before
    gc.collect()  # no buffer is left that cannot be closed, of which Python would warn now


# Writers that are killed, and writers at the same time

LOOP = """
import sys
import lockquack as lq
from lockquack.testing import example_models

fit = lq.lock(example_models(12))
save = fit.models["first"].save if "model" in sys.argv[1] else fit.save
save(sys.argv[1])
print("begun", flush=True)
while True:
    save(sys.argv[1])
"""


@pytest.mark.parametrize("name", ["fit.nc", "model.zarr"])
def test_writers_that_disturb_each_other_and_are_killed(tmp_path, name):
    path = tmp_path / name
    command = [sys.executable, "-c", LOOP, str(path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdout.readline() == b"begun\n"
    for writer in writers:
        time.sleep(0.3)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        read = lq.load if name == "fit.nc" else lq.from_datatree
        assert read(path).observations.n == 12


def test_a_killed_writer_of_a_store_leaves_a_whole_one_where_paths_cannot_change_places(
    tmp_path, monkeypatch
):
    """Another writer that is faster is replaced in turn, and nothing is lost if that fails."""
    monkeypatch.setattr(places, "_exchange", lambda one, other: False)
    place = tmp_path / "store.zarr"

    def write(text):
        with places.written_whole(place) as unfinished:
            unfinished.mkdir()
            (unfinished / ".zgroup").write_text(text)

    write("old")
    rename, other = Path.rename, []

    def faster(self, target):
        if target == place and not other:
            other.append(self)
            write("by another")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", faster)
    write("new")
    assert (place / ".zgroup").read_text() == "new"

    def broken(self, target):
        if target == place and self.name.startswith(".lockquack") and not broken.once:
            broken.once = True
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    broken.once = False
    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(PermissionError):
        write("newest")
    assert (place / ".zgroup").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["store.zarr"]
