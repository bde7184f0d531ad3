"""examples/bigbird.py: the mask, sparse against dense attention, learning, the program itself."""

import json

import numpy as np
import pytest

import sparsejax as sj
from examples import bigbird
from sparsejax import nn
from tests.fuzz import engine

SMALL = bigbird.Sizes(width=16, heads=2, layers=1, inner=16, vocabulary=128)


@pytest.fixture(autouse=True, scope="module")
def without_optimisation():
    with engine.quick():
        yield


def test_mask():
    mask = bigbird.block_mask(512, 16)
    blocks = mask.todense().reshape(32, 16, 32, 16)
    kept = blocks[:, 0, :, 0] != 0
    assert str(mask.format) == "bsr:16x16" and (blocks != 0).all(axis=(1, 3)).sum() == kept.sum()
    assert kept[:2].all() and kept[:, :2].all()
    for i in range(2, 32):
        assert kept[i, i] and kept[i, i - 1] and (i == 31 or kept[i, i + 1])
        assert 3 <= kept[i, :].sum() <= 7
    with pytest.raises(ValueError, match="multiple of the block size"):
        bigbird.block_mask(100, 16)


def test_sparse_attention_is_masked_dense_attention():
    assert bigbird.attention_gap(128, SMALL) < 1e-10


def test_hashed_tokens():
    assert (bigbird.tokens("a b a", 4, 100) == bigbird.tokens("a b a b", 4, 100)).tolist() == [True, True, True, False]
    assert bigbird.tokens("a", 3, 100)[1:].tolist() == [-1, -1]


def test_training_learns():
    texts, labels = bigbird.made_up(8, 48)
    ids = np.stack([bigbird.tokens(t, 48, SMALL.vocabulary) for t in texts])
    mask, key, optimizer = bigbird.block_mask(48, 16), sj.random.key(0), nn.adamw(1e-2)
    params = bigbird.init(key, SMALL, 48)
    state, step, losses = optimizer.init(params), bigbird.training_step(SMALL, optimizer), []
    for _ in range(30):
        params, state, key, value = step(params, state, key, ids, labels, mask)
        losses.append(float(value.todense()))
    assert losses[-1] < 0.3 < losses[0]
    assert value.dtype == params["words"].dtype == np.float32


def test_the_program(tmp_path, capsys):
    texts, labels = bigbird.made_up(20, 40)
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": t, "label": int(k)}) for t, k in zip(texts, labels, strict=True)))
    assert bigbird.main(["--data", str(path), "--quick"]) == 0
    assert bigbird.main(["--quick", "--memory"]) == 0
    told = capsys.readouterr().out
    assert "accuracy on other texts" in told and "64 tokens: mask of" in told
    with pytest.raises(SystemExit):
        bigbird.main(["--length", "100"])
    with pytest.raises(SystemExit):
        bigbird.main(["--data", str(tmp_path / "none")])
