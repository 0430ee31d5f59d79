"""Image sets by name: facts about the known ones, and their pictures on this machine."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benign.data.folder import data_folder, staging
from benign.data.formats import (
    KNOWN_FORMATS,
    OWN_FORMATS,
    DownloadedFormat,
    Format,
    OwnFormat,
    Version,
)
from benign.data.npz import ImageSet, Part, Sizes, from_arrays


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


_NAME = re.compile(r"\w[\w.-]*")


def check_name(name: str) -> None:
    """Raise ValueError if this cannot be the name of a set, such as a path."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"`source` must be a known set ({', '.join(KNOWN)}) or NAME of a set of your own, stored as "
            f"{_own_paths('NAME')} in the folder of data, in letters, digits, _, - and dots, got {name!r}"
        )


def own_names() -> list[str]:
    """Return the names of the sets of a user's own in the folder of data that are no names of known sets."""
    names = {name for own in OWN_FORMATS for name in own.names(data_folder())}
    return sorted(name for name in names - {*KNOWN} if _NAME.fullmatch(name))


def where_is(name: str) -> Path | None:
    """Return the file or folder in which a set is stored, or None if it is not on this machine."""
    stored = _stored(name)
    return stored.path(data_folder()) if stored else None


def _stored(name: str) -> Format | None:
    """Return the set of this name in the format in which it is stored, or None if it is not on this machine.

    The known set is preferred to files of a user's own under its name.
    """
    if not _NAME.fullmatch(name):
        return None
    known = [KNOWN_FORMATS[name]] if name in KNOWN_FORMATS else []
    candidates = [*known, *(own.named(name) for own in OWN_FORMATS)]
    return next((candidate for candidate in candidates if candidate.path(data_folder())), None)


def _own_paths(name: str) -> str:
    return " or ".join(path for own in OWN_FORMATS for path in own.named(name).paths)


def absent_message(name: str) -> str:
    """Return the message for a set that is not on this machine."""
    known, folder = KNOWN_FORMATS.get(name), data_folder()
    files = f"{known.paths[0]} or {_own_paths(name)}" if known else _own_paths(name)
    problem = f"images of {name!r} are not here: no {files} in {folder}"
    remedy = (
        f"`benign data {name} --download` gets them" if known else "`benign data` lists the sets"
    )
    return (
        f"{problem}; {remedy}, --data or BENIGN_DATA names another folder, `digits` needs no "
        "download"
    )


def image_set(name: str) -> ImageSet:
    """Return the image set of this name, cached in memory. Raise ValueError if it is missing or damaged."""
    check_name(name)
    stored = _stored(name)
    if stored is None:
        raise ValueError(absent_message(name))
    return _cached_set(name, stored, stored.version(data_folder()))


@lru_cache(maxsize=4)
def _cached_set(name: str, stored: Format, version: Version) -> ImageSet:
    try:
        return _read(name, stored, data_folder())
    except ValueError as error:
        if not isinstance(stored, DownloadedFormat):
            raise
        again = f"`benign data {name} --download` gets it again"
        raise ValueError(f"{error}; {again}") from error


def _read(name: str, stored: Format, folder: Path) -> ImageSet:
    """Read a set from a folder. Raise ValueError if a file is damaged, or if it is not the known set of this name.

    A user's own files under a known name may have other numbers of images, but the same channels and classes.
    """
    arrays, path = stored.read(folder), stored.path(folder)
    try:
        images = from_arrays(arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if known := KNOWN.get(name):
        channels, classes = images.train.images.shape[1], len(images.class_names)
        if channels != known.channels or classes > known.classes:
            raise ValueError(
                f"{path}: {name} has {known.channels} channels and {known.classes} classes, this file {channels} and "
                f"{classes}: give it another name"
            )
        counts = len(images.train.labels), len(images.test.labels)
        if not isinstance(stored, OwnFormat) and counts != (known.train, known.test):
            raise ValueError(
                f"{path}: {name} has {known.train:,} training and {known.test:,} test images, here are "
                f"{counts[0]:,} and {counts[1]:,}"
            )
    return images


def part_on(name: str, split: str, device: str) -> Part:
    """Return the training or the test images of a set on a device, where they are cached."""
    stored = _stored(name)
    return _on_device(name, split, device, stored.version(data_folder()) if stored else ())


@lru_cache(maxsize=8)
def _on_device(name: str, split: str, device: str, version: Version) -> Part:
    part: Part = getattr(image_set(name), split)
    return Part(part.images.to(device), part.labels.to(device))


def sizes(name: str) -> Sizes:
    """Return the sizes of a set without reading its pictures; those of a known set, also if it is not here.

    Raise ValueError if a set of a user's own is missing or damaged.
    """
    stored, facts = _stored(name), KNOWN.get(name)
    if isinstance(stored, OwnFormat):
        return stored.sizes(data_folder())
    if facts is None:
        raise ValueError(absent_message(name))
    return Sizes(facts.train, facts.test, (facts.side, facts.side, facts.channels), facts.classes)


def assurance(name: str) -> str:
    """Return how the files of a set have been verified. Raise ValueError if it is not on this machine."""
    stored = _stored(name)
    if stored is None:
        raise ValueError(absent_message(name))
    return stored.assurance(data_folder())


def fingerprint(name: str) -> str | None:
    """Return a digest that differs for other pictures under the same name, cached until a file changes.

    None if they are not here, and for the digits, which come with the package.
    """
    stored = _stored(name)
    return _fingerprint(stored, stored.version(data_folder())) if stored else None


@lru_cache(maxsize=64)
def _fingerprint(stored: Format, version: Version) -> str | None:
    return stored.fingerprint(data_folder())


def download(name: str) -> Path:
    """Download a known set into the folder of data. It replaces what is there when it is complete and verified."""
    check_name(name)
    known = KNOWN_FORMATS.get(name)
    if not isinstance(known, DownloadedFormat):
        reason = "it comes with the package" if name == "digits" else "it is no known set"
        names = [key for key in KNOWN if isinstance(KNOWN_FORMATS[key], DownloadedFormat)]
        raise ValueError(f"{name} cannot be downloaded, {reason}: choose {', '.join(names)}")
    with staging(known.paths) as folder:
        try:
            known.fetch(folder)
        except Exception as error:  # of the network, of archives, of checksums
            lines = [line for line in str(error).splitlines() if line] or [type(error).__name__]
            files = " and ".join(known.paths)
            raise ValueError(
                f"{name} could not be downloaded: {lines[-1]}; {files} may be put into {data_folder()} by hand"
            ) from error
        _read(name, known, folder)
    return data_folder() / known.paths[0]
