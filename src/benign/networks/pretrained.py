"""A pretrained vision transformer in which only the attention of the last layer and the head are trained."""

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
from benign.networks.vit import ViT, find_weights, load_vit
from benign.spec.axes import Shape, default
from benign.spec.base import Count
from benign.spec.registry import guarantees
from benign.streams import Streams

BASE_16 = "vit_base_patch16_224.augreg_in21k"
"""the paper's ViT-B/16 of ImageNet-21k, by its name in timm"""
ASSUMED = Cost(weights=3 * 1_780_000, point=50_000_000, multiplies=17_600_000_000)
"""cost of ViT-B/16 at 224 pixels, assumed if the weights are not on this machine"""
Colours = tuple[float, float, float]


@guarantees("recordable")
class PretrainedViT(PictureNetwork):
    """A ViT with published weights, frozen except W_Q, W_K and W_V of its last layer (Zhang C.4, Figure 8).

    The paper uses ViT-B/16 of ImageNet-21k and does not describe its head. Here it is linear on the class
    token after the last norm, initialised as torch does, and trained or frozen.

    A picture is resized to `image_side` pixels by linear interpolation and normalised, c -> (c - mean) / std;
    a grey one is repeated in three channels. Attacks move the pixels of the data.

    Parameters: `query`, `key` and `value` of the last layer and `head`, each with `.weight` and `.bias`.
    All runs share the rest, which is not stored in records: the field `weights` identifies it.

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
    """number of attention heads if the weights do not include it; None for one head in 64 columns"""
    image_side: Shape[Count] = default(224)
    """pixels of a side of the resized picture, a multiple of the patches"""
    mean: Colours = (0.5, 0.5, 0.5)
    """mean of each colour, which is subtracted (DINOv2: 0.485, 0.456, 0.406)"""
    std: Colours = (0.5, 0.5, 0.5)
    """standard deviation of each colour, by which it is divided (DINOv2: 0.229, 0.224, 0.225)"""

    def check(self) -> None:
        super().check()
        if min(self.std) <= 0:
            raise ValueError(f"`std` must be greater than 0 in every colour, got {[*self.std]}")

    def check_against(self, data: DataModel) -> None:
        """Check sizes only: an experiment may be opened on a machine without its weights."""
        self.check_size(data)

    def require(self) -> None:
        _shared(self.weights, self.heads, self.image_side)

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        self.require()
        return super().initial_params(data, streams, dtype)

    def build(self, data: PointSize) -> nn.Module:
        return Tuned(self, _shared(self.weights, self.heads, self.image_side))

    def cost(self, data: DataModel) -> Cost:
        if find_weights(self.weights) is not None:
            with suppress(ValueError):  # `require` reports it
                return super().cost(data)
        share = (self.image_side / 224) ** 2
        point, multiplies = round(share * ASSUMED.point), round(share * ASSUMED.multiplies)
        return Cost(ASSUMED.weights, point, multiplies)


class Tuned(nn.Module):
    """The module of one run: its own last attention and head, around the transformer that all runs share."""

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
        shared.at(self.head.weight)  # copied now, so that a count of operations does not include it

    def _columns(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of the last layer."""
        return self.query(x), self.key(x), self.value(x)

    def represent(self, x: Float[Tensor, "samples tokens dim"]) -> Float[Tensor, "samples hidden"]:
        """Return the class token."""
        return self._shared.at(x)(self._resized(x), self._columns)

    def _resized(self, x: Tensor) -> Float[Tensor, "samples 3 side side"]:
        """Return points as normalised pictures of `image_side` pixels."""
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
    """A frozen transformer, with one copy for every device and precision in use."""

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
    """Return a trainable copy of a linear layer."""
    assert isinstance(layer, nn.Linear)
    own = nn.Linear(layer.in_features, layer.out_features)
    with torch.no_grad():
        own.weight.copy_(layer.weight)
        own.bias.copy_(layer.bias)
    return own
