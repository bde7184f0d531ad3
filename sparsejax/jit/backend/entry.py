"""How Python enters machine code: a built-in function for every kernel, by one piece of machine code that knows CPython's calling convention.

    call(first, slots of A, slots of x, last)    copies the parts one behind the other, lets go of the interpreter, runs the kernel on them, takes the
                                                 interpreter back; the status
    after(first, slots of A, room)               the same in an object of bytes: the status, then the slots as the kernel left them

By `ctypes` the first takes 0.15 to 0.25 microseconds longer, and Python joined the parts before, another 0.13: a sixth of a tiny product. `ctypes`
calls where Python is not CPython with one thread at a time, its objects do not lie in memory as expected, or `loader` does not know the system.

Source: PEP 590 and "Implementing functions and methods" (METH_FASTCALL) in the Python/C API's manual.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

from sparsejax.jit.backend import entry_object, host, loader

Call = Callable[..., int]
"""A kernel as a function of the parts of its packed slots: the status."""
After = Callable[..., bytes]
"""The same: the status, then the slots as the kernel left them, packed."""

_FASTCALL = 0x80
_STATUS, _AFTER = 0, 1
_HEAD, _BYTES = 16, 33
"""Bytes of any object before what its type has, and of an object of bytes with none in it, in CPython with one thread at a time."""
STACK = 4 << 10
"""Bytes of slots that are copied onto the stack; more of them go to the C heap, which takes 25 nanoseconds longer (4,104 bytes: 129,
4,080: 101)."""

TEXT = f"""\
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare i32 @PyErr_BadArgument()
declare ptr @PyErr_NoMemory()
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @malloc(i64)
declare void @free(ptr)

; what the built-in function is bound to is an object of bytes: the kernel, the type of bytes, what is asked for
define ptr @kernel(ptr %self, ptr %parts, i64 %count) nounwind {{
  %bound = getelementptr i8, ptr %self, i64 32
  %function = load ptr, ptr %bound
  %type.at = getelementptr i8, ptr %self, i64 40
  %type = load ptr, ptr %type.at
  %asked.at = getelementptr i8, ptr %self, i64 48
  %asked = load i64, ptr %asked.at
  br label %measure
measure:
  %m = phi i64 [ 0, %0 ], [ %m.next, %measured ]
  %size = phi i64 [ 0, %0 ], [ %size.next, %measured ]
  %m.more = icmp slt i64 %m, %count
  br i1 %m.more, label %look, label %room
look:
  %m.at = getelementptr ptr, ptr %parts, i64 %m
  %m.part = load ptr, ptr %m.at
  %m.type.at = getelementptr i8, ptr %m.part, i64 8
  %m.type = load ptr, ptr %m.type.at
  %m.bytes = icmp eq ptr %m.type, %type
  br i1 %m.bytes, label %measured, label %refused
measured:
  %m.size.at = getelementptr i8, ptr %m.part, i64 16
  %m.size = load i64, ptr %m.size.at
  %size.next = add i64 %size, %m.size
  %m.next = add i64 %m, 1
  br label %measure
refused:
  %ignored = call i32 @PyErr_BadArgument()
  ret ptr null
room:
  %status.only = icmp eq i64 %asked, {_STATUS}
  br i1 %status.only, label %choose, label %object
object:
  %object.size = add i64 %size, 8
  %made = call ptr @PyBytes_FromStringAndSize(ptr null, i64 %object.size)
  %object.none = icmp eq ptr %made, null
  br i1 %object.none, label %failed, label %object.there
object.there:
  %object.slots = getelementptr i8, ptr %made, i64 40
  br label %copy
choose:
  %small = icmp ule i64 %size, {STACK}
  br i1 %small, label %stack, label %heap
stack:
  %stack.slots = alloca i8, i64 %size, align 16
  br label %copy
heap:
  %heap.slots = call ptr @malloc(i64 %size)
  %heap.none = icmp eq ptr %heap.slots, null
  br i1 %heap.none, label %no.memory, label %copy
no.memory:
  %ignored.too = call ptr @PyErr_NoMemory()
  br label %failed
failed:
  ret ptr null
copy:
  %slots = phi ptr [ %object.slots, %object.there ], [ %stack.slots, %stack ], [ %heap.slots, %heap ]
  %free = phi i1 [ false, %object.there ], [ false, %stack ], [ true, %heap ]
  %object.made = phi ptr [ %made, %object.there ], [ null, %stack ], [ null, %heap ]
  br label %next
next:
  %c = phi i64 [ 0, %copy ], [ %c.next, %part ]
  %to = phi ptr [ %slots, %copy ], [ %to.next, %part ]
  %c.more = icmp slt i64 %c, %count
  br i1 %c.more, label %part, label %run
part:
  %c.at = getelementptr ptr, ptr %parts, i64 %c
  %c.part = load ptr, ptr %c.at
  %c.size.at = getelementptr i8, ptr %c.part, i64 16
  %c.size = load i64, ptr %c.size.at
  %c.from = getelementptr i8, ptr %c.part, i64 32
  %copied = call ptr @memcpy(ptr %to, ptr %c.from, i64 %c.size)
  %to.next = getelementptr i8, ptr %to, i64 %c.size
  %c.next = add i64 %c, 1
  br label %next
run:
  %thread = call ptr @PyEval_SaveThread()
  %status = call i64 %function(ptr %slots)
  call void @PyEval_RestoreThread(ptr %thread)
  br i1 %free, label %freed, label %end
freed:
  call void @free(ptr %slots)
  br label %end
end:
  br i1 %status.only, label %number, label %bytes
number:
  %result = call ptr @PyLong_FromLongLong(i64 %status)
  ret ptr %result
bytes:
  %status.at = getelementptr i8, ptr %object.made, i64 32
  store i64 %status, ptr %status.at
  ret ptr %object.made
}}
"""
"""The LLVM text of it, for objects that lie in memory as `_bind` asks."""


class _Definition(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_Bind = Callable[[int, int, object], Any]
"""What makes a built-in function of a kernel's address, of what is asked for, and of what it keeps."""


