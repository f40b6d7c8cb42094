"""Use an installed lockquack as its README does: `python -I scripts/smoke.py FOLDER [cli]`.

Only what was installed is seen (-I), not the sources beside this file. With ``cli`` the command
line is given two files.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

import lockquack as lq

folder = Path(sys.argv[1])
warnings.simplefilter("error")


def run(*arguments: str | Path) -> str:
    """Run the installed command, its output into a pipe."""
    command = [Path(sys.executable).with_name("lockquack"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check(holds: bool, what: str) -> None:
    """Say what was seen, or stop."""
    if not holds:
        sys.exit(f"not so: {what}")
    print("ok:", what)


package = Path(lq.__file__).parent
installed = distribution("lockquack")
check(package.is_relative_to(sys.prefix), "what was installed is what is used")
check(installed.version == lq.__version__, f"version {lq.__version__}, in metadata too")
check((package / "py.typed").exists(), "its types are seen by type checkers")
check("report" in run("--help"), "`lockquack --help` prints into a pipe")

rng = np.random.default_rng(1)
y = rng.normal(size=50)
mu = rng.normal(scale=0.1, size=(4, 250))
models = {
    "narrow": lq.from_family("normal", y=y, mu=mu + 0.3, sigma=1.0),
    "wide": lq.from_family("normal", y=y, mu=mu - 0.5, sigma=1.0),
}
for combine in (lq.lock, lq.stack):
    fit = combine(models)
    check(abs(float(fit.weights.sum()) - 1) < 1e-9, f"{combine.__name__}: weights add up to one")
    check(bool(fit.solution.converged), f"{combine.__name__}: solved")

if "cli" in sys.argv:
    files = [folder / f"{name}.nc" for name in models]
    for model, file in zip(models.values(), files, strict=True):
        model.save(file)
    check("narrow" in run("weights", *files), "`lockquack weights` of two files")
    run("report", *files, "--operator", "linear", "--methods", "stack", "-o", folder / "r.html")
    check((folder / "r.html").stat().st_size > 10_000, "`lockquack report` of them")
