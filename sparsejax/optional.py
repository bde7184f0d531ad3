"""Libraries that are not needed by the package itself: imported where a function wants them, with an error that says how to get them."""

from __future__ import annotations

import importlib
from typing import Any


def optional(name: str, extra: str) -> Any:
    """The module called `name`; ImportError that names the extra of this package that installs it, where it is missing.

    >>> optional("json", "files").loads("[1]")
    [1]
    >>> optional("no_such_library", "files")
    Traceback (most recent call last):
    ...
    ImportError: no_such_library is needed here and not installed: pip install 'sparsejax[files]'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        library = name.split(".")[0]
        if error.name is None or error.name.split(".")[0] != library:
            raise  # the library is there, but lacks something itself
        raise ImportError(
            f"{library} is needed here and not installed: pip install 'sparsejax[{extra}]'", name=library
        ) from None
