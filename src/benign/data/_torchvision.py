"""Makes `import torchvision` work, also where its operators were built for another torch."""

import sys
from functools import cache
from typing import Any

import torch

_kept: list[Any] = []
"""libraries of operators; they are gone from torch when nobody holds them"""


@cache
def have_torchvision() -> None:
    """Import torchvision, or raise ValueError in one line; what needs it (timm does) can be imported after this.

    The wheels of torchvision hold operators for CUDA. Beside a torch without CUDA they do not load, and the import
    fails at their names ("operator torchvision::nms does not exist"). Nothing here calls them, so names will do.
    """
    try:
        _import()
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _define_names()
        _import()


def _import() -> None:
    try:
        import torchvision  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"torchvision is needed for this and cannot be imported ({error}): pip install 'benign[images]'"
        ) from error


def _define_names() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported
