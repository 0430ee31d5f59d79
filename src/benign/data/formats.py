"""The known image sets in the formats of torchvision: reading, fingerprints, download.

torchvision decodes and downloads, and its checksums are used. It is an optional package and trusts the files it reads,
hence the code here: every checksum is verified first (CIFAR-10 is a pickle, which may run code), a message names the
damaged file, MNIST is read without unpacking it on disk, and Tiny ImageNet, which torchvision does not have, is added.
"""

import gzip
import shutil
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benign.data.npz import NEEDED, npz_fingerprint, read_npz, write_npz
from benign.spec.base import digest

Arrays = dict[str, Any]
TINY_IMAGENET = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


@dataclass(frozen=True)
class Format(ABC):
    """How the files of an image set are read and downloaded."""

    parts: tuple[str, ...]
    """the files or folders it consists of, in the folder of data"""

    @abstractmethod
    def read(self, folder: Path) -> Arrays:
        """Return the arrays of the set. Raise ValueError, with the file, if one is missing or damaged."""

    @abstractmethod
    def fetch(self, folder: Path) -> None:
        """Download the set into a folder."""

    def assurance(self, folder: Path) -> str:
        """Return how a set that could be read has been verified."""
        return "md5 as in torchvision's list"

    def fingerprint(self, folder: Path) -> str | None:
        """Return a digest that differs for other pictures under the same name, or None if files are missing.

        A checksum verified on reading admits one set only, so that nothing is read for it.
        """
        return digest(["checked by torchvision", *self.parts])


@dataclass(frozen=True)
class Idx(Format):
    """MNIST and Fashion-MNIST: four idx files, packed by gzip or not. torchvision has checksums of the packed ones."""

    dataset: str
    """name of torchvision's class"""

    def read(self, folder: Path) -> Arrays:
        dataset = _datasets(self.dataset)
        from torchvision.datasets.mnist import read_image_file, read_label_file

        arrays: Arrays = {"class_names": dataset.classes}
        readers = (read_image_file, read_label_file) * 2
        with TemporaryDirectory() as place:
            files = zip(NEEDED, dataset.resources, readers, strict=True)
            for name, (file, md5), reader in files:
                packed = folder / self.parts[0] / "raw" / file
                with _reading(packed if packed.exists() else packed.with_suffix("")) as path:
                    if path == packed:
                        _check(packed, md5)
                        path = Path(place) / "unpacked"
                        with gzip.open(packed) as source, path.open("wb") as target:
                            shutil.copyfileobj(source, target)
                    arrays[name] = reader(str(path)).numpy()
        return arrays

    def fetch(self, folder: Path) -> None:
        _datasets(self.dataset)(str(folder), download=True)

    def assurance(self, folder: Path) -> str:
        packed = len([*(folder / self.parts[0] / "raw").glob("*.gz")])
        unpacked = "unpacked files, of which torchvision has no md5"
        return super().assurance(folder) if packed == len(NEEDED) else unpacked

    def fingerprint(self, folder: Path) -> str | None:
        """Return a digest of the unpacked contents, of which gzip stores the checksum."""
        raw, checksums = folder / self.parts[0] / "raw", []
        for kind in (
            "train-images-idx3",
            "train-labels-idx1",
            "t10k-images-idx3",
            "t10k-labels-idx1",
        ):
            file = raw / f"{kind}-ubyte"
            packed = file.with_suffix(".gz")
            if packed.exists():
                checksums.append(int.from_bytes(packed.read_bytes()[-8:-4], "little"))
            elif file.exists():
                checksums.append(zlib.crc32(file.read_bytes()))
            else:
                return None
        return digest(checksums)


@dataclass(frozen=True)
class Cifar10(Format):
    """Five pickled batches of training images and one of test images."""

    def read(self, folder: Path) -> Arrays:
        dataset, place = _datasets("CIFAR10"), folder / self.parts[0]
        lists = [*dataset.train_list, *dataset.test_list]
        for file, md5 in [*lists, (dataset.meta["filename"], dataset.meta["md5"])]:
            _check(place / file, md5)
        with _reading(place):
            train, test = (dataset(str(folder), train=which) for which in (True, False))
            return _arrays((train.data, train.targets, test.data, test.targets), train.classes)

    def fetch(self, folder: Path) -> None:
        _datasets("CIFAR10")(str(folder), download=True)


@dataclass(frozen=True)
class SVHN(Format):
    """Two Matlab files of cropped digits; torchvision turns label 10 into 0."""

    def read(self, folder: Path) -> Arrays:
        dataset, arrays = _datasets("SVHN"), []
        for split in ("train", "test"):
            _, file, md5 = dataset.split_list[split]
            _check(folder / file, md5)
            with _reading(folder / file):
                part = dataset(str(folder), split=split)
                arrays += [part.data.transpose(0, 2, 3, 1), part.labels]
        return _arrays(arrays, [str(digit) for digit in range(10)])

    def fetch(self, folder: Path) -> None:
        for split in ("train", "test"):
            _datasets("SVHN")(str(folder), split=split, download=True)


