"""Other prices than those of the machine, for tests that force what is dear."""

import dataclasses
from unittest import mock

from sparsejax.jit.cost import machine


def longer_rows(monkeypatch):
    """Rows of up to 32 entries are taken in blocks, as on some machines."""
    made = dataclasses.replace(machine.current(), short=32)
    monkeypatch.setattr(machine, "current", lambda: made)


def priced(**prices):
    """A context in which some prices of the machine are others."""
    made = dataclasses.replace(machine.current(), **prices)
    return mock.patch.object(machine, "current", lambda: made)
