"""Configuration: a handful of flags, from `SPARSEJAX_<NAME>` in the environment or `config.update`; `config.using` sets some
for the calls inside a `with` block.

check_jaxprs   type-check every traced function (default off)
log_compiles   log every kernel that is compiled or loaded from the object cache, with its time (default off)
explain_cache_misses  log why a call traced anew: what differs from the closest known signature (default off)
cache_dir      where compiled kernels are kept for other processes: "auto" (default: the user's cache folder), "off", or a folder,
               which must be the user's own and closed to writing by others; nothing is kept on Windows
workspace      policy of the workspaces through which sparse results are scattered: "auto" (default, by cost), "bitmap",
               "marks", "hash", "coordinate" or "bucket"; it goes before what `choose` says of them
dense_limit    an operation on sparse operands makes no dense result of more than this many times their bytes (default 1000), and
               a conversion stores no more padding in proportion to the entries, once that is more than a gibibyte: FormatError
               is raised; 0 lifts the limit
num_threads    threads that a kernel may use, the caller's included: 0 (default) for `OMP_NUM_THREADS`, else the processors that this
               process may run on
parallel_work  expected nanoseconds from which on a kernel is run by several threads (default 131072)
autotune       whether jitted functions time legal alternatives of their plans in their first call, and keep the fastest with the machine code on
               disk: "off" or False (default), "exact" or True (alternatives with equal bits), "any"; `jit(f, autotune=...)` overrides it
free_memory    MiB of memory that are kept for later results and workspaces once nobody uses them (default: a sixteenth of the machine's,
               from 256 to 1024); less is given back to the system at once, and 0 keeps none
skip           what is done without, to test or to compare: names of `alternatives.SKIPPABLE` in a set, or in a text with commas between them
               (default: none). Results are the same, but for rounding. Plans are kept per setting. Names in `FIXED` are read from
               the environment alone, when the process starts; `loader` and `futex` count for kernels that are loaded, and threads that
               are started, from then on
machine        the machine that kernels are priced for: "auto" (default, the shipped one with caches most like those here), the name of a shipped one
               (`sparsejax.jit.cost.machines`), or a JSON file that `python -m benchmarks.calibrate --write` made
choose         how the compiler decides where several ways are legal (`alternatives.CHOICES`): "auto" (default, the cheapest), "random:SEED" (any,
               drawn by the seed: the same ones whenever the same program is planned), pairs "choice=alternative" with commas between
               them (that one where it is legal), or a seed and pairs.
               Results are the same, but for rounding
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from sparsejax.alternatives import CHOICES, PASSES, SKIPPABLE

Value = bool | str | int | os.PathLike[str] | Iterable[str]
"""What flags are set to."""
Planning = tuple[str, int, tuple[str, ...], str, str]
_TRUE, _FALSE = ("1", "true", "on", "yes"), ("", "0", "false", "off", "no")
_flags: dict[str, bool] = {"check_jaxprs": False, "log_compiles": False, "explain_cache_misses": False}
_choices: dict[str, tuple[str, ...]] = {
    "workspace": ("auto", "bitmap", "marks", "hash", "coordinate", "bucket"),
    "autotune": ("off", "exact", "any"),
}
_texts: dict[str, str] = {"cache_dir": "auto", "choose": "auto", "machine": "auto"}
_chosen: dict[str, str] = {name: values[0] for name, values in _choices.items()}
FIXED = frozenset({"mremap"})
"""What cannot change within a process: a block goes back where it came from."""
_KNOWN = frozenset(name for group in SKIPPABLE.values() for name in group)
_sets: dict[str, frozenset[str]] = {"skip": frozenset()}
_fixed: frozenset[str] = frozenset()
GIBIBYTE = 1 << 30
"""Up to so many bytes are never out of proportion, see `dense_limit`."""


def _sixteenth() -> int:
    """MiB: a sixteenth of the memory of the machine, from 256 to 1024."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not known here
        memory = 0
    return min(max(memory >> 24, 256), 1024)


_numbers: dict[str, int] = {
    "dense_limit": 1000,
    "num_threads": 0,
    "parallel_work": 1 << 17,
    "free_memory": _sixteenth(),
}


