"""A pretrained vision transformer of which only the last layer's attention is trained, and its head if asked for."""

import copy
from contextlib import suppress
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from benign.data.model import DataModel
from benign.networks.module_checks import PointSize
from benign.networks.network import Cost, Params
from benign.networks.pictures import PictureNetwork, as_pictures
from benign.networks.vit import ViT
from benign.networks.vit_weights import load_vit, place_of
from benign.spec.axes import Shape, default
from benign.spec.base import Count
from benign.spec.registry import guarantees
from benign.streams import Streams

BASE_16 = "vit_base_patch16_224.augreg_in21k"
"""the paper's ViT-B/16 of ImageNet-21k, by its name in timm"""
ASSUMED = Cost(weights=3 * 1_780_000, point=50_000_000, multiplies=17_600_000_000)
"""of ViT-B/16 at 224 pixels, where the weights are not here to be looked at"""
Colours = tuple[float, float, float]


@guarantees("recordable")
class PretrainedViT(PictureNetwork):
    """A ViT of published weights, frozen but for W_Q, W_K and W_V of its last layer (Zhang C.4, Figure 8).

    The paper has ViT-B/16 of ImageNet-21k and does not say what its head was: a linear one on the class
    token after the last norm, which starts as torch draws it, and is trained or stays.

    A picture is resized to `image_side` pixels by linear interpolation and normalised, c -> (c - mean) / std;
    a grey one is seen in three equal channels. So attacks move the pixels of the data.

    Parameters: `query`, `key` and `value` of the last layer and `head`, each with `.weight` and `.bias`.
    The rest is held once, not by every run, and is no part of a record: `weights` says what it is.

    >>> import benign as bo
    >>> bo.PretrainedViT(classes=10, image_side=112).weights
    'vit_base_patch16_224.augreg_in21k'
    """

    kind: ClassVar[str] = "pretrained_vit"

    weights: Shape[str] = default(BASE_16)
    """a file (.safetensors, .pt, .pth, .bin), a folder of one with its config.json, either also in the folder of data;
    or a name that timm downloads. Names of tensors are those of timm or of transformers (ViT, DINOv2)"""
    head: Literal["trained", "frozen"] = "trained"
    """whether the head moves"""
    heads: Shape[Count | None] = default(None)
    """of attention, where the weights do not tell: None for one in 64 columns"""
    image_side: Shape[Count] = default(224)
    """pixels of a side that the network sees, a multiple of its patches"""
    mean: Colours = (0.5, 0.5, 0.5)
    """of the colours, which is subtracted (DINOv2: 0.485, 0.456, 0.406)"""
    std: Colours = (0.5, 0.5, 0.5)
    """by which the rest is divided (DINOv2: 0.229, 0.224, 0.225)"""

    def check(self) -> None:
        super().check()
        if min(self.std) <= 0:
            raise ValueError(f"`std` must be greater than 0 in every colour, got {[*self.std]}")

    def check_against(self, data: DataModel) -> None:
        """Sizes only: an experiment may be opened where its weights are not."""
        self.check_size(data)

    def require(self) -> None:
        _shared(self.weights, self.heads, self.image_side)

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        self.require()
        return super().initial_params(data, streams, dtype)

    def build(self, data: PointSize) -> nn.Module:
        return Tuned(self, _shared(self.weights, self.heads, self.image_side))

    def cost(self, data: DataModel) -> Cost:
        if place_of(self.weights) is not None:
            with suppress(ValueError):  # `require` tells of it
                return super().cost(data)
        share = (self.image_side / 224) ** 2
        point, multiplies = round(share * ASSUMED.point), round(share * ASSUMED.multiplies)
        return Cost(ASSUMED.weights, point, multiplies)


class Tuned(nn.Module):
    """What a run has of its own, before, in and after the transformer that all share."""

    def __init__(self, network: PretrainedViT, shared: "_Shared"):
        super().__init__()
        self._network = network
        self._shared = shared  # no submodule, so no part of a run's state
        last = shared.vit.blocks[-1]
        self.query, self.key, self.value = (
            _copied(last.get_submodule(name)) for name in ("query", "key", "value")
        )
        self.head = nn.Linear(shared.vit.cls.shape[-1], network.classes or 1)
        self.head.requires_grad_(network.head == "trained")
        shared.at(self.head.weight)  # now: whoever counts what a pass makes would count the copy

    def _columns(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the last layer."""
        return self.query(x), self.key(x), self.value(x)

    def represent(self, x: Float[Tensor, "samples tokens dim"]) -> Float[Tensor, "samples hidden"]:
        """The class token."""
        return self._shared.at(x)(self._seen(x), self._columns)

    def _seen(self, x: Tensor) -> Float[Tensor, "samples 3 side side"]:
        side = self._network.image_side
        pictures = as_pictures(x, self._network.channels)
        if pictures.shape[-1] != side:
            pictures = interpolate(pictures, (side, side), mode="bilinear", align_corners=False)
        pictures = pictures.expand(-1, 3, -1, -1)
        colours = zip(pictures.unbind(1), self._network.mean, self._network.std, strict=True)
        return torch.stack([(colour - mean) / std for colour, mean, std in colours], 1)

    def forward(self, x: Float[Tensor, "samples tokens dim"]) -> Float[Tensor, "samples outputs"]:
        return self.head(self.represent(x))


class _Shared:
    """A frozen transformer, once on every device and in every precision that asked for it."""

    def __init__(self, vit: ViT):
        self.vit = vit
        self._copies = {(vit.cls.device, vit.cls.dtype): vit}

    def at(self, x: Tensor) -> ViT:
        key = (x.device, x.dtype)
        if key not in self._copies:
            self._copies[key] = copy.deepcopy(self.vit).to(*key)
        return self._copies[key]


@lru_cache(maxsize=2)
def _shared(weights: str, heads: int | None, side: int) -> _Shared:
    return _Shared(load_vit(weights, heads, side))


def _copied(layer: nn.Module) -> nn.Linear:
    """A linear layer that starts as another and may be trained."""
    assert isinstance(layer, nn.Linear)
    own = nn.Linear(layer.in_features, layer.out_features)
    with torch.no_grad():
        own.weight.copy_(layer.weight)
        own.bias.copy_(layer.bias)
    return own
