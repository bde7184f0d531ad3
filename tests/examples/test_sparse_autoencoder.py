"""examples/sparse_autoencoder.py: training lowers the loss, the program runs on images in IDX format."""

import gzip

import numpy as np
import pytest

from examples import sparse_autoencoder
from tests.fuzz import engine


@pytest.fixture(scope="module")
def images():
    """160 images of 6 x 5 pixels: bright rectangles on black."""
    rng, made = np.random.default_rng(0), np.zeros((160, 6, 5), np.uint8)
    for image in made:
        i, j = rng.integers(0, 4), rng.integers(0, 3)
        image[i : i + 2, j : j + 2] = rng.integers(100, 256)
    return made


def test_training_lowers_the_loss(images):
    told = []
    with engine.quick():
        params = sparse_autoencoder.train(images.reshape(160, -1) / 255, 12, say=told.append)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in told]
    assert losses[-1] < 0.5 * losses[0]
    made = {name: f(images.reshape(160, -1) / 255) for name, f in sparse_autoencoder.contenders(params).items()}
    np.testing.assert_allclose(list(made.values()), made["SciPy"], rtol=1e-12)


def test_the_program_reads_images(images, tmp_path, capsys):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(np.array([0x803, 160, 6, 5], ">i4").tobytes() + images.tobytes()))
    with engine.quick():
        assert sparse_autoencoder.main(["--data", str(path), "--quick"]) == 0
    assert "160 images of 30 pixels" in capsys.readouterr().out
    path.write_bytes(gzip.compress(b"nothing at all here, but more than sixteen bytes"))
    with pytest.raises(SystemExit):
        sparse_autoencoder.main(["--data", str(path)])
