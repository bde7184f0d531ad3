"""Machine code into memory: a linker for what kernels are, one ELF object of code and constants for x86-64.

    object   -> sections that occupy memory, laid out one after the other
    symbols  -> places in them; functions of the C library, and what is `PROVIDED`, get a stub each: `jmp *[rip]` and the address,
                which is also the entry of the global offset table by which data are found
    image    -> copied into fresh pages, which become executable and are never writeable again

It needs no LLVM, so that a process that finds its kernels in the object cache never imports it; and pages are returned with the kernel,
while LLVM's own linker keeps about 11 KB for each library it ever loaded. On other systems and processors it is not asked (`host.has`);
what is not like this (writeable data, say) is refused with `Unsupported`; and LLVM links it instead.

Source: System V ABI, AMD64 supplement, sections 4.1 to 4.4.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import mmap
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC, _COMPRESSED, _TLS = 1, 2, 0x800, 0x400
_ABS64, _PC32, _PLT32 = 1, 2, 4
_GOT = 9, 41, 42
_STUB = bytes.fromhex("ff2500000000")  # jmp *[rip]; the address follows
_STUB_SIZE, _STUB_ADDRESS = 16, 6
_ALIGNMENT_LIMIT = 4096


class Unsupported(Exception):
    """An object that this loader does not know how to place."""


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


@dataclass(frozen=True)
class _Patch:
    """What to write at `place`: the address of `target` (relative to the image unless `external`) plus `addend`."""

    type: int
    place: int
    target: int
    addend: int


class Code:
    """Code in memory, as long as this object lives; `address` is the entry point."""

    def __init__(self, image: bytearray, patches: list[_Patch], entry: int) -> None:
        self._pages = mmap.mmap(-1, max(1, len(image)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        for p in patches:
            value = base + p.target + p.addend
            if p.type == _ABS64:
                struct.pack_into("<Q", image, p.place, value & (2**64 - 1))
            else:
                struct.pack_into("<i", image, p.place, value - base - p.place)
        self._pages[: len(image)] = bytes(image)
        if _libc().mprotect(base, len(self._pages), mmap.PROT_READ | mmap.PROT_EXEC):
            raise Unsupported(f"memory cannot be made executable: errno {ctypes.get_errno()}")
        self.address = base + entry


def unpacked(text: str) -> bytes:
    """The relocatable object that a module of the library holds as text (`python -m tools.objects` writes these)."""
    return zlib.decompress(base64.b85decode(text))


def load(image: bytes, symbol: str = "kernel") -> Code:
    """The code of a relocatable object, ready to run from `symbol`; Unsupported where that is beyond this loader.

    O(size of the object).
    """
    try:
        return _load(image, symbol)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise Unsupported(f"a malformed object: {error}") from error


def _load(image: bytes, symbol: str) -> Code:
    ident, kind, machine, _, _, _, table, _, _, _, _, _, count, _ = _HEADER.unpack_from(image)
    if not ident.startswith(_IDENT) or kind != _RELOCATABLE or machine != _X86_64:
        raise Unsupported("not a relocatable object for x86-64")
    sections = [_Section(*_SECTION.unpack_from(image, table + k * _SECTION.size)) for k in range(count)]
    memory = bytearray()
    places: dict[int, int] = {}  # of sections in memory
    for number, section in enumerate(sections):
        if section.flags & _ALLOC and section.size:
            _append(memory, image, section)
            places[number] = len(memory) - section.size
    symbols = [s for s in sections if s.type == _SYMTAB]
    if len(symbols) != 1:
        raise Unsupported(f"{len(symbols)} symbol tables")
    names = sections[symbols[0].link]
    stubs: dict[str, int] = {}
    patches: list[_Patch] = []

    def name_of(row: tuple[int, ...]) -> str:
        start = names.offset + row[0]
        return image[start : image.index(b"\0", start)].decode()

    def symbol_row(number: int) -> tuple[int, ...]:
        return _SYMBOL.unpack_from(image, symbols[0].offset + number * _SYMBOL.size)

    def place_of(row: tuple[int, ...]) -> int:
        """Where a symbol is in the image; for a function of the C library, where its stub is."""
        _, _, _, section, value, _ = row
        if section in places:
            return places[section] + value
        if section:
            raise Unsupported(f"a symbol in section {section}, which is not in memory")
        name = name_of(row)
        if name not in stubs:
            memory.extend(bytes(-len(memory) % _STUB_SIZE))
            stubs[name] = len(memory)
            memory.extend(_STUB + struct.pack("<Q", address_of(name)))
        return stubs[name]

    for section in sections:
        if section.type != _RELA or section.info not in places:
            continue
        for offset in range(section.offset, section.offset + section.size, _RELOCATION.size):
            where, what, number, addend = _RELOCATION.unpack_from(image, offset)
            if what not in (_ABS64, _PC32, _PLT32, *_GOT):
                raise Unsupported(f"a relocation of type {what}")
            row = symbol_row(number)
            if (what == _PC32 and not row[3]) or (what in _GOT and row[3]):
                raise Unsupported("data of another library, or a table entry for our own")
            target = place_of(row) + (_STUB_ADDRESS if what in _GOT else 0)
            patches.append(_Patch(what, places[section.info] + where, target, addend))
    for number in range(symbols[0].size // _SYMBOL.size):
        row = symbol_row(number)
        if row[3] in places and name_of(row) == symbol:
            return Code(memory, patches, place_of(row))
    raise Unsupported(f"no symbol {symbol!r}")


def _append(memory: bytearray, image: bytes, section: _Section) -> None:
    """Put a section behind what is in memory."""
    if section.flags & (_WRITE | _COMPRESSED | _TLS) or section.type not in (_PROGBITS, _NOBITS):
        raise Unsupported(f"a section of type {section.type} with flags {section.flags:#x}")
    align = max(1, section.align)
    if align > _ALIGNMENT_LIMIT or section.offset + section.size > len(image):
        raise Unsupported("a section that does not fit")
    memory.extend(bytes(-len(memory) % align))
    memory.extend(
        bytes(section.size) if section.type == _NOBITS else image[section.offset : section.offset + section.size]
    )


PROVIDED: dict[str, Callable[[], int]] = {}
"""The addresses of what kernels use besides the C library, by name; worked out when it is first asked for."""


def address_of(name: str) -> int:
    """The address of what is provided, or of a function that this process has loaded; Unsupported when there is none."""
    if name in PROVIDED:
        return PROVIDED[name]()
    try:
        function = _libc()[name]
    except AttributeError:
        raise Unsupported(f"there is no function {name!r} in this process") from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _libc() -> Any:
    """What this process has loaded; not on Windows, where nobody asks."""
    found = ctypes.CDLL(None, use_errno=True)
    found.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
