"""Decisions that are remembered, by this process and by the next."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.backend import decision_cache, object_cache
from sparsejax.jit.graph import expected, reassociate
from sparsejax.jit.runtime import plan_cache


@pytest.fixture
def folder(tmp_path):
    before = config.cache_dir()
    config.update("cache_dir", tmp_path / "cache")
    decision_cache.forget()
    yield tmp_path / "cache"
    config.update("cache_dir", before)
    decision_cache.forget()


def test_what_was_decided_is_not_decided_again(folder):
    asked = []

    def decide():
        asked.append(1)
        return "é: 1"

    assert decision_cache.remembered("a", decide) == decision_cache.remembered("a", decide) == "é: 1"
    decision_cache.forget()  # as in another process
    assert decision_cache.remembered("a", decide) == "é: 1"
    assert len(asked) == 1
    assert decision_cache.remembered("b", lambda: "2") == "2"


def test_without_a_folder_it_is_decided_once_per_process(folder):
    config.update("cache_dir", "off")
    assert object_cache.active() is None
    assert decision_cache.remembered("a", lambda: "1") == decision_cache.remembered("a", lambda: "2") == "1"
    decision_cache.forget()
    assert decision_cache.remembered("a", lambda: "2") == "2"


def test_damaged_files_are_decided_again(folder):
    assert decision_cache.remembered("a", lambda: "1") == "1"
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    decision_cache.forget()
    assert decision_cache.remembered("a", lambda: "2") == "2"


def product(n, columns, entries, seed=0):
    rng = np.random.default_rng(seed)
    A = np.zeros((n, n))
    A[tuple(rng.integers(0, n, (2, entries)))] = 1.0
    arrays = sj.array(A, format="csr"), sj.array(rng.random((n, columns))), sj.array(rng.random((columns, 128)))
    return sj.jit(lambda A, H, W: A @ (H @ W)), arrays


def test_how_products_are_associated_is_known_to_the_next_process(folder, monkeypatch):
    priced, real = [], reassociate._price
    monkeypatch.setattr(reassociate, "_price", lambda *args: priced.append(1) or real(*args))
    monkeypatch.setattr(reassociate, "SURE", np.inf)
    results, texts = [], []
    for _ in range(2):
        decision_cache.forget()
        function, arrays = product(300, 8, 4000)
        results.append(np.asarray(function(*arrays)))
        texts.append(function.lower(*arrays).as_text("plan"))
        assert len(priced) == 2
    assert np.array_equal(*results)
    assert texts[0] == texts[1]
    for n, columns, entries in ((300, 8, 400), (300, 16, 4000), (700, 8, 4000)):  # other entries, extents: priced anew
        count = len(priced)
        function, arrays = product(n, columns, entries)
        function(*arrays)
        assert len(priced) == count + 2


def test_what_kernels_of_several_statements_cost_is_known_to_the_next_process(folder, monkeypatch):
    searched, real = [], expected._cheapest
    monkeypatch.setattr(expected, "_cheapest", lambda nest, known: searched.append(nest) or real(nest, known))
    texts, found, several = [], [], []
    for _ in range(2):
        decision_cache.forget()
        plan_cache.forget()
        expected._scheduled.cache_clear()
        searched.clear()
        A = sj.array(np.random.default_rng(3).random((30, 40)) < 0.2, format="csr").astype(float)
        function = sj.jit(lambda A: sj.nn.softmax(A))
        found.append(function(A).todense())
        several.append(sum(nest.nested for nest in searched))
        texts.append(function.lower(A).as_text("plan"))
    assert np.array_equal(*found)
    assert texts[0] == texts[1]
    assert several[0] > 0 == several[1]
