"""The base class of networks of pictures (resnet, pretrained), which assemble a picture from the tokens of a point."""

import math
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel
from benign.networks.module import ModuleNetwork
from benign.spec.axes import Shape, default
from benign.spec.base import Count


class PictureNetwork(ModuleNetwork):
    """A network of pictures. `tokens` is 1 or a square number of patches, `dim` is channels * side^2 of a patch.

    Its modules are large and have no shared weights, so runs are computed one after another.
    """

    one_by_one: ClassVar[bool] = True

    channels: Literal[1, 3] = 3
    """channels of a picture: 1 for grey, 3 for colours"""
    classes: Shape[Count | None] = default(None)
    """number of outputs; None for one, whose sign predicts labels -1 and +1"""

    def check(self) -> None:
        if self.classes == 1:
            raise ValueError(
                "`classes` must be at least 2, got 1: leave it out for labels -1 and +1"
            )

    def output_count(self) -> int | None:
        return self.classes

    def check_size(self, data: DataModel) -> None:
        """Raise ValueError if points are no pictures."""
        if math.isqrt(data.tokens) ** 2 != data.tokens:
            raise ValueError(
                f"`data.tokens` must be a square number of patches for `network` ({self.kind}), got {data.tokens}: "
                "1 is a whole picture"
            )
        side = math.isqrt(data.dim // self.channels)
        if self.channels * side**2 != data.dim:
            raise ValueError(
                f"`data.dim` must be channels={self.channels} times a square for `network` ({self.kind}), "
                f"got {data.dim}: `network.channels` is 1 for grey pictures, 3 for coloured ones"
            )

    def check_against(self, data: DataModel) -> None:
        self.check_size(data)
        super().check_against(data)


def as_pictures(
    x: Float[Tensor, "samples tokens dim"], channels: int
) -> Float[Tensor, "samples channels height width"]:
    """Return the pictures of these patches; a patch is given channel by channel and row by row."""
    across, side = math.isqrt(x.shape[1]), math.isqrt(x.shape[2] // channels)
    patches = x.reshape(len(x), across, across, channels, side, side)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(len(x), channels, across * side, across * side)
