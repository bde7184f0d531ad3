"""Gangs: the graph of a result as one task for each worker that holds its blocks, which pass results to each other themselves (`members`).

    ten rounds of y = A @ y, in two shards on two workers
        apart    20 tasks, and a scheduler that hears of each before the next begins
        gang     2 tasks of ten steps each

The tasks are those of the graph, and so are the bits of the result. Each runs where it was asked to run (`places`), or beside the largest of what it reads.
A gang is made where a result alone is computed, on a cluster whose workers have a thread each; blocks must fit into their memory, as Dask does not spill
what a task holds. The price of waiting decides: `WAIT` for each result that a task of another worker waits for, one after the other, or `HOP` and a
`MEETING`; on one computer that of bytes too, as members there have memory in common (`commons`, `lending`).
"""

from __future__ import annotations

import hashlib
import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax.dask import exchange, places
from sparsejax.dask.commons import Whole, planned, room
from sparsejax.dask.members import Step, member
from sparsejax.jit.ir import choices
from sparsejax.optional import optional

WAIT, HOP, MEETING = 3e6, 1.5e6, 6e6
"""Nanoseconds."""
NEAR = 2.0
"""Nanoseconds that a byte costs less between members on one computer than between tasks."""
ROOM = 0.4
"""Of the memory of a worker, what a gang may take."""


@dataclass
class Gang:
    """The graph of a result with a task for each worker."""

    graph: dict[Any, Any]
    homes: dict[Any, str]
    waits: int
    """Results of other workers that are waited for, one after the other."""
    sent: float
    """Bytes that pass between the tasks."""
    held: float
    """Bytes that the largest task holds at once."""
    count: int


def ganged(
    graph: Mapping[Any, Any],
    own: Sequence[Any],
    wanted: Sequence[Any],
    homes: places.Homes,
    sizes: Mapping[Any, float],
    wholes: Sequence[Whole] = (),
) -> Gang | None:
    """The tasks `own` of a graph, in order, as a gang; None where they are all of one worker, or another result is read of them."""
    inside = _needed(graph, own, wanted)
    at = _places(graph, inside, homes, sizes)
    workers = sorted(set(at.values()))
    if len(workers) < 2 or len(at) < len(inside) or any(k not in at for k in wanted):
        return None
    number = {worker: k for k, worker in enumerate(workers)}
    readers: dict[Any, set[int]] = defaultdict(set)
    last: dict[tuple[str, Any], Any] = {}
    depth: dict[Any, int] = {}
    for key in inside:
        depth[key] = 0
        for k in graph[key].dependencies:
            if k in at:
                crosses = at[k] != at[key]
                depth[key] = max(depth[key], depth[k] + crosses)
                if crosses:
                    readers[k].add(number[at[key]])
            last[at[key], k] = key
    keep = set(wanted)
    steps: dict[str, list[Step]] = {w: [] for w in workers}
    names: dict[str, dict[Any, None]] = {w: {} for w in workers}
    came: dict[str, set[Any]] = {w: set() for w in workers}
    live, most = dict.fromkeys(workers, 0.0), dict.fromkeys(workers, 0.0)
    sent = 0.0
    for key in inside:
        w, needs, size = at[key], graph[key].dependencies, sizes.get(key, 0.0)
        names[w].update({k: None for k in needs if k not in at})
        new = {k for k in needs if k in at and at[k] != w} - came[w]
        came[w] |= new
        done = [k for k in needs if last[w, k] == key and (k not in keep or at[k] != w)]
        live[w] += size + sum(sizes.get(k, 0.0) for k in new)
        most[w] = max(most[w], live[w])
        if (w, key) not in last and key not in keep:
            done.append(key)
        live[w] -= sum(sizes.get(k, 0.0) for k in done if k in at)
        sent += size * len(readers[key])
        steps[w].append(Step(key, graph[key], tuple(sorted(readers[key])), tuple(done)))
    dropped = set(own)
    rest = {k: node for k, node in graph.items() if k not in dropped}
    commons = planned(wholes, [steps[w] for w in workers], wanted)
    made, homes_of = _written(rest, workers, steps, commons, names, wanted, at)
    return Gang(made, homes_of, max(depth.values()), sent, max(most.values()) + room(commons), len(workers))


