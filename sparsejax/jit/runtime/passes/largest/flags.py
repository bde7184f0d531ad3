"""How the passes for the largest numbers of segments are run: a flag for every number, and scratch of its own for every thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array
from sparsejax.jit.backend.compiler import Kernel
from sparsejax.jit.runtime.passes.pass_kernels import address, run_parts


def flagged(
    kernel: Kernel, size: Array, pos: Array, keep: int, parts: Sequence[tuple[int, int]], *scratch: tuple[int, Any]
) -> Array:
    """Which numbers are among the `keep` largest, one or more, of their segment, as a `kernel` finds them; `parts` are of segments, for a thread each,
    which has so many numbers of a dtype as `scratch`."""
    made = np.zeros(len(size), np.bool_)
    given = keep, address(size), address(pos), address(made)
    rooms = [np.empty((len(parts), count), dtype) for count, dtype in scratch]
    own = ([address(room) + k * room.strides[0] for room in rooms] for k in range(len(parts)))
    run_parts(kernel, [(*part, *given, *rooms) for part, rooms in zip(parts, own, strict=True)])
    return made
