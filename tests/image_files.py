"""Tiny image sets in the formats of the known ones; torchvision's checksums and addresses are patched to fit them."""

import gzip
import hashlib
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benign.data import formats
from benign.data.formats import import_torchvision
from benign.data.npz import NEEDED
from benign.data.sources import KNOWN, Facts

TRAIN, TEST, CLASSES = 9, 6, 3
Arrays = dict[str, np.ndarray]


def arrays(channels: int, side: int, seed: int = 0) -> Arrays:
    """Random pictures; every class has 3 training and 2 test images."""
    draw = np.random.default_rng(seed)
    shape = (side, side) if channels == 1 else (side, side, channels)
    return {
        "x_train": draw.integers(0, 256, (TRAIN, *shape), np.uint8),
        "y_train": np.arange(TRAIN) % CLASSES,
        "x_test": draw.integers(0, 256, (TEST, *shape), np.uint8),
        "y_test": np.arange(TEST)[::-1] % CLASSES,
    }


def md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes()).hexdigest()


def known(patch: pytest.MonkeyPatch, name: str, side: int) -> Arrays:
    """Return the arrays of a tiny set, and patch the facts about the known set of this name to fit it."""
    facts = KNOWN[name]
    patch.setitem(KNOWN, name, Facts(facts.channels, side, facts.classes, TRAIN, TEST))
    return arrays(facts.channels, side)


def datasets(name: str) -> Any:
    import_torchvision()
    from torchvision import datasets

    return getattr(datasets, name)


def mnist(patch: pytest.MonkeyPatch, folder: Path, *, packed: bool = True) -> Arrays:
    made, raw = known(patch, "mnist", 4), folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    resources = []
    for (file, _), name in zip(datasets("MNIST").resources, NEEDED, strict=True):
        array = made[name].astype(np.uint8)
        content = struct.pack(f">{array.ndim + 1}i", 0x800 + array.ndim, *array.shape)
        place = raw / file
        place.write_bytes(gzip.compress(content + array.tobytes()))
        resources.append((file, md5(place)))
        if not packed:
            place.unlink()
            place.with_suffix("").write_bytes(content + array.tobytes())
    patch.setattr(datasets("MNIST"), "resources", resources)
    return made


def cifar10(patch: pytest.MonkeyPatch, folder: Path) -> Arrays:
    made, place = known(patch, "cifar10", 32), folder / "cifar-10-batches-py"
    place.mkdir(parents=True)

    def written(file: str, content: Any) -> list[str]:
        (place / file).write_bytes(pickle.dumps(content))
        return [file, md5(place / file)]

    def batch(split: str, where: slice) -> dict[str, Any]:
        rows = made[f"x_{split}"][where].transpose(0, 3, 1, 2).reshape(-1, 3072)
        return {"data": rows, "labels": made[f"y_{split}"][where].tolist()}

    lists = [
        written(f"data_batch_{k + 1}", batch("train", slice(2 * k, 2 * k + 2))) for k in range(5)
    ]
    _, mark = written("batches.meta", {"label_names": ["plane", "car", "bird"]})
    of = datasets("CIFAR10")
    patch.setattr(of, "train_list", lists)
    patch.setattr(of, "test_list", [written("test_batch", batch("test", slice(None)))])
    patch.setattr(of, "meta", {**of.meta, "md5": mark})
    return made


def svhn(patch: pytest.MonkeyPatch, folder: Path) -> Arrays:
    from scipy.io import savemat

    made, lists = known(patch, "svhn", 32), {}
    for split in ("train", "test"):
        file = folder / f"{split}_32x32.mat"
        labels = np.where(
            made[f"y_{split}"] == 0, 10, made[f"y_{split}"]
        )  # the digit 0 is class 10
        content = {"X": made[f"x_{split}"].transpose(1, 2, 3, 0), "y": labels[:, None]}
        savemat(file, content)
        lists[split] = [f"http://nowhere.invalid/{file.name}", file.name, md5(file)]
    patch.setattr(datasets("SVHN"), "split_list", lists)
    return made


def tiny_imagenet(patch: pytest.MonkeyPatch, folder: Path) -> Arrays:
    """Write pictures without loss; the names of classes are in another order than their first files."""
    made, place = known(patch, "tiny_imagenet", 4), folder / "tiny-imagenet-200"
    names = ["n01", "n02", "n11"]
    order = np.argsort(made["y_train"], kind="stable")  # files of a class come together
    made |= {key: made[key][order] for key in ("x_train", "y_train")}
    for number, (picture, label) in enumerate(zip(made["x_train"], made["y_train"], strict=True)):
        file = place / "train" / names[label] / "images" / f"{names[label]}_{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(file)
    (place / "val" / "images").mkdir(parents=True)
    rows = []
    for number, (picture, label) in enumerate(zip(made["x_test"], made["y_test"], strict=True)):
        Image.fromarray(picture).save(place / "val" / "images" / f"val_{number}.png")
        rows.append(f"val_{number}.png\t{names[label]}\t0\t0\t3\t3\n")
    (place / "val" / "val_annotations.txt").write_text("".join(rows))
    return made


WRITERS = {"mnist": mnist, "cifar10": cifar10, "svhn": svhn, "tiny_imagenet": tiny_imagenet}


def served(patch: pytest.MonkeyPatch, name: str, folder: Path, address: str) -> Arrays:
    """Write a tiny set as its publisher offers it, as files of a folder, and patch torchvision's address of them."""
    made = WRITERS[name](patch, folder)
    if name == "mnist":
        for file in (folder / "MNIST" / "raw").iterdir():
            file.rename(folder / file.name)
        patch.setattr(datasets("MNIST"), "mirrors", [f"{address}/"])
    elif name == "cifar10":
        file = folder / "cifar-10-python.tar.gz"
        with tarfile.open(file, "w:gz") as archive:
            archive.add(folder / "cifar-10-batches-py", "cifar-10-batches-py")
        patch.setattr(datasets("CIFAR10"), "url", f"{address}/{file.name}")
        patch.setattr(datasets("CIFAR10"), "tgz_md5", md5(file))
    elif name == "svhn":
        for row in datasets("SVHN").split_list.values():
            row[0] = f"{address}/{row[1]}"
    else:
        file = folder / "tiny-imagenet-200.zip"
        with zipfile.ZipFile(file, "w") as archive:
            for path in sorted((folder / "tiny-imagenet-200").rglob("*")):
                archive.write(path, path.relative_to(folder))
        patch.setattr(formats, "TINY_IMAGENET", f"{address}/{file.name}")
        patch.setattr(formats, "TINY_IMAGENET_MD5", md5(file))
    return made
