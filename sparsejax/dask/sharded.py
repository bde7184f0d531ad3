"""Arrays in shards: blocks of one array as a collection of Dask's."""

from __future__ import annotations

import itertools
import math
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core import trace
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.digest import digest
from sparsejax.dask import elsewhere, exchange, gangs, places
from sparsejax.dask.cuts import Cut, aligned, cuts_for
from sparsejax.dask.products import row_costs
from sparsejax.formats import Format
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.structural import convert_format
from sparsejax.numpy.making import asarray
from sparsejax.optional import optional

SHARD_ENTRIES = 1 << 22
"""Stored entries per shard where the caller does not say how many: shards must not depend on the number of workers."""

INSTEAD = (
    "pass it to a function of sparsejax.dask.jit as an argument (not static, not closed over, and with jit around grad and vmap); "
    "or call compute() or to_dask_array()"
)


class Sharded:
    """An array that is cut into blocks, each made by a task of Dask's: `compute()` gathers it, `persist()` keeps it on the workers.

    Make one with `shard`; functions of `sparsejax.dask.jit` take and return them. Blocks have the format, dtype and fill of the array.
    """

    __slots__ = ("_graph", "aval", "counts", "cuts", "homes", "name", "recipe")

    def __init__(
        self,
        aval: Aval,
        cuts: Sequence[Cut],
        name: str,
        graph: Mapping[Any, Any],
        counts: NDArray[np.int64] | None = None,
        homes: places.Homes | None = None,
    ) -> None:
        self.aval, self.cuts, self.name, self.counts = aval, tuple(cuts), name, counts
        self._graph, self.homes = graph, homes or {}
        self.recipe: gangs.Recipe | None = None
        """How a gang makes it (`gangs`)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the whole array."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of values."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.aval.ndim

    @property
    def format(self) -> Format:
        """How every block stores its entries."""
        return self.aval.format

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of blocks along every dimension."""
        return tuple(len(cut) - 1 for cut in self.cuts)

    @property
    def balance(self) -> float:
        """Entries of the heaviest block over the mean; 1 is best. ValueError where they are not known: of results."""
        if self.counts is None:
            raise ValueError("the entries of a result's shards are known when it is computed")
        mean = float(self.counts.mean())
        return float(self.counts.max()) / mean if mean else 1.0

    def blocks(self) -> Iterator[tuple[int, ...]]:
        """The coordinates of all blocks in the grid, in order."""
        return itertools.product(*map(range, self.grid))

    def __repr__(self) -> str:
        shards = " x ".join(map(str, self.grid)) or "1"
        balance = "" if self.counts is None else f", balance={self.balance:.2f}"
        return f"Sharded({self.aval}, shards={shards}{balance})"

    def __getattr__(self, name: str) -> Any:
        what = f"Sharded has no attribute {name!r}"
        raise AttributeError(f"{what}: {INSTEAD}" if name[0] != "_" and hasattr(Array, name) else what)

    def _refused(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"an array in shards has no data here, and no operators: {INSTEAD}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = (
        _refused
    )
    __matmul__ = __rmatmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __abs__ = __invert__ = (
        _refused
    )
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __getitem__ = __array__ = __array_ufunc__ = __bool__ = __float__ = __int__ = __len__ = __iter__ = _refused

    # ------------------------------------------------------------------------------------------------ Dask's protocol

    def __dask_graph__(self) -> Mapping[Any, Any]:
        return self._tasks(self.gang())

    def _tasks(self, gang: gangs.Gang | None) -> Mapping[Any, Any]:
        graph = self._graph if gang is None else gang.graph
        return places.annotated(graph, self._homes(gang))  # type: ignore[no-any-return]

    def _homes(self, gang: gangs.Gang | None) -> places.Homes:
        return self.homes if gang is None else {**self.homes, **gang.homes}

    def gang(self) -> gangs.Gang | None:
        """The gang that makes it on the current client's cluster; None where tasks are run apart."""
        if self.recipe is None or not _on_clients(_configured()):
            return None
        return self.recipe.gang(self, current_client())

    def apart_keys(self) -> list[Any]:
        """The keys of its blocks where tasks are run apart."""
        return [(self.name, *place) for place in self.blocks()]

    def __dask_keys__(self) -> list[Any]:
        return self._keys(self.gang())

    def _keys(self, gang: gangs.Gang | None) -> list[Any]:
        return self.apart_keys() if gang is None else list(map(gangs.shown, self.apart_keys()))

    def __dask_layers__(self) -> tuple[str, ...]:
        return self._layers(self.gang())

    def _layers(self, gang: gangs.Gang | None) -> tuple[str, ...]:
        return (self.name,) if gang is None else gangs.shown((self.name,))

    def __dask_tokenize__(self) -> Any:
        return "sparsejax.Sharded", self.name

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **kwargs: Any) -> Any:
        return graph

    @staticmethod
    def __dask_scheduler__(graph: Any, keys: Any, **kwargs: Any) -> Any:
        return optional("dask.threaded", "dask").get(graph, keys, **kwargs)

    def __dask_postcompute__(self) -> Any:
        current_client()  # its cluster is looked after
        return _gathered, (self.grid, self.aval)

    def __dask_postpersist__(self) -> Any:
        current_client()
        gang = self.gang()
        return _persisted, (self.aval, self.cuts, *self._layers(gang), self.counts, self._homes(gang))

    def compute(self, **kwargs: Any) -> Array:
        """The whole array, here: workers send their blocks, and none of them holds all."""
        self._refuse_elsewhere(kwargs)
        client = None if kwargs else current_client()
        if client is not None and not client.asynchronous and _on_clients(_configured()):
            gang = self.gang()  # which asks the scheduler
            blocks = _fetched(client, self._tasks(gang), self._keys(gang), gang is not None)
            return _gathered(blocks, self.grid, self.aval)
        whole: Array = optional("dask", "dask").compute(self._here(kwargs), **kwargs)[0]
        return whole

    def persist(self, **kwargs: Any) -> Sharded:
        """The same array with its blocks computed, kept where they were."""
        self._refuse_elsewhere(kwargs)
        made: Sharded = optional("dask", "dask").persist(self._here(kwargs), **kwargs)[0]
        return made

    def _here(self, how: Mapping[str, Any]) -> Sharded:
        """It without a gang, where a scheduler of this process is asked for."""
        if _on_clients(how.get("scheduler", _configured())):
            return self
        return Sharded(self.aval, self.cuts, self.name, self._graph, self.counts, self.homes)

    def _refuse_elsewhere(self, how: Mapping[str, Any]) -> None:
        """ValueError where blocks lie on a cluster, and a scheduler of this process is asked for or the client is closed."""
        asked = how.get("scheduler", _configured())
        closed = _on_clients(asked) and not hasattr(asked, "scheduler_info") and current_client() is None
        if (closed or not _on_clients(asked)) and any(hasattr(node, "status") for node in self._graph.values()):
            if closed:
                raise ValueError(
                    "blocks of this array lie on the workers of a cluster, but its client is closed; call compute() before"
                )
            raise elsewhere.refused(f"scheduler={asked!r}")

    def to_dask_array(self) -> Any:
        """The blocks as chunks of a `dask.array`."""
        da = optional("dask.array", "dask")
        chunks = tuple(tuple(b - a for a, b in itertools.pairwise(cut)) for cut in self.cuts)
        empty = np.zeros((0,) * self.ndim, self.dtype)
        meta = convert_format(asarray(empty), self.format)
        return da.Array(dict(self._graph), self.name, chunks, meta=meta)


