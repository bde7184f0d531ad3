"""Calls of kernels with dense results written out as functions of their operands, for the formats at hand: no frame, loop or question is left that
these do not need. A tiny product spends more time in these than in its kernel (`python -m benchmarks.first_calls`).

a csr matrix and a vector, of one shape:    if not low <= len(i0.buffers[1][-1]) < high: return otherwise(operands)
                                            made, last = a storage of a result that nobody refers to any more, or another one
                                            status = call(i0.cache.get("slots") or p0(i0), i1.cache.get("slots") or p1(i1), last)
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax import config
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage, Template
from sparsejax.jit.backend import compiler, entry
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph.shared_patterns import values_of
from sparsejax.jit.runtime.system import result_memory, reuse

AS_IT_IS, VALUES, ENTRIES = 0, 1, 2
"""How an operand is read: as it is, its values as a dense array, or those as a vector where no level below the last sparse one is dense."""

UNLIMITED = 1 << 48
"""Elements that no result has."""

Pack = Callable[[Storage], bytes]
Direct = Callable[[Sequence[Storage], tuple[int, ...]], Storage | None]
"""The result of this shape for these operands; None where they are to be looked at more closely."""


class Input(NamedTuple):
    """What a kernel reads."""

    operand: int
    read: int = AS_IT_IS
    format: Format | None = None
    """That of an operand that is read as it is, where it is known."""


class Counted(NamedTuple):
    """An operand of which one level alone is sparse, and bounds of its entries: from `low` up to below `high`, times the extents of some dimensions."""

    operand: int
    level: int
    low: float
    high: float
    above: tuple[int, ...] = ()


@functools.lru_cache(maxsize=256)
def packer(form: Format) -> Pack:
    """What gives the packed slots of storages in a format: extents, where buffers are, where values are. They are kept with the storage."""
    extents = len(form.levels)
    buffers = [(k, n) for k in range(extents) for n in range(len(form.buffer_names(k)))]
    levels = dict.fromkeys(k for k, _ in buffers)
    lines = [f"b{k} = s.buffers[{k}]" for k in levels]
    given = "*extents(s.shape)" if form.blocked else "*s.shape"
    if not form.blocked and extents:
        lines.append(f"{_named('n', range(extents))} = s.shape")
        given = _listed("n", range(extents))
    places = [_place(f"b{k}[{n}]") for k, n in buffers] + [_place("s.vals")]
    slots = ", ".join([*([given] if extents else []), *places])
    lines.append(f'known = s.cache["slots"] = pack({slots})')
    body = "".join(f"    {line}\n" for line in lines)
    known: dict[str, Any] = {
        "pack": struct.Struct(f"{extents + len(places)}q").pack,
        "extents": form.level_extents,
        "words": result_memory.words,
        "address_of": result_memory.address_of,
    }
    exec(f"def packed(s):\n{body}    return known\n", known)
    return known["packed"]  # type: ignore[no-any-return]


def _place(array: str) -> str:
    """Where an array is in memory, as Python spells it."""
    if result_memory.words is None:
        return f"address_of({array})"
    return f"words[id({array}) + {result_memory.HEAD} >> 3]"


def _slots(storage: Storage) -> bytes:
    return packer(storage.format)(storage)


def _named(letter: str, numbers: Sequence[int]) -> str:
    return "".join(f"{letter}{k}, " for k in numbers)


def _listed(letter: str, numbers: Sequence[int]) -> str:
    return ", ".join(f"{letter}{k}" for k in numbers)


def fixed(
    inputs: Sequence[Input],
    counted: Sequence[Counted],
    kept: Sequence[tuple[int, str, object]],
    bound: tuple[bytes, entry.Call, result_memory.Results, Template],
    settings: object,
    otherwise: Callable[[Sequence[Storage]], Storage],
) -> Callable[[Sequence[Storage]], Storage]:
    """The result of a kernel of one shape: its slots before those of inputs, what calls it, memory of results, their template. Else, where settings of
    `config` are others, or operands have other counts, or other facts than those `kept` under their names by number of an input, `otherwise`."""
    first, call, results, template = bound
    form, shape, fill, buffers = template
    stored = results.stored
    make = _fixed(
        _reads(inputs), _looks(counted), bool(first), bool(kept), stored is not None, results.content is not None
    )
    return make(  # type: ignore[no-any-return]
        {
            **_given(inputs, counted),
            "first": first,
            "call": call,
            "results": results,
            "stored": stored,
            "content": results.content,
            "template": template,
            "form": form,
            "shape": shape,
            "fill": fill,
            "buffers": buffers,
            "settings": settings,
            "otherwise": otherwise,
            "kept": tuple(kept),
        }
    )


def sized(
    inputs: Sequence[Input],
    counted: Sequence[Counted],
    rates: Sequence[tuple[int, tuple[float, ...]]],
    bound: tuple[bytes, entry.Call, Any, Format, Any, reuse.Repeated | None, Any],
    most: int,
    like: tuple[int, Any] | None,
    operands: int,
) -> Callable[[Sequence[Storage], tuple[int, ...]], Storage | None]:
    """The result of a kernel for `operands` and a shape: its slots before those of inputs, what calls it, memory of results, their format and fill,
    storages of shapes that come back, and what memory holds before. None where there are more than so many elements, or operands have
    other counts or `statistics.rates`. Results are `like` an operand, with this fill: they share its buffers."""
    first, call, memory, form, fill, stored, content = bound
    make = _sized(
        _reads(inputs),
        _looks(counted),
        tuple([k for k, _ in rates]),
        (bool(first), operands, len(form.levels), most < UNLIMITED, None if like is None else like[0]),
        None if stored is None else content is not None,
    )
    return make(  # type: ignore[no-any-return]
        {
            **_given(inputs, counted),
            **{f"rates{k}": known for k, known in rates},
            "first": first,
            "call": call,
            "memory": memory,
            "stored": stored,
            "content": content,
            "form": form,
            "fill": fill,
            "most": most,
            "buffers": ((),) * len(form.levels),
            "pack": struct.Struct(f"{(1 if like is not None else len(form.levels)) + 1}q").pack,
            "over": None if like is None else like[1],
        }
    )


def by_numpy(
    function: Callable[..., Any],
    ranks: tuple[int, ...],
    plain: bool,
    form: Format,
    fill: Any,
    dtype: np.dtype[Any],
    mine: result_memory.Passing | None,
) -> Direct:
    """A function of NumPy's, which takes dense arrays of these ranks and writes to a last one, as one of operands and the shape of the result. Operands
    are `plain` where they are in the order of NumPy. Results lie in memory of `mine`, or of its own."""
    own, most = result_memory.own(dtype) if mine is None else mine
    rank = len(form.levels)
    return _by_numpy(ranks, plain, rank)(  # type: ignore[no-any-return]
        {
            "function": function,
            "form": form,
            "fill": fill,
            "buffers": ((),) * rank,
            "dtype": dtype,
            "least": result_memory.TINY // dtype.itemsize,
            "most": 0 if own is None else most // dtype.itemsize,
            "take": None if own is None else own.take,
            "pack": struct.Struct(f"{rank + 1}q").pack,
        }
    )


@functools.lru_cache(maxsize=512)
def _by_numpy(ranks: tuple[int, ...], plain: bool, rank: int) -> Callable[[dict[str, Any]], Any]:
    operands = range(len(ranks))
    given = [f"o{k}.vals" if r == 1 else f"o{k}.vals.reshape(o{k}.shape)" for k, r in enumerate(ranks)]
    lines = [f"{_named('o', operands)} = operands"] if ranks else []
    lines += [f"{_named('n', range(rank))} = shape"] if rank else []
    lines += [
        "size = " + (" * ".join(f"n{k}" for k in range(rank)) or "1"),
        "if least < size <= most:",
        "    whole, begin, address = take(size)",
        "    vals = whole[begin : begin + size]",
        "    result = vals.reshape(shape)",
        "    freeze(vals, False)",
        "else:",
        "    vals, result = results_of(shape, dtype)",
        f"    address = {_place('vals')}",
        f"function({', '.join([*(given if plain else [f'to_dense(o{k})' for k in operands]), 'result'])})",
        *_MADE,
        f'made.vals, made.cache = vals, {{"slots": pack({_named("n", range(rank))}address)}}',
        "return made",
    ]
    names = ["function", "form", "fill", "buffers", "dtype", "least", "most", "take", "pack"]
    return _maker("operands, shape", lines, names)


def _reads(inputs: Sequence[Input]) -> tuple[tuple[int, int], ...]:
    return tuple([(i.operand, i.read) for i in inputs])


def _looks(counted: Sequence[Counted]) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    return tuple([(c.operand, c.level, c.above) for c in counted])


def _given(inputs: Sequence[Input], counted: Sequence[Counted]) -> dict[str, Any]:
    """What the function of these is closed over, by name."""
    made: dict[str, Any] = {}
    for k, i in enumerate(inputs):
        made[f"p{k}"] = _slots if i.format is None or i.read != AS_IT_IS else packer(i.format)
    for k, c in enumerate(counted):
        made[f"low{k}"], made[f"high{k}"] = c.low, c.high
    return made


def _spelled_slots(reads: Sequence[tuple[int, int]], first: bool, last: str) -> str:
    """The slots of a call."""
    parts = ["first"] if first else []
    for k, (operand, read) in enumerate(reads):
        if read == ENTRIES:
            parts.append(f"pack_two(len(o{operand}.vals), {_place(f'o{operand}.vals')})")
        else:
            parts.append(f'i{k}.cache.get("slots") or p{k}(i{k})')
    return ", ".join([*parts, last])


def _taken(reads: Sequence[tuple[int, int]]) -> list[str]:
    """Inputs as local names."""
    made = []
    for k, (operand, read) in enumerate(reads):
        if read == AS_IT_IS:
            made.append(f"i{k} = o{operand}")
        elif read == VALUES:
            made.append(f'i{k} = o{operand}.cache.get("values") or values_of(o{operand})')
    return made


_MADE = [
    "made = new(Storage)",
    "made.format, made.shape, made.fill_value, made.buffers = form, shape, fill, buffers",
]


@functools.lru_cache(maxsize=512)
def _fixed(
    reads: tuple[tuple[int, int], ...],
    looks: tuple[tuple[int, int, tuple[int, ...]], ...],
    first: bool,
    kept: bool,
    stored: bool,
    filled: bool,
) -> Callable[[dict[str, Any]], Any]:
    lines = [f"o{k} = operands[{k}]" for k in dict.fromkeys(k for k, _ in reads)]
    lines += _taken(reads)
    for n, (k, level, _) in enumerate(looks):
        lines.append(f"if not low{n} <= len(o{k}.buffers[{level}][-1]) < high{n}: return otherwise(operands)")
    if kept:
        lines.append(f"if others(kept, ({_named('i', range(len(reads)))})): return otherwise(operands)")
    lines += [
        "now = planning()",
        "if now is not settings and now != settings: return otherwise(operands)",
    ]
    called = [f"status = call({_spelled_slots(reads, first, 'last')})", "if status: check(status)"]
    if stored:
        lines += [*_again(filled), "    made, last = results.another(template)", *called, "return made"]
        names = ["results", "stored", "template", *(["content"] if filled else [])]
    else:
        lines += [
            "try:",
            "    vals, last = ready.pop() if (ready := results.ready) else results.take()",
            "except IndexError:",  # another thread was faster
            "    vals, last = results.take()",
            *called,
            *_MADE,
            'made.vals, made.cache, made.ours = vals, {"slots": last, "maker": results}, True',
            "return made",
        ]
        names = ["results", "form", "shape", "fill", "buffers"]
    return _maker("operands", lines, ["first", "call", "settings", "otherwise", "kept", *names, *_names(reads, looks)])


def _again(filled: bool, asked: str = "") -> list[str]:
    """The next storage of results that are kept, `made`, and its slots, `last`: `reuse.Stored.again` without a frame, up to its `else`. More is `asked`."""
    alone, vals, base = reuse.STORED
    return [
        "for vals, base, made, last in stored.kept:",
        f"    if {asked}references(made) <= {alone}:",
        f"        if len(made.cache) > {reuse.NOTED}: made.cache = stored.noted(last)",
        f"        if references(vals) <= {vals} and references(base) <= {base}:",
        *(["            base.fill(content)"] if filled else []),
        "            break",
        "else:",
    ]


@functools.lru_cache(maxsize=512)
def _sized(
    reads: tuple[tuple[int, int], ...],
    looks: tuple[tuple[int, int, tuple[int, ...]], ...],
    rates: tuple[int, ...],
    what: tuple[bool, int, int, bool, int | None],
    stored: bool | None,
) -> Callable[[dict[str, Any]], Any]:
    first, operands, rank, limited, over = what
    lines = [f"{_named('o', range(operands))} = operands"] if operands else []
    for n, (k, level, dims) in enumerate(looks):
        above = " * ".join(f"s{n}[{d}]" for d in dims)
        if dims:
            lines += [f"s{n} = o{k}.shape", f"above = {above}"]
        count = f"(len(o{k}.buffers[{level}][-1]) or 1)"
        bounds = (f"low{n} * above", f"high{n} * (above or 1)") if dims else (f"low{n}", f"high{n}")
        lines.append(f"if not {bounds[0]} <= {count} < {bounds[1]}: return None")
    for k in rates:
        lines.append(f'if (o{k}.cache.get("rates") or rates_of(o{k})) != rates{k}: return None')
    lines += _taken(reads)
    measured = []
    if over is not None:
        measured.append(f"size = len(o{over}.vals)")
        packed = "pack(size, address)"
    else:
        measured += [f"{_named('n', range(rank))} = shape"] if rank else []
        measured.append("size = " + (" * ".join(f"n{k}" for k in range(rank)) or "1"))
        packed = f"pack({_named('n', range(rank))}address)"
    measured += ["if size > most: return None"] if limited else []
    taken = ["vals, address = memory(size)", f"last = {packed}"]
    called = [f"status = call({_spelled_slots(reads, first, 'last')})", "if status: check(status)"]
    whole = [*_MADE, 'made.vals, made.cache, made.ours = vals, {"slots": last}, True']
    if over is not None:
        lines += [*measured, *taken, *called, f"return o{over}.with_values(vals, over)"]
    elif stored is None:
        lines += [*measured, *taken, *called, *whole, "return made"]
    else:
        lines += [
            *_again(stored, "made.shape == shape and "),
            "    again = None",
            "    if shape == stored.last: again = stored.another(shape)",
            "    else: stored.last, stored.times = shape, 0",
            "    if again is not None:",
            "        made, last = again",
            "    else:",
            *[f"        {line}" for line in [*measured, *taken, *whole]],
            *called,
            "return made",
        ]
    names = [
        "stored",
        "content",
        "first",
        "call",
        "memory",
        "form",
        "fill",
        "most",
        "buffers",
        "pack",
        "over",
        *[f"rates{k}" for k in rates],
    ]
    return _maker("operands, shape", lines, [*names, *_names(reads, looks)])


def _names(reads: Sequence[Any], looks: Sequence[Any]) -> list[str]:
    return [f"p{k}" for k in range(len(reads))] + [f"{end}{n}" for n in range(len(looks)) for end in ("low", "high")]


def _maker(arguments: str, lines: Sequence[str], names: Sequence[str]) -> Callable[[dict[str, Any]], Any]:
    """What makes a function of these lines from what it is closed over."""
    taken = "".join(f"    {name} = given[{name!r}]\n" for name in names)
    body = "".join(f"        {line}\n" for line in lines)
    known = dict(_KNOWN)
    exec(f"def make(given):\n{taken}    def run({arguments}):\n{body}    return run\n", known)
    return known["make"]  # type: ignore[no-any-return]


def others(kept: Sequence[tuple[int, str, object]], inputs: Sequence[Storage]) -> bool:
    """Whether inputs have other facts than these."""
    for k, name, value in kept:
        found = inputs[k].cache.get(name)
        if found is not value and found != value and (found is not None or _met(name, inputs[k]) != value):
            return True
    return False


def _met(name: str, storage: Storage) -> object:
    """What a storage that was never met keeps under a name, found out where that is a look at how many entries it has; else None."""
    if name == "positions":
        return statistics.positions(storage)
    return statistics.rounded_counts(storage) if name == "rounded_counts" else None


_KNOWN: dict[str, Any] = {
    "Storage": Storage,
    "new": object.__new__,
    "references": sys.getrefcount,
    "check": compiler.check,
    "planning": config.planning,
    "others": others,
    "values_of": values_of,
    "rates_of": statistics.rates,
    "pack_two": struct.Struct("2q").pack,
    "words": result_memory.words,
    "address_of": result_memory.address_of,
    "results_of": result_memory.written,
    "freeze": result_memory.freeze,
    "to_dense": convert.to_dense,
}
