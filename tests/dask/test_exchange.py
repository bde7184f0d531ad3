"""What the scheduler does for workers that exchange compiled kernels: one makes a record, the others wait for it, whatever happens to the first."""

import asyncio

import pytest

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")

from sparsejax.dask import exchange
from sparsejax.jit.backend import records


def run(program):
    async def limited():
        return await asyncio.wait_for(program(exchange.Board()), 10)

    return asyncio.run(limited())


def test_others_wait_for_the_first():
    async def program(board):
        assert await board.claim("k", "one") is None
        others = [asyncio.create_task(board.claim("k", w)) for w in ("two", "three")]
        await asyncio.sleep(0)
        assert not any(t.done() for t in others)
        board.store("k", b"code")
        board.release("k", "one")
        assert await asyncio.gather(*others) == [b"code", b"code"]
        assert not board.claims and await board.claim("k", "four") == b"code"

    run(program)


@pytest.mark.parametrize("end", ["failed", "lost"])
def test_the_next_makes_what_the_first_did_not(end):
    async def program(board):
        assert await board.claim("k", "one") is None
        others = [asyncio.create_task(board.claim("k", w)) for w in ("two", "three")]
        await asyncio.sleep(0)
        if end == "failed":
            board.release("k", "one")
        else:
            board.remove_worker(None, "one", stimulus_id="")
        while not any(t.done() for t in others):
            await asyncio.sleep(0)
        assert [t.done() for t in others].count(True) == 1
        ((holder, _),) = board.claims.values()
        board.store("k", b"code")
        board.release("k", holder)
        assert sorted(map(str, await asyncio.gather(*others))) == ["None", "b'code'"]

    run(program)


def test_a_board_is_bounded(monkeypatch):
    monkeypatch.setattr(exchange, "LIMIT", 100)
    board = exchange.Board()
    for k in range(20):
        board.store(str(k), bytes(10))
        board.load("0")
    assert list(board.records)[-1] == "0" and len(board.records) == 10 and board.bytes == 100


class Memory:
    """A source in memory."""

    def __init__(self):
        self.known, self.asked = {}, []

    def load(self, name):
        return self.known.get(name)

    def store(self, name, record):
        self.known[name] = record

    def claim(self, name):
        self.asked.append(name)
        return self.known.get(name)

    def release(self, name):
        self.asked.remove(name)


def test_sources_of_records():
    source = Memory()
    records.add(source)
    try:
        with records.claimed("text") as found:
            assert found is None and len(source.asked) == 1
            records.active().store("text", b"code")
        assert not source.asked and records.active().load("text") == b"code"
        with records.claimed("text") as found:
            assert found == b"code" and not source.asked[1:]
        with pytest.raises(KeyError), records.claimed("other"):
            raise KeyError
        assert len(source.asked) == 1  # of what was found: nothing is held
    finally:
        records.remove(source)
    assert records.active() is None or records.active().load("text") is None
