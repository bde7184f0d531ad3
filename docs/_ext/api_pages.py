"""Pages of the reference, from the package itself: one for every public module, one for every name in it.

A module's names are its `__all__`, or what is public and defined in it. They stand in sections, by the file that defines them; the first
sentence of that file's docstring is the title. Pages lie in docs/api/generated, which is not kept.
"""

import builtins
import importlib
import inspect
import re
import types
from pathlib import Path

MODULES = [
    "sparsejax",
    *(
        f"sparsejax.{n}"
        for n in ("numpy", "numpy.linalg", "numpy.fft", "lax", "scipy.sparse.linalg", "nn", "nn.initializers")
    ),
    *(f"sparsejax.{n}" for n in ("random", "formats", "io", "interop", "plot", "export", "dask", "config", "debug")),
    *(f"sparsejax.{n}" for n in ("tree", "tree_util", "errors")),
]


def names(module):
    """The public names of a module, without modules."""
    own = module.__name__

    def public(name, value):
        if name.startswith("_") or isinstance(value, types.ModuleType):
            return False
        return hasattr(module, "__all__") or (callable(value) and getattr(value, "__module__", "") == own)

    listed = getattr(module, "__all__", dir(module))
    return [n for n in sorted(listed, key=str.lower) if public(n, getattr(module, n))]


def title(module_name):
    """The first sentence of a module's docstring."""
    text = inspect.getdoc(importlib.import_module(module_name)) or module_name
    first = re.split(r"(?<=[a-z\])`])[.:;](?:\s|$)", text.split("\n\n")[0].replace("\n", " "))[0]
    return first.replace("`", "").strip()


def kind(value):
    """The directive that documents a value."""
    if isinstance(value, type):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) else "autodata"


def heading(text, line):
    return f"{text}\n{line * len(text)}\n\n"


def page(module_name, name, value, known):
    """The page of one name; `known` holds the full names of classes that have one already."""
    made, owner = kind(value), getattr(value, "__module__", None)
    text = f"{heading(module_name + '.' + name, '=')}.. currentmodule:: {module_name}\n\n"
    if made == "autodata":
        return f"{text}.. data:: {name}\n   :value: {value!r}\n"
    if isinstance(owner, str) and not owner.startswith("sparsejax"):
        hidden = "   :no-index:\n" if hasattr(builtins, name) else ""  # or types in signatures would lead here
        return f"{text}.. data:: {name}\n{hidden}\n   The same object as `{owner}.{value.__name__}`.\n"
    if isinstance(value, type) and known.setdefault(value, f"{module_name}.{name}") != f"{module_name}.{name}":
        return f"{text}.. class:: {name}\n   :no-contents-entry:\n\n   The same class as :class:`{known[value]}`.\n"
    options = "   :members:\n   :inherited-members: object, dict, tuple, Exception\n" if made == "autoclass" else ""
    told = f"\nAn example, and what to do: :doc:`/reference/errors/{name}`.\n" if made == "autoexception" else ""
    return f"{text}.. {made}:: {name}\n{options}{told}"


def module_page(module, listed):
    """The page of a module: its docstring, and tables of its names."""
    name = module.__name__
    groups = {}
    for n in listed:
        value = getattr(module, n)
        where = getattr(value, "__module__", None) or ""
        where = where if where.startswith("sparsejax") else ""
        groups.setdefault(where, []).append(n)
    small = [g for g, members in groups.items() if len(members) < 2 and len(groups) > 1] if len(groups) > 3 else []
    for g in small:
        if g:
            groups.setdefault("", []).extend(groups.pop(g))
    text = heading(name, "=") + f".. automodule:: {name}\n   :no-members:\n\n.. currentmodule:: {name}\n\n"
    for where in sorted(groups, key=lambda g: (not g, g)):
        if len(groups) > 1:
            text += heading(title(where) if where else "Others", "-")
        text += ".. autosummary::\n\n" + "".join(f"   {n}\n" for n in sorted(groups[where], key=str.lower)) + "\n"
    entries = "".join(f"   {n} <{name}.{n}>\n" for n in listed)
    return text + f".. toctree::\n   :hidden:\n\n{entries}"


def write(folder, modules_alone=False):
    """All pages, or those of modules, without tables; those that would not change are left alone, so that Sphinx does not read them again."""
    folder.mkdir(parents=True, exist_ok=True)
    pages, known = {}, {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        listed = names(module)
        if modules_alone:
            pages[f"{module_name}.rst"] = (
                heading(module_name, "=") + f".. automodule:: {module_name}\n   :no-members:\n"
            )
            continue
        pages[f"{module_name}.rst"] = module_page(module, listed)
        for n in listed:
            pages[f"{module_name}.{n}.rst"] = page(module_name, n, getattr(module, n), known)
    for old in {p.name for p in folder.iterdir()} - set(pages):
        (folder / old).unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return pages


def setup(app):
    write(Path(app.srcdir) / "api" / "generated", modules_alone=app.tags.has("lean"))
    return {"parallel_read_safe": True}
