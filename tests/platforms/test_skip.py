"""Flag `skip`: what it takes, what it changes, and what is kept apart."""

import os
import subprocess
import sys

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.backend import compiler, engine, host, loader
from sparsejax.jit.runtime.system import result_memory, threads

HOST = config.SKIPPABLE["host"]


@pytest.fixture
def masked(monkeypatch):
    """A processor that has masked lanes, whatever this one has."""
    offers = host._offers
    monkeypatch.setattr(host, "_offers", lambda name: name == "masks" or offers(name))
    with config.using(skip=()):
        yield


def product():
    """A function and arguments whose kernel ends in masked lanes where there are any."""
    A = sj.array(np.eye(5), format="csr", copy=True)
    return sj.jit(lambda A, x: A @ x), (A, sj.array(np.ones((5, 11)), copy=True))


def started(script, **environment):
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=300)


@pytest.mark.parametrize("value", ["masks,mask", {"mask"}, ["mask"]])
def test_unknown_names_are_refused_with_those_that_are_known(value):
    for attempt in (lambda: config.update("skip", value), lambda: config.using(skip=value).__enter__()):
        with pytest.raises(
            ValueError, match=r"there is no 'mask' to skip; known are .*futex, gathers, .*loader, masks"
        ):
            attempt()


@pytest.mark.parametrize("value", [None, 3, True, [3]])
def test_what_is_no_set_of_names_is_refused(value):
    with pytest.raises(TypeError, match="takes names in a set"):
        config.update("skip", value)


def test_what_is_settled_when_the_process_starts():
    if "mremap" in config.skip():
        config.update("skip", config.skip())  # settled already
        return
    with pytest.raises(ValueError, match="SPARSEJAX_SKIP=mremap before"):
        config.update("skip", {"mremap"})


def test_the_environment():
    script = "from sparsejax import config; config.update('skip', 'masks'); print(*sorted(config.skip()))"
    assert started(script, SPARSEJAX_SKIP=" mremap, loader ").stdout.split() == ["masks", "mremap"]
    failed = started("import sparsejax", SPARSEJAX_SKIP="mask")
    assert "ValueError: SPARSEJAX_SKIP: there is no 'mask' to skip; known are" in failed.stderr


def test_blocks_add_nothing_to_what_is_set_around_them():
    before = config.skip()
    with config.using(skip="masks"):
        with config.using(skip={"gathers"}):
            assert config.skip() - before == {"gathers"} - before
        assert config.skip() - before == {"masks"} - before
    assert config.skip() == before


def test_every_name_is_one_of_the_host_or_of_a_pass():
    for name in HOST:
        assert host.has(name) in (True, False)
        if name not in config.FIXED:
            with config.using(skip={name}):
                assert not host.has(name)
    with pytest.raises(KeyError):
        host.has("mask")
    names = [name for group in config.SKIPPABLE.values() for name in group]
    assert len(names) == len(set(names)) and set(names) >= config.FIXED


def test_gathers_take_masks():
    with config.using(skip={"masks"}):
        assert not host.has_gathers()


def test_plans_are_kept_per_setting(masked):
    f, args = product()
    texts = []
    for skipped in ((), {"masks"}) * 3:
        with config.using(skip=skipped):
            before = compiler.compile_count()
            np.testing.assert_array_equal(f(*args).todense(), np.ones((5, 11)))
            texts.append(("llvm.masked" in f.lower(*args).as_text("llvm"), compiler.compile_count() - before))
    assert [with_masks for with_masks, _ in texts] == [True, False] * 3
    assert all(compiled == 0 for _, compiled in texts[2:])


def test_settings_are_spelled_alike_in_every_process():
    script = f"import runpy; print(runpy.run_path({config.__file__!r})['planning']())"
    orders = sorted(HOST), sorted(HOST, reverse=True)
    spelled = {
        started(script, SPARSEJAX_SKIP=",".join(names), PYTHONHASHSEED=str(k)).stdout for k, names in enumerate(orders)
    }
    assert len(spelled) == 1 and "gathers" in spelled.pop()


