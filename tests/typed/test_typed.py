"""User code has types: what `A @ x` is, and what `jit` makes of a function. mypy reads programs.py with the package (pyproject.toml)."""

import importlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "tests/typed/programs.py"


def test_the_programs_run():
    importlib.import_module("tests.typed.programs").main()


def test_mypy_reads_the_programs():
    assert PROGRAMS in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_mypy(version):
    """Half a minute each: the package, too, as other Pythons read it."""
    command = [sys.executable, "-m", "mypy", "--python-version", version]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.slow
def test_pyright():
    if shutil.which("pyright") is None:
        pytest.skip("pyright is not installed")
    run = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, PROGRAMS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout
