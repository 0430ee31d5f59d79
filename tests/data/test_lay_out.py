"""scripts/lay_out_images.py: packed sets become a folder of data."""

import io
import sys
from pathlib import Path
from typing import Any

import lay_out_images
import numpy as np
import pytest
from PIL import Image

from benign.data.folder import VARIABLE
from benign.data.sources import image_set
from tests import image_files

GREYS = np.array([[0, 80, 160], [240, 120, 40]], np.uint8)
"""flat pictures, which JPEG keeps to a level or so"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with MNIST, a plain set and a packed one."""
    place = tmp_path / "shared"
    image_files.mnist(monkeypatch, place)
    (place / "MNIST" / "raw").rename(place / "mnist")
    plain: dict[str, Any] = image_files.arrays(3, 4) | {"class_names": np.array(["a", "b", "c"])}
    np.savez(place / "plain.npz", **plain)
    packed: dict[str, Any] = {"codec": np.array("jpeg"), "hw": np.array([8, 8])}
    for split, levels in zip(("train", "test"), GREYS, strict=True):
        blobs = [_jpeg(level) for level in levels]
        ends = np.cumsum([0, *map(len, blobs)])
        packed |= {f"blob_{split}": np.frombuffer(b"".join(blobs), np.uint8)}
        packed |= {f"offsets_{split}": ends, f"y_{split}": np.arange(3)}
    np.savez(place / "tiny_packed.npz", class_names=np.array(["x", "y", "z"]), **packed)
    return place


def _jpeg(level: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), level, np.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


def laid_out(shared: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    folder = shared.parent / "data"
    monkeypatch.setattr(sys, "argv", ["lay_out_images.py", str(shared), str(folder), *options])
    lay_out_images.main()
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_every_set_can_be_read(shared: Path, monkeypatch):
    folder = laid_out(shared, monkeypatch)
    assert image_set("mnist").train.images.shape == (9, 1, 4, 4)
    plain = image_files.arrays(3, 4)["x_train"]
    assert np.array_equal(image_set("plain").train.images.numpy(), plain.transpose(0, 3, 1, 2))
    tiny = image_set("tiny")
    assert tiny.class_names == ("x", "y", "z")
    for part, levels in zip((tiny.train, tiny.test), GREYS, strict=True):
        off = part.images.numpy().astype(float) - levels[:, None, None, None]
        assert np.abs(off).max() <= 2
    assert not list(folder.rglob("*partial*"))


def test_few_of_each_class_are_kept(shared: Path, monkeypatch):
    folder = laid_out(shared, monkeypatch, "--only", "plain", "--images", "2", "--test", "1")
    found = image_set("plain")
    assert found.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.test.labels.tolist() == [2, 1, 0]
    assert [each.name for each in folder.iterdir()] == ["plain.npz"]