def _gathered(blocks: Sequence[Array], grid: tuple[int, ...], aval: Aval) -> Array:
    made = assemble(list(blocks), grid)
    return made if made.format == aval.format else convert_format(made, aval.format)


def _persisted(
    graph: Mapping[Any, Any],
    aval: Aval,
    cuts: tuple[Cut, ...],
    name: str,
    counts: NDArray[np.int64] | None,
    homes: places.Homes,
    rename: Mapping[str, str] | None = None,
) -> Sharded:
    name = (rename or {}).get(name, name)
    own = {key: graph[key] for key in (Sharded(aval, cuts, name, {}).__dask_keys__())}
    return Sharded(aval, cuts, name, own, counts, {key: homes[key] for key in own if key in homes})


def assemble(parts: list[Any], grid: Sequence[int]) -> Any:
    """Blocks in the order of their grid as one array."""
    for axis in range(len(grid) - 1, -1, -1):
        if grid[axis] > 1:
            count = grid[axis]
            parts = [concatenate(parts[k : k + count], axis) for k in range(0, len(parts), count)]
    (whole,) = parts
    return whole


def shard(
    A: Any,
    rows: int | Sequence[int] | None = None,
    cols: int | Sequence[int] | None = None,
    *,
    axes: Any = None,
    row_cost: Any = 0.0,
    times: Any = None,
) -> Sharded:
    """An array cut into `rows` by `cols` blocks of about as many stored entries each, on the workers.

    `rows` and `cols` are numbers of parts or boundaries (0, ..., n); `axes` gives them for every dimension, where these are not two. Without
    any, rows are cut into shards of four million entries: shards never depend on the number of workers, and so neither do the bits of results. Rows and columns
    are cut between coordinates, so one row with more entries than a shard's share is a shard of its own; `.balance` says how even they are.

    `row_cost` is what a row costs beside its entries, in entries: where dense rows go with those of A, as the features of a graph's nodes, parts with few rows
    and many entries are done before parts with many rows and few entries. About the columns of the dense product of a layer over those of the sparse one. Or
    an array with a number for each row, where rows of as many entries take unlike time.

    `times` is the array that A is multiplied with, `A @ times`: rows are cut so that parts of the product are expected to take as long as each other. For two
    sparse matrices that depends on multiplications and on how many of them meet in one entry, which is counted in some rows.

    An array of Dask's becomes one in shards with its chunks as blocks, without being computed.

    With a client of Dask's `distributed` blocks are sent to its workers in turn. O(entries).

    >>> import numpy as np, sparsejax as sj, sparsejax.dask
    >>> A = sparsejax.dask.shard(sj.array(np.tri(100), format="csr"), rows=2)
    >>> A.cuts[0], A.counts.tolist()
    ((0, 71, 100), [[2556], [2494]])
    """
    if trace.current() is not None:
        raise TypeError(
            "shard is called while a function is traced, as by jit or grad; call it before, and pass what it returns to a function of sparsejax.dask.jit"
        )
    if isinstance(A, Sharded):
        raise TypeError("A is in shards already; compute() it first to cut it anew")
    if hasattr(A, "__dask_graph__"):
        if rows is not None or cols is not None or axes is not None or np.any(row_cost) or times is not None:
            raise ValueError("an array of Dask's is cut where its chunks are; call its rechunk() first")
        return _of_chunks(A)
    x = asarray(A)
    storage = x._storage
    if axes is None:
        axes = (rows, cols)[: x.ndim] + (None,) * max(0, x.ndim - 2)
        if x.ndim < 2 and cols is not None:
            raise ValueError(f"cols={cols} cuts the second dimension, but the array has shape {x.shape}")
    elif rows is not None or cols is not None:
        raise ValueError("pass rows and cols, or axes")
    if len(axes) != x.ndim:
        raise ValueError(f"axes={axes} must have an entry for each of the {x.ndim} dimensions")
    if x.ndim and all(a is None for a in axes):
        axes = (math.ceil(max(x.nnz, 1) / SHARD_ENTRIES), *axes[1:])
    row_cost = _costs(row_cost, x.shape[0] if x.ndim else 0)
    made = cuts_for(storage, axes, row_cost, _times(x, times, row_cost))
    name = f"shard-{digest(storage)[:16]}-{optional('dask.base', 'dask').tokenize(made)[:8]}"
    graph, counts = {}, np.zeros([len(c) - 1 for c in made], np.int64)
    for place in np.ndindex(*counts.shape):
        block = part(x, [(c[k], c[k + 1]) for c, k in zip(made, place, strict=True)])
        counts[place], graph[place] = block.nnz, block
    name, nodes, homes = placed(name, graph)
    return Sharded(x.aval, made, name, nodes, counts, homes)


