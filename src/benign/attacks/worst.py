"""The worst of many tries, point by point."""

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Points


class Worst:
    """For every point the one of smallest margin among those offered; before any offer the clean one."""

    def __init__(self, x: Points):
        self.points = x.clone()
        self.margins = torch.full(x.shape[:2], torch.inf, dtype=x.dtype, device=x.device)

    def offer(self, points: Points, margins: Float[Tensor, "runs samples"]) -> None:
        worse = margins < self.margins
        self.margins = torch.where(worse, margins, self.margins)
        self.points = torch.where(worse[:, :, None, None], points, self.points)
