"""What tests of kernels share."""

import pytest

from sparsejax.jit import lower


@pytest.fixture
def planned(monkeypatch):
    """The program of every kernel that is planned from now on."""
    told, settled = [], lower.Program.settled

    def watched(program):
        told.append(settled(program))
        return told[-1]

    monkeypatch.setattr(lower.Program, "settled", watched)
    return told
