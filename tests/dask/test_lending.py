"""Results pass between processes of one computer as they are, large ones without a copy; what cannot pass is refused, and nothing is left behind."""

import contextlib
import os
import pickle
import socket
import struct
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.dask import lending

pytestmark = pytest.mark.skipif(
    not lending.Post().place, reason="the system has no files in memory, or no names of sockets"
)

rng = np.random.default_rng(0)
S = sp.random_array((300, 400), density=0.2, format="csr", rng=rng)


@pytest.fixture
def posts():
    made = lending.Post(), lending.Post()
    yield made
    for post in made:
        post.close()


def files():
    """Descriptors of files in memory."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed by now
            found += "memfd:sparsejax" in os.readlink(f"/proc/self/fd/{name}")
    return found


def maps():
    with open("/proc/self/maps") as file:
        return sum("memfd:sparsejax" in line for line in file)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "dense", "bsr:4x4"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "complex128", "bool"])
@pytest.mark.parametrize("density", [0.001, 0.2])
def test_arrays(posts, form, dtype, density):
    """Of all formats, small ones in a message and large ones in memory."""
    first, second = posts
    x = sj.array(sp.random_array((300, 400), density=density, format="csr", rng=rng).astype(dtype), format=form)
    before = files()
    assert first.send(second.place, ("key", 7), x)
    ((about, found),), woken = second.receive(1)
    assert about == ("key", 7) and woken
    assert found.format == x.format and found.dtype == x.dtype
    np.testing.assert_array_equal(found.todense(), x.todense())
    if x.nbytes >= 2 * lending.LARGE:
        assert maps() == 1 and not found.storage.vals.flags.writeable
    del found
    assert maps() == 0 and files() == before


def test_anything_else(posts):
    """Objects of Python's, and arrays of strings; what is too long for a message is refused."""
    first, second = posts
    for x in (None, {"a": (1, 2)}, np.array(["a", "bc"])):
        assert first.send(second.place, 0, x)
        ((_, found),), _ = second.receive(1)
        assert str(found) == str(x)
    assert not first.send(second.place, 0, "x" * (lending.MESSAGE + 1))


def test_what_is_refused(posts):
    """Other computers, those that are gone, and full queues, which lose nothing."""
    first, second = posts
    x, before = sj.array(S), files()
    assert not first.send("", 0, x) and not first.send("other" + second.place, 0, x)
    sent = 0
    while first.send(second.place, sent, x):
        sent += 1
    assert 0 < sent < 10_000
    came, _ = second.receive(1)
    assert [about for about, _ in came] == list(range(sent)) and first.send(second.place, 0, x)
    del came
    second.close()
    assert not first.send(second.place, 0, x)
    assert files() == before and maps() == 0


def test_others_are_not_read(posts):
    """Messages that are cut short, or of nobody."""
    _, second = posts
    name = second.place[second.place.index("\0") :]
    head = pickle.dumps((0, b"", [], "here"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        stranger.sendto(struct.pack("q", len(head)) + bytes(2 * lending.MESSAGE), name)
    assert second.receive(1) == ([], True)
    second.wake()
    assert second.receive(1) == ([], True)
    assert second.receive(0) == ([], False)


PROGRAM = """
import sys, sparsejax as sj, numpy as np
from sparsejax.dask import lending
post = lending.Post()
assert post.send(sys.argv[1].replace("|", "\\0"), "lent", sj.array(np.arange(1e5)))
print("sent", flush=True)
sys.stdin.read()
"""


def test_a_process_is_killed(posts):
    """What it has lent is there as long as somebody reads it; what nobody has received is freed with the socket."""
    first, _ = posts
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, first.place.replace("\0", "|")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"sent\n"
        other.kill()
        other.wait()
    ((about, found),), _ = first.receive(1)
    assert about == "lent" and maps() == 1
    np.testing.assert_array_equal(found.todense(), np.arange(1e5))
    del found
    assert maps() == 0
