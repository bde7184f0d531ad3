"""Flow charts: ```mermaid fences with `flowchart TD`, `A["text"] -->|"label"| B["text"]`, drawn as SVG without a browser's scripts.

A node stands in the layer below its lowest predecessor; boxes are as wide as their text.
"""

import html
import re

EDGE = re.compile(r'(\w+)(?:\["(.*?)"\])?\s*-->\s*(?:\|"(.*?)"\|)?\s*(\w+)(?:\["(.*?)"\])?')
LETTER, LINE, BOX, GAP, APART = 6.6, 17, 22, 46, 24
"""Pixels: of a letter, a line of text, a box around it, between layers, between boxes."""


def parsed(text):
    """Texts of nodes, and edges (from, to, label).

    >>> parsed('flowchart TD\\n A["x"] -->|"then"| B["y<br/>z"]')
    ({'A': ['x'], 'B': ['y', 'z']}, [('A', 'B', 'then')])
    """
    texts, edges = {}, []
    for a, a_text, label, b, b_text in EDGE.findall(text):
        for name, told in ((a, a_text), (b, b_text)):
            texts[name] = re.split(r"<br ?/?>", told) if told else texts.get(name, [name])
        edges.append((a, b, label))
    return texts, edges


def layered(texts, edges):
    """The layer of every node."""
    layer = dict.fromkeys(texts, 0)
    for _ in texts:
        for a, b, _label in edges:
            layer[b] = max(layer[b], layer[a] + 1)
    return layer


def svg(text):
    texts, edges = parsed(text)
    layer = layered(texts, edges)
    size = {n: (LETTER * max(map(len, t)) + BOX, LINE * len(t) + BOX) for n, t in texts.items()}
    rows = [[n for n in texts if layer[n] == k] for k in range(max(layer.values()) + 1)]
    width = max(sum(size[n][0] + APART for n in row) for row in rows) + 160
    place, y = {}, 8
    for row in rows:
        x = (width - sum(size[n][0] + APART for n in row) + APART) / 2
        for n in row:
            place[n] = (x, y)
            x += size[n][0] + APART
        y += max(size[n][1] for n in row) + GAP
    height = y - GAP + 8
    made = [
        f'<svg class="flowchart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        'font-family="sans-serif" font-size="12"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#7a8a99"/></marker></defs>'
    ]
    for a, b, label in edges:
        x1, y1 = place[a][0] + size[a][0] / 2, place[a][1] + size[a][1]
        x2, y2 = place[b][0] + size[b][0] / 2, place[b][1]
        line = f'<path d="M{x1:.0f} {y1:.0f} L{x2:.0f} {y2:.0f}"'
        made.append(line + ' fill="none" stroke="#7a8a99" stroke-width="1.5" marker-end="url(#tip)"/>')
        at = f'x="{(x1 + x2) / 2 + 8:.0f}" y="{(y1 + y2) / 2 + 4:.0f}"'
        made.append(f'<text {at} fill="currentColor" opacity="0.8">{html.escape(label)}</text>')
    for n, lines in texts.items():
        (x, y), (w, h) = place[n], size[n]
        box = f'<rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="6"'
        made.append(box + ' fill="#eaf3fb" stroke="#5aa0d0"/>')
        for k, told in enumerate(lines):
            at = f'x="{x + w / 2:.0f}" y="{y + BOX / 2 + LINE * (k + 0.75):.0f}"'
            made.append(f'<text {at} text-anchor="middle" fill="#1f2d3a">{html.escape(told)}</text>')
    return "\n".join([*made, "</svg>"])


def setup(app):
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class Flowchart(Directive):
        has_content = True

        def run(self):
            return [nodes.raw("", svg("\n".join(self.content)), format="html")]

    app.add_directive("mermaid", Flowchart)
    return {"parallel_read_safe": True}
