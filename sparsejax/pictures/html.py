"""Pieces of HTML. Styles stand in the elements: a notebook's page is not ours."""

from __future__ import annotations

import html
from collections.abc import Sequence

_CELL = "text-align:left;vertical-align:top;padding:1px 10px 1px 0;border:0"
_CODE = "margin:2px 0;font-size:90%;overflow-x:auto;white-space:pre"
LONGEST = 12_000
"""Characters of text that one piece shows at most."""


def text(content: object) -> str:
    """Text as HTML.

    >>> text("a < b")
    'a &lt; b'
    """
    return html.escape(str(content), quote=True)


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of cells that are HTML already; the first of every row is a heading where there is no `head`.

    What a row has beyond the head stands below it, across all columns but the first.
    """
    lines = ["".join(f'<th style="{_CELL}">{cell}</th>' for cell in head)] if head else []
    for first, *rest in rows:
        tag = "td" if head else "th"
        below = "".join(rest[len(head) - 1 :]) if head else ""
        rest = rest[: len(head) - 1] if head else rest
        lines.append(f'<{tag} style="{_CELL}">{first}</{tag}>' + "".join(f'<td style="{_CELL}">{c}</td>' for c in rest))
        if below:
            lines.append(f'<td></td><td colspan="{len(head) - 1}" style="{_CELL}">{below}</td>')
    body = "".join(f'<tr style="background:none">{line}</tr>' for line in lines)
    return f'<table style="border-collapse:collapse;border:0;margin:0">{body}</table>'


def code(content: str) -> str:
    """Text in columns; the middle of long ones is left out."""
    if len(content) > LONGEST:
        half = LONGEST // 2
        content = f"{content[:half]}\n... {len(content) - LONGEST} characters left out ...\n{content[-half:]}"
    return f'<pre style="{_CODE}">{text(content)}</pre>'


def folded(summary: str, content: str) -> str:
    """HTML that is shown when one clicks on its summary (HTML too)."""
    return f'<details><summary style="cursor:pointer">{summary}</summary>{content}</details>'


def box(*parts: str) -> str:
    """Parts beside each other, below where there is no room."""
    inner = "".join(f"<div>{part}</div>" for part in parts)
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">{inner}</div>'


def bytes_as_text(count: int) -> str:
    """
    >>> bytes_as_text(999), bytes_as_text(1536)
    ('999 B', '1.5 KiB')
    """
    size, unit = float(count), 0
    while size >= 1024 and unit < 5:
        size, unit = size / 1024, unit + 1
    return f"{count} B" if not unit else f"{size:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"
