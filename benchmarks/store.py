"""Measured rows in a file, so that a run can be stopped and taken up again, and rows of several runs end up in one table.

    {"environments": [...], "rows": [{"operation", "matrix", "dtype", "threads", "asked", "seconds", "faults", "cost"}, ...]}

A row is one operation on one matrix, of one dtype, on so many threads: the median seconds of every library, what is wrong with
others, and which were asked for; operations and bytes by `cost_analysis`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, str, int]


def key_of(row: Row) -> Key:
    return row["operation"], row["matrix"], row["dtype"], row["threads"]


class Store:
    """The rows of a file, which is written anew after each; without a name, rows are kept in memory."""

    def __init__(self, name: str = "") -> None:
        self.path = Path(name) if name else None
        self.environments: list[dict[str, Any]] = []
        self._rows: dict[Key, Row] = {}
        if self.path is not None and self.path.exists():
            found = json.loads(self.path.read_text())
            self.environments = found["environments"]
            self._rows = {key_of(row): row for row in found["rows"]}

    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def known(self, key: Key, libraries: Collection[str]) -> Row | None:
        """A row that was measured with all of these libraries."""
        row = self._rows.get(key)
        return row if row is not None and set(libraries) <= set(row["asked"]) else None

    def add(self, row: Row) -> None:
        self._rows[key_of(row)] = row
        self._write()

    def note(self, environment: dict[str, Any]) -> None:
        """Remember what rows were measured with."""
        if environment not in self.environments:
            self.environments.append(environment)

    def _write(self) -> None:
        if self.path is None:
            return
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.write_text(json.dumps({"environments": self.environments, "rows": self.rows()}, indent=1))
        os.replace(partial, self.path)
