"""What `einsum` is told: letters, or lists of integers, as labels of axes.

"ij,...j->...i" of a matrix and of three axes     inputs (105, 106) (-2, -1, 106), output (-2, -1, 105)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from sparsejax.core.primitive import as_operand

Labels = tuple[int, ...]


def parsed(text: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Labels of the operands and of the output. Letters become their code points, ellipsis axes negative labels."""
    text = text.replace(" ", "")
    if text.count("->") > 1 or ("-" in text.replace("->", "")) or (">" in text.replace("->", "")):
        raise ValueError("einstein sum subscript string does not contain proper '->' output specified")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        few = "fewer" if len(terms) > len(ranks) else "more"
        raise ValueError(f"{few} operands provided to einstein sum function than specified in the subscripts string")
    inputs = [_term(term, rank, k) for k, (term, rank) in enumerate(zip(terms, ranks, strict=True))]
    widest = sorted({x for ls in inputs for x in ls if x < 0})
    if arrow:
        return inputs, _output(right, widest)
    seen = [x for ls in inputs for x in ls if x >= 0]
    return inputs, (*widest, *sorted(x for x in set(seen) if seen.count(x) == 1))


def _letters(text: str) -> list[int]:
    for char in text:
        if not (char.isascii() and char.isalpha()):
            raise ValueError(
                f"invalid subscript '{char}' in einstein sum subscripts string, subscripts must be letters"
            )
    return [ord(c) for c in text]


def _term(term: str, rank: int, number: int) -> Labels:
    if "..." not in term:
        if "." in term:
            raise ValueError("einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...')")
        labels = _letters(term)
        if len(labels) != rank:
            more = (
                "too many subscripts in einstein sum"
                if len(labels) > rank
                else "operand has more dimensions than subscripts given in einstein sum, but no '...' ellipsis provided to broadcast the extra dimensions"
            )
            raise ValueError(f"operand {number}: {more}")
        return tuple(labels)
    before, _, after = term.partition("...")
    if "." in before or "." in after:
        raise ValueError("einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...')")
    head, tail = _letters(before), _letters(after)
    spare = rank - len(head) - len(tail)
    if spare < 0:
        raise ValueError(
            f"operand {number}: einstein sum subscripts string contains too many subscripts for its {rank} dimensions"
        )
    return (*head, *range(-spare, 0), *tail)


def _output(text: str, widest: list[int]) -> Labels:
    if "..." in text:
        before, _, after = text.partition("...")
        if "." in before or "." in after:
            raise ValueError("einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...')")
        made = (*_letters(before), *widest, *_letters(after))
    else:
        if "." in text:
            raise ValueError("einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...')")
        if widest:
            raise ValueError(
                "output has more dimensions than subscripts given in einstein sum, but no '...' ellipsis provided to broadcast "
                "the extra dimensions"
            )
        made = tuple(_letters(text))
    for label in made:
        if made.count(label) > 1:
            raise ValueError(f"einstein sum subscripts string includes output subscript '{chr(label)}' multiple times")
    return made


def interleaved(items: list[Any]) -> tuple[list[Any], list[Labels], Labels]:
    """Operands that take turns with lists of their labels, and perhaps those of the output behind them."""
    if len(items) < 2:
        raise ValueError(
            "must specify the einstein sum subscripts string and at least one operand, or at least one operand and its corresponding subscripts list"
        )
    explicit = items[-1] if len(items) % 2 else None
    arrays = [as_operand(x, f"operand {k}") for k, x in enumerate(items[0 : len(items) - len(items) % 2 : 2])]
    terms = [_sublist(x) for x in items[1 : len(items) - len(items) % 2 : 2]]
    text = ",".join(terms) + ("" if explicit is None else "->" + _sublist(explicit))
    inputs, output = parsed(text, [a.ndim for a in arrays])
    return arrays, inputs, output


def _sublist(labels: Any) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    made = ""
    try:
        listed = list(labels)
    except TypeError:
        raise TypeError("subscripts of an operand must be a list of integers and Ellipsis") from None
    for label in listed:
        if label is Ellipsis:
            made += "..."
            continue
        k = operator.index(label)
        if not 0 <= k < len(alphabet):
            raise ValueError(f"subscript {k} is not within the valid range [0, {len(alphabet)})")
        made += alphabet[k]
    return made
