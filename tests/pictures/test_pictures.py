"""Pictures as text: small, well formed, and the same as those that were looked at in a browser (`golden`)."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format, convert
from sparsejax.pictures import card, html, programs, spy
from tests import rotation
from tests.formats.strategies import NAMED, storages

GOLDEN = Path(__file__).parent / "golden"
KILO = 1000


def parsed(text):
    """The tree of HTML that is also XML; an error where it is not."""
    return ElementTree.fromstring(f"<root>{text}</root>")


def arrow(n=300, form="csr"):
    """An arrow: a diagonal, the first row and the first column; denser at one corner."""
    rng = np.random.default_rng(0)
    i = np.arange(n)
    row = np.concatenate([i, i, np.zeros(n, int), rng.integers(n // 2, n, 4 * n)])
    col = np.concatenate([i, np.zeros(n, int), i, rng.integers(n // 2, n, 4 * n)])
    return sj.array((np.ones(len(row)), (row, col)), shape=(n, n), format=form)


def layer(A, H, W):
    return snp.maximum(A @ (H @ W), 0)


GALLERY = {
    "matrix": lambda: arrow()._repr_html_(),
    "vector": lambda: sj.array(np.arange(600) % 7 == 0, format="coo")._repr_html_(),
    "tensor": lambda: sj.array(np.random.default_rng(1).random((4, 9, 30)) < 0.1, format="csf")._repr_html_(),
    "wide": lambda: sj.array(np.eye(3, 400, 5), format="csr", fill_value=0)._repr_html_(),
    "dense": lambda: sj.array(np.arange(6.0).reshape(2, 3))._repr_html_(),
    "jaxpr": lambda: sj.make_jaxpr(layer)(arrow(), np.ones((300, 8)), np.ones((8, 2)))._repr_html_(),
}


def settled(made):
    """Without numbers of lines."""
    return re.sub(r"test_pictures\.py:\d+", "test_pictures.py", made)


@pytest.mark.parametrize("name", GALLERY)
def test_pictures_are_as_they_were_looked_at(name):
    """After a change that is meant: `python -m tests.pictures.test_pictures` writes them again; look at them."""
    assert settled(GALLERY[name]()) == (GOLDEN / f"{name}.html").read_text()


@given(storages(max_ndim=4))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_every_array_has_a_small_picture(case):
    storage, _ = case
    made = card.array(storage)
    parsed(made)
    assert len(made) < 20 * KILO


def count_by_hand(storage, rows, columns):
    """Entries in each cell, one by one."""
    shape = (1, 1, *storage.shape)[-2:]
    counts = np.zeros([max(1, min(n, most)) for n, most in zip(shape, (rows, columns))], int)
    coords, _ = convert.to_coords(storage)
    for place in coords.T.tolist():
        i, j = (0, 0, *place)[-2:]
        counts[i * counts.shape[0] // shape[0], j * counts.shape[1] // shape[1]] += 1
    return counts


@given(storages(max_ndim=4))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_grids_count_entries(case):
    storage, _ = case
    if not storage.ndim or storage.format.levels[-1].shared or 0 in storage.shape:
        return
    np.testing.assert_array_equal(spy.grid(storage, 3, 2).counts, count_by_hand(storage, 3, 2))


@pytest.mark.parametrize("name", [name for name in NAMED if name not in ("dense", "bitmap", "csf")])
def test_large_arrays_are_sampled(name, monkeypatch):
    A = arrow(3000, "csr").asformat("coo" if name == "coo" else "csr").storage
    A = convert.convert(A, Format.parse(name, 2)) if name not in ("dia", "ell", "banded", "bsr:2x3") else A
    whole = spy.grid(A, 10, 10)
    monkeypatch.setattr(spy, "SAMPLED", 3000)
    some = spy.grid(A, 10, 10)
    assert some.step > 1 == whole.step
    assert abs(some.counts.sum() - whole.counts.sum()) < 0.15 * whole.counts.sum()
    assert (some.counts > 0).sum() >= 0.8 * (whole.counts > 0).sum()


@pytest.mark.parametrize("shape", [(2**62, 2**61), (1, 2**62), (2**62, 1), (2**40, 2**20)])
def test_any_shape_has_a_picture(shape):
    rng = np.random.default_rng(0)
    coords = np.stack([rng.integers(0, n, 5000) for n in shape])
    made = sj.array((np.ones(5000), list(coords)), shape=shape, format="coo")._repr_html_()
    parsed(made)
    assert len(made) < 20 * KILO and "<path" in made


def test_the_most_scattered_picture_is_small():
    """Neighbouring cells in different shades, everywhere."""
    counts = np.arange(spy.CELLS**2).reshape(spy.CELLS, -1) * 7919 % 31
    rows, columns = (np.repeat(c.reshape(-1), counts.reshape(-1)) for c in np.indices(counts.shape))
    n = 10**6
    A = sj.array(
        (np.ones(len(rows)), [rows * (n // spy.CELLS) + np.arange(len(rows)) % 97, columns * (n // spy.CELLS)]),
        shape=(n, n),
    )
    assert 10 * KILO < len(A._repr_html_()) < 20 * KILO


def test_text_is_escaped():
    assert html.text("<b>&") == "&lt;b&gt;&amp;"
    step = programs.Step("kernel", "a < b", "f64<>", "x & y", [("<k>", "<v>")], [("<h>", "<t>")], [("<u>", [])])
    tree = parsed(programs.steps([step]))
    told = "".join(tree.itertext())
    assert all(text in told for text in ("a < b", "f64<>", "x & y", "<k>", "<v>", "<h>", "<t>", "<u>"))


def test_long_programs_are_shortened():
    made = programs.steps(
        [programs.Step("kernel", f"step {k}", "", "", texts=[("t", "y" * 10**5)]) for k in range(500)]
    )
    parsed(made)
    assert "more ..." in made and "step 0" in made and "step 499" in made and "step 250" not in made


def test_explanations_have_a_row_per_step():
    def loop(A, H, W):
        return sj.lax.fori_loop(0, 3, lambda k, x: A @ x, H @ W).sum()

    made = sj.explain(loop)(arrow(20), np.ones((20, 3)), np.ones((3, 2)))
    text = made._repr_html_()
    tree = parsed(text)
    told = "".join(tree.itertext())
    assert len(text) < 60 * KILO
    assert told.count("loops over") >= len(made.kernels) and "3 runs" in told
    for kernel in made.kernels:
        assert kernel.expression in told and kernel.cin in told


def test_jaxprs_have_a_row_per_equation():
    def loop(A, x):
        return sj.lax.fori_loop(0, 3, lambda k, x: A @ x, x).sum()

    closed = sj.make_jaxpr(loop)(arrow(20), np.ones(20))
    made = closed._repr_html_()
    tree = parsed(made)
    assert made == closed.jaxpr._repr_html_()
    rows = list(tree.iter("tr"))
    assert len(rows) >= 1 + len(closed.jaxpr.eqns)
    assert len(list(tree.iter("details"))) == sum(bool(eqn.bodies) for eqn in closed.jaxpr.eqns)
    for eqn in closed.jaxpr.eqns:
        assert eqn.primitive.name in made


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, make in GALLERY.items():
        (GOLDEN / f"{name}.html").write_text(settled(make()))
