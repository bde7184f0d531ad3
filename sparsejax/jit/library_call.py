"""Programs of one library call: what is left to do when they run again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.storage import Storage
from sparsejax.jit import fuse


class LibraryCall:
    """A library call of one result, with everything about it that does not change from call to call."""

    def __init__(self, step: fuse.CallStep) -> None:
        call, self._aval = step.eqn.primitive.call, step.outputs[0].aval
        assert call is not None
        self._call, self._params = call, step.eqn.param_dict

    def run(self, inputs: Sequence[Storage]) -> Storage:
        """The result for these inputs; a copy where it would share memory that the caller may change after the call."""
        made: Storage = self._call(*inputs, out_aval=self._aval, **self._params)
        for s in inputs:
            if "transient" in s.cache:
                return owned(made, [s for s in inputs if "transient" in s.cache])
        return made


def owned(result: Storage, borrowed: Sequence[Storage]) -> Storage:
    """`result`, copied where it shares memory that the caller may change after the call."""
    if not any(np.may_share_memory(result.vals, s.vals) for s in borrowed):
        return result
    return Storage(result.format, result.shape, result.fill_value, result.buffers, result.vals.copy())
