"""Write `sparsejax/jit/runtime/system/allocator_object.py`: the allocator's machine code for x86-64, which no process compiles then.

    python -m tools.allocator_object

To be run, on an x86-64 computer, when `allocator_text` has changed.
"""

from __future__ import annotations

import base64
import hashlib
import zlib

from sparsejax.jit.backend import engine
from sparsejax.jit.runtime.system import allocator_object, allocator_text

COLUMNS = 100


def main() -> None:
    text = allocator_text.text()
    image = engine.Engine("x86-64").object(text)
    letters = base64.b85encode(zlib.compress(image, 9)).decode()
    lines = [f'    "{letters[at : at + COLUMNS]}"' for at in range(0, len(letters), COLUMNS)]
    head = f'TEXT = "{hashlib.sha256(text.encode()).hexdigest()}"\n'
    with open(allocator_object.__file__, encoding="utf-8") as file:
        kept = file.read().split("TEXT = ")[0]
    with open(allocator_object.__file__, "w", encoding="utf-8") as file:
        file.write(kept + head + '"""The digest of that text."""\n\n_LETTERS = (\n' + "\n".join(lines) + "\n)\n")


if __name__ == "__main__":
    main()
