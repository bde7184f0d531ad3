"""What is inferred of the results of small definitions, and why, as a table.

python -m tests.ir.formats          writes it anew (tests/ir/golden/formats.txt), for a look at the difference
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sparsejax.formats import Format
from sparsejax.jit.ir import cin, infer_formats

GOLDEN = Path(__file__).with_name("golden") / "formats.txt"
EXTENTS = {"i": 6, "j": 8, "k": 12, "l": 4, "w": (1 << 24) + 1}
VARIABLES = {name: cin.IndexVar(name) for name in EXTENTS}
FLOAT = np.dtype("f8")
EVERY = ("dense", "csr", "csc", "coo", "dcsr")
FEW = ("dense", "csr", "csc")
OTHER = ("bitmap", "hash", "ell", "groupcoo:4", "dia", "banded", "rle", "lil", "csr")
TENSORS = ("(d,d,c)", "(d,c,d)", "csf", "(c,d,c)@(2,1,0)")
TABLE: tuple[tuple[str, str, str | None, tuple[Sequence[str], ...]], ...] = (
    ("ij", "exp ij", None, (EVERY + OTHER,)),
    ("ij", "cos ij", None, (("csr",),)),
    ("ij", "sqrt ij", None, (EVERY,)),
    ("ji", "negative ij", None, (EVERY,)),
    ("ij", "multiply ij ij", None, (EVERY, FEW)),
    ("ij", "multiply ij ij", None, (OTHER, OTHER)),
    ("ij", "add ij ij", None, (EVERY, FEW)),
    ("ij", "add ij ij", None, (OTHER, OTHER)),
    ("ij", "multiply ij j", None, (FEW, ("dense", "(c)"))),
    ("ij", "multiply ij i", None, (FEW, ("dense", "(c)"))),
    ("ij", "add ij i", None, (FEW, ("dense", "(c)"))),
    ("ij", "multiply i j", None, (("dense", "(c)"), ("dense", "(c)"))),
    ("ij", "multiply jk ij", None, (FEW, FEW)),
    ("i", "ij", "add", (EVERY + OTHER,)),
    ("j", "ij", "add", (EVERY + OTHER,)),
    ("", "ij", "add", (FEW,)),
    ("i", "ij", "maximum", (EVERY,)),
    ("i", "ij", "multiply", (FEW,)),
    ("i", "multiply ij j", "add", (EVERY, ("dense", "(c)"))),
    ("ij", "multiply ik kj", "add", (EVERY, EVERY)),
    ("ji", "multiply ik kj", "add", (FEW, FEW)),
    ("ij", "add ik kj", "add", (FEW, FEW)),
    ("ij", "multiply ik kj", "add", (("bsr:2x4", "csr", "dense"), ("bsr:4x2", "bsr:2x2", "csr", "dense"))),
    ("ij", "add ij ij", None, (("bsr:2x4", "csr"), ("bsr:2x4", "bsr:2x2"))),
    ("il", "multiply multiply ij jk kl", "add", (FEW, FEW, FEW)),
    ("ij", "multiply multiply ij ik jk", "add", (FEW, ("dense",), ("dense", "csr"))),
    ("ij", "masked ij multiply ik jk", "add", (FEW, ("dense", "csr"), ("dense", "csr"))),
    ("ij", "unmasked ij multiply ik jk", "add", (FEW, ("dense", "csr"), ("dense", "csr"))),
    ("ij", "masked ij ij", None, (FEW, FEW)),
    ("ij", "unmasked ij ij", None, (FEW, FEW)),
    ("iw", "multiply iw iw", None, (FEW, FEW)),
    ("iw", "add iw i", None, (FEW, ("dense", "(c)"))),
    ("w", "iw", "add", (EVERY,)),
    ("wi", "multiply wk ki", "add", (FEW, FEW)),
    ("iw", "multiply ik kw", "add", (EVERY, FEW)),
    ("ijk", "exp ijk", None, (TENSORS,)),
    ("ij", "ijk", "add", (TENSORS,)),
    ("ik", "ijk", "add", (TENSORS,)),
    ("k", "ijk", "add", (TENSORS,)),
    ("ijl", "multiply ijk kl", "add", (TENSORS, FEW)),
    ("il", "multiply multiply ijk jl kl", "add", (TENSORS, ("dense",), ("dense", "csr"))),
    ("ijk", "multiply ijk ij", None, (TENSORS, FEW)),
)
"""The indices of a result, an expression in prefix notation, the operator that it is reduced with, and the formats of its operands."""
ARITY = {"exp": 1, "cos": 1, "sqrt": 1, "negative": 1, "multiply": 2, "add": 2, "masked": 2, "unmasked": 2}


def expression(words: Iterator[str], tensors: Iterator[cin.Tensor]) -> cin.Expr:
    word = next(words)
    if word not in ARITY:
        return cin.Access(next(tensors), tuple(VARIABLES[name] for name in word))
    args = [expression(words, tensors) for _ in range(ARITY[word])]
    if "masked" not in word:
        return cin.Call(word, tuple(args), FLOAT)
    asked: cin.Expr = cin.Call("stored", (args[0],), np.dtype(bool))
    asked = cin.Call("logical_not", (asked,), asked.dtype) if word == "unmasked" else asked
    return cin.Call("masked", (asked, args[1], cin.Literal(0.0, FLOAT)), FLOAT)


def shape_of(indices: str) -> tuple[int, ...]:
    return tuple(EXTENTS[name] for name in indices)


def lines() -> Iterator[str]:
    for indices, text, op, formats in TABLE:
        words = [word for word in text.split() if word not in ARITY]
        yield f"{indices} {op or ''}= {text}"
        for forms in itertools.product(*formats):
            fills = (0.0, 1.0) if text.startswith("multiply ij ij") and forms[0] == "csr" else (0.0,)
            for fill in fills:
                tensors = [
                    cin.Tensor(name, shape_of(word), FLOAT, Format.parse(form, len(word)), FLOAT.type(fill))
                    for name, (word, form) in zip("ABC", zip(words, forms, strict=True))
                ]
                rhs = expression(iter(text.split()), iter(tensors))
                definition = cin.Definition(tuple(VARIABLES[name] for name in indices), op, rhs)
                form, _ = infer_formats.infer(definition, shape_of(indices), FLOAT)
                why = "; ".join(infer_formats.reasons(definition, shape_of(indices), FLOAT))
                yield f"    {', '.join(forms)}{f' of {fill}' if fill else ''} -> {form}: {why}"


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(lines()) + "\n")