def _read_environment() -> None:
    global _fixed
    for name in _flags:
        text = os.environ.get(f"SPARSEJAX_{name.upper()}", "").lower()
        if text not in _TRUE + _FALSE:
            raise ValueError(f"SPARSEJAX_{name.upper()}={text!r} is not a truth value; use 1 or 0")
        _flags[name] = text in _TRUE
    for name, values in _choices.items():
        text = os.environ.get(f"SPARSEJAX_{name.upper()}", "").lower() or values[0]
        if text not in values:
            raise ValueError(f"SPARSEJAX_{name.upper()}={text!r} is not one of {', '.join(values)}")
        _chosen[name] = text
    for name, default in _numbers.items():
        text = os.environ.get(f"SPARSEJAX_{name.upper()}", "") or str(default)
        if not text.isdecimal():
            raise ValueError(f"SPARSEJAX_{name.upper()}={text!r} is not a whole number")
        _numbers[name] = int(text)
    for name, word in _texts.items():
        _texts[name] = os.environ.get(f"SPARSEJAX_{name.upper()}", "") or word
    _texts["choose"] = _choosing(_texts["choose"])
    _sets["skip"] = _names("SPARSEJAX_SKIP", os.environ.get("SPARSEJAX_SKIP", ""))
    _fixed = _sets["skip"] & FIXED


def update(name: str, value: Value) -> None:
    """Set a flag.

    >>> update("log_compiles", False)
    >>> update("workspace", "auto")
    >>> before = skip()
    >>> update("skip", "masks, gathers")
    >>> skip() >= {"masks", "gathers"}
    True
    >>> update("skip", before)
    """
    flags, checked = _checked(name, value)
    flags[name] = checked
    _settle()


def _settle() -> None:
    """Note what plans depend on outside `using` blocks."""
    global _planned, forcing
    skipped = tuple(sorted(_sets["skip"]))
    _planned = _chosen["workspace"], _numbers["parallel_work"], skipped, _texts["choose"], _texts["machine"]
    forcing += _forces(_sets["skip"], _texts["choose"]) - _settled[0]
    _settled[0] = _forces(_sets["skip"], _texts["choose"])


def _forces(skipped: frozenset[str], chosen: str) -> bool:
    """Whether programs are planned in another way than what is cheapest."""
    return chosen != "auto" or not skipped.isdisjoint(PASSES)


@contextmanager
def using(**flags: Value) -> Iterator[None]:
    """Set flags for the calls that this thread (or task) makes inside a `with` block. Plans are kept per setting, so that
    nothing is planned or compiled again when settings alternate.

    >>> with using(workspace="hash", choose="loop_order=dearest"):
    ...     workspace()
    'hash'
    >>> workspace()
    'auto'
    >>> with using(skip={"masks"}):
    ...     "masks" in skip()
    True
    """
    checked = {name: _checked(name, value)[1] for name, value in flags.items()}
    global forcing
    token = _scope.set({**_scope.get(), **checked})
    forced = _forces(skip(), choose())
    forcing += forced
    try:
        yield
    finally:
        forcing -= forced
        _scope.reset(token)


_scope: ContextVar[Mapping[str, Any]] = ContextVar("sparsejax_flags", default=MappingProxyType({}))
"""The flags of the `using` blocks around."""
forcing = 0
"""How many settings are in force, in any thread, under which programs may be planned in another way than what is cheapest: else calls need
not ask."""
_settled = [False]


def _checked(name: str, value: Any) -> tuple[dict[str, Any], Any]:
    """Where a flag is kept, and the value for it."""
    if name in _choices:
        value = measures(value) if name == "autotune" else value
        if value not in _choices[name]:
            raise ValueError(f"flag {name!r} takes one of {', '.join(_choices[name])}, not {value!r}")
        return _chosen, str(value)
    if name in _numbers:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TypeError(f"flag {name!r} takes a whole number, not {value!r}")
        return _numbers, value
    if name == "choose":
        return _texts, _choosing(value)
    if name in _texts:
        path = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
        if not path:
            raise TypeError(f"flag {name!r} takes a path or a word, not {value!r}")
        return _texts, path
    if name in _sets:
        return _sets, _names(f"flag {name!r}", value, _fixed)
    if name not in _flags:
        known = ", ".join((*_flags, *_choices, *_numbers, *_texts, *_sets))
        raise ValueError(f"there is no flag {name!r}; flags are {known}")
    if not isinstance(value, bool):
        raise TypeError(f"flag {name!r} takes True or False, not {value!r}")
    return _flags, value


def _choosing(value: Any) -> str:
    """A value of flag `choose`, checked."""
    text = value.replace(" ", "") if isinstance(value, str) else ""
    if text == "auto":
        return text
    seeded, _, pairs = text.partition(",") if text.startswith("random:") else ("random:0", "", text)
    names = [pair.partition("=")[::2] for pair in pairs.split(",")] if pairs or not text else []
    if not seeded[7:].isdecimal() or not all(way in CHOICES.get(choice, ()) for choice, way in names):
        known = "; ".join(f"{name}={'|'.join(ways)}" for name, ways in CHOICES.items())
        raise ValueError(
            f'flag \'choose\' takes "auto", "random:SEED" or pairs choice=alternative, not {value!r}; there are {known}'
        )
    return text


