"""The floors of the house: a module imports only from its own floor or below, without cycles (docs/how-it-works/design.md, section 1)."""

import ast
import collections
import functools
import graphlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "sparsejax"
FLOORS = [
    ["errors", "alternatives", "config", "dtypes", "forks", "cached", "tree_util", "optional"],
    ["formats"],
    ["core", "pictures"],
    ["transforms", "jit", "jit.ir"],
    ["lax"],
    ["jit.cost", "jit.backend"],
    ["jit.schedule"],
    ["jit.rewrite"],
    ["jit.codegen"],
    ["jit.graph"],
    ["jit.pipeline"],
    ["jit.runtime"],
    ["jit.inspect"],
    [
        "jit.function",
        "jit.api",
        "transforms.ad",
        "transforms.gradients",
        "transforms.jacobians",
        "transforms.custom",
        "transforms.control_rules",
        "transforms.checkpoint",
        "transforms.linear_solve",
        "transforms.equations",
        "transforms.patterns",
        "transforms.pattern_rules",
        "transforms.pattern_loops",
        "transforms.coloring",
        "transforms.sparse_jacobian",
        "transforms.vmap",
    ],
    [
        "numpy",
        "nn",
        "random",
        "scipy",
        "io",
        "interop",
        "plot",
        "dask",
        "export",
        "dataflow",
        "debug",
        "tree",
        "utilities",
        "insum",
        "",
    ],
]
"""The floors, from the ground up: the stages of the compiler are floors of their own, in the order in which a program meets them backwards."""
LARGEST_FOLDER = 25
LONGEST_FILE = 600


def floor_of(module: str) -> int:
    """The floor of a module name relative to the package ("" is the package itself); the longest prefix decides."""
    matches = [
        (len(prefix), floor)
        for floor, prefixes in enumerate(FLOORS)
        for prefix in prefixes
        if prefix == module or (prefix and module.startswith(prefix + "."))
    ]
    if not matches:
        raise KeyError(f"module {module!r} has no floor; add it to the table here and in docs/how-it-works/design.md")
    return max(matches)[1]


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(p for p in parts if p != "__init__"), path


NAMES = {name for name, _ in modules()}


