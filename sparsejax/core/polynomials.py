"""Polynomials of symbols with whole coefficients, in normal form, and how they are spelled: what extents that are not known are.

2*n + 1    (((), 1), (("n",), 2))
n*m        ((("m", "n"), 1),)
"""

from __future__ import annotations

import re

Terms = tuple[tuple[tuple[str, ...], int], ...]
"""A polynomial: its monomials (atoms, as often as they occur) with their coefficients, in order. An atom is a symbol or an expression of
symbols, as Python spells it."""


def plus(a: Terms, b: Terms) -> Terms:
    """a + b."""
    found = dict(a)
    for atoms, c in b:
        found[atoms] = found.get(atoms, 0) + c
    return tuple(sorted((atoms, c) for atoms, c in found.items() if c))


def times(a: Terms, factor: int) -> Terms:
    """A polynomial times a number."""
    return tuple((atoms, c * factor) for atoms, c in a)


def product(a: Terms, b: Terms) -> Terms:
    """a * b."""
    found: dict[tuple[str, ...], int] = {}
    for atoms, c in a:
        for others, d in b:
            both = tuple(sorted((*atoms, *others)))
            found[both] = found.get(both, 0) + c * d
    return tuple(sorted((atoms, c) for atoms, c in found.items() if c))


def divided(a: Terms, b: Terms) -> Terms | None:
    """a / b, where `b` is one monomial that divides every monomial of `a`."""
    if len(b) != 1:
        return product(((b[0][0], 0),), b) if not b else (((), 1),) if a == b else None
    ((divisor, by),) = b
    made = []
    for atoms, c in a:
        left = list(atoms)
        for atom in divisor:
            if atom not in left:
                return None
            left.remove(atom)
        if c % by:
            return None
        made.append((tuple(left), c // by))
    return tuple(sorted(made))


def spelled(terms: Terms) -> str:
    """A polynomial as Python spells it, highest terms first."""
    parts = []
    for atoms, c in sorted(terms, key=lambda t: (-len(t[0]), t[0])):
        factors = [nested(a) for a in atoms] or [str(abs(c))]
        if atoms and abs(c) != 1:
            factors.insert(0, str(abs(c)))
        parts.append(("- " if c < 0 else "+ ") + "*".join(factors))
    text = " ".join(parts) or "0"
    return text[2:] if text.startswith("+ ") else "-" + text[2:] if text.startswith("- ") else text


_SIGNS = {"<": ("<", ">="), "==": ("==", "!=")}


def told(guard: str) -> str:
    """A guard of a scope as people write it: what is subtracted stands on the other side.

    >>> told("not -n + 16777216 < 0"), told("2*n - m - 3 == 0"), told("not (n//2) - 5 == 0")
    ('n <= 16777216', '2*n == m + 3', '(n//2) != 5')
    """
    found = re.fullmatch(r"(not )?(.+) (<|==) (-?\d+)", guard)
    if found is None:
        return guard
    negated, text, sign, value = found.groups()
    depth, start = 0, 0
    sides: tuple[list[str], list[str]] = [], []
    parts: list[str] = []
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if k and not depth and text[k : k + 3] in (" + ", " - "):
            parts.append(text[start:k])
            start = k
    parts.append(text[start:])
    for part in parts:
        term = part.removeprefix(" + ")
        minus = term.startswith((" - ", "-"))
        sides[minus].append(term.removeprefix(" - ").removeprefix("-"))
    if int(value):
        sides[int(value) > 0].append(str(abs(int(value))))
    left, right = (" + ".join(side) or "0" for side in sides)
    relation = _SIGNS[sign][bool(negated)]
    if relation in ("<", ">=") and (left.isdigit() or not sides[0]):
        return f"{right} {'>' if relation == '<' else '<='} {left}"
    return f"{left} {relation} {right}"


def nested(code: str) -> str:
    """An expression as an operand of another."""
    return code if re.fullmatch(r"\w+", code) else f"({code})"