def _costs(asked: Any, rows: int) -> Any:
    """What each row costs, checked: a number, or an array with one for each row."""
    made = np.asarray(asked)
    if made.dtype.kind not in "iuf" or made.shape not in ((), (rows,)) or not np.all((made >= 0) & (made < np.inf)):
        said = repr(asked) if made.ndim == 0 else f"an array of shape {made.shape} and dtype {made.dtype}"
        raise ValueError(
            f"row_cost={said} must be a number of entries, 0 or more, or an array of them with one for each of the {rows} rows"
        )
    return made


def _times(A: Any, B: Any, row_cost: Any) -> Any:
    """What each row of `A @ B` costs, None where there is no B. ValueError where these cannot be multiplied."""
    if B is None:
        return None
    if hasattr(B, "__dask_graph__"):
        raise TypeError("times is in shards, where its entries cannot be counted; pass the array that it was made of")
    if np.any(row_cost):
        raise ValueError("pass times or row_cost: times says what a row costs")
    B = asarray(B)
    if A.ndim != 2 or B.ndim not in (1, 2) or A.shape[1] != B.shape[0]:
        raise ValueError(
            f"times has shape {B.shape}, but A has shape {A.shape}; rows are cut for A @ times, with a matrix A of as many columns as times has rows"
        )
    return row_costs(A._storage, B._storage)


