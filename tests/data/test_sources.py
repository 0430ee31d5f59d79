"""Image sets: read from every format, refused in one line where something is wrong, downloaded whole or not at all."""

import gc
import gzip
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch

from benign.data import formats, sources
from benign.data.folder import VARIABLE, data_folder, staging
from benign.data.npz import Sizes, npz_fingerprint, write_npz
from benign.data.sources import (
    KNOWN,
    absent_message,
    assurance,
    download,
    fingerprint,
    image_set,
    own_names,
    part_on,
    sizes,
    where_is,
)
from benign.spec.base import digest
from tests import image_files
from tests.says import holds, says

NAMES = list(image_files.WRITERS)
PLACES = [data_folder() / "MNIST" / "raw", Path(__file__).parents[3] / "shared" / "data" / "mnist"]
REAL = next((place for place in PLACES if any(place.glob("*.gz"))), None)
"""where the real MNIST is"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of data."""
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv(VARIABLE, str(place))
    return place


def same(name: str, made: image_files.Arrays) -> None:
    """The set holds these pictures, channels first."""
    found = image_set(name)
    for split, part in (("train", found.train), ("test", found.test)):
        pictures = made[f"x_{split}"]
        pictures = pictures[..., None] if pictures.ndim == 3 else pictures
        assert np.array_equal(part.images.numpy(), pictures.transpose(0, 3, 1, 2))
        assert part.labels.tolist() == made[f"y_{split}"].tolist()


