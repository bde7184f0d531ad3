"""The gallery: a page and a picture for every program in examples/. They lie in docs/gallery/generated, which is not kept."""

import base64
import importlib
import inspect
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg=="
)


def told(module):
    """The title of an example, its commands and the rest of its docstring."""
    first, *rest = inspect.getdoc(module).split("\n\n")
    commands = [p for p in rest if p.lstrip().startswith("python ")]
    lines = [re.split(r"\s{2,}", line.strip()) for p in commands for line in p.splitlines()]
    return first.replace("\n", " ").rstrip("."), lines, [p for p in rest if p not in commands]


def paragraph(text):
    """A paragraph of a docstring as Markdown: tables of names and formulas keep their columns."""
    lines = text.splitlines()
    return (
        f"```text\n{textwrap.dedent(text)}\n```"
        if all(line.startswith("    ") for line in lines)
        else text.replace("*", r"\*")
    )


def short(title):
    """What stands before the first comma or colon."""
    return re.split("[:,]", title)[0]


def page(name, module):
    title, commands, rest = told(module)
    shell = "\n".join(c[0] if len(c) == 1 else f"{c[0]}  # {c[1]}" for c in commands)
    source = f"```{{literalinclude}} ../../../examples/{name}.py\n:language: python\n```"
    return "\n\n".join(
        [
            f"# {short(title)}",
            f"{title}.",
            f"```{{image}} {name}.png\n:alt: {title}\n:class: figure\n:width: 484px\n```",
            *map(paragraph, rest),
            f"```sh\n{shell}\n```",
            f"## examples/{name}.py",
            source,
        ]
    )


def card(name, module):
    title = short(told(module)[0])
    return f":::{{grid-item-card}} {title}\n:link: generated/{name}\n:link-type: doc\n:img-top: generated/{name}.png\n:::\n"


def write(folder, pictures=True):
    """All pages; without pictures, each picture is one white dot."""
    folder.mkdir(parents=True, exist_ok=True)
    cards, pages = [], []
    thumbnails = Path(__file__).with_name("thumbnails.py")
    for path in sorted((ROOT / "examples").glob("*.py")):
        module = importlib.import_module(f"examples.{path.stem}")
        picture = folder / f"{path.stem}.png"
        newest = max(path.stat().st_mtime, thumbnails.stat().st_mtime)
        if not pictures:
            picture.write_bytes(DOT)
        elif not picture.exists() or picture.read_bytes() == DOT or picture.stat().st_mtime < newest:
            importlib.import_module("thumbnails").draw(module, path.stem, picture)
        cards.append(card(path.stem, module))
        pages.append(f"generated/{path.stem}")
        text, target = page(path.stem, module) + "\n", folder / f"{path.stem}.md"
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
    grid = "::::{grid} 1 2 3 3\n:gutter: 3\n\n" + "\n".join(cards) + "::::\n"
    toctree = "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"
    (folder / "cards.txt").write_text(grid + toctree)


def setup(app):
    write(Path(app.srcdir) / "gallery" / "generated", pictures=not app.tags.has("lean"))
    return {"parallel_read_safe": True}
