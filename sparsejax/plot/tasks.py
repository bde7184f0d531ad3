"""The task graph of an array in shards."""

from __future__ import annotations

from typing import Any

from sparsejax.optional import optional

_COLOURS = {"data": "#e8e8e8", "kernel": "#9ecae1", "part": "#fdd49e", "sum": "#c7e9c0"}
_KINDS = {"run": "kernel", "cut": "part", "gather": "part", "pick": "part", "combine": "sum"}


def task_graph(x: Any, *, ax: Any = None, labels: bool = True) -> Any:
    """Draw the tasks that make a `sparsejax.dask.Sharded`, or anything else with a graph of Dask's, from data on the left to results on the right;
    the matplotlib axes.

    Blue tasks run a compiled program on blocks, orange ones take parts of blocks that are to be sent or put them together, green ones put partial results
    together, grey is data. `labels` writes the operations and blocks into tasks. `ax` is where to draw, else a new figure. For graphs of some
    hundred tasks: O(edges).
    """
    pyplot = optional("matplotlib.pyplot", "plot")
    graph, keys = dict(x.__dask_graph__()), list(x.__dask_keys__())
    needs = needed(graph, keys)
    depth = depths(needs)
    columns: dict[int, list[Any]] = {}
    for key in needs:
        columns.setdefault(depth[key], []).append(key)
    place: dict[Any, tuple[float, float]] = {}
    for d in sorted(columns):
        column = columns[d]
        if d:
            column.sort(key=lambda k: sum(place[n][1] for n in needs[k]) / max(1, len(needs[k])))
        for number, key in enumerate(column):
            place[key] = d, (number + 0.5) / len(column)
    if ax is None:
        tallest = max(len(c) for c in columns.values())
        ax = pyplot.subplots(figsize=(2.4 * len(columns), 0.45 * tallest + 0.6), layout="constrained")[1]
    for key, own in needs.items():
        for other in own:
            ax.plot(*zip(place[other], place[key], strict=True), color="#b0b0b0", linewidth=0.8, zorder=1)
    for key, (across, up) in place.items():
        box = {"boxstyle": "round,pad=0.3", "facecolor": _COLOURS[kind_of(graph[key])], "edgecolor": "#606060"}
        ax.text(across, up, label_of(key) if labels else " ", ha="center", va="center", fontsize=7, bbox=box, zorder=2)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(0, 1))
    ax.axis("off")
    return ax


def needed(graph: dict[Any, Any], keys: list[Any]) -> dict[Any, list[Any]]:
    """What every task that `keys` depend on reads, in an order in which tasks come after what they read."""
    found: dict[Any, list[Any]] = {}
    left = [(key, False) for key in reversed(keys)]
    while left:
        key, done = left.pop()
        own = sorted((k for k in getattr(graph.get(key), "dependencies", ()) if k in graph), key=str)
        if done:
            found[key] = own
        elif key not in found:
            left.append((key, True))
            left += [(k, False) for k in own if k not in found]
    return found


def depths(needs: dict[Any, list[Any]]) -> dict[Any, int]:
    """How many tasks lie before each, at most."""
    made: dict[Any, int] = {}
    for key, own in needs.items():
        made[key] = max((made[k] + 1 for k in own), default=0)
    return made


def kind_of(node: Any) -> str:
    """What a task does, as a key of the colours."""
    return _KINDS.get(getattr(getattr(node, "func", None), "__name__", ""), "data")


def label_of(key: Any) -> str:
    """A key without what makes it unique: operations, and the numbers of the block."""
    name, *block = key if isinstance(key, tuple) else (key,)
    words = [w for w in str(name).split("-") if len(w) < 16 and not w.isdecimal()]
    return f"{' '.join(words)}\n{','.join(map(str, block))}" if block else " ".join(words)
