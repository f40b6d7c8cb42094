"""Shared fixtures: models with known answers, and real posteriors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import lockquack as lq
from tests.reference import ALL, MADE, ReferenceFamily, reference_family


@pytest.fixture(scope="session", params=ALL)
def family(request) -> ReferenceFamily:
    """Real posteriors with the right answers."""
    return reference_family(request.param)


@pytest.fixture(scope="session", params=MADE)
def made_family(request) -> ReferenceFamily:
    """Those that are made here, for which there are answers that the others lack."""
    return reference_family(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20230506)


@pytest.fixture
def normals(rng) -> dict[str, lq.Model]:
    """Three models of the same thirty outcomes: two sensible ones and a bad one."""
    y = rng.normal(1.0, 2.0, size=30)
    mu = rng.normal(0.0, 0.2, size=(4, 200))
    sigma = np.exp(rng.normal(0.0, 0.1, size=(4, 200)))
    return {
        "left": lq.from_family("normal", y=y, mu=mu, sigma=2 * sigma),
        "right": lq.from_family("normal", y=y, mu=mu + 2.0, sigma=2 * sigma),
        "far": lq.from_family("student_t", y=y, nu=50.0, mu=mu + 8.0, sigma=0.5 * sigma),
    }


@pytest.fixture(scope="session")
def browser() -> str:
    """Path of a Chromium, which CI installs."""
    script = Path(__file__).parents[1] / "scripts" / "ensure_chromium.sh"
    found = subprocess.run(["sh", str(script)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"no browser: {found.stderr.strip()}")
    return found.stdout.split()[-1]


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run a command in a folder that the test file fills; return status, output and messages."""
    monkeypatch.chdir(folder)

    def run(*arguments):
        from lockquack import cli

        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as left:
            status = left.code
        said = capsys.readouterr()
        return status, said.out, said.err

    return run
