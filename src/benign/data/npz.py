"""Image sets as arrays, and .npz files of them. A file may come from a stranger: nothing is unpickled, all is checked.

x_train, x_test   uint8 [images, height, width] or [images, height, width, channels], 1 or 3 channels
y_train, y_test   whole numbers from 0 on, [images]
class_names       optional, one text a class
"""

import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from benign.spec.base import digest

NEEDED = ("x_train", "y_train", "x_test", "y_test")
NAMES = "class_names"


@dataclass(frozen=True)
class Part:
    """The training or the test images of a set."""

    images: UInt8[Tensor, "images channels height width"]
    labels: Int64[Tensor, " images"]


@dataclass(frozen=True)
class ImageSet:
    """An image set in memory."""

    train: Part
    test: Part
    class_names: tuple[str, ...]


class Sizes(NamedTuple):
    """Sizes of an image set."""

    train: int
    """training images"""
    test: int
    """test images"""
    shape: tuple[int, ...]
    """height, width, channels"""
    classes: int


def from_arrays(arrays: Mapping[str, Any]) -> ImageSet:
    """Return the image set of such arrays. Raise ValueError, with the array and the reason, if one does not fit."""
    train, test = (_part(arrays, split) for split in ("train", "test"))
    if train.images.shape[1:] != test.images.shape[1:]:
        raise ValueError(
            f"`x_test` must have pictures as `x_train` has, [channels, height, width] = "
            f"{[*train.images.shape[1:]]}, got {[*test.images.shape[1:]]}"
        )
    classes = 1 + max(int(part.labels.max()) for part in (train, test))
    names = tuple(map(str, np.asarray(arrays.get(NAMES, np.arange(classes))).ravel()))
    if len(names) < classes:
        raise ValueError(f"`{NAMES}` must name {classes} classes, as labels have, got {len(names)}")
    return ImageSet(train, test, names)


def _part(arrays: Mapping[str, Any], split: str) -> Part:
    images, labels = (_array(arrays, f"{kind}_{split}") for kind in "xy")
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not images.size:
        raise ValueError(
            f"`x_{split}` must be uint8 [images, height, width] or [images, height, width, channels], got "
            f"{images.dtype} {[*images.shape]}"
        )
    images = images[..., None] if images.ndim == 3 else images
    if images.shape[3] not in (1, 3):
        raise ValueError(f"`x_{split}` must have 1 or 3 channels, got {images.shape[3]}")
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"`y_{split}` must be {len(images):,} whole numbers, one an image, got {labels.dtype} {[*labels.shape]}"
        )
    if labels.min() < 0:
        raise ValueError(f"`y_{split}` must be 0 or more, got {labels.min()}")
    pictures = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return Part(pictures, torch.from_numpy(labels.astype(np.int64)))


def _array(arrays: Mapping[str, Any], name: str) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"`{name}` is missing, there are {', '.join(arrays) or 'no arrays'}")
    return np.asarray(arrays[name])


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file that make an image set. Raise ValueError if the file cannot be read."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in (*NEEDED, NAMES) if name in file.files}
    except Exception as error:  # a damaged file may make numpy raise almost anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{path} cannot be read as an .npz file of arrays: {reason}") from error


def npz_sizes(path: Path) -> Sizes:
    """Return the sizes of an image set; the pictures of the file are not read. Raise ValueError if it is damaged."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            train, test = (file[f"y_{split}"] for split in ("train", "test"))
            with file.zip.open("x_train.npy") as member:
                np.lib.format.read_magic(member)
                shape, _, _ = np.lib.format.read_array_header_1_0(member)
        classes = 1 + max(int(train.max()), int(test.max()))
        return Sizes(len(train), len(test), (*shape[1:], 1)[:3], classes)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an .npz file of arrays") from error


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file; it appears whole or not at all."""
    handle, partial = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".npz", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def npz_fingerprint(path: Path) -> str | None:
    """Return a digest of the checksums that an .npz file stores of its arrays, or None if the file is damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            members = [file.getinfo(f"{name}.npy") for name in NEEDED]
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    return digest([(member.filename, member.CRC, member.file_size) for member in members])
