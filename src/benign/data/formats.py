"""The known image sets in the formats of torchvision: how they are read, told apart and downloaded.

Checksums are those of torchvision. CIFAR-10 is a pickle, which may run code: it is opened after its checksum only.
"""

import gzip
import shutil
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benign.data._torchvision import have_torchvision
from benign.data.npz import NEEDED, npz_fingerprint, read_npz, write_npz
from benign.spec.base import digest

Arrays = dict[str, Any]
TINY_IMAGENET = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


@dataclass(frozen=True)
class Format(ABC):
    """How a set lies in the folder of data."""

    parts: tuple[str, ...]
    """the files or folders it consists of"""

    @abstractmethod
    def read(self, folder: Path) -> Arrays:
        """The arrays of the set; ValueError names a file that is missing or damaged."""

    @abstractmethod
    def fetch(self, folder: Path) -> None:
        """Download the set into a folder."""

    def assurance(self, folder: Path) -> str:
        """How far it is known to be what it is called, once it has been read."""
        return "md5 as in torchvision's list"

    def fingerprint(self, folder: Path) -> str | None:
        """What tells it from other pictures under its name; checksums leave one set only."""
        return digest(["checked by torchvision", *self.parts])


@dataclass(frozen=True)
class Idx(Format):
    """MNIST and its likes: four idx files, packed by gzip or not. There are checksums of the packed ones."""

    dataset: str
    """torchvision's class"""

    def read(self, folder: Path) -> Arrays:
        dataset = _datasets(self.dataset)
        from torchvision.datasets.mnist import read_image_file, read_label_file

        arrays: Arrays = {"class_names": dataset.classes}
        readers = (read_image_file, read_label_file) * 2
        with TemporaryDirectory() as place:
            files = zip(NEEDED, dataset.resources, readers, strict=True)
            for name, (file, md5), reader in files:
                packed = folder / self.parts[0] / "raw" / file
                with _naming(packed if packed.exists() else packed.with_suffix("")) as found:
                    if found == packed:
                        _check(packed, md5)
                        found = Path(place) / "unpacked"
                        with gzip.open(packed) as source, found.open("wb") as target:
                            shutil.copyfileobj(source, target)
                    arrays[name] = reader(str(found)).numpy()
        return arrays

    def fetch(self, folder: Path) -> None:
        _datasets(self.dataset)(str(folder), download=True)

    def assurance(self, folder: Path) -> str:
        packed = len([*(folder / self.parts[0] / "raw").glob("*.gz")])
        unpacked = "unpacked files, of which torchvision has no md5"
        return super().assurance(folder) if packed == len(NEEDED) else unpacked

    def fingerprint(self, folder: Path) -> str | None:
        """Of the contents, which gzip keeps a checksum of: packed or not, they are the same pictures."""
        raw, marks = folder / self.parts[0] / "raw", []
        for kind in (
            "train-images-idx3",
            "train-labels-idx1",
            "t10k-images-idx3",
            "t10k-labels-idx1",
        ):
            file = raw / f"{kind}-ubyte"
            packed = file.with_suffix(".gz")
            if packed.exists():
                marks.append(int.from_bytes(packed.read_bytes()[-8:-4], "little"))
            elif file.exists():
                marks.append(zlib.crc32(file.read_bytes()))
            else:
                return None
        return digest(marks)


@dataclass(frozen=True)
class Cifar10(Format):
    """Five pickled batches of training images and one of test images."""

    def read(self, folder: Path) -> Arrays:
        dataset, place = _datasets("CIFAR10"), folder / self.parts[0]
        lists = [*dataset.train_list, *dataset.test_list]
        for file, md5 in [*lists, (dataset.meta["filename"], dataset.meta["md5"])]:
            _check(place / file, md5)
        with _naming(place):
            train, test = (dataset(str(folder), train=which) for which in (True, False))
            return _arrays((train.data, train.targets, test.data, test.targets), train.classes)

    def fetch(self, folder: Path) -> None:
        _datasets("CIFAR10")(str(folder), download=True)