def refusal(name: str) -> str:
    """The one line that an image set is refused by."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        image_set(name)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


# Where data is


def test_the_folder_of_data_is_named_or_in_the_cache(monkeypatch):
    monkeypatch.setenv(VARIABLE, "~/pictures")
    assert data_folder() == Path.home() / "pictures"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_folder() == Path("/cache/benign/data")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache/benign/data"


def test_the_digits_need_no_folder(monkeypatch):
    monkeypatch.setenv(VARIABLE, "/nowhere")
    found = image_set("digits")
    assert found.train.images.shape == (1500, 1, 8, 8)
    assert found.test.images.shape == (297, 1, 8, 8)
    assert found.train.labels.bincount().tolist() == [
        151,
        151,
        150,
        153,
        148,
        152,
        151,
        149,
        146,
        149,
    ]
    assert found.train.images.unique().tolist() == [round(k * 255 / 16) for k in range(17)]
    assert fingerprint("digits") is None


def test_the_facts_about_the_digits_are_right():
    facts, found = KNOWN["digits"], image_set("digits")
    assert (facts.train, facts.test) == (len(found.train.labels), len(found.test.labels))
    assert (facts.channels, facts.side, facts.side) == found.train.images.shape[1:]
    assert facts.classes == len(found.class_names)


def test_the_message_for_an_absent_set_names_the_folder_and_the_remedy(folder):
    message = refusal("mnist")
    assert message == absent_message("mnist")
    for part in (
        "MNIST or mnist.npz",
        str(folder),
        "`benign data mnist --download`",
        "`digits`",
    ):
        assert part in message
    message = refusal("mine")
    assert holds(message, "mine.npz", str(folder))
    assert "--download" not in message


@pytest.mark.parametrize("name", ["../mine", "a/b", "", ".hidden", "-x", "a b"])
def test_a_bad_name_is_refused(name):
    assert holds(refusal(name), "`source`", "digits", repr(name))
    assert fingerprint(name) is None, "a record of a stranger's may name anything"


# Every format


@pytest.mark.parametrize("name", NAMES)
def test_a_set_is_read_as_it_was_written(name, folder, monkeypatch):
    made = image_files.WRITERS[name](monkeypatch, folder)
    same(name, made)
    assert str(where_is(name)).startswith(str(folder))
    assert fingerprint(name) is not None


def test_unpacked_idx_files_are_the_same_set(folder, tmp_path, monkeypatch):
    image_files.mnist(monkeypatch, folder)
    packed = fingerprint("mnist")
    other = tmp_path / "other"
    made = image_files.mnist(monkeypatch, other, packed=False)
    monkeypatch.setenv(VARIABLE, str(other))
    same("mnist", made)
    assert fingerprint("mnist") == packed


def test_a_known_set_may_be_a_file_of_arrays_but_its_own_format_is_preferred(folder, monkeypatch):
    mine = image_files.arrays(1, 5, seed=1)
    write_npz(folder / "mnist.npz", mine)
    same("mnist", mine)
    theirs = image_files.mnist(monkeypatch, folder)
    same("mnist", theirs)


def test_classes_of_tiny_imagenet_are_decoded_once(folder, monkeypatch):
    made = image_files.tiny_imagenet(monkeypatch, folder)
    assert image_set("tiny_imagenet").class_names == ("n01", "n02", "n11")
    for file in folder.rglob("*.png"):
        file.unlink()
    sources._cached_set.cache_clear()
    same("tiny_imagenet", made)


def test_a_set_is_read_even_if_its_decoded_arrays_cannot_be_stored(folder, monkeypatch):
    made = image_files.tiny_imagenet(monkeypatch, folder)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("benign.data.formats.write_npz", full)
    same("tiny_imagenet", made)
    assert not list(folder.rglob("*.npz"))


def test_images_live_on_the_device_and_a_changed_file_is_read_again(folder):
    write_npz(folder / "mine.npz", image_files.arrays(1, 4))
    first = part_on("mine", "train", "cpu")
    assert part_on("mine", "train", "cpu") is first
    assert torch.equal(first.images, image_set("mine").train.images)
    write_npz(folder / "mine.npz", image_files.arrays(1, 4, seed=1))
    assert not torch.equal(part_on("mine", "train", "cpu").images, first.images)


def test_every_known_set_has_a_format_and_facts():
    assert [*formats.KNOWN_FORMATS] == [*KNOWN]


def test_names_of_own_sets_are_listed_without_those_that_no_source_can_have(folder):
    for name in ("mine", "b", ".hidden", "two words", "mnist"):
        write_npz(folder / f"{name}.npz", image_files.arrays(1, 4))
    assert own_names() == ["b", "mine"]


class NpyFolder(formats.OwnFormat):
    """A format of a reader: a folder NAME.npy with a file for each array."""

    pattern = "{}.npy"

    @staticmethod
    def names(folder: Path) -> set[str]:
        return {path.stem for path in folder.glob("*.npy")}

    def read(self, folder: Path) -> formats.Arrays:
        return {file.stem: np.load(file, allow_pickle=False) for file in self.files(folder)}

    def sizes(self, folder: Path) -> Sizes:
        arrays = self.read(folder)
        train, *shape = arrays["x_train"].shape
        return Sizes(train, len(arrays["y_test"]), (*shape,), 1 + int(arrays["y_train"].max()))

    def fingerprint(self, folder: Path) -> str | None:
        return digest([file.read_bytes().hex() for file in sorted(self.files(folder))])

    def assurance(self, folder: Path) -> str:
        return "not verified"


def test_a_format_is_one_class_and_one_entry(folder, monkeypatch):
    monkeypatch.setattr(sources, "OWN_FORMATS", (*formats.OWN_FORMATS, NpyFolder))
    write_npz(folder / "other.npz", image_files.arrays(1, 4))
    made = image_files.arrays(3, 4)
    assert holds(refusal("mine"), "mine.npz or mine.npy", str(folder))
    (folder / "mine.npy").mkdir()
    for name, array in made.items():
        np.save(folder / "mine.npy" / f"{name}.npy", array)
    assert own_names() == ["mine", "other"]
    assert where_is("mine") == folder / "mine.npy"
    assert sizes("mine") == (9, 6, (4, 4, 3), 3)
    assert assurance("mine") == "not verified"
    same("mine", made)
    first = fingerprint("mine")
    changed = made | {"x_test": 255 - made["x_test"]}
    file = folder / "mine.npy" / "x_test.npy"
    np.save(file, changed["x_test"])  # of the same size, in a folder that does not change
    os.utime(file, (1, 1))
    same("mine", changed)
    assert torch.equal(part_on("mine", "test", "cpu").images, image_set("mine").test.images)
    assert fingerprint("mine") not in (None, first)


# Fingerprints


def test_a_fingerprint_is_of_the_arrays_not_of_how_they_are_packed(folder):
    made = image_files.arrays(3, 4)
    write_npz(folder / "a.npz", made)
    packed: dict[str, Any] = made | {"idx": np.arange(3)}
    np.savez_compressed(folder / "b.npz", **packed)
    made["x_test"][-1, -1, -1, -1] ^= 1
    write_npz(folder / "c.npz", made)
    assert fingerprint("a") == fingerprint("b")
    assert fingerprint("a") != fingerprint("c")
    (folder / "a.npz").write_bytes(b"PK no zip file")
    assert npz_fingerprint(folder / "a.npz") is None
    assert fingerprint("absent") is None


# Damaged and wrong files


WRONG = {
    "x_train": [
        (lambda x: x.astype(np.float32), ["`x_train`", "uint8", "float32"]),
        (lambda x: x[0], ["`x_train`", "uint8 [4, 4]"]),
        (lambda x: x[:0], ["`x_train`", "uint8 [0, 4, 4]"]),
        (lambda x: np.stack([x, x], 3), ["`x_train`", "1 or 3", "channels", "2"]),
    ],
    "y_train": [
        (lambda y: y[:-1], ["`y_train`", "9", "[8]"]),
        (lambda y: y / 2, ["`y_train`", "9", "float64"]),
        (lambda y: y - 1, ["`y_train`", "0", "-1"]),
    ],
    "x_test": [(lambda x: x[:, 1:], ["`x_test`", "`x_train`"])],
    "class_names": [(lambda names: names[:2], ["`class_names`", "3", "2"])],
}


@pytest.mark.parametrize(
    ("array", "change", "parts"), [(name, *each) for name, all_ in WRONG.items() for each in all_]
)
def test_arrays_that_are_no_images_are_refused_by_name(folder, array, change, parts):
    made: dict[str, Any] = image_files.arrays(1, 4) | {"class_names": np.array(["a", "b", "c"])}
    np.savez(folder / "mine.npz", **(made | {array: change(made[array])}))
    with pytest.raises(ValueError, match=says(str(folder / "mine.npz"), *parts)):
        image_set("mine")


def test_a_file_that_lacks_an_array_is_refused(folder):
    made: dict[str, Any] = image_files.arrays(1, 4)
    del made["y_test"]
    np.savez(folder / "mine.npz", **made)
    assert holds(refusal("mine"), str(folder / "mine.npz"), "`y_test`")


def test_damaged_files_of_arrays_are_refused(folder):
    file = folder / "mine.npz"
    write_npz(file, image_files.arrays(1, 4))
    whole = file.read_bytes()
    at = whole.index(b"NUMPY") + 200  # among the pixels of the first array
    changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for content in (b"", b"no zip", whole[: len(whole) // 2], whole[:-9], changed):
        file.write_bytes(content)
        assert holds(refusal("mine"), str(file), ".npz file")
    np.save(file.with_suffix(".npy"), np.arange(3))
    file.with_suffix(".npy").replace(file)
    assert str(file) in refusal("mine")


def test_nothing_is_unpickled_from_a_file_of_arrays(folder):
    made: dict[str, Any] = image_files.arrays(1, 4)
    made["y_test"] = np.array([print], dtype=object)
    np.savez(folder / "mine.npz", **made)
    assert holds(refusal("mine"), str(folder / "mine.npz"), "Object arrays")


def test_a_file_under_a_known_name_must_be_like_the_set(folder):
    write_npz(folder / "cifar10.npz", image_files.arrays(1, 32))
    assert holds(refusal("cifar10"), "cifar10", "3 channels", "10 classes", "1 and 3")


FILES = {
    "mnist": "MNIST/raw/t10k-images-idx3-ubyte.gz",
    "cifar10": "cifar-10-batches-py/data_batch_2",
    "svhn": "test_32x32.mat",
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_and_missing_files_of_a_known_set_are_named(name, folder, monkeypatch):
    image_files.WRITERS[name](monkeypatch, folder)
    file = folder / FILES[name]
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    message = refusal(name)
    assert holds(message, str(file), "md5", f"`benign data {name} --download`")
    file.unlink()
    named = str(file).removesuffix(".gz")
    assert named in refusal(name)


def test_a_pickle_is_not_opened_before_its_checksum(folder, monkeypatch):
    image_files.cifar10(monkeypatch, folder)
    opened = folder / "opened"

    class Trap:
        def __reduce__(self):
            return (opened.mkdir, ())

    for file in ("test_batch", "batches.meta"):
        place = folder / "cifar-10-batches-py" / file
        whole = place.read_bytes()
        place.write_bytes(pickle.dumps(Trap()))
        assert holds(refusal("cifar10"), str(place), "md5")
        place.write_bytes(whole)
    assert not opened.exists()


def test_idx_files_with_the_right_checksum_but_bad_contents_are_refused(folder, monkeypatch):
    image_files.mnist(monkeypatch, folder)
    dataset = image_files.datasets("MNIST")
    file = folder / FILES["mnist"]
    for content in (b"no idx", b"\0\0\x08\3" + b"\0\0\0\7" * 3 + b"too short", b""):
        file.write_bytes(gzip.compress(content))
        marks = [*dataset.resources[:2], (file.name, image_files.md5(file)), dataset.resources[3]]
        monkeypatch.setattr(dataset, "resources", marks)
        assert str(file) in refusal("mnist")


def test_a_known_set_must_have_its_number_of_images(folder, monkeypatch):
    image_files.tiny_imagenet(monkeypatch, folder)
    next(folder.glob("tiny-imagenet-200/train/n02/images/*")).unlink()
    assert holds(refusal("tiny_imagenet"), "tiny_imagenet has 9", "6 test images", "8 and 6")


def test_pictures_that_cannot_be_decoded_are_named(folder, monkeypatch):
    image_files.tiny_imagenet(monkeypatch, folder)
    table = folder / "tiny-imagenet-200/val/val_annotations.txt"
    file = folder / "tiny-imagenet-200/val/images/val_3.png"
    whole = file.read_bytes()
    file.write_bytes(whole[:30])
    assert str(file) in refusal("tiny_imagenet")
    file.unlink()
    assert f"{file} " in refusal("tiny_imagenet")
    file.write_bytes(whole)
    table.write_text(table.read_text().replace("n02", "n99"))
    assert holds(refusal("tiny_imagenet"), str(table), "'n99'")
    table.unlink()
    assert str(table) in refusal("tiny_imagenet")


# Downloads


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address it is offered at."""
    offered = tmp_path / "offered"
    offered.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # it ends when every answer has been given

    with Server(("127.0.0.1", 0), partial(Quiet, directory=str(offered))) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        try:
            yield offered, f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()


