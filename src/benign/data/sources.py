"""Image sets by name: facts about the known ones, and their pictures on this machine."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from benign.data.folder import data_folder, staging
from benign.data.formats import FORMATS, Arrays
from benign.data.npz import ImageSet, Part, from_arrays, npz_fingerprint, read_npz


@dataclass(frozen=True)
class Facts:
    """Facts about an image set that need none of its files."""

    channels: int
    side: int
    """pixels of a side"""
    classes: int
    train: int
    """training images"""
    test: int
    """test images"""


KNOWN = {
    "digits": Facts(1, 8, 10, 1500, 297),
    "mnist": Facts(1, 28, 10, 60_000, 10_000),
    "fashion_mnist": Facts(1, 28, 10, 60_000, 10_000),
    "cifar10": Facts(3, 32, 10, 50_000, 10_000),
    "svhn": Facts(3, 32, 10, 73_257, 26_032),
    "tiny_imagenet": Facts(3, 64, 200, 100_000, 10_000),
}
SHIPPED = Path(__file__).with_name("digits8.npz")
"""8 x 8 digits of E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (UCI Machine Learning
Repository, CC BY 4.0), as scikit-learn has them: pictures 0 to 1499 train, the other 297 test"""


_NAME = re.compile(r"\w[\w.-]*")


def check_name(name: str) -> None:
    """Raise ValueError if this cannot be the name of a set, such as a path."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"`source` must be a known set ({', '.join(KNOWN)}) or NAME of a file NAME.npz in the folder of data, "
            f"in letters, digits, _, - and dots, got {name!r}"
        )


def where_is(name: str) -> Path | None:
    """Return the path of a set, or None if it is not on this machine.

    For a known set its own format is preferred to NAME.npz.
    """
    if name == "digits" or not _NAME.fullmatch(name):
        return SHIPPED if name == "digits" else None
    folder, own = data_folder(), FORMATS.get(name)
    places = [folder / part for part in own.parts] if own else []
    return next((place for place in [*places, folder / f"{name}.npz"] if place.exists()), None)


def absent_message(name: str) -> str:
    """Return the message for a set that is not on this machine."""
    own, folder = FORMATS.get(name), data_folder()
    files = f"{own.parts[0]} or {name}.npz" if own else f"{name}.npz"
    problem = f"images of {name!r} are not here: no {files} in {folder}"
    remedy = f"`benign data {name} --download` gets them" if own else "`benign data` lists the sets"
    return (
        f"{problem}; {remedy}, --data or BENIGN_DATA names another folder, `digits` needs no "
        "download"
    )


def image_set(name: str) -> ImageSet:
    """Return the image set of this name, cached in memory. Raise ValueError if it is missing or damaged."""
    check_name(name)
    place = where_is(name)
    if place is None:
        raise ValueError(absent_message(name))
    return _cached_set(name, place, place.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _cached_set(name: str, place: Path, changed: int) -> ImageSet:
    if name == "digits":
        return _digits()
    if place.suffix == ".npz":
        return _checked(name, place, read_npz(place), whole=False)
    try:
        return _checked(name, place, FORMATS[name].read(data_folder()), whole=True)
    except ValueError as error:
        again = f"`benign data {name} --download` gets it again"
        raise ValueError(f"{error}; {again}") from error


def _digits() -> ImageSet:
    arrays = read_npz(SHIPPED)
    for split in ("x_train", "x_test"):  # 17 levels of grey
        arrays[split] = (arrays[split] * (255 / 16)).round().astype(np.uint8)
    return from_arrays(arrays)


def _checked(name: str, place: Path, arrays: Arrays, *, whole: bool) -> ImageSet:
    """Return the set of these arrays. Raise ValueError if it is not the known set of this name.

    whole: also the numbers of images must agree; a user's own file under a known name may have other pictures.
    """
    try:
        images = from_arrays(arrays)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    if known := KNOWN.get(name):
        channels, classes = images.train.images.shape[1], len(images.class_names)
        if channels != known.channels or classes > known.classes:
            raise ValueError(
                f"{place}: {name} has {known.channels} channels and {known.classes} classes, this file {channels} and "
                f"{classes}: give it another name"
            )
        counts = len(images.train.labels), len(images.test.labels)
        if whole and counts != (known.train, known.test):
            raise ValueError(
                f"{place}: {name} has {known.train:,} training and {known.test:,} test images, here are "
                f"{counts[0]:,} and {counts[1]:,}"
            )
    return images


def part_on(name: str, split: str, device: str) -> Part:
    """Return the training or the test images of a set on a device, where they are cached."""
    place = where_is(name)
    changed = place.stat().st_mtime_ns if place else 0
    return _on_device(name, split, device, place, changed)


@lru_cache(maxsize=8)
def _on_device(name: str, split: str, device: str, place: Path | None, changed: int) -> Part:
    part: Part = getattr(image_set(name), split)
    return Part(part.images.to(device), part.labels.to(device))


def fingerprint(name: str) -> str | None:
    """Return a digest that differs for other pictures under the same name, computed without reading them.

    None if they are not here, and for the digits, which come with the package.
    """
    place = where_is(name)
    if place is None or name == "digits":
        return None
    return _fingerprint(name, place, place.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _fingerprint(name: str, place: Path, changed: int) -> str | None:
    if place.suffix == ".npz":
        return npz_fingerprint(place)
    return FORMATS[name].fingerprint(data_folder())


def download(name: str) -> Path:
    """Download a known set into the folder of data. It replaces what is there when it is complete and verified."""
    check_name(name)
    if name not in FORMATS:
        reason = "it comes with the package" if name == "digits" else "it is no known set"
        raise ValueError(f"{name} cannot be downloaded, {reason}: choose {', '.join(FORMATS)}")
    with staging(FORMATS[name].parts) as place:
        try:
            FORMATS[name].fetch(place)
        except Exception as error:  # of the network, of archives, of checksums
            lines = [line for line in str(error).splitlines() if line] or [type(error).__name__]
            parts = " and ".join(FORMATS[name].parts)
            raise ValueError(
                f"{name} could not be downloaded: {lines[-1]}; {parts} may be put into {data_folder()} by hand"
            ) from error
        _checked(name, place, FORMATS[name].read(place), whole=True)
    return data_folder() / FORMATS[name].parts[0]
