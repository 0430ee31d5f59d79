"""Formats of image sets: how the files of a set are recognised, read, described and downloaded.

`KNOWN_FORMATS` has the format of each known set, by name. `OWN_FORMATS` lists the formats for sets of a user's own: to
add one, write a class and add it to this list.

torchvision decodes and downloads the known sets. It is an optional package and trusts the files it reads, hence the
code here: every checksum is verified first (CIFAR-10 is a pickle, which may run code), a message names the damaged
file, MNIST is read without unpacking it on disk, and Tiny ImageNet, which torchvision does not have, is added.
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
from typing import Any, ClassVar

import numpy as np
import torch

from benign.data.npz import NEEDED, Sizes, npz_fingerprint, npz_sizes, read_npz, write_npz
from benign.spec.base import digest

Arrays = dict[str, Any]
Version = tuple[tuple[str, int, int], ...]
TINY_IMAGENET = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


@dataclass(frozen=True)
class Format(ABC):
    """An image set, stored in one format. Every method takes the folder of data."""

    paths: tuple[str, ...]
    """its files or folders, relative to the folder of data"""

    def path(self, folder: Path) -> Path | None:
        """Return the first of its files or folders that exists, or None if the set is not there."""
        return next((folder / path for path in self.paths if (folder / path).exists()), None)

    def files(self, folder: Path) -> list[Path]:
        """Return the files that `read` opens: `paths`, and the files in those that are folders."""
        paths = [folder / path for path in self.paths]
        return [file for path in paths for file in (path.iterdir() if path.is_dir() else [path])]

    def version(self, folder: Path) -> Version:
        """Return path, time of change and size of each file. A change of version makes caches outdated."""
        try:
            stats = [(file, file.stat()) for file in sorted(self.files(folder)) if file.exists()]
        except (
            OSError
        ):  # no permission, or removed this moment: `read` raises the error that names the file
            return ()
        return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in stats)

    @abstractmethod
    def read(self, folder: Path) -> Arrays:
        """Return the arrays of the set. Raise ValueError, with the file, if one is missing or damaged."""

    @abstractmethod
    def fingerprint(self, folder: Path) -> str | None:
        """Return a digest that differs for other pictures under the same name.

        None if files are missing or damaged, and for the digits, which come with the package.
        """

    @abstractmethod
    def assurance(self, folder: Path) -> str:
        """Return how a set that could be read has been verified."""


@dataclass(frozen=True)
class Digits(Format):
    """The digits of the package: their path is absolute, so that the folder of data does not matter."""

    def read(self, folder: Path) -> Arrays:
        arrays = read_npz(folder / self.paths[0])
        for split in ("x_train", "x_test"):  # 17 levels of grey
            arrays[split] = (arrays[split] * (255 / 16)).round().astype(np.uint8)
        return arrays

    def fingerprint(self, folder: Path) -> str | None:
        return None

    def assurance(self, folder: Path) -> str:
        return "comes with the package"


@dataclass(frozen=True)
class DownloadedFormat(Format):
    """A known set that can be downloaded."""

    @abstractmethod
    def fetch(self, folder: Path) -> None:
        """Download the set into a folder."""

    def fingerprint(self, folder: Path) -> str | None:
        """Return a digest of the files' names: `read` accepts only the pictures of torchvision's checksums."""
        return digest(["checked by torchvision", *self.paths])

    def assurance(self, folder: Path) -> str:
        return "md5 as in torchvision's list"


@dataclass(frozen=True)
class Idx(DownloadedFormat):
    """MNIST and Fashion-MNIST: four idx files, packed by gzip or not. torchvision has checksums of the packed ones."""

    dataset: str
    """name of torchvision's class"""

    def files(self, folder: Path) -> list[Path]:
        """Return the four files in the order of NEEDED, each packed if the packed file exists."""
        raw = folder / self.paths[0] / "raw"
        unpacked = [
            raw / f"{part}-ubyte"
            for split in ("train", "t10k")
            for part in (f"{split}-images-idx3", f"{split}-labels-idx1")
        ]
        packed = [file.with_suffix(".gz") for file in unpacked]
        return [gz if gz.exists() else file for gz, file in zip(packed, unpacked, strict=True)]

    def read(self, folder: Path) -> Arrays:
        dataset = _datasets(self.dataset)
        from torchvision.datasets.mnist import read_image_file, read_label_file

        arrays: Arrays = {"class_names": dataset.classes}
        readers = (read_image_file, read_label_file) * 2
        rows = zip(NEEDED, self.files(folder), dataset.resources, readers, strict=True)
        with TemporaryDirectory() as temporary:
            for name, file, (_, md5), reader in rows:
                with _reading(file):
                    path = file
                    if file.suffix == ".gz":
                        _check(file, md5)
                        path = Path(temporary) / "unpacked"
                        with gzip.open(file) as source, path.open("wb") as target:
                            shutil.copyfileobj(source, target)
                    arrays[name] = reader(str(path)).numpy()
        return arrays

    def fetch(self, folder: Path) -> None:
        _datasets(self.dataset)(str(folder), download=True)

    def assurance(self, folder: Path) -> str:
        packed = all(file.suffix == ".gz" for file in self.files(folder))
        unpacked = "unpacked files, of which torchvision has no md5"
        return super().assurance(folder) if packed else unpacked

    def fingerprint(self, folder: Path) -> str | None:
        """Return a digest of the checksums of the unpacked contents, or None if a file is missing.

        gzip stores this checksum at the end of a packed file; unpacked files are read for it.
        """
        checksums = []
        for file in self.files(folder):
            if not file.exists():
                return None
            content = file.read_bytes()
            packed = file.suffix == ".gz"
            checksums.append(
                int.from_bytes(content[-8:-4], "little") if packed else zlib.crc32(content)
            )
        return digest(checksums)


