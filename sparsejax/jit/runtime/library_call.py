"""Library calls: what is left to do when they run again."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.jaxpr import Eqn
from sparsejax.core.primitive import plain_template
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import partition, resize
from sparsejax.jit.runtime import written
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.system.reuse import Recycled
from sparsejax.jit.runtime.written import Direct


class LibraryCall:
    """A library call of one result, with everything about it that does not change from call to call."""

    def __init__(self, step: partition.CallStep) -> None:
        call, aval, params = step.eqn.primitive.call, step.outputs[0].aval, step.eqn.param_dict
        assert call is not None
        given = functools.partial(call, out_aval=aval, **params)
        self.call: Callable[[Sequence[Storage]], Storage] = lambda inputs: given(*inputs)
        """The result for these inputs; it may share their memory. A small one that has no inputs, such as an extent, is computed once."""
        if not step.eqn.inputs and not step.eqn.effect:
            made: Callable[..., Storage] = self.call
            known: list[Storage] = []

            def constant(inputs: Sequence[Storage]) -> Storage:
                if known:
                    return known[0]
                result = made(inputs)
                if result.nbytes <= result_memory.RETURNED:
                    known.append(result)
                return result

            self.call = constant


class Sized:
    """A library call of one result whose extents are bounds: `once` gives the extents of a call."""

    def __init__(self, eqn: Eqn, memory: result_memory.Passing | None = None) -> None:
        """The result of `numpy_once` lies in this memory, if it is given."""
        assert eqn.primitive.call is not None
        self._call, self._aval = eqn.primitive.call, eqn.outputs[0].aval
        self._params = eqn.param_dict
        self._changing = any(resize.mapping(value) is not None for value in self._params.values())
        self._sized: Callable[[tuple[int, ...], resize.Change], dict[str, Any]] | None = None
        """The parameters of a call, given the shape of its result."""
        self.extents = resize.extents_of((self._aval.shape, eqn.params))
        """The extents that it depends on and that may change."""
        self.numpy_once = _numpy_once(eqn, memory)
        """`once` by a function of NumPy's, of dense inputs and the shape; None where there is none."""

    def once(self, inputs: Sequence[Storage], shape: tuple[int, ...], change: resize.Change) -> Storage:
        """The result of this shape for these inputs."""
        params = self._params
        if self._changing:
            sized = self._sized
            if sized is None:
                sized = self._sized = resize.parameters(params, self._aval.shape)
            params = sized(shape, change)
        return self._call(*inputs, out_aval=self._aval.at(shape), **params)  # type: ignore[no-any-return]


def _numpy_once(eqn: Eqn, memory: result_memory.Passing | None) -> Direct | None:
    function, aval = _numpy_function(eqn), eqn.outputs[0].aval
    if function is None:
        return None
    plain = all(plain_template(v.aval) is not None for v in eqn.inputs)
    ranks = tuple([v.aval.ndim for v in eqn.inputs])
    return written.by_numpy(function, ranks, plain, aval.format, aval.fill_value, aval.dtype, memory)


def _numpy_function(eqn: Eqn) -> Callable[..., Any] | None:
    """The call as a function of NumPy's, of dense arrays and of memory for the result, in the order of NumPy; None where there is none."""
    rule, avals, out = eqn.primitive.on_numpy, [v.aval for v in eqn.inputs], eqn.outputs[0].aval
    if rule is None or plain_template(out) is None or not all(a.format.is_dense for a in avals):
        return None
    function: Callable[..., Any] | None = rule(*avals, **eqn.param_dict)
    return function


def writes(eqn: Eqn) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """The dtype and the shape of the result of `Sized.numpy_once`; None where that does not serve."""
    aval = eqn.outputs[0].aval
    return None if is_several(eqn) or _numpy_function(eqn) is None else (aval.dtype, aval.shape)


class NumPyCall:
    """A library call of dense arrays, as one of NumPy's functions, into memory of ours."""

    def __init__(self, step: partition.CallStep, function: Callable[..., Any]) -> None:
        out = step.outputs[0].aval
        template = plain_template(out)
        assert template is not None
        self._template, self._function, self._shape, self._dtype = template, function, out.shape, out.dtype
        avals = [v.aval for v in step.eqn.inputs]
        self._shapes = [a.shape for a in avals] if all(plain_template(a) is not None for a in avals) else None
        """The shapes of operands in the order of NumPy; None where some are in another one."""
        self._pack = struct.Struct(f"{out.ndim + 1}q").pack
        self._recycled = Recycled() if out.size * out.dtype.itemsize < result_memory.SMALLEST else None
        """Memory of results, flat and read-only, views of arrays that are written; and the slots of these results."""

    @staticmethod
    def of(step: partition.CallStep) -> NumPyCall | None:
        """The call as a function of NumPy's, where there is one."""
        function = _numpy_function(step.eqn)
        return None if function is None else NumPyCall(step, function)

    def call(self, inputs: Sequence[Storage]) -> Storage:
        """The result for these inputs."""
        known = self._recycled and self._recycled.again()
        if known:
            (vals, slots), made = known, known[0].base
        else:
            vals, slots, made = self._memory()
        shapes = self._shapes
        if shapes is None:
            self._function(*map(convert.to_dense, inputs), made)
        elif len(inputs) == 2:
            one, other = shapes
            self._function(inputs[0].vals.reshape(one), inputs[1].vals.reshape(other), made)
        else:
            self._function(*(s.vals.reshape(n) for s, n in zip(inputs, shapes, strict=True)), made)
        return Storage.dense(self._template, vals, {"slots": slots})

    def _memory(self) -> tuple[NDArray[Any], bytes, NDArray[Any]]:
        vals, made = result_memory.lined(self._shape, self._dtype)
        slots = self._pack(*self._shape, result_memory.address_of(made))
        if self._recycled is not None:
            self._recycled.keep((vals, slots))
        return vals, slots, made


class Bodies:
    """A call that has several results, or runs other jaxprs: what `bodies` gives."""

    def __init__(
        self, step: partition.CallStep, bodies: Callable[[], Sequence[Any]], unread: Collection[int] = ()
    ) -> None:
        self.call: Callable[[Sequence[Storage]], list[Storage]] = lambda inputs: step.call(inputs, bodies(), unread)
        """The results for these inputs; those that are `unread`, by position, may be anything."""


def is_several(eqn: Eqn) -> bool:
    """Whether a library call has several results, or runs other jaxprs."""
    return bool(eqn.bodies) or eqn.primitive.multiple


def all_owned(results: list[Storage], operands: Sequence[Storage]) -> list[Storage]:
    """Results, those copied that share memory with operands which the caller may change after the call."""
    for s in operands:
        if "transient" in s.cache:
            borrowed = [s for s in operands if "transient" in s.cache]
            return [_owned(s, borrowed) for s in results]
    return results


def _owned(result: Storage, borrowed: Sequence[Storage]) -> Storage:
    if not any(np.may_share_memory(result.vals, s.vals) for s in borrowed):
        return result
    return Storage(result.format, result.shape, result.fill_value, result.buffers, result.vals.copy())
