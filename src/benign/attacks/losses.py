"""The losses that attacks ascend, with their derivatives in the outputs."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel
from benign.losses import Labels, Outputs, loss, loss_slope, margin, margin_slope

AttackLoss = Literal["margin", "cross_entropy", "dlr"]
"""minus the margin; the training loss; or the difference of logits ratio of Croce and Hein (2020)"""


def value(name: AttackLoss, outputs: Outputs, y: Labels) -> Float[Tensor, "runs samples"]:
    """Return the loss of every point."""
    if name == "cross_entropy":
        return loss(outputs, y)
    if name == "margin":
        return -margin(outputs, y)
    spread, _ = _spread(outputs)
    return -margin(outputs, y) / spread


def slope(name: AttackLoss, outputs: Outputs, y: Labels) -> Outputs:
    """Return the derivative of each point's loss in its outputs."""
    if name == "cross_entropy":
        return loss_slope(outputs, y)
    if name == "margin":
        return -margin_slope(outputs, y)
    return _ratio_slope(outputs, y)


def check_loss(name: AttackLoss, data: DataModel) -> None:
    """Raise ValueError if the loss is not defined for the labels of this data."""
    classes = data.label_count() or 2
    if name == "dlr" and classes < 3:
        raise ValueError(
            f"`loss` is {name!r}, which compares three classes or more, but `{data.kind}` has {classes}: "
            "use 'margin'"
        )


def _ratio_slope(outputs: Outputs, y: Labels) -> Outputs:
    """Return the derivative of -margin / spread, through both."""
    spread, slope_of_spread = _spread(outputs)
    ratio = (margin(outputs, y) / spread)[..., None]
    return (ratio * slope_of_spread - margin_slope(outputs, y)) / spread[..., None]


def _spread(outputs: Float[Tensor, "runs samples classes"]) -> tuple[Tensor, Tensor]:
    """Return the largest output minus the third largest, and its derivative; a constant 1 if all three are equal."""
    top = outputs.topk(3, dim=2)
    spread = top.values[..., 0] - top.values[..., 2]
    tied = spread == 0
    one = torch.where(tied, 0.0, 1.0).to(outputs.dtype)[..., None]
    first, third = top.indices[..., :1], top.indices[..., 2:]
    slope_of_spread = torch.zeros_like(outputs).scatter(2, first, one).scatter(2, third, -one)
    return torch.where(tied, torch.ones_like(spread), spread), slope_of_spread
