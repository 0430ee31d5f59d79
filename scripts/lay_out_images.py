"""Lay out a folder of data (`BENIGN_DATA`) from a folder of packed image sets, for developers.

    python scripts/lay_out_images.py SHARED FOLDER [--only mnist cifar10_12k ...] [--images N] [--test M]

SHARED holds mnist/*.gz (torchvision's four files), and image sets as .npz: plain ones with x_train, y_train, x_test,
y_test, and packed ones (NAME_packed.npz) whose pictures are JPEG bytes. In FOLDER they are MNIST/raw/*.gz and
NAME.npz with plain arrays. With --images or --test, of each class only the first N training and M test images are
kept, so that a set is small enough to copy; MNIST is copied whole.
"""

import argparse
import io
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FIELDS = ("x_train", "y_train", "x_test", "y_test", "class_names")


def lay_out(shared: Path, folder: Path, name: str, most: dict[str, int | None]) -> Path:
    """Make one set, in a temporary file that is renamed; returns where it is."""
    if name == "mnist":
        return _mnist(shared / "mnist", folder / "MNIST" / "raw")
    arrays = _arrays(shared, name)
    for split, count in most.items():
        places = first_of_each(arrays[f"y_{split}"], count)
        arrays |= {key: arrays[key][places] for key in (f"x_{split}", f"y_{split}")}
    folder.mkdir(parents=True, exist_ok=True)
    place, partial = folder / f"{name}.npz", folder / f".{name}.partial.npz"
    kept: dict[str, Any] = {key: arrays[key] for key in FIELDS}
    np.savez_compressed(partial, **kept)
    os.replace(partial, place)
    return place


def first_of_each(labels: np.ndarray, count: int | None) -> np.ndarray:
    """Places of the first `count` of every class, in their order; all where it is None."""
    if count is None:
        return np.arange(len(labels))
    return np.sort(np.concatenate([np.flatnonzero(labels == k)[:count] for k in np.unique(labels)]))


def _mnist(source: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.glob("*.gz")):
        partial = folder / f".{file.name}.partial"
        shutil.copyfile(file, partial)
        os.replace(partial, folder / file.name)
    return folder


def _arrays(shared: Path, name: str) -> dict[str, np.ndarray]:
    plain = shared / f"{name}.npz"
    with np.load(plain if plain.exists() else shared / f"{name}_packed.npz") as file:
        arrays = dict(file)
    if plain.exists():
        return arrays
    if arrays["codec"] != "jpeg":
        raise SystemExit(f"{name}: packed as {arrays['codec']}, which this script does not read")
    return arrays | {f"x_{split}": _decoded(arrays, split) for split in ("train", "test")}


def _decoded(arrays: dict[str, np.ndarray], split: str) -> np.ndarray:
    blob, ends = arrays[f"blob_{split}"], arrays[f"offsets_{split}"]
    pictures = np.empty((len(ends) - 1, *arrays["hw"], 3), np.uint8)
    for place, (begin, end) in enumerate(pairwise(ends)):
        with Image.open(io.BytesIO(blob[begin:end].tobytes())) as picture:
            pictures[place] = np.asarray(picture.convert("RGB"))
    return pictures


def names_in(shared: Path) -> list[str]:
    """The sets of a folder; the digits are in the package."""
    files = (file.stem.removesuffix("_packed") for file in shared.glob("*.npz"))
    return sorted({*files, "mnist"} - {"digits8"})


def main() -> None:
    options = argparse.ArgumentParser(description="Lay out a folder of data.")
    options.add_argument("shared", type=Path)
    options.add_argument("folder", type=Path)
    options.add_argument("--only", nargs="+", help="names of sets")
    options.add_argument("--images", type=int, help="training images of each class")
    options.add_argument("--test", type=int, help="test images of each class")
    asked = options.parse_args()
    for name in asked.only or names_in(asked.shared):
        most = {"train": asked.images, "test": asked.test}
        print(lay_out(asked.shared, asked.folder, name, most))


if __name__ == "__main__":
    main()
