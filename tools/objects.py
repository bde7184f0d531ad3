"""Write the modules that hold machine code for x86-64, which no process compiles then: of the allocator, and of how Python enters kernels.

    python -m tools.objects

To be run, on an x86-64 computer, when `allocator_text` or `entry.TEXT` has changed.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from types import ModuleType

from sparsejax.jit.backend import engine, entry, entry_object
from sparsejax.jit.runtime.system import allocator_object, allocator_text

COLUMNS = 100


def main() -> None:
    write(allocator_object, allocator_text.text())
    write(entry_object, entry.TEXT)


def write(module: ModuleType, text: str) -> None:
    """Write the object file of LLVM text into a module, and the digest of the text."""
    image = engine.Engine("x86-64").object(text)
    letters = base64.b85encode(zlib.compress(image, 9)).decode()
    lines = [f'    "{letters[at : at + COLUMNS]}"' for at in range(0, len(letters), COLUMNS)]
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        kept = file.read().split("DIGEST = ")[0]
    with open(module.__file__, "w", encoding="utf-8") as file:
        file.write(f'{kept}DIGEST = "{digest}"\n"""That of the text."""\n\n')
        file.write("OBJECT = (\n" + "\n".join(lines) + '\n)\n"""What `loader.unpacked` takes."""\n')


if __name__ == "__main__":
    main()
