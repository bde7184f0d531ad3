"""The floors of the house: a module imports only from its own floor or below, without cycles (docs/design.md, section 1)."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "sparsejax"
FLOORS = {
    0: ["errors", "config", "dtypes", "tree_util"],
    1: ["formats"],
    2: ["core"],
    3: ["transforms", "jit.operators", "jit.cin", "jit.simplify", "jit.interpret", "jit.infer_formats"],
    4: ["lax"],
    5: ["jit"],
    6: ["numpy", ""],
}
LONGEST_FILE = 600


def floor_of(module: str) -> int:
    """The floor of a module name relative to the package ("" is the package itself); the longest prefix decides."""
    matches = [
        (len(prefix), floor)
        for floor, prefixes in FLOORS.items()
        for prefix in prefixes
        if prefix == module or (prefix and module.startswith(prefix + "."))
    ]
    if not matches:
        raise KeyError(f"module {module!r} has no floor; add it to the table here and in docs/design.md")
    return max(matches)[1]


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(p for p in parts if p != "__init__"), path


NAMES = {name for name, _ in modules()}


def imports(source: str):
    """(module, line, inside a function, under TYPE_CHECKING, text) of every import of this package."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def within(node, kinds):
        while node in parents:
            node = parents[node]
            if isinstance(node, kinds):
                return node
        return None

    for node in ast.walk(tree):
        inside = within(node, ast.FunctionDef | ast.AsyncFunctionDef) is not None
        guard = within(node, ast.If)
        typing = guard is not None and "TYPE_CHECKING" in ast.unparse(guard.test)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sparsejax":
            base = (node.module or "").removeprefix("sparsejax").lstrip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}".lstrip(".")
                yield full if full in NAMES else base, node.lineno, inside, typing, ast.unparse(node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "sparsejax":
                    name = alias.name.removeprefix("sparsejax").lstrip(".")
                    yield name, node.lineno, inside, typing, ast.unparse(node)


def faults(module: str, source: str) -> list[str]:
    """What is wrong with a module's imports."""
    found = []
    for target, line, inside, typing, text in imports(source):
        if inside:
            found.append(f"{module}:{line} imports inside a function: {text}")
        if text.startswith("import sparsejax.") and " as " in text:
            found.append(f"{module}:{line} {text}: write `from sparsejax.… import …`")
        if not typing and floor_of(target) > floor_of(module):
            found.append(f"{module}:{line} (floor {floor_of(module)}) imports {target} (floor {floor_of(target)})")
    return found


@pytest.mark.parametrize(("module", "path"), list(modules()))
def test_imports_go_down(module, path):
    assert not faults(module, path.read_text())


def test_no_cycles():
    graph = {
        module: {target for target, _, _, typing, _ in imports(path.read_text()) if not typing} - {module}
        for module, path in modules()
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_jit_package_is_empty():
    body = ast.parse((ROOT / "jit" / "__init__.py").read_text()).body
    assert all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


@pytest.mark.parametrize(("module", "path"), list(modules()))
def test_files_are_short(module, path):
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


def test_the_checker_finds_faults():
    assert faults("formats.level", "from sparsejax.jit import cin")
    assert faults("jit.lower", "def f():\n    from sparsejax.jit import cin")
    assert faults("jit.lower", "import sparsejax.jit.cin as c")
    assert not faults("jit.lower", "from sparsejax.jit import cin")
    with pytest.raises(KeyError):
        floor_of("elsewhere")
