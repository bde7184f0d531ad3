"""What the pages show: blocks of code run as they are written, and examples say what they can do."""

import importlib
import re
from pathlib import Path

import pytest

from sparsejax import config
from tests.fuzz import engine

ROOT = Path(__file__).parents[1]
PAGES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    assert {"README.md", "docs/threads.md", "docs/workspaces.md"} <= {p for p in PAGES if blocks(p)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_have_a_quick_run(name, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(f"examples.{name}").main(["--help"])
    assert "--quick" in capsys.readouterr().out
