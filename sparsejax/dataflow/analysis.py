"""`traffic` and `tile_sizes`: the public functions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sparsejax.dataflow import contraction as contractions
from sparsejax.dataflow import drawn, inner, methods
from sparsejax.dataflow.contraction import Contraction
from sparsejax.dataflow.growth import check_buffer
from sparsejax.dataflow.nest import Nest, check_nested, checked_tiles, parse_order, parse_tiles
from sparsejax.dataflow.progress import Progress
from sparsejax.dataflow.report import Candidate, Level, Tiling, Traffic
from sparsejax.dataflow.simulate import Simulator
from sparsejax.errors import ScheduleError

Buffer = int | str | Sequence[int | str]
UNITS = {"b": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "gb": 1 << 30, "gib": 1 << 30}


def traffic(
    function: Callable[..., Any],
    tiles: Mapping[str, int] | Sequence[Mapping[str, int]],
    buffer: Buffer = 33_027,
    order: str | Sequence[str] | None = None,
    exact: bool = False,
    word: int = 4,
) -> Callable[..., Traffic]:
    """A function that tells how many words a contraction moves between main memory and a buffer, in tiles of given extents.

    `function` computes one contraction of sparse arrays in any formats: a product of matrices, or any einsum of two operands, or MTTKRP of
    three. `tiles` maps loop variables, by the names that `explain` prints, to extents; what it does not name is not cut. `order` lists the loops over
    tiles from the outside in ("ikj"; by default the variables of the first operand, then the others). An operand's tile is fetched in every
    iteration of the loops around it in which all operands have entries; a partial result is written in tiles when its loops
    end. The words of a tile are those of its compressed sparse fiber: 2 n + 2 r + 3 for n entries in r rows.

    `buffer` holds a tile of one operand: so many words (33,027: a dense tile of 128 x 128), or bytes as text ("128 KiB"; a `word` has 4
    bytes). With two buffers, outermost first, `tiles` has two mappings; inner extents divide the outer ones. Traffic of operands is
    exact. That of the output is estimated from a sample of rows, or, with `exact`, counted.

    O(entries) for the operands; with `exact` the time of a product of boolean matrices per number of levels of the output. ScheduleError for
    functions that are no such contraction, and buffers that hold no entry; ValueError for unknown variables.
    Model: D2T2 (data-driven tensor tiling), sections 4 and 5.

    >>> import numpy as np, sparsejax as sj
    >>> A = sj.array(np.eye(4), format="csr")
    >>> told = sj.traffic(lambda A, B: A @ B, {"i": 2, "k": 2, "j": 2}, exact=True)(A, A)
    >>> told.words, told.total, told.largest, told.fits
    ((22, 22, 22), 66, (11, 11), True)
    """
    buffers = parse_buffer(buffer, word)
    listed: Sequence[Any] = tiles if isinstance(tiles, list | tuple) else [tiles]
    several = [checked_tiles(t, "tiles" if len(listed) == 1 else f"tiles[{n}]") for n, t in enumerate(listed)]
    if len(several) != len(buffers):
        raise ValueError(f"there are {len(buffers)} buffers, but tiles for {len(several)}; give one mapping per buffer")

    compiled = contractions.traceable(function) if callable(function) else function

    def analysed(*args: Any, **kwargs: Any) -> Traffic:
        found = contractions.of(compiled, args, kwargs)
        for words in buffers:
            check_buffer(found, words)
        simulator = Simulator(found, parse_order(found, order), drawn.FINE)
        made = [parse_tiles(found, t, "tiles" if len(several) == 1 else f"tiles[{n}]") for n, t in enumerate(several)]
        return measured(simulator, made, buffers, exact, word)

    return _wrapped(function, analysed)


def tile_sizes(
    function: Callable[..., Any],
    buffer: Buffer = 33_027,
    method: str = "counted",
    order: str | Sequence[str] | None = None,
    full: bool = False,
    word: int = 4,
) -> Callable[..., Tiling]:
    """A function that chooses extents of tiles for a contraction, so that little moves between main memory and a buffer.

    `function`, `buffer`, `order` and `word` as in `traffic`. Methods:

    - "counted": for extents of what is summed over, the longest tiles that fit by an exact count; traffic of inputs counted, of the output
      estimated from drawn rows. Of products of two matrices, extents are looked at in the order of what they move at least; of others, from the
      largest square that fits on, over powers of two; with `full` all powers of two are.
    - "paper": D2T2, section 5: shapes of equal area by the model of the paper, then grown by buffer over fullest tile.
    - "prescient": the largest square whose fullest tile fits. "conservative": the largest that fits when it is dense.
    - "tailors": the largest square of which 10 % of the tiles overflow; `predicted` lets the excess stream, `strict` fetches it again at every use.

    Tiles of operands fit the buffer, but for "tailors"; a result that does not fit streams. With two buffers, outermost first, tiles for the inner one
    are chosen inside those of the outer one. O(entries) per candidate. ScheduleError as in `traffic`, ValueError for unknown methods.

    >>> import numpy as np, scipy.sparse as sp, sparsejax as sj
    >>> A = sj.array(sp.random_array((400, 400), density=0.01, format="csr", rng=np.random.default_rng(0)))
    >>> chosen = sj.tile_sizes(lambda A: A @ A.T, buffer=600)(A)
    >>> square = sj.tile_sizes(lambda A: A @ A.T, buffer=600, method="prescient")(A)
    >>> chosen.predicted.fits, chosen.predicted.total <= square.predicted.total
    (True, True)
    """
    buffers = parse_buffer(buffer, word)
    if not isinstance(method, str) or method not in methods.METHODS:
        raise ValueError(f"method is {method!r}; methods are {', '.join(methods.METHODS)}")

    compiled = contractions.traceable(function) if callable(function) else function

    def analysed(*args: Any, **kwargs: Any) -> Tiling:
        found = contractions.of(compiled, args, kwargs)
        for words in buffers:
            check_buffer(found, words)
        simulator = Simulator(found, parse_order(found, order))
        with Progress("tile sizes") as progress:
            choice = chosen(simulator, buffers[0], method, full, progress)
            tiles = [choice.tiles]
            for words in buffers[1:]:
                tiles = inner.tiles_inside(simulator, tiles, words, method, progress)
        predicted = measured(simulator, tiles, buffers, False, word)
        strict = None
        if method == "tailors":
            nest = Nest(simulator.order, choice.tiles)
            level = predicted.levels[0]
            again = Level(
                level.tiles, level.buffer, (*simulator.strict_words(nest, buffers[0]), level.words[-1]), level.largest
            )
            strict = Traffic(predicted.expression, predicted.names, predicted.order, (again,), False, word)
        looked_at = choice.candidates or [Candidate(choice.tiles, predicted.total)]
        candidates = {tuple(c.tiles.items()): c for c in looked_at}.values()  # each once
        names = found.inputs, found.output, found.extents
        return Tiling(method, predicted, tuple(candidates), *names, strict, tuple(choice.notes))

    return _wrapped(function, analysed)


def chosen(simulator: Simulator, buffer: int, method: str, full: bool, progress: Progress) -> methods.Choice:
    """What a method chooses for one buffer."""
    if method == "counted":
        return methods.counted(simulator, buffer, full, progress)
    return methods.METHODS[method](simulator, buffer)


def measured(
    simulator: Simulator, tiles: Sequence[dict[str, int]], buffers: Sequence[int], exact: bool, word: int
) -> Traffic:
    """Traffic at every level."""
    found: Contraction = simulator.contraction
    nests = [Nest(simulator.order, t, None if k == 0 else tiles[k - 1]) for k, t in enumerate(tiles)]
    check_nested(nests, found.extents)
    levels = []
    for nest, words in zip(nests, buffers, strict=True):
        levels.append(Level(dict(nest.tiles), words, simulator.words(nest, exact), simulator.largest(nest)))
    return Traffic(str(found), found.names, simulator.order, tuple(levels), exact, word)


def parse_buffer(buffer: Buffer, word: int) -> tuple[int, ...]:
    """Words of one or two buffers, outermost first."""
    if isinstance(word, bool) or not isinstance(word, int) or word < 1:
        raise ValueError(f"word is {word!r}; a word has a positive number of bytes")
    several = list(buffer) if isinstance(buffer, list | tuple | np.ndarray) and np.ndim(buffer) else [buffer]
    made = tuple(_words(b, word) for b in several)
    if not 1 <= len(made) <= 2:
        raise ValueError(f"there are {len(made)} buffers; traffic is analysed for one or two, the outermost first")
    if len(made) == 2 and made[0] < made[1]:
        raise ValueError(f"the outer buffer has {made[0]} words and the inner one {made[1]}; give the larger one first")
    return made


def _words(buffer: Any, word: int) -> int:
    if isinstance(buffer, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", buffer)
        if not found or found[2].lower() not in UNITS:
            raise ValueError(f'buffer is {buffer!r}; write a number of words, or bytes as text such as "128 KiB"')
        return int(float(found[1]) * UNITS[found[2].lower()]) // word
    if isinstance(buffer, bool | np.ndarray) or not hasattr(buffer, "__index__"):
        raise TypeError(
            f"buffer is {buffer!r}, of type {type(buffer).__name__}; write an integer, which counts words, text such as '128 KiB', or a "
            "list of two of these"
        )
    if int(buffer) < 1:
        raise ScheduleError(f"a buffer of {int(buffer)} words holds nothing")
    return int(buffer)


def _wrapped(function: Any, analysed: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(analysed) if callable(function) else analysed