@dataclass(frozen=True)
class SVHN(Format):
    """Two files of Matlab, of cropped digits; torchvision turns label 10 into 0."""

    def read(self, folder: Path) -> Arrays:
        dataset, found = _datasets("SVHN"), []
        for split in ("train", "test"):
            _, file, md5 = dataset.split_list[split]
            _check(folder / file, md5)
            with _naming(folder / file):
                part = dataset(str(folder), split=split)
                found += [part.data.transpose(0, 2, 3, 1), part.labels]
        return _arrays(found, [str(digit) for digit in range(10)])

    def fetch(self, folder: Path) -> None:
        for split in ("train", "test"):
            _datasets("SVHN")(str(folder), split=split, download=True)


@dataclass(frozen=True)
class TinyImageNet(Format):
    """Folders of JPEG files: a folder a class in `train`, one for all with a table beside it in `val`.

    Classes are in the order of their WordNet names. Decoding 110,000 files takes a minute, so the arrays are kept
    beside them.
    """

    def read(self, folder: Path) -> Arrays:
        place = folder / self.parts[0]
        kept = self._kept(folder)
        if kept.exists():
            return read_npz(kept)
        with _naming(place / "train"):
            train = _datasets("ImageFolder")(str(place / "train"))
        val = self._val(place / "val", train.class_to_idx)
        found = [part for files in (train.samples, val) for part in _decoded(files)]
        arrays = _arrays(found, train.classes)
        with suppress(OSError):  # not writable, or full: it will be decoded again
            write_npz(kept, arrays)
        return arrays

    def _kept(self, folder: Path) -> Path:
        return folder / self.parts[0] / "decoded.npz"

    @staticmethod
    def _val(place: Path, classes: dict[str, int]) -> list[tuple[str, int]]:
        """Files and classes of the validation images, which serve as test images."""
        table = place / "val_annotations.txt"
        with _naming(table):
            rows = [line.split("\t")[:2] for line in table.read_text().splitlines() if line]
            return [(str(place / "images" / file), classes[name]) for file, name in rows]

    def fetch(self, folder: Path) -> None:
        have_torchvision()
        from torchvision.datasets.utils import download_and_extract_archive

        download_and_extract_archive(TINY_IMAGENET, str(folder), md5=TINY_IMAGENET_MD5)

    def assurance(self, folder: Path) -> str:
        return "its images are counted, no md5"

    def fingerprint(self, folder: Path) -> str | None:
        return npz_fingerprint(self._kept(folder))


FORMATS: dict[str, Format] = {
    "mnist": Idx(("MNIST",), "MNIST"),
    "fashion_mnist": Idx(("FashionMNIST",), "FashionMNIST"),
    "cifar10": Cifar10(("cifar-10-batches-py",)),
    "svhn": SVHN(("train_32x32.mat", "test_32x32.mat")),
    "tiny_imagenet": TinyImageNet(("tiny-imagenet-200",)),
}


def _datasets(name: str) -> Any:
    """A class of torchvision.datasets."""
    have_torchvision()
    from torchvision import datasets

    return getattr(datasets, name)


def _check(file: Path, md5: str) -> None:
    from torchvision.datasets.utils import check_integrity

    if not file.is_file():
        raise ValueError(f"{file} is missing")
    if not check_integrity(str(file), md5):
        raise ValueError(f"{file} is damaged or changed: its md5 is not {md5}, as it should be")


@contextmanager
def _naming(file: Path) -> Iterator[Path]:
    """Whatever a reader raises over a file becomes one line that names it."""
    try:
        yield file
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename or file} is missing") from error
    except Exception as error:
        told = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(told if str(file) in told else f"{file} cannot be read: {told}") from error


def _arrays(found: Sequence[Any], names: Sequence[str]) -> Arrays:
    return {**dict(zip(NEEDED, map(np.asarray, found), strict=True)), "class_names": list(names)}


def _decoded(files: Sequence[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of files, and their labels."""
    from torchvision.datasets.folder import default_loader

    pictures = np.empty((0, 0, 0, 3), np.uint8)
    for place, (file, _) in enumerate(files):
        with _naming(Path(file)):
            picture = np.asarray(default_loader(file))
            if place == 0:
                pictures = np.empty((len(files), *picture.shape), np.uint8)
            if picture.shape != pictures.shape[1:]:
                raise ValueError(f"it has {picture.shape} numbers, the first {pictures.shape[1:]}")
            pictures[place] = picture
    return pictures, np.array([label for _, label in files], np.int64)