def _needed(graph: Mapping[Any, Any], own: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Tasks that results are made of, in order."""
    among, found, todo = set(own), set(), list(wanted)
    while todo:
        key = todo.pop()
        if key in among and key not in found:
            found.add(key)
            todo += graph[key].dependencies
    return [k for k in own if k in found]


def _places(
    graph: Mapping[Any, Any], inside: Sequence[Any], homes: places.Homes, sizes: Mapping[Any, float]
) -> dict[Any, str]:
    """The worker of each task: its home, that of the largest result that it reads, or that of the first task that reads it."""
    at: dict[Any, str] = {}
    among = set(inside)
    for key in inside:
        needs = [k for k in graph[key].dependencies if k in at or k in homes]
        if key in homes:
            at[key] = homes[key]
        elif needs:
            heaviest = max(needs, key=lambda k: sizes.get(k, 0.0))
            at[key] = at.get(heaviest) or homes[heaviest]
    for key in reversed(inside):
        if key in at:
            at.update({k: at[key] for k in graph[key].dependencies if k in among and k not in at})
    return at


def _written(
    graph: dict[Any, Any], workers: Any, steps: Any, commons: Any, names: Any, wanted: Any, at: Any
) -> tuple[dict[Any, Any], dict[Any, str]]:
    spec = optional("dask.task_spec", "dask")
    told = hashlib.sha256(repr([(s.key, w) for w in workers for s in steps[w]]).encode()).hexdigest()[:32]
    own = {w: [k for k in wanted if at[k] == w] for w in workers}
    idle = [(f"gang-{told}", part) for part, w in enumerate(workers) if not own[w]]
    alone = not idle  # else results wait for those that have none, which nobody asks for
    single = [alone and len(own[w]) == 1 for w in workers]
    keys = [shown(own[w][0]) if single[part] else (f"gang-{told}", part) for part, w in enumerate(workers)]
    homes = {}
    for part, (worker, key) in enumerate(zip(workers, keys, strict=True)):
        packed = optional("cloudpickle", "dask").dumps(steps[worker])
        given = [spec.TaskRef(k) for k in names[worker]]
        asked = keys, packed, commons, own[worker], list(names[worker]), single[part]
        graph[key] = spec.Task(key, started, f"gang-{told}", part, pickle.dumps(asked), *given)
        homes[key] = worker
        if not single[part]:
            for n, k in enumerate(map(shown, own[worker])):
                graph[k] = spec.Task(k, _one, n, spec.TaskRef(key), *map(spec.TaskRef, idle))
                homes[k] = worker
    return graph, homes


def shown(key: tuple[Any, ...]) -> Any:
    """The key of a gang's result on the scheduler, which may know the same one computed apart, by other tasks."""
    name, *place = key
    return (f"{name}-gang", *place)


def _one(number: int, results: Any, *others: Any) -> Any:
    """A result of a member."""
    return results[number]


def started(gang: str, part: int, packed: bytes, *given: Any) -> Any:
    """A member, whose keys are in bytes, where Dask does not look for them."""
    keys, steps, commons, wanted, names, single = pickle.loads(packed)
    made = member(gang, part, keys, steps, commons, wanted, names, *given)
    return made[0] if single else made


@dataclass
class Recipe:
    """What a gang is made of: the tasks of a result in order, the bytes that they are expected to return, and those of the arguments."""

    own: list[Any]
    sizes: Mapping[Any, float]
    given: float
    wholes: Sequence[Whole] = ()
    """Arrays whose blocks are read together."""
    made: list[Gang | None] | None = None

    def gang(self, lazy: Any, client: Any) -> Gang | None:
        """The gang of an array in shards, where that costs less on the cluster of a client, or is asked for."""
        if client is None or client.asynchronous or not exchange.exchanging(client):
            return None
        seats = places.seats(client)
        if len(set(seats)) != len(seats):  # a member takes one thread
            return None
        if self.made is None:
            self.made = [ganged(lazy._graph, self.own, lazy.apart_keys(), lazy.homes, self.sizes, self.wholes)]
        (gang,) = self.made
        if gang is None or not set(gang.homes.values()) <= set(seats):
            return None
        room = places.memory(client)
        if room and self.given / gang.count + gang.held > ROOM * room:
            return None
        saved = gang.waits * (WAIT - HOP) + (NEAR * gang.sent if places.near(gang.homes.values()) else 0)
        cheapest = "gang" if saved > MEETING else "apart"
        return gang if choices.pick("sharded_tasks", ("apart", "gang"), cheapest) == "gang" else None
