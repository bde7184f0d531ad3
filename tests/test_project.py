"""The project's own files: one version everywhere, extras that the code names, a smoke test that passes."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import sparsejax as sj

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version():
    assert PROJECT["version"] == sj.__version__
    assert f"\nversion: {sj.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {sj.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_extras_that_errors_name_exist():
    named = set()
    for path in (ROOT / "sparsejax").rglob("*.py"):
        named |= set(re.findall(r'optional\("[\w.]+", "(\w+)"\)', path.read_text()))
        named |= set(re.findall(r"sparsejax\[(\w+)\]", path.read_text()))
    assert {"files", "interop", "plot"} <= named <= set(PROJECT["optional-dependencies"])


def test_the_smoke_test(capsys):
    runpy.run_path(str(ROOT / "tools" / "smoke.py"), run_name="__main__")
    assert "sparsejax works" in capsys.readouterr().out


def test_links_between_our_files():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_folders_are_loaded_at_their_first_use():
    code = """
import sys, sparsejax as sj
assert not {"dask", "sparsejax.dask", "sparsejax.export"} & set(sys.modules)
assert sj.export.export and "export" in dir(sj)
assert sj.export is sys.modules["sparsejax.export"]
assert not hasattr(sj, "exprot")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