def call(address: int, keep: object = None) -> Call:
    """The kernel at an address as a function of the parts of its packed slots, which it only reads; it returns the status. The interpreter lock is
    released meanwhile. What is to be kept as long as the function lives: the machine code."""
    made = _bound()
    if made is not None:
        return made(address, _STATUS, keep)  # type: ignore[no-any-return]
    function = at(address, keep)
    return lambda *parts: function(b"".join(parts) if len(parts) != 1 else parts[0])


def after(address: int, keep: object = None) -> After:
    """The kernel at an address as a function of the parts of its packed slots: the status, then the slots as the kernel left them."""
    made = _bound()
    if made is not None:
        return made(address, _AFTER, keep)  # type: ignore[no-any-return]
    function = at(address, keep)

    def run(*parts: bytes) -> bytes:
        slots = b"".join(parts)
        array = ctypes.create_string_buffer(slots, len(slots))
        return struct.pack("q", function(array)) + bytes(array)

    return run


def at(address: int, keep: object = None) -> Callable[[Any], int]:
    """The kernel at an address as a function of where its slots are in memory."""
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
    function.keep = keep  # type: ignore[attr-defined]
    return function


def _bound() -> _Bind | None:
    """`_bind`, unless it is told to be skipped."""
    return _bind() if host.has("entry") else None


@functools.cache
def _bind() -> _Bind | None:
    """None where `ctypes` calls."""
    if (object.__basicsize__, bytes.__basicsize__) != (_HEAD, _BYTES):
        return None
    try:
        code = loader.load(loader.unpacked(entry_object.OBJECT))
        strlen = loader.address_of("strlen")
    except loader.Unsupported:
        return None
    definition = _Definition(b"kernel", code.address, _FASTCALL, None)
    for thing in (code, definition):  # functions may be called until the very end
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    where, pack, kind = ctypes.addressof(definition), struct.Struct("3q").pack, id(bytes)

    def bind(address: int, asked: int, keep: object) -> Any:
        return new(where, pack(address, kind, asked), keep)  # as its module, which it refers to

    agrees = bind(strlen, _STATUS, None)(b"as", b"expected\0") == 10
    return bind if agrees and bind(strlen, _AFTER, None)(b"here\0") == struct.pack("q", 4) + b"here\0" else None