@pytest.mark.parametrize("size", [result_memory.TINY, result_memory.PAGE])
def test_memory_of_results_is_not_used_again(size):
    x = sj.array(np.zeros(size // 8 + 1), copy=True)
    used = {}
    for skip in (set(), {"recycling"}):
        with config.using(skip=skip):
            f = sj.jit(lambda x: x + 1)
            f(x)
            maker = f(x)._storage.cache["maker"]
            used[bool(skip)] = maker.recycled is not None or maker.stored is not None
    assert used == {False: host.has("recycling"), True: False}


@pytest.mark.skipif(not host.has("futex"), reason="no native threads here")
def test_each_kind_of_threads_has_workers_of_its_own():
    kinds = {}
    for skipped in ((), {"futex"}, ()):
        with config.using(skip=skipped):
            kinds.setdefault(bool(skipped), set()).add(id(threads._crew(2)))
    assert all(len(crews) == 1 for crews in kinds.values()) and kinds[True] != kinds[False]


def test_what_is_linked_while_something_is_linked(monkeypatch):
    """An object that needs what is provided by another one, which is linked in the middle."""
    own = engine.Engine()
    inner = own.object("define i64 @kernel(ptr %args) {\n  ret i64 7\n}\n")
    outer = own.object(
        "declare i64 @provided(ptr)\n"
        "define i64 @kernel(ptr %args) {\n  %x = call i64 @provided(ptr %args)\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
    )
    kept = []

    def provided():
        address, keep = own.link(inner)
        kept.append(keep)
        return address

    monkeypatch.setitem(loader.PROVIDED, "provided", provided)
    for _ in range(3):
        address, keep = own.link(outer)
        assert compiler.Kernel(address, keep).run_packed(bytes(8)) == 8
    assert len(kept) == 3


class Features(dict):
    def flatten(self):
        return ",".join(f"{'+' if there else '-'}{name}" for name, there in self.items())


@pytest.mark.parametrize("there", [False, True])
def test_features_that_llvm_reports(monkeypatch, there):
    """Where the kernel does not tell them, LLVM does: also those that the processor has not."""
    monkeypatch.setattr(host, "_reported", lambda: None)
    features = Features({"avx2": True, "avx512vl": there, "amx-tile": there})
    monkeypatch.setattr(engine.engine().llvm, "get_host_cpu_features", lambda: features)
    for cached in (host._features, host._offers, host.processor):
        cached.cache_clear()
    try:
        with config.using(skip=()):
            assert "avx512vl" in host.processor() and host.has_masks() == host.has_gathers() == there
    finally:
        for cached in (host._features, host._offers, host.processor):
            cached.cache_clear()


FOREIGN = """
import concurrent.futures, ctypes, inspect, mmap, os, platform, signal, sys
import cloudpickle, llvmlite.binding, numpy.testing, platformdirs, scipy.linalg, scipy.sparse.linalg, scipy.special

system, sys.platform, machine = sys.argv[1:4]
platform.system, platform.machine = lambda: system, lambda: machine
missing = {os: "sched_getaffinity"}
if system == "Windows":
    open_library = ctypes.CDLL

    def CDLL(name, *args, **kwargs):
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        return open_library(name, *args, **kwargs)

    ctypes.CDLL = CDLL
    missing[os] += " register_at_fork fork sysconf geteuid O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK"
    missing |= {mmap: "MAP_PRIVATE MAP_ANONYMOUS PROT_READ PROT_EXEC", signal: "pthread_sigmask"}
    sys.modules["resource"] = sys.modules["fcntl"] = sys.modules["pwd"] = None
for module, names in missing.items():
    for name in names.split():
        delattr(module, name)
sys.argv = ["programs"]
from tests.platforms import programs
programs.main(["spmm", "spgemm", "donation_and_reuse"])
if system == "Windows":
    import sparsejax
    z = sparsejax.array(numpy.array([[1j, 0], [2, 0]]), format="csr")
    numpy.testing.assert_array_equal((z @ z).todense(), z.todense() @ z.todense())
    try:
        sparsejax.numpy.sin(z)
    except NotImplementedError as error:
        assert "(sin) cannot be compiled on Windows" in str(error), error
    else:
        raise AssertionError("a function that is called in another way")
"""


@pytest.mark.rotating(2)
@pytest.mark.parametrize("system", [("Darwin", "darwin", "arm64"), ("Windows", "win32", "AMD64")], ids=" ".join)
def test_what_other_systems_lack_is_not_asked_for(system):
    """Python's view of other systems alone: their C libraries and linkers are not here."""
    command = [sys.executable, "-c", FOREIGN, *system]
    environment = os.environ | {"SPARSEJAX_CACHE_DIR": "off", "SPARSEJAX_SKIP": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    used = set(done.stdout.rpartition("with")[2].split())
    assert "6 programs are right" in done.stdout and used <= {"masks", "fma", "gathers", "recycling"}