@dataclass(frozen=True)
class Cifar10(DownloadedFormat):
    """Five pickled batches of training images and one of test images."""

    def read(self, folder: Path) -> Arrays:
        dataset, batches = _datasets("CIFAR10"), folder / self.paths[0]
        lists = [*dataset.train_list, *dataset.test_list]
        for file, md5 in [*lists, (dataset.meta["filename"], dataset.meta["md5"])]:
            _check(batches / file, md5)
        with _reading(batches):
            train, test = (dataset(str(folder), train=which) for which in (True, False))
            return _arrays((train.data, train.targets, test.data, test.targets), train.classes)

    def fetch(self, folder: Path) -> None:
        _datasets("CIFAR10")(str(folder), download=True)


@dataclass(frozen=True)
class SVHN(DownloadedFormat):
    """Two Matlab files of cropped digits; torchvision turns label 10 into 0."""

    def read(self, folder: Path) -> Arrays:
        dataset, arrays = _datasets("SVHN"), []
        for split in ("train", "test"):
            _, file, md5 = dataset.split_list[split]
            _check(folder / file, md5)
            with _reading(folder / file):
                images = dataset(str(folder), split=split)
                arrays += [images.data.transpose(0, 2, 3, 1), images.labels]
        return _arrays(arrays, [str(digit) for digit in range(10)])

    def fetch(self, folder: Path) -> None:
        for split in ("train", "test"):
            _datasets("SVHN")(str(folder), split=split, download=True)


@dataclass(frozen=True)
class TinyImageNet(DownloadedFormat):
    """JPEG files: `train` has a folder for each class, `val` one folder and a table of classes.

    Classes are in the order of their WordNet names. Decoding 110,000 files takes a minute, so the arrays are stored
    in the same folder.
    """

    def files(self, folder: Path) -> list[Path]:
        """Return the stored arrays; before they exist, the table and the folders of pictures."""
        root, stored = folder / self.paths[0], self._stored_arrays(folder)
        if stored.exists():
            return [stored]
        patterns = ("val/val_annotations.txt", "val/images", "train/*/images")
        return [path for pattern in patterns for path in root.glob(pattern)]

    def read(self, folder: Path) -> Arrays:
        root, stored = folder / self.paths[0], self._stored_arrays(folder)
        if stored.exists():
            return read_npz(stored)
        with _reading(root / "train"):
            train = _datasets("ImageFolder")(str(root / "train"))
        val = self._val(root / "val", train.class_to_idx)
        decoded = [array for files in (train.samples, val) for array in _decoded(files)]
        arrays = _arrays(decoded, train.classes)
        with suppress(OSError):  # not writable, or full: it will be decoded again
            write_npz(stored, arrays)
        return arrays

    def _stored_arrays(self, folder: Path) -> Path:
        return folder / self.paths[0] / "decoded.npz"

    @staticmethod
    def _val(folder: Path, classes: dict[str, int]) -> list[tuple[str, int]]:
        """Return files and classes of the validation images, which serve as test images."""
        table = folder / "val_annotations.txt"
        with _reading(table):
            rows = [line.split("\t")[:2] for line in table.read_text().splitlines() if line]
            return [(str(folder / "images" / file), classes[name]) for file, name in rows]

    def fetch(self, folder: Path) -> None:
        import_torchvision()
        from torchvision.datasets.utils import download_and_extract_archive

        download_and_extract_archive(TINY_IMAGENET, str(folder), md5=TINY_IMAGENET_MD5)

    def assurance(self, folder: Path) -> str:
        return "its images are counted, no md5"

    def fingerprint(self, folder: Path) -> str | None:
        return npz_fingerprint(self._stored_arrays(folder))