def _names(what: str, value: Any, fixed: frozenset[str] | None = None) -> frozenset[str]:
    """The names to skip that a text or a set holds, with those that are `fixed`; ValueError for others than `SKIPPABLE`, and for those that
    are not among the fixed ones but should be. None: any may be named."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, Iterable) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"{what} takes names in a set, or in a text with commas between them, not {value!r}")
    names = frozenset(filter(None, (name.strip() for name in given)))
    if names - _KNOWN:
        raise ValueError(f"{what}: there is no {min(names - _KNOWN)!r} to skip; known are {', '.join(sorted(_KNOWN))}")
    if fixed is None:
        return names
    if (names & FIXED) - fixed:
        name = min((names & FIXED) - fixed)
        raise ValueError(f"{what}: {name!r} is settled when the process starts; set SPARSEJAX_SKIP={name} before that")
    return names | fixed


def check_jaxprs() -> bool:
    """Whether traced functions are type-checked."""
    found: bool = _scope.get().get("check_jaxprs", _flags["check_jaxprs"])
    return found


def log_compiles() -> bool:
    """Whether compiles are logged."""
    found: bool = _scope.get().get("log_compiles", _flags["log_compiles"])
    return found


def explain_cache_misses() -> bool:
    """Whether it is logged why calls trace anew."""
    found: bool = _scope.get().get("explain_cache_misses", _flags["explain_cache_misses"])
    return found


def told() -> bool:
    """Whether something is to be checked, or told, of every program that is made."""
    return check_jaxprs() or log_compiles() or explain_cache_misses()


def cache_dir() -> str:
    """Where compiled kernels are kept: "auto", "off" or a folder."""
    found: str = _scope.get().get("cache_dir", _texts["cache_dir"])
    return found


def workspace() -> str:
    """The policy of workspaces, or "auto"."""
    found: str = _scope.get().get("workspace", _chosen["workspace"])
    return found


def measures(autotune: object) -> str:
    """The word for a value of `autotune`, which is one or a bool."""
    if isinstance(autotune, bool):
        return "exact" if autotune else "off"
    if isinstance(autotune, str) and autotune in _choices["autotune"]:
        return autotune
    error = ValueError if isinstance(autotune, str) else TypeError
    raise error(f'autotune={autotune!r} must be True or "exact", False or "off", or "any"')


def autotune() -> str:
    """Whether jitted functions measure alternatives: "off", "exact" (those with equal bits) or "any"."""
    found: str = _scope.get().get("autotune", _chosen["autotune"])
    return found


def dense_limit() -> int:
    """How many times the operands' bytes a dense result may have; 0 for any."""
    found: int = _scope.get().get("dense_limit", _numbers["dense_limit"])
    return found


def num_threads() -> int:
    """The number of threads that a kernel may use; 0 for what the environment says."""
    found: int = _scope.get().get("num_threads", _numbers["num_threads"])
    return found


def parallel_work() -> int:
    """Expected nanoseconds from which on a kernel is run by several threads."""
    found: int = _scope.get().get("parallel_work", _numbers["parallel_work"])
    return found


def free_memory() -> int:
    """MiB of free memory that are kept."""
    found: int = _scope.get().get("free_memory", _numbers["free_memory"])
    return found


def skip() -> frozenset[str]:
    """The names of what is done without."""
    found: frozenset[str] = _scope.get().get("skip", _sets["skip"])
    return found


def machine() -> str:
    """The machine that kernels are priced for: "auto", a name or a file."""
    found: str = _scope.get().get("machine", _texts["machine"])
    return found


def choose() -> str:
    """How the compiler decides where several ways are legal."""
    found: str = _scope.get().get("choose", _texts["choose"])
    return found


def choosing() -> tuple[str | None, Mapping[str, str]]:
    """The seed of random choices, if they are random, and the alternatives that are asked for."""
    return _parsed(choose())


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[str | None, Mapping[str, str]]:
    parts = [part.partition("=")[::2] for part in text.split(",")]
    seed = text.split(",")[0] if text.startswith("random:") else None
    return seed, MappingProxyType({choice: way for choice, way in parts if way})


def planning() -> Planning:
    """What plans depend on besides data, spelled alike in every process: one object as long as nothing is set anew."""
    return _planned if not _scope.get() else _scoped()


def _scoped() -> Planning:
    return workspace(), parallel_work(), tuple(sorted(skip())), choose(), machine()


def forced() -> tuple[tuple[str, ...], str] | None:
    """How programs are planned in another way than what is cheapest; None where they are not."""
    if not forcing or not _forces(skip(), choose()):
        return None
    return tuple(sorted(skip() & PASSES.keys())), choose()


_planned: Planning = ("", 0, (), "", "")


_read_environment()
_settle()
