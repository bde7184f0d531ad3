"""Kernels by position in the place of others, where operands turn out to share their index buffers (graph/shared_patterns)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from sparsejax import config
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import partition
from sparsejax.jit.graph.shared_patterns import Families, Patterns, Positional, positional
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import binding


def _same_buffers(a: Storage, b: Storage) -> bool:
    return a.buffers is b.buffers or binding.input_slots(a)[:-8] == binding.input_slots(b)[:-8]


Runner = TypeVar("Runner")


class Variants(Generic[Runner]):
    """The kernels by position that run in the place of a step, by the operands that share patterns."""

    def __init__(
        self,
        step: Callable[[], partition.KernelStep],
        patterns: Patterns,
        make: Callable[[partition.KernelStep, Positional, Sequence[Storage]], Runner | None],
    ) -> None:
        """`make` schedules a kernel by position, or fails."""
        self._step, self.patterns, self._make = step, patterns, make
        self._known: dict[Any, tuple[Positional, Runner] | None] = {}
        self.choosing: Callable[[], AbstractContextManager[None]] = nullcontext
        """The alternatives that are taken where nothing else is asked for."""

    @property
    def single(self) -> bool:
        """Whether there is one kernel whatever the operands are: none of them may share a pattern with another."""
        return not self.patterns.groups

    def known(self, settings: tuple[Any, ...]) -> list[tuple[Families, tuple[Positional, Runner] | None]]:
        """The kernels that were found under these settings, by the operands that share patterns."""
        return [(key[-1], found) for key, found in self._known.items() if key[:-1] == settings]

    def learn(self, settings: tuple[Any, ...], families: Families, found: tuple[Positional, Runner] | None) -> None:
        """The kernel is known that runs under these settings where these operands share patterns."""
        self._known[(*settings, families)] = found

    def resized(self, change: Callable[[Runner], Runner]) -> Variants[Runner]:
        """The same kernels, changed, for one of the shapes that they serve."""
        made = Variants(self._step, self.patterns, self._make)
        made._made = lambda inputs, families: _changed(self.of(inputs), change)  # type: ignore[method-assign]
        return made

    def of(self, inputs: Sequence[Storage]) -> tuple[Positional, Runner] | None:
        """The kernel by position for these inputs, where there is one."""
        families = families_of(self.patterns, inputs)
        key = (*config.planning(), families)
        if key not in self._known:
            with self.choosing():
                self._known[key] = self._made(inputs, families)
        return self._known[key]

    def _made(self, inputs: Sequence[Storage], families: Families) -> tuple[Positional, Runner] | None:
        """The first way that can run, of those that share most: or another one (`alternatives.CHOICES`, "pattern")."""
        step = self._step()
        tries = {"shared": families, "alone": ()} if families else {"alone": families}
        made = {way: found for way, shared in tries.items() if (found := positional(step, shared, inputs))}
        with choices.drawing("pattern", step.nest, families):
            wanted = choices.pick("pattern", (*made, "coordinates"), next(iter(made), "coordinates"))
        ways = list(made)
        for way in ways[ways.index(wanted) :] if wanted in ways else []:
            kernel, called = made[way]
            runner = self._make(kernel, called, inputs)
            if runner is not None:
                return called, runner
        return None


def _changed(
    found: tuple[Positional, Runner] | None, change: Callable[[Runner], Runner]
) -> tuple[Positional, Runner] | None:
    return None if found is None else (found[0], change(found[1]))


def families_of(patterns: Patterns, inputs: Sequence[Storage]) -> Families:
    """The operands that share a pattern, of every group that may."""
    found: list[tuple[int, ...]] = []
    for group in patterns.groups:
        left = list(group)
        while len(left) > 1:
            own = [k for k in left if _same_buffers(inputs[left[0]], inputs[k])]
            left = [k for k in left if k not in own]
            if len(own) > 1:
                found.append(tuple(own))
    return tuple(found)
