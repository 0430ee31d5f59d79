"""The logistic loss of a margin, l(z) = log(1 + exp(-z)), and its derivative."""

import torch
from torch import Tensor
from torch.nn import functional


def logistic(margin: Tensor) -> Tensor:
    """l(z) = log(1 + exp(-z)), without overflow."""
    return functional.softplus(-margin)


def logistic_slope(margin: Tensor) -> Tensor:
    """l'(z) = -1 / (1 + exp(z)), between -1 and 0."""
    return -torch.sigmoid(-margin)