@dataclass(frozen=True)
class TinyImageNet(Format):
    """JPEG files: `train` has a folder for each class, `val` one folder and a table of classes.

    Classes are in the order of their WordNet names. Decoding 110,000 files takes a minute, so the arrays are stored
    in the same folder.
    """

    def read(self, folder: Path) -> Arrays:
        place = folder / self.parts[0]
        stored = self._stored_arrays(folder)
        if stored.exists():
            return read_npz(stored)
        with _reading(place / "train"):
            train = _datasets("ImageFolder")(str(place / "train"))
        val = self._val(place / "val", train.class_to_idx)
        parts = [part for files in (train.samples, val) for part in _decoded(files)]
        arrays = _arrays(parts, train.classes)
        with suppress(OSError):  # not writable, or full: it will be decoded again
            write_npz(stored, arrays)
        return arrays

    def _stored_arrays(self, folder: Path) -> Path:
        return folder / self.parts[0] / "decoded.npz"

    @staticmethod
    def _val(place: Path, classes: dict[str, int]) -> list[tuple[str, int]]:
        """Return files and classes of the validation images, which serve as test images."""
        table = place / "val_annotations.txt"
        with _reading(table):
            rows = [line.split("\t")[:2] for line in table.read_text().splitlines() if line]
            return [(str(place / "images" / file), classes[name]) for file, name in rows]

    def fetch(self, folder: Path) -> None:
        import_torchvision()
        from torchvision.datasets.utils import download_and_extract_archive

        download_and_extract_archive(TINY_IMAGENET, str(folder), md5=TINY_IMAGENET_MD5)

    def assurance(self, folder: Path) -> str:
        return "its images are counted, no md5"

    def fingerprint(self, folder: Path) -> str | None:
        return npz_fingerprint(self._stored_arrays(folder))


FORMATS: dict[str, Format] = {
    "mnist": Idx(("MNIST",), "MNIST"),
    "fashion_mnist": Idx(("FashionMNIST",), "FashionMNIST"),
    "cifar10": Cifar10(("cifar-10-batches-py",)),
    "svhn": SVHN(("train_32x32.mat", "test_32x32.mat")),
    "tiny_imagenet": TinyImageNet(("tiny-imagenet-200",)),
}


@cache
def import_torchvision() -> None:
    """Import torchvision, so that timm, which needs it, can be imported too. Raise ValueError if it is not installed.

    The wheels of torchvision contain CUDA operators. With a torch without CUDA these do not load, and the import fails
    ("operator torchvision::nms does not exist"). None of them is called here, so it is enough to declare their names.
    """
    try:
        _import()
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _declare_operators()
        _import()


_libraries: list[Any] = []
"""declared operators: torch forgets them when the library object is deleted"""


def _import() -> None:
    try:
        import torchvision  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"torchvision is needed for this and cannot be imported ({error}): pip install 'benign[images]'"
        ) from error


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _libraries.append(library)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported


def _datasets(name: str) -> Any:
    """Return a class of torchvision.datasets."""
    import_torchvision()
    from torchvision import datasets

    return getattr(datasets, name)


def _check(file: Path, md5: str) -> None:
    from torchvision.datasets.utils import check_integrity

    if not file.is_file():
        raise ValueError(f"{file} is missing")
    if not check_integrity(str(file), md5):
        raise ValueError(f"{file} is damaged or changed: its md5 is not {md5}, as it should be")


@contextmanager
def _reading(file: Path) -> Iterator[Path]:
    """Replace any error of the block by a ValueError of one line that names the file."""
    try:
        yield file
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename or file} is missing") from error
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        message = reason if str(file) in reason else f"{file} cannot be read: {reason}"
        raise ValueError(message) from error


def _arrays(parts: Sequence[Any], names: Sequence[str]) -> Arrays:
    """Return an image set from its four arrays, in the order of NEEDED, and the names of its classes."""
    return {**dict(zip(NEEDED, map(np.asarray, parts), strict=True)), "class_names": list(names)}


def _decoded(files: Sequence[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the pictures of files, and their labels."""
    from torchvision.datasets.folder import default_loader

    pictures = np.empty((0, 0, 0, 3), np.uint8)
    for place, (file, _) in enumerate(files):
        with _reading(Path(file)):
            picture = np.asarray(default_loader(file))
            if place == 0:
                pictures = np.empty((len(files), *picture.shape), np.uint8)
            if picture.shape != pictures.shape[1:]:
                raise ValueError(f"it has {picture.shape} numbers, the first {pictures.shape[1:]}")
            pictures[place] = picture
    return pictures, np.array([label for _, label in files], np.int64)
