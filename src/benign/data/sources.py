"""Image sets by name: what is known of each, and where its pictures are on this machine."""

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


@dataclass(frozen=True)
class Facts:
    """What is known of an image set without its files."""

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


@lru_cache(maxsize=4)
def image_set(name: str) -> ImageSet:
    """The image set of this name; ValueError says how it can be had."""
    if name != "digits":
        raise ValueError(f"`data.source` {name!r}: not yet")
    with resources.files("benign.data").joinpath("digits8.npz").open("rb") as file:
        arrays = dict(np.load(file))
    for split in ("train", "test"):  # 17 levels of grey
        arrays[f"x_{split}"] = (arrays[f"x_{split}"] * (255 / 16)).round().astype(np.uint8)
    return from_arrays(arrays)


def from_arrays(arrays: dict[str, np.ndarray]) -> ImageSet:
    """Images [n, height, width] or [n, height, width, channels] of 0 to 255, labels 0 to k - 1."""
    parts = {}
    for split in ("train", "test"):
        images = torch.as_tensor(arrays[f"x_{split}"])
        images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()
        parts[split] = Part(images, torch.as_tensor(arrays[f"y_{split}"]).long())
    names = arrays.get("class_names", np.arange(int(parts["train"].labels.max()) + 1))
    return ImageSet(**parts, class_names=tuple(map(str, names)))


@lru_cache(maxsize=8)
def part_on(name: str, split: str, device: str) -> Part:
    """The training or the test images of a set, on a device: they live there while runs need them."""
    part = getattr(image_set(name), split)
    return Part(part.images.to(device), part.labels.to(device))