@dataclass(frozen=True)
class OwnFormat(Format):
    """A format for sets of a user's own, each recognised by a path that contains its name.

    Its files may come from a stranger: `read` and `sizes` must not run code from them (no pickles).
    """

    pattern: ClassVar[str]
    """path of a set in the folder of data, with {} for its name"""

    @classmethod
    def named(cls, name: str) -> "OwnFormat":
        """Return the set of this name, which need not exist."""
        return cls((cls.pattern.format(name),))

    @staticmethod
    @abstractmethod
    def names(folder: Path) -> set[str]:
        """Return the names of all sets of this format."""

    @abstractmethod
    def sizes(self, folder: Path) -> Sizes:
        """Return the sizes of the set without reading its pictures. Raise ValueError if it is damaged."""


@dataclass(frozen=True)
class Npz(OwnFormat):
    """A file NAME.npz of arrays."""

    pattern = "{}.npz"

    @staticmethod
    def names(folder: Path) -> set[str]:
        return {file.stem for file in folder.glob("[!.]*.npz")}

    def read(self, folder: Path) -> Arrays:
        return read_npz(folder / self.paths[0])

    def sizes(self, folder: Path) -> Sizes:
        return npz_sizes(folder / self.paths[0])

    def fingerprint(self, folder: Path) -> str | None:
        return npz_fingerprint(folder / self.paths[0])

    def assurance(self, folder: Path) -> str:
        return "a file of arrays, for which there is no md5"


KNOWN_FORMATS: dict[str, Format] = {
    "digits": Digits((str(Path(__file__).with_name("digits8.npz")),)),
    "mnist": Idx(("MNIST",), "MNIST"),
    "fashion_mnist": Idx(("FashionMNIST",), "FashionMNIST"),
    "cifar10": Cifar10(("cifar-10-batches-py",)),
    "svhn": SVHN(("train_32x32.mat", "test_32x32.mat")),
    "tiny_imagenet": TinyImageNet(("tiny-imagenet-200",)),
}
"""by name of the set. The digits: 8 x 8, E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (UCI
Machine Learning Repository, CC BY 4.0), as scikit-learn has them: pictures 0 to 1499 train, the other 297 test"""
OWN_FORMATS: tuple[type[OwnFormat], ...] = (Npz,)
"""if a name has files of several formats, the first of this list is read"""


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


def _arrays(four: Sequence[Any], names: Sequence[str]) -> Arrays:
    """Return an image set from its four arrays, in the order of NEEDED, and the names of its classes."""
    return {**dict(zip(NEEDED, map(np.asarray, four), strict=True)), "class_names": list(names)}


def _decoded(files: Sequence[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the pictures of files, and their labels."""
    from torchvision.datasets.folder import default_loader

    pictures = np.empty((0, 0, 0, 3), np.uint8)
    for number, (file, _) in enumerate(files):
        with _reading(Path(file)):
            picture = np.asarray(default_loader(file))
            if number == 0:
                pictures = np.empty((len(files), *picture.shape), np.uint8)
            if picture.shape != pictures.shape[1:]:
                raise ValueError(f"it has {picture.shape} numbers, the first {pictures.shape[1:]}")
            pictures[number] = picture
    return pictures, np.array([label for _, label in files], np.int64)