@dataclass(frozen=True)
class Import:
    """One import of this package: where it points, and where it stands."""

    target: str
    line: int
    in_function: bool
    for_types_only: bool
    text: str


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def called(function: ast.expr) -> str:
    """The last name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def imports(source: str, names: set[str] = NAMES) -> tuple[Import, ...]:
    """Every import of this package in a source text. `names` are the modules there are: `from a import b` may mean `a.b`."""
    return _imports(source, frozenset(names))


@functools.cache
def _imports(source: str, names: frozenset[str]) -> tuple[Import, ...]:

    def visit(node: ast.AST, in_function: bool, for_types_only: bool) -> Iterator[Import]:
        def found(target: str) -> Import:
            return Import(target, node.lineno, in_function, for_types_only, ast.unparse(node))

        if isinstance(node, ast.ImportFrom) and node.level:
            yield found("." * node.level)
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "sparsejax":
            base = node.module.removeprefix("sparsejax").lstrip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}".lstrip(".")
                yield found(full if full in names else base)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "sparsejax":
                    yield found(alias.name.removeprefix("sparsejax").lstrip("."))
        elif isinstance(node, ast.Call) and called(node.func) in ("import_module", "__import__"):
            text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            if isinstance(text, str) and text.split(".")[0] == "sparsejax":
                yield found(text.removeprefix("sparsejax").lstrip("."))
        if isinstance(node, ast.If) and is_type_checking(node.test):
            parts = [(child, True) for child in node.body] + [(child, for_types_only) for child in node.orelse]
        else:
            parts = [(child, for_types_only) for child in ast.iter_child_nodes(node)]
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child, types in parts:
            yield from visit(child, inside, types)

    return tuple(visit(ast.parse(source), False, False))


def faults(module: str, source: str) -> list[str]:
    """What is wrong with a module: imports that go up, hide in functions or are relative; too many lines."""
    found = []
    for i in imports(source):
        where = f"{module}:{i.line} {i.text}"
        if i.target.startswith("."):
            found.append(f"{where}: write the full name, `from sparsejax.… import …`")
            continue
        if i.in_function:
            found.append(f"{where}: import at the top of the module")
        if i.text.startswith("import sparsejax.") and " as " in i.text:
            found.append(f"{where}: write `from sparsejax.… import …`")
        if floor_of(i.target) > floor_of(module):
            found.append(f"{where}: floor {floor_of(module)} imports from floor {floor_of(i.target)}")
    if len(source.splitlines()) > LONGEST_FILE:
        found.append(f"{module}: {len(source.splitlines())} lines, more than {LONGEST_FILE}")
    return found


def check_no_cycles(sources: dict[str, str]) -> None:
    """Raises graphlib.CycleError when modules import each other in a ring; imports for types alone do not count."""
    graph = {
        module: {i.target for i in imports(source, set(sources)) if not i.for_types_only} - {module}
        for module, source in sources.items()
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_imports_go_down():
    assert not [fault for module, path in modules() for fault in faults(module, path.read_text())]


def test_no_cycles():
    check_no_cycles({module: path.read_text() for module, path in modules()})


def test_folders_stay_small():
    folders = collections.Counter(path.parent for _, path in modules())
    assert not [f"{folder}: {count} files" for folder, count in folders.items() if count > LARGEST_FOLDER]


def test_jit_package_is_empty():
    body = ast.parse((ROOT / "jit" / "__init__.py").read_text()).body
    assert all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("formats.levels.level", "from sparsejax.jit.ir import cin"),
        ("formats.levels.level", "from sparsejax.jit.ir.cin import Forall"),
        ("formats.levels.level", "import sparsejax.jit.ir.cin"),
        ("formats.levels.level", "import sparsejax"),
        ("formats.levels.level", "from . import convert"),
        ("formats.levels.level", "from ..jit.ir import cin"),
        ("formats.levels.level", "if TYPE_CHECKING:\n    from sparsejax.jit.ir import cin"),
        ("formats.levels.level", "if TYPE_CHECKING:\n    pass\nelse:\n    from sparsejax.jit.ir import cin"),
        ("formats.levels.level", "importlib.import_module('sparsejax.jit.ir.cin')"),
        ("jit.cost.machine", "from sparsejax.jit.schedule import search"),
        ("jit.rewrite.tile", "from sparsejax.jit.codegen.lower import lower"),
        ("jit.codegen.lower", "from sparsejax.jit.runtime.system import allocator"),
        ("jit.inspect.explain", "from sparsejax.jit.api import jit"),
        ("jit.codegen.lower", "def f():\n    from sparsejax.jit.ir import cin"),
        ("jit.codegen.lower", "class C:\n    async def f(self):\n        from sparsejax.jit.ir import cin"),
        ("jit.codegen.lower", "f = lambda: __import__('sparsejax.jit.ir.cin')"),
        ("jit.codegen.lower", "import sparsejax.jit.ir.cin as c"),
        ("jit.codegen.lower", "x = 1\n" * (LONGEST_FILE + 1)),
    ],
)
def test_the_checker_finds_faults(module, source):
    assert len(faults(module, source)) >= 1


@pytest.mark.parametrize(
    "source",
    [
        "from sparsejax.jit.ir import cin",
        "from sparsejax.jit.ir import cin as index_notation",
        "from sparsejax.formats.format import Format",
        "import numpy as np\nfrom importlib import import_module",
        "def f():\n    import llvmlite.binding",
        "x = 1\n" * LONGEST_FILE,
    ],
)
def test_the_checker_accepts(source):
    assert not faults("jit.codegen.lower", source)


def test_the_checker_finds_cycles():
    ring = {"jit.a": "from sparsejax.jit import b", "jit.b": "from sparsejax.jit import a"}
    with pytest.raises(graphlib.CycleError):
        check_no_cycles(ring)
    check_no_cycles(ring | {"jit.b": "if TYPE_CHECKING:\n    from sparsejax.jit import a"})


def test_every_module_has_a_floor():
    with pytest.raises(KeyError):
        floor_of("elsewhere")


def test_one_file_asks_whether_an_index_is_a_variable():
    """All others ask which variable an index follows, or on which it depends (`ir/indices.py`)."""
    asked = re.compile(r"isinstance\([^()]*(\([^()]*\))?[^()]*\bIndexVar\b")
    own = ROOT / "jit" / "ir" / "indices.py"
    assert asked.search(own.read_text())
    assert [f.name for f in ROOT.rglob("*.py") if f != own and asked.search(f.read_text())] == []


def test_every_stage_of_the_compiler_has_a_folder_of_tests():
    stages = {f.parent.name for f in (ROOT / "jit").glob("*/__init__.py")}
    assert stages <= {f.parent.name for f in Path(__file__).parent.glob("*/test_*.py")}
    assert "codegen" in stages