def _of_chunks(A: Any) -> Sharded:
    """The chunks of an array of Dask's as blocks, in the format that its `meta` has. ValueError where their sizes are not known."""
    if any(n != n for sizes in A.chunks for n in sizes):
        raise ValueError("A has chunks of unknown sizes; call compute_chunk_sizes() first")
    meta = asarray(A._meta)
    cuts = tuple((0, *itertools.accumulate(n for n in sizes if n)) if sum(sizes) else (0, 0) for sizes in A.chunks)
    if not all(map(aligned, cuts, meta.format.blocks)):
        raise ValueError(
            f"A has chunks {A.chunks}, which divide the blocks of its format {meta.format}; call its rechunk() with multiples of {meta.format.blocks} first"
        )
    aval = Aval(A.shape, meta.dtype, meta.format, meta.fill_value)
    spec = optional("dask.task_spec", "dask")
    name = f"shard-{A.name}"
    graph = dict(A.__dask_optimize__(A.__dask_graph__(), A.__dask_keys__()))
    filled = [[k for k, n in enumerate(sizes) if n] or [0] for sizes in A.chunks]
    for place in itertools.product(*(range(len(own)) for own in filled)):
        source = (A.name, *(own[k] for own, k in zip(filled, place, strict=True)))
        key = (name, *place)
        graph[key] = spec.Task(key, _in_format, spec.TaskRef(source), str(aval.format))
    return Sharded(aval, cuts, name, graph)


def _in_format(chunk: Any, format: str) -> Any:
    made = asarray(chunk)
    form = Format.parse(format, made.ndim)
    return made if made.format == form else convert_format(made, form)


def part(x: Any, ranges: Sequence[tuple[int, int]]) -> Any:
    """The block of an array between boundaries, in its format."""
    key = tuple(slice(a, b) for a, b in ranges)
    made = x[key] if any((a, b) != (0, n) for (a, b), n in zip(ranges, x.shape, strict=True)) else x
    return made if made.format == x.format else convert_format(made, x.format)


SMALL = 1 << 20
"""Bytes of a block that travels with the graph, so that it can be sent again where a worker is lost; larger ones are sent to a worker once."""
_sent: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
_lies: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""To which worker a block was sent."""


def placed(
    name: str, blocks: Mapping[tuple[int, ...], Any], everywhere: bool = False
) -> tuple[str, dict[Any, Any], places.Homes]:
    """Blocks by their place as nodes of a graph, their name there, and where they lie: on the workers of a cluster, large ones in turn, or on all (what
    every task reads, so that it is not lost with one of them); else here."""
    client = current_client()
    seats = () if everywhere else places.seats(client)
    found = {place: places.home(k, len(blocks), seats) for k, place in enumerate(blocks)}
    if client is None or all(block.nbytes <= SMALL for block in blocks.values()):
        node = optional("dask.task_spec", "dask").DataNode
        nodes = {(name, *k): node((name, *k), block) for k, block in blocks.items()}
        return name, nodes, {(name, *k): worker for k, worker in found.items() if worker is not None}
    known: dict[Any, Any] = {k: _sent.get((client.id, name, k)) for k in blocks}
    if any(future is None or future.status != "finished" for future in known.values()):
        # under a name of their own: a key that is released and sent again may be lost in between
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        futures = {}
        for worker in dict.fromkeys(found.values()):
            own = {(unique, *k): block for k, block in blocks.items() if found[k] == worker}
            there = None if worker is None else [worker]
            futures.update(client.scatter(own, workers=there, hash=False, broadcast=everywhere))
        known = {k: futures[unique, *k] for k in blocks}
        for k, future in known.items():
            _sent[client.id, name, k], worker = future, found[k]
            if worker is not None:
                _lies[future] = worker
    (own_name,) = {future.key[0] for future in known.values()}
    return own_name, {f.key: f for f in known.values()}, {f.key: _lies[f] for f in known.values() if f in _lies}


BATCH = 8
"""How many blocks are fetched at once: a worker reads them from its disk, if they are there, and holds them all."""


def _fetched(client: Any, graph: Any, keys: list[Any], ganged: bool) -> list[Any]:
    """The blocks of these keys, computed where they are not yet. Those of a gang are made together, also again: none is let go of before all are here."""
    futures = {}  # blocks that are computed, or on their way
    for key in keys:
        if hasattr(graph[key], "status"):
            futures[key] = graph[key]
    rest = [key for key in keys if key not in futures]
    futures.update(zip(rest, client.get(graph, rest, sync=False) if rest else [], strict=True))
    made: list[Any] = []
    taken = futures.__getitem__ if ganged else futures.pop  # and let go of
    for k in range(0, len(keys), BATCH):
        made += client.gather(list(map(taken, keys[k : k + BATCH])))
    return made


def _configured() -> Any:
    """The scheduler that Dask is configured to use; None where it takes the client's."""
    return optional("dask", "dask").config.get("scheduler", None)


def _on_clients(scheduler: Any) -> bool:
    """Whether Dask computes on a client's cluster, where this scheduler is asked for."""
    return scheduler is None or hasattr(scheduler, "scheduler_info") or scheduler in ("distributed", "dask.distributed")


def current_client() -> Any:
    """The client of a cluster that Dask computes on by default, or None. The cluster exchanges kernels and is watched from then on."""
    try:
        distributed = optional("distributed", "dask")
        client = distributed.get_client()
    except (ImportError, ValueError):
        return None
    exchange.install(client)
    elsewhere.noticed()
    return client
