"""Images as points: patches and back, sizes, labels, and who is drawn."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benign.data.folder import VARIABLE
from benign.data.images import Images
from benign.data.model import BLOCK, Sample
from benign.data.npz import write_npz
from benign.data.sources import image_set
from benign.spec.base import SpecError
from benign.streams import RunId, Streams
from tests import image_files
from tests.reference import close
from tests.says import says

RUNS = [RunId(5, index, "") for index in range(4)]


def draw(data: Images, split: str = "train", count: int | None = None) -> Sample:
    return data.sample(Streams(RUNS), split, count or data.samples, torch.float64)


def digits(samples: int = 50, **fields) -> Images:
    return Images(source="digits", samples=samples, **fields)


# Size


@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 3]))
def test_patches_and_pictures_are_each_others_inverse(across: int, size: int, channels: int):
    source = "mnist" if channels == 1 else "cifar10"
    data = Images(source=source, samples=2, tokens=across**2, dim=channels * size**2)
    side = across * size
    assert data.side == side
    pictures = torch.arange(2.0 * 3 * channels * side**2).reshape(2, 3, channels, side, side)
    patches = data.patches(pictures)
    assert patches.shape == (2, 3, across**2, channels * size**2)
    assert torch.equal(data.pictures(patches), pictures)
    for token in range(across**2):  # row by row
        row, column = divmod(token, across)
        here = pictures[..., row * size : (row + 1) * size, column * size : (column + 1) * size]
        assert torch.equal(patches[:, :, token], here.flatten(2))


def test_the_default_size_is_that_of_the_set():
    assert Images(source="mnist", samples=5).dim == 784
    assert Images(source="mnist", samples=5, tokens=16).dim == 49
    assert Images(source="cifar10", samples=5, tokens=64).dim == 48
    assert Images(source="tiny_imagenet", samples=5, tokens=64).dim == 192


def test_pictures_of_fewer_pixels_are_averages_of_areas():
    whole = digits().pictures(draw(digits()).x)
    half = digits(dim=16)
    small = half.pictures(draw(half).x)
    for row in range(4):
        for column in range(4):
            area = whole[..., 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            close(small[..., row, column], area.mean((-2, -1)), 1e-12)


def test_areas_that_share_pixels_average_all_they_touch():
    """Five of eight: pixel k averages the pixels from floor(8 k / 5) to ceil(8 (k + 1) / 5)."""
    whole, fifth = digits().pictures(draw(digits()).x), digits(dim=25)
    small = fifth.pictures(draw(fifth).x)
    spans = [slice(8 * k // 5, -(-8 * (k + 1) // 5)) for k in range(5)]
    for row in range(5):
        for column in range(5):
            area = whole[..., spans[row], spans[column]]
            close(small[..., row, column], area.mean((-2, -1)), 1e-12)


def test_pictures_of_more_pixels_are_linear_between_them():
    whole, double = digits().pictures(draw(digits()).x), digits(dim=256)
    large = double.pictures(draw(double).x)
    # Centres of the fine pixels lie a quarter to either side of those of the coarse ones.
    expected = 0.75 * whole[..., 1:-1, 1:-1] + 0.25 * whole[..., 1:-1, :-2]
    across = 0.75 * whole[..., :-2, 1:-1] + 0.25 * whole[..., :-2, :-2]
    close(large[..., 2:-2:2, 2:-2:2], 0.75 * expected + 0.25 * across, 1e-12)


def test_pictures_that_are_no_squares_are_made_squares(tmp_path: Path, monkeypatch):
    made = image_files.arrays(1, 8)
    made |= {key: made[key][:, :4] for key in ("x_train", "x_test")}  # 4 x 8 pixels
    write_npz(tmp_path / "flat.npz", made)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    data = Images(source="flat", samples=9, dim=16, channels=1, classes=(0, 1, 2))
    sample = draw(data)
    places = sample.latent["image"][0].numpy()
    expected = made["x_train"][places].reshape(9, 4, 4, 2).mean(3) / 255
    close(data.pictures(sample.x)[0, :, 0], torch.from_numpy(expected), 1e-12)


# Labels and draws


def test_labels_are_places_of_the_classes():
    data = digits(classes=(7, 2, 5))
    sample = draw(data)
    true = image_set("digits").train.labels[sample.latent["image"]]
    for place, number in enumerate((7, 2, 5)):
        assert torch.equal(sample.y == place, true == number)
    assert torch.equal(sample.y, sample.clean_y)
    assert data.label_count() == 3
    signed = digits(classes=(3, 8), labels="signed")
    sample = draw(signed)
    true = image_set("digits").train.labels[sample.latent["image"]]
    assert torch.equal(sample.y, torch.where(true == 8, 1.0, -1.0).double())
    assert signed.label_count() is None
    assert digits().label_count() == 10


def test_points_are_the_pictures_of_their_indices():
    sample = draw(digits())
    pictures = image_set("digits").train.images[sample.latent["image"]]
    assert torch.equal(sample.x, pictures.double().flatten(2)[:, :, None] / 255)


def test_no_picture_is_drawn_twice_and_every_one_is_drawn():
    sample = draw(digits(1500))
    for places in sample.latent["image"]:
        assert torch.equal(places.sort().values, torch.arange(1500))
    assert not torch.equal(*sample.latent["image"][:2])
    whole = digits(360)
    blocks = [draw(whole, f"test/{k}", count) for k, count in enumerate((BLOCK, 297 - BLOCK))]
    places = torch.cat([block.latent["image"] for block in blocks], 1)
    assert torch.equal(places.sort(1).values, torch.arange(297).expand(4, -1))


def test_test_points_are_test_images():
    sample = draw(digits(), "test/0", 20)
    pictures = image_set("digits").test.images[sample.latent["image"]]
    assert torch.equal(sample.x, pictures.double().flatten(2)[:, :, None] / 255)


def test_fewer_points_are_the_first_of_more():
    for balanced in (False, True):
        data = digits(20, balanced=balanced)
        less, more = draw(data, count=10), draw(data, count=20)
        assert torch.equal(less.x, more.x[:, :10])
        assert torch.equal(less.y, more.y[:, :10])


def test_balanced_points_have_equally_many_of_every_class():
    sample = draw(digits(60, classes=(1, 4, 9), balanced=True))
    for labels in sample.y.long():
        assert labels.bincount().tolist() == [20, 20, 20]
    fresh = draw(digits(60, balanced=True), "test/0", 200)  # test points are as they are
    assert fresh.y[0].long().bincount().max() > 20


def test_a_first_picture_is_any_with_equal_chance():
    """Chi-square over 10 classes of 4000 runs."""
    streams = Streams([RunId(0, index, "") for index in range(4000)])
    first = digits(1).sample(streams, "train", 1, torch.float32).latent["image"][:, 0]
    expected = 4000 * torch.full((15,), 100 / 1500)
    counts = (first // 100).bincount(minlength=15)
    chi = ((counts - expected) ** 2 / expected).sum()
    assert chi < 14 + 4 * math.sqrt(28)


# Refused specifications

REFUSED = [
    ({"source": "mnist", "tokens": 9}, ["`tokens`", "28", "9"]),
    ({"source": "mnist", "tokens": 8}, ["`tokens`", "28", "8"]),
    ({"source": "mnist", "tokens": 2, "dim": 4}, ["`tokens`", "square", "2"]),
    ({"source": "mnist", "dim": 26}, ["`dim`", "1", "26", "25"]),
    ({"source": "cifar10", "dim": 25}, ["`dim`", "3", "channels", "square", "25", "27"]),
    ({"source": "mnist", "channels": 3}, ["`channels`", "1", "mnist", "3"]),
    ({"source": "mnist", "samples": 60_001}, ["`samples`", "60,000", "60,001"]),
    ({"source": "mnist", "classes": (1,)}, ["`classes`", "two", "1"]),
    ({"source": "mnist", "classes": (1, 1)}, ["`classes`", "two", "once", "1, 1"]),
    ({"source": "mnist", "classes": (1, 10)}, ["`classes`", "0 and 9", "mnist", "10"]),
    ({"source": "mnist", "labels": "signed"}, ["`labels`", "signed", "two", "10"]),
    ({"source": "mnist", "samples": 5, "balanced": True}, ["`samples`", "10", "5"]),
    ({"source": "mine", "channels": 1, "classes": (0, 1)}, ["`dim`", "`source`", "`tokens`"]),
    ({"source": "mine", "dim": 4}, ["`channels`", "`classes`", "`source`", "'mine'"]),
    ({"source": "../mine", "dim": 4}, ["`source`", "digits", "'../mine'"]),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "parts"), REFUSED)
def test_a_wrong_specification_is_refused_with_field_value_and_remedy(
    fields: dict, parts: list[str]
):
    with pytest.raises(SpecError, match=says(*parts)):
        Images.from_dict({"kind": "images", "samples": 4, **fields})


def test_too_few_images_are_reported_before_work(tmp_path: Path, monkeypatch):
    # There are 3 training and 2 test images of each of 3 classes.
    write_npz(tmp_path / "mine.npz", image_files.arrays(3, 4))
    monkeypatch.setenv(VARIABLE, str(tmp_path))

    def mine(samples: int, **fields: Any) -> Images:
        kept: dict[str, Any] = {"source": "mine", "dim": 48, "channels": 3, "classes": (0, 2)}
        return Images(**(kept | fields), samples=samples)

    mine(6).require(4)
    with pytest.raises(ValueError, match=says("`data.samples`", "6", "train images", "7")):
        mine(7).require(4)
    with pytest.raises(ValueError, match=says("`evaluation.samples`", "4", "5")):
        mine(6).require(5)
    with pytest.raises(ValueError, match=says("6", "`balanced: true`", "class 0", "mine", "3")):
        mine(8, balanced=True).require(4)
    with pytest.raises(ValueError, match=says("`data.samples`", "0", "2")):
        mine(2, classes=(5, 6)).require(1)
    with pytest.raises(ValueError, match=says("`data.channels`", "1", "mine", "3")):
        mine(2, channels=1, dim=16).require(1)
    with pytest.raises(ValueError, match=says("absent.npz")):
        mine(2, source="absent").require(1)


def test_a_data_model_reports_whether_its_files_are_here(tmp_path: Path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    data = Images(source="mnist", samples=4)
    assert "`benign data mnist --download`" in str(data.absent())
    assert data.fingerprint() is None
    write_npz(tmp_path / "mnist.npz", image_files.arrays(1, 28))
    assert data.absent() is None
    assert data.fingerprint() is not None
    assert digits().absent() is None
    assert (data.most_tests(), digits().most_tests()) == (10_000, 297)
