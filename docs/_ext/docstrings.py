"""Docstrings of this package as reStructuredText: they are plain text with code in single backticks, lists and indented blocks."""

import re

ITEM = re.compile(r"(\s*)(- |\d+\. )")
TERM = re.compile(r"(\w+) {2,}(\S.*)")


def as_rst(lines):
    """Lines in which lists and indented blocks stand apart, and no character outside of code is markup.

    >>> as_rst(["Text:", "- one `x_`", "- two, *args", "    indented"])
    ['Text:', '', '- one `x_`', '- two, \\\\*args', '', '  ::', '', '    indented', '']
    """
    made, doctest, term = [], False, False
    for line in lines:
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        found = None if doctest else TERM.fullmatch(line)
        term = bool(found) or (term and line.startswith("  "))
        if found:  # a table of names and what they mean is a list of definitions
            made += [f"`{found[1]}`", "   " + escaped(found[2])]
        elif term:
            made.append("   " + escaped(line.strip()))
        else:
            made.append(line if doctest else escaped(line))
    return spaced(made)


def escaped(line):
    """A line whose asterisks, bars and underscores outside of code and **bold words** are not markup."""
    parts = re.split(r"(``[^`]*``|`[^`]*`|(?<![\w)])\*\*[^*\s][^*]*\*\*(?!\w))", line)
    for k, part in enumerate(parts):
        if k % 2 == 0:
            parts[k] = re.sub(r"(?<!\\)([*|])", r"\\\1", re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", part))
            parts[k] = re.sub(r"docs/([\w/-]+)\.md", r":doc:`/\1`", parts[k])
            if k and re.match(r"\w", part):  # `Array`s
                parts[k] = "\\ " + parts[k]
    return "".join(parts)


def indent(line):
    return len(line) - len(line.lstrip())


def spaced(lines):
    """Lists and indented blocks set off by empty lines; blocks that are deeper than the text before are literal."""
    made = []
    base = doctest = 0
    k = 0
    while k < len(lines):
        line = lines[k]
        if not line.strip():
            made.append("")
            doctest = 0
            k += 1
            continue
        if line.lstrip().startswith(">>>"):
            if made and made[-1].strip() and not doctest:
                made.append("")
            doctest = 1
        if doctest:
            made.append(line)
            k += 1
            continue
        item = ITEM.match(line)
        if made and re.fullmatch(r"`\w+`", made[-1]) and line.startswith("   "):
            base = 3
        if item:
            if made and made[-1].strip() and not inside_item(made):
                made.append("")
            base = indent(line) + len(item[2])
            made.append(line)
        elif indent(line) > base:
            block = []
            while k < len(lines) and (not lines[k].strip() or indent(lines[k]) > base):
                block.append(lines[k].replace("\\*", "*").replace("\\|", "|").replace("\\_", "_"))
                k += 1
            while block and not block[-1].strip():
                block.pop()
                k -= 1
            if made and made[-1].strip():
                made.append("")
            made += [" " * base + "::", "", *block, ""]
            continue
        else:
            if indent(line) < base and made and made[-1].strip():
                made.append("")
            base = indent(line)
            made.append(line)
        k += 1
    return made


def inside_item(made):
    """Whether the last paragraph is an item of a list."""
    for line in reversed(made):
        if not line.strip():
            return False
        if ITEM.match(line):
            return True
    return False


def process(app, what, name, obj, options, lines):
    lines[:] = as_rst(lines)


def setup(app):
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True}
