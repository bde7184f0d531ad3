"""What the pages show: blocks of code run as they are written, and examples say what they can do."""

import doctest
import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest

import sparsejax
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
    for library in ("matplotlib", "sklearn", "dask"):
        if any(
            re.search(rf"^\s*(?:import|from) {library}\b|sparsejax\.{library}", block, re.MULTILINE)
            for block in blocks(page)
        ):
            pytest.importorskip(library)
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


@pytest.mark.parametrize("page", [p for p in PAGES if "/errors/" in p and "except" in (ROOT / p).read_text()])
def test_pages_of_errors_show_the_message(page, capsys):
    names = {}
    for block in blocks(page):
        exec(compile(block, "your_file.py", "exec"), names)
        told = re.sub(r"your_file.py:\d+", "your_file.py:5", capsys.readouterr().out)
        assert "except" not in block or f"```text\n{told}```" in (ROOT / page).read_text()


def extension(name):
    """A module of docs/_ext, which needs no Sphinx to be imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_a_page(tmp_path):
    pytest.importorskip("dask")
    pages = extension("api_pages").write(tmp_path)
    listed = (ROOT / "docs" / "api" / "index.md").read_text()
    for module in (
        sparsejax,
        sparsejax.numpy,
        sparsejax.lax,
        sparsejax.nn,
        sparsejax.random,
        sparsejax.io,
        sparsejax.interop,
    ):
        assert f"generated/{module.__name__}\n" in listed
        for name in module.__all__:
            value = getattr(module, name)
            assert (
                name.startswith("_") or isinstance(value, types.ModuleType) or f"{module.__name__}.{name}.rst" in pages
            )
    for name in extension("api_pages").MODULES:
        assert f"generated/{name}\n" in listed


def test_docstrings_become_markup():
    module = extension("docstrings")
    assert doctest.testmod(module).attempted and not doctest.testmod(module).failed
    assert module.as_rst(["`Array`s, a_ and **kwargs"]) == [r"`Array`\ s, a\_ and \*\*kwargs"]
    assert module.as_rst(["**read-only**, 2**x + 2**y"])[0] == r"**read-only**, 2\*\*x + 2\*\*y"
    assert module.as_rst([">>> f(*x)", "1"]) == [">>> f(*x)", "1"]
    assert module.as_rst(["a_b   one", "      two", "c     three"]) == [
        "`a_b`",
        "   one",
        "   two",
        "",
        "`c`",
        "   three",
    ]


def test_every_example_has_a_picture():
    """In the gallery, which only the slow test builds."""
    drawn = re.findall(
        r"^def (\w+)\(axes, example\)", (ROOT / "docs" / "_ext" / "thumbnails.py").read_text(), re.MULTILINE
    )
    assert sorted(drawn) == sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem != "__init__")


def test_flow_charts_are_drawn():
    module = extension("flowcharts")
    assert doctest.testmod(module).attempted and not doctest.testmod(module).failed
    fences = re.findall(r"^```mermaid\n(.*?)^```$", (ROOT / "docs/guide/dask.md").read_text(), re.MULTILINE | re.DOTALL)
    drawn = ElementTree.fromstring(module.svg(fences[0]))
    assert len(drawn.findall(".//{*}rect")) == 7 and len(drawn.findall("{*}path")) == 6


def test_pages_and_links_have_no_warnings(tmp_path):
    """All pages but those of single names; no cell runs here, `test_blocks_run` runs them. Ten seconds of processor time."""
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "sphinx", "-t", "lean", "-W", "--keep-going", "-q", "-b", "dummy"]
    run = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path)], capture_output=True, text=True, check=False, timeout=600
    )
    assert run.returncode == 0, run.stderr


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