# Before Python 3.14 the archive is unpacked without a filter; its checksum is known.
@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_download_brings_the_whole_set(name, server, folder, monkeypatch):
    made = image_files.served(monkeypatch, name, *server)
    for _ in range(2):  # also over the first download
        assert download(name).parent == folder
        same(name, made)
        assert not list(folder.glob(".*"))


def test_a_download_replaces_damaged_files(server, folder, monkeypatch):
    made = image_files.served(monkeypatch, "mnist", *server)
    download("mnist")
    file = folder / FILES["mnist"]
    file.write_bytes(b"damaged")  # in a subfolder of the set, after it has been cached
    assert holds(refusal("mnist"), str(file), "md5")
    download("mnist")
    same("mnist", made)


@pytest.mark.parametrize("fault", ["absent", "changed"])
@pytest.mark.parametrize("name", NAMES)
def test_a_download_that_fails_leaves_nothing(name, fault, server, folder, monkeypatch):
    image_files.served(monkeypatch, name, *server)
    for file in [each for each in server[0].iterdir() if each.is_file()][-1:]:
        file.unlink() if fault == "absent" else file.write_bytes(b"something else")
    with pytest.raises(ValueError, match=says(name, "download", "by hand")) as caught:
        download(name)
    assert "\n" not in str(caught.value)
    assert not list(folder.iterdir())
    del caught
    with warnings.catch_warnings(
        action="ignore"
    ):  # urllib's answer of an absent page is closed by its end only
        gc.collect()


