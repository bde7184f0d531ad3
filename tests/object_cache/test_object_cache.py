"""The compile cache on disk: a second process compiles nothing, and nothing that happens to the files breaks a program."""

import errno
import importlib.util
import itertools
import logging
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sparsejax import config
from sparsejax.jit.backend import compiler, host, object_cache
from sparsejax.jit.backend.object_cache import ObjectCache
from sparsejax.jit.runtime import plan_cache
from tests.together import in_threads

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the cache relies on POSIX permissions")

TEXT = "define i64 @kernel(ptr noundef %args) nounwind {{\nentry:\n  ret i64 {}\n}}\n"
IMAGE = bytes(range(256))


@pytest.fixture
def cache(tmp_path):
    return ObjectCache(tmp_path / "cache")


@pytest.fixture
def in_use(tmp_path):
    """The compiler uses a cache in a temporary folder, and has forgotten its kernels."""
    before = config.cache_dir()
    config.update("cache_dir", tmp_path / "cache")
    compiler.forget()
    plan_cache.forget()
    yield object_cache.active()
    config.update("cache_dir", before)
    compiler.forget()
    plan_cache.forget()


def the_file(cache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_what_is_stored_is_loaded(cache):
    assert cache.load("a") is None
    cache.store("a", IMAGE)
    cache.store("b", IMAGE[::-1])
    assert cache.load("a") == IMAGE and cache.load("b") == IMAGE[::-1] and cache.load("c") is None


def test_files_are_private_and_hold_no_pickle(cache):
    cache.store("a", IMAGE)
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(the_file(cache).stat().st_mode) == 0o600
    assert "pickle" not in Path(object_cache.__file__).read_text().replace("unpickled", "")


def test_a_file_cut_anywhere_is_not_loaded(cache):
    cache.store("a", IMAGE)
    whole = the_file(cache).read_bytes()
    for length in range(len(whole)):
        the_file(cache).write_bytes(whole[:length])
        assert cache.load("a") is None, length
    the_file(cache).write_bytes(whole + b"x")
    assert cache.load("a") is None
    cache.store("a", IMAGE)
    assert cache.load("a") == IMAGE


def test_a_file_with_any_bit_flipped_is_not_loaded(cache):
    cache.store("a", IMAGE)
    whole = the_file(cache).read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << random.Random(position).randrange(8)
        the_file(cache).write_bytes(damaged)
        assert cache.load("a") is None, position


def test_a_file_under_the_name_of_another_is_not_loaded(cache):
    cache.store("a", IMAGE)
    first = the_file(cache)
    cache.store("b", IMAGE[::-1])
    (second,) = set(cache.folder.iterdir()) - {first}
    os.replace(first, second)
    assert cache.load("b") is None


@pytest.mark.parametrize("what", ["host", "format"])
def test_other_hosts_and_formats_are_not_loaded(cache, monkeypatch, what):
    cache.store("a", IMAGE)
    stored = the_file(cache).read_bytes()
    if what == "host":
        monkeypatch.setattr(host, "identity", lambda: "another processor")
    else:
        monkeypatch.setattr(object_cache, "FORMAT", object_cache.FORMAT + 1)
    assert cache.load("a") is None
    (cache.folder / object_cache._name(object_cache._digest("a"))).write_bytes(stored)  # even under the right name
    assert cache.load("a") is None
    cache.store("a", IMAGE)
    assert cache.load("a") == IMAGE


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_not_used(cache, mode, caplog):
    cache.store("a", IMAGE)
    cache.folder.chmod(mode)
    assert cache.load("a") is None
    cache.store("b", IMAGE)
    assert len(list(cache.folder.iterdir())) == 1
    assert len(caplog.records) == 1 and "written by others" in caplog.text


def test_a_file_that_others_can_write_is_not_loaded(cache):
    cache.store("a", IMAGE)
    the_file(cache).chmod(0o620)
    assert cache.load("a") is None


def test_files_of_other_users_are_not_loaded(cache, monkeypatch, caplog):
    cache.store("a", IMAGE)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert cache.load("a") is None
    assert "belongs to user" in caplog.text


def test_links_are_not_followed(cache, tmp_path):
    cache.store("a", IMAGE)
    moved = tmp_path / "moved"
    os.replace(the_file(cache), moved)
    (cache.folder / object_cache._name(object_cache._digest("a"))).symlink_to(moved)
    assert cache.load("a") is None
    cache.store("a", IMAGE)
    assert cache.load("a") == IMAGE and not the_file(cache).is_symlink()
    (tmp_path / "link").symlink_to(cache.folder)
    assert ObjectCache(tmp_path / "link").load("a") is None


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_things_that_are_no_files_are_not_loaded(cache, kind):
    cache.store("a", IMAGE)
    the_file(cache).unlink()
    path = cache.folder / object_cache._name(object_cache._digest("a"))
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert cache.load("a") is None
    cache.store("a", IMAGE)
    assert cache.load("a") == (None if kind == "folder" else IMAGE)


def test_a_full_disk_is_logged_once_and_leaves_nothing(cache, monkeypatch, caplog):
    real = os.replace

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    cache.store("a", IMAGE)
    monkeypatch.setattr(os, "replace", full)
    for _ in range(3):
        cache.store("b", IMAGE)
    assert len(caplog.records) == 1 and "No space left" in caplog.text
    assert [p.name for p in cache.folder.iterdir()] == [object_cache._name(object_cache._digest("a"))]
    monkeypatch.setattr(os, "replace", real)
    cache.store("b", IMAGE)
    assert cache.load("b") == IMAGE


def test_a_folder_that_cannot_be_made_is_logged_once(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    cache = ObjectCache(tmp_path / "file" / "cache")
    for _ in range(3):
        cache.store("a", IMAGE)
        assert cache.load("a") is None
    assert len(caplog.records) == 1


def test_a_folder_that_vanishes_is_made_again(cache):
    cache.store("a", IMAGE)
    the_file(cache).unlink()
    cache.folder.rmdir()
    assert cache.load("a") is None
    cache.store("a", IMAGE)
    assert cache.load("a") == IMAGE


def test_the_oldest_files_go_when_the_folder_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(object_cache, "_STORES_PER_SWEEP", 1)
    cache = ObjectCache(tmp_path / "cache", limit=16 * 4096)
    now = time.time()
    for k in range(40):
        cache.store(f"text {k}", IMAGE)
        os.utime(cache.folder / object_cache._name(object_cache._digest(f"text {k}")), (now - 1000 + k, now - 1000 + k))
        assert len(list(cache.folder.iterdir())) <= 17
    kept = [k for k in range(40) if cache.load(f"text {k}") is not None]
    assert kept == list(range(kept[0], 40)) and 12 <= len(kept) <= 17


def test_of_many_files_a_part_is_swept_and_the_folder_stays_below_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(object_cache, "_LOOKED_AT", 16)
    cache = ObjectCache(tmp_path / "cache", limit=160 * 4096)
    now, asked, look = time.time(), [], os.stat
    for k in range(320):
        cache.store(f"text {k}", IMAGE)
        os.utime(cache.folder / object_cache._name(object_cache._digest(f"text {k}")), (now - 1000 + k, now - 1000 + k))
    monkeypatch.setattr(object_cache.os, "stat", lambda name, **options: asked.append(name) or look(name, **options))
    with cache._opened() as folder:
        cache._sweep(folder)
        assert 0 < len(asked) < 80
        for _ in range(400):
            cache._sweep(folder)
    kept = [k for k in range(320) if cache.load(f"text {k}") is not None]
    assert 60 <= len(kept) <= 160 and sum(kept) / len(kept) > 200  # those that were written last, nearly


def test_use_makes_a_file_young_again(cache):
    cache.store("a", IMAGE)
    path, long_ago = the_file(cache), time.time() - 10 * object_cache._STALE
    os.utime(path, (long_ago, long_ago))
    cache.load("a")
    assert path.stat().st_mtime > time.time() - object_cache._STALE


def test_sweeping_leaves_foreign_files_and_removes_what_writers_left(cache, monkeypatch):
    cache.store("a", IMAGE)
    names = ["notes.txt", "old.partial", "young.partial"]
    for name in names:
        (cache.folder / name).write_bytes(b"x")
    long_ago = time.time() - 2 * object_cache._ABANDONED
    for name in names[:2]:
        os.utime(cache.folder / name, (long_ago, long_ago))
    monkeypatch.setattr(object_cache, "_STORES_PER_SWEEP", 1)
    cache.limit = 0
    cache.store("b", IMAGE)
    assert sorted(p.name for p in cache.folder.iterdir()) == ["notes.txt", "young.partial"]


def test_many_writers_and_readers_never_see_half_a_file(cache):
    images = {f"text {k}": random.Random(k).randbytes(20_000) for k in range(4)}

    def work(seed):
        for _ in range(40):
            text = random.Random(seed).choice(list(images))
            cache.store(text, images[text])
            for text, image in images.items():
                assert cache.load(text) in (None, image)

    in_threads(16, work)
    assert not cache._complained
    assert all(p.suffix == ".object" for p in cache.folder.iterdir())


def test_kernels_are_compiled_once_and_then_loaded(in_use, monkeypatch):
    before = compiler.compile_count()
    assert compiler.compile_text(TEXT.format(7))(b"")[0] == 7
    assert compiler.compile_count() == before + 1
    compiler.forget()
    plan_cache.forget()
    assert compiler.compile_text(TEXT.format(7))(b"")[0] == 7
    assert compiler.compile_count() == before + 1
    the_file(in_use).write_bytes(b"damaged")
    compiler.forget()
    plan_cache.forget()
    assert compiler.compile_text(TEXT.format(7))(b"")[0] == 7
    assert compiler.compile_count() == before + 2
    assert in_use.load(TEXT.format(7)) is not None  # replaced


def test_a_kernel_known_by_name_is_written_once(in_use):
    written = []

    def write():
        written.append(TEXT.format(9))
        return written[-1]

    for _ in range(2):
        assert compiler.compile_written("nine", write)(b"")[0] == 9
        compiler.forget()
    assert len(written) == 1
    assert compiler.compile_written("ten", lambda: TEXT.format(10))(b"")[0] == 10


def test_loads_and_compiles_are_logged(in_use, caplog):
    config.update("log_compiles", True)
    try:
        for _ in range(2):
            compiler.compile_text(TEXT.format(11))
            compiler.forget()
            plan_cache.forget()
    finally:
        config.update("log_compiles", False)
    assert [r.message.split(" a ")[0] for r in caplog.records if r.levelno == logging.WARNING] == ["compiled", "loaded"]


SCRIPT = """
import sys
import numpy as np, sparsejax as sj, sparsejax.numpy as snp
from sparsejax.jit.backend import compiler
from sparsejax.jit.codegen import lower
lowered, real = [], lower.lower
lower.lower = lambda *args: lowered.append(1) or real(*args)
x = np.arange(24.0).reshape(4, 6) % 3
A = sj.array(x, format="csr", copy=True)
f = sj.jit(lambda A, B: snp.maximum(A @ B, 1))
assert np.array_equal((A @ A.T).todense(), x @ x.T)
assert np.array_equal(f(A, x.T.copy()).todense(), np.maximum(x @ x.T, 1))
assert np.array_equal((A * 2 + A).todense(), 3 * x)
print(compiler.compile_count(), len(lowered), "llvmlite.binding" in sys.modules)
"""


def process(folder, **environment):
    environment = {**os.environ, "SPARSEJAX_CACHE_DIR": str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done


def test_a_second_process_compiles_nothing(tmp_path):
    count, lowered, loaded = process(tmp_path / "cache").stdout.split()
    assert int(count) >= 3 and int(lowered) >= 3 and loaded == "True"
    done = process(tmp_path / "cache")
    count, lowered, loaded = done.stdout.split()
    assert int(count) == 0 and int(lowered) == 0 and not done.stderr
    if host.has("loader"):
        assert loaded == "False"  # LLVM is not even imported


def test_writers_that_are_killed_leave_no_half_files(tmp_path):
    folder = tmp_path / "cache"
    cache = ObjectCache(folder)
    for k in range(4):
        ready, writes = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(writes, b"ready")
                for j in itertools.count():
                    cache.store(f"text {j % 3}", bytes([j % 251]) * 3_000_000)
            finally:
                os._exit(1)
        assert os.read(ready, 5) == b"ready"
        time.sleep(0.05 + 0.03 * k)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(writes)
        for text in range(3):
            image = cache.load(f"text {text}")
            assert image is None or (len(image) == 3_000_000 and len(set(image)) == 1)
    assert not cache._complained


def test_without_a_home_programs_run(tmp_path):
    home = tmp_path / "file"
    home.write_text("a home that is no folder")
    done = process("auto", HOME=str(home), XDG_CACHE_HOME="")
    assert int(done.stdout.split()[0]) >= 3
    assert done.stderr.count("compile cache") == 1


@pytest.mark.parametrize("place", ["off", "auto"])
def test_words_for_places(place, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    object_cache._cache.cache_clear()
    before = config.cache_dir()
    config.update("cache_dir", place)
    try:
        found = object_cache.active()
    finally:
        config.update("cache_dir", before)
        object_cache._cache.cache_clear()
    assert found is None if place == "off" else found.folder.name == "sparsejax"


def test_cache_dir_takes_paths():
    with pytest.raises(TypeError, match="cache_dir"):
        config.update("cache_dir", 3)
    with pytest.raises(TypeError, match="cache_dir"):
        config.update("cache_dir", "")


def test_tests_do_not_use_the_cache_of_the_user():
    assert config.cache_dir() == os.environ["SPARSEJAX_CACHE_DIR"] == "off" and object_cache.active() is None


def test_the_code_generator_is_found_where_it_is_imported_from(monkeypatch):
    llvmlite = importlib.util.find_spec("llvmlite")
    (found,) = host._code_generator_folders()
    assert os.path.samefile(found, *llvmlite.submodule_search_locations)
    monkeypatch.setattr(host.os.path, "isfile", lambda path: False)
    assert list(host._code_generator_folders()) == list(llvmlite.submodule_search_locations)


def test_identity_names_processor_and_generator():
    assert "llvmlite" in host.identity() and np.__name__ not in host.identity()
