"""The command line where terminals and pipes are not as one wishes, and where it is interrupted."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

import lockquack as lq
from lockquack.errors import LockquackError
from lockquack.sources.formula import parse_formula
from lockquack.testing import example_models

COMMAND = f"{sys.executable} -m lockquack"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, model in example_models(12).items():
        model.save(folder / f"{name}.nc")
    return folder


def run(folder, command, **environment):
    """Run a command in a shell; its status is that of the first command of a pipe."""
    return subprocess.run(
        ["bash", "-c", f"{COMMAND} {command}; exit ${{PIPESTATUS[0]}}"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_terminal_that_knows_ascii_only(folder, environment):
    done = run(folder, "weights first.nc second.nc", **environment)
    assert done.returncode == 0, done.stderr
    assert b"leave-one-out Hyvarinen score" in done.stdout
    assert done.stdout.isascii()


def test_json_loses_no_letter_in_ascii(folder):
    done = run(folder, "weights é=first.nc second.nc --json", PYTHONIOENCODING="ascii")
    assert b'"\\u00e9"' in done.stdout


@pytest.mark.parametrize("closed", [">&- 2>&- <&-", "| head -1"])
def test_nobody_reads_but_the_fit_is_saved(folder, closed):
    saved = folder / "fit.nc"
    saved.unlink(missing_ok=True)
    done = run(folder, f"weights first.nc second.nc --save fit.nc {closed}")
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert lq.load(saved).names == ("first", "second")


@pytest.mark.parametrize("command", ["--help", "weights --help"])
def test_help_that_nobody_reads_or_that_finds_no_room(folder, command):
    for end in ("| true", ">/dev/full", ">&-"):
        assert b"Traceback" not in run(folder, f"{command} {end}").stderr


def test_names_do_not_move_the_cursor(folder):
    done = run(folder, "weights $'evil\\e[31m\\a'=first.nc second.nc 2>&1")
    assert b"evil\\x1b[31m\\x07" in done.stdout
    assert b"\x1b" not in done.stdout


def test_files_named_in_another_encoding(folder):
    (folder / os.fsdecode(b"caf\xe9.nc")).write_bytes((folder / "first.nc").read_bytes())
    done = run(folder, "weights second.nc $'caf\\xe9.nc'")
    assert rb"caf\xe9" in done.stdout
    done = run(folder, "weights first.nc $'caf\\xe9'=second.nc")
    assert b"can be written in UTF-8" in done.stderr


def in_terminal(folder, *arguments, **environment):
    """Run a command in a terminal; return what it shows."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "lockquack", *arguments],
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment},
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 2**16):
                shown += part
        except OSError:  # how a terminal ends
            pass
        os.close(ours)
        assert process.wait() == 0
    return shown


def test_no_colour_where_none_is_wanted(folder):
    colour = re.compile(rb"\x1b\[[0-9;]*3\dm")
    pytest.importorskip("rich")
    environment = {name: "" for name in ("NO_COLOR", "FORCE_COLOR") if name in os.environ}
    assert colour.search(in_terminal(folder, "check", "first.nc", **environment))
    assert not colour.search(in_terminal(folder, "check", "first.nc", NO_COLOR="1"))


# Interrupted


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]])
def test_an_interrupted_command_leaves_nothing(folder, workers):
    before = sorted(path.name for path in folder.iterdir())
    program = (
        "import sys, time\n"
        "from lockquack.files import formats\n"
        "from lockquack.cli import main\n"
        "def slow(data, path, **_):\n"
        "    path.write_text('half')\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(600)\n"
        "formats._write_hdf5 = slow\n"
        "sys.exit(main())\n"
    )
    arguments = ["weights", "first.nc", "second.nc", "--save", "half.nc", "--quiet", *workers]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell lets what it runs in the background ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == b"begun\n"
        assert len(list(folder.iterdir())) == len(before) + 1
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to the workers too
        said = process.communicate()[1]
    assert process.returncode == 130
    assert b"lockquack: interrupted." in said
    assert sorted(path.name for path in folder.iterdir()) == before


# Formulas that are no formulas

HOSTILE = {
    "nested": "normal(mu=" + "(" * 500 + "a" + ")" * 500 + ")",
    "minus": "normal(mu=" + "-" * 9000 + "a)",
    "sum": "normal(mu=" + "+".join(["a"] * 4000) + ")",
    "calls": "normal(mu=" + "exp(" * 1500 + "a" + ")" * 1500 + ")",
    "long": "normal(mu=" + "a" * 10**6 + ")",
    "digits": "normal(mu=" + "9" * 5000 + ")",
    "attribute": "normal(mu=a.__class__.__base__)",
    "import": "normal(mu=__import__('os').system('touch hacked'))",
    "builtins": "normal(mu=__builtins__)",
    "lambda": "normal(mu=(lambda: a)())",
    "comprehension": "normal(mu=[a for a in (1, 2)])",
    "assignment": "normal(mu=(a := 3))",
    "text": "normal(mu='a' * 10**9)",
    "bytes": "normal(mu=b'a')",
    "imaginary": "normal(mu=1j)",
    "star": "normal(*a)",
    "stars": "normal(**a)",
    "zero byte": "normal(mu=a\0)",
    "surrogate": "normal(mu=\udce9)",
    "unknown": "normal(mu=quit())",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_formulas_that_would_do_harm(text, tmp_path, monkeypatch):
    import xarray as xr

    monkeypatch.chdir(tmp_path)
    a = xr.DataArray([[1.0, 2.0]], dims=("chain", "draw"), name="a")
    with pytest.raises(LockquackError) as caught:
        parse_formula(HOSTILE[text]).evaluate({"a": a})
    assert len(str(caught.value)) < 600
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mu", ["9**9**9**9", "1/0", "exp(1000)", "9" * 400, "(0-2)**0.5"])
def test_formulas_that_have_no_value(mu):
    """They are computed as numpy does, and refused as parameters of a density."""
    mean = parse_formula(f"normal(mu={mu}, sigma=1)").evaluate({})["mu"]
    with pytest.raises(LockquackError, match="mu"):
        lq.from_family("normal", y=[0.0, 1.0], mu=mean, sigma=[[1.0, 2.0]])
