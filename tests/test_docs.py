"""What the pages show: blocks of code run as they are written, and examples say what they can do."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparsejax import config, errors
from tests.fuzz import engine

ROOT = Path(__file__).parents[1]
MADE = {"_build", "generated", "jupyter_execute"}
PAGES = sorted(
    p.relative_to(ROOT).as_posix()
    for p in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if not MADE & {*p.relative_to(ROOT).parts}
)
BLOCK = re.compile(
    r"^```(?:python|\{code-cell\} ipython3)\n(?:---\n.*?^---\n|(?::\S+:.*?\n)+)?(.*?)^```$", re.MULTILINE | re.DOTALL
)
EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem != "__init__")


def blocks(page):
    return [m.group(1) for m in BLOCK.finditer((ROOT / page).read_text())]


@pytest.fixture
def settings():
    """Settings are what they were, whatever a page sets."""
    kept = {name: dict(getattr(config, name)) for name in ("_flags", "_chosen", "_numbers", "_texts", "_sets")}
    yield
    for name, values in kept.items():
        getattr(config, name).update(values)
    config._settle()


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)])
def test_blocks_run(page, settings):
    """Those of one page one after the other, as a reader would paste them."""
    names = {"__name__": page}
    with engine.quick():
        for number, block in enumerate(blocks(page)):
            exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_blocks_are_found():
    wanted = {"README.md", "docs/index.md", "docs/guide/threads.md", "docs/how-it-works/workspaces.md"}
    assert wanted <= {p for p in PAGES if blocks(p)}


def test_every_error_has_a_page():
    own = {n for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, Exception)}
    pages = {p.stem for p in (ROOT / "docs" / "reference" / "errors").glob("*.md")}
    assert pages == own | {"index", "LayoutError"}


@pytest.mark.slow
def test_the_site_is_built_without_warnings(tmp_path):
    """What `pip install -e ".[docs]"` and the command of docs/conf.py make; about two minutes."""
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    run = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path / "html")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "html" / "api" / "generated" / "sparsejax.jit.html").exists()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_have_a_quick_run(name, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(f"examples.{name}").main(["--help"])
    assert "--quick" in capsys.readouterr().out