def test_an_interrupted_download_leaves_the_former_files(folder):
    (folder / "part").write_text("former")

    def interrupted() -> None:
        with staging(("part",)) as place:
            (place / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(each.name, each.read_text()) for each in folder.iterdir()] == [("part", "former")]


@pytest.mark.parametrize(
    ("name", "parts"), [("digits", ["digits", "package"]), ("mine", ["mine", "mnist, ", "svhn"])]
)
def test_only_known_sets_can_be_downloaded(name, parts):
    with pytest.raises(ValueError, match=says(*parts)):
        download(name)


# torchvision


def test_without_torchvision_one_line_says_what_to_install(folder, monkeypatch):
    image_files.mnist(monkeypatch, folder)
    formats.import_torchvision.cache_clear()
    monkeypatch.setitem(sys.modules, "torchvision", None)
    message = refusal("mnist")
    assert holds(message, "torchvision", "pip install 'benign[images]'")
    monkeypatch.undo()
    formats.import_torchvision.cache_clear()


def test_torchvision_is_not_imported_where_it_is_not_needed():
    script = (
        "import sys, benign as bo, benign.experiment; from benign.data.sources import image_set; "
        "image_set('digits'); sys.exit('torchvision' in sys.modules or 'PIL.Image' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=100).returncode == 0


# The real thing


@pytest.mark.skipif(REAL is None, reason="no MNIST here: BENIGN_DATA names no folder with it")
def test_the_real_mnist_has_the_known_counts(folder):
    assert REAL is not None
    (folder / "MNIST").mkdir()
    (folder / "MNIST" / "raw").symlink_to(REAL)
    found = image_set("mnist")
    assert found.train.images.shape == (60_000, 1, 28, 28)
    assert found.test.labels.bincount().tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert (
        int(((found.train.labels == 0) | (found.train.labels == 1)).sum()) == 12_665
    )  # papers/wang.md 3
    assert abs(found.train.images.double().mean().item() / 255 - 0.1307) < 1e-4  # the usual figure


def test_what_is_said_of_a_set_needs_the_set(folder):
    write_npz(folder / "own.npz", image_files.arrays(1, 4))
    assert holds(sources.assurance("own"), "no md5")
    for ask in (sources.assurance, sources.sizes):
        with pytest.raises(ValueError, match=says("'lost'")):
            ask("lost")


def test_pictures_of_different_sizes_are_refused_with_the_file(tmp_path):
    from PIL import Image

    files = [(str(tmp_path / f"{side}.png"), 0) for side in (4, 5)]
    for (file, _), side in zip(files, (4, 5), strict=True):
        Image.new("RGB", (side, side)).save(file)
    formats.import_torchvision()
    with pytest.raises(ValueError, match=says("5.png", "(5, 5, 3)", "(4, 4, 3)")):
        formats._decoded(files)
