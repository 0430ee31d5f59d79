"""What is made of a margin z = y f: the logistic loss, its derivative, right or wrong."""

import torch
from torch import Tensor
from torch.nn import functional


def logistic(margin: Tensor) -> Tensor:
    """l(z) = log(1 + exp(-z)), without overflow."""
    return functional.softplus(-margin)


def logistic_slope(margin: Tensor) -> Tensor:
    """l'(z) = -1 / (1 + exp(z)), between -1 and 0."""
    return -torch.sigmoid(-margin)


def correct(margin: Tensor) -> Tensor:
    """1 where the margin is positive, 0 where not (a tie is an error), NaN where it is NaN; float64."""
    margin = margin.double()
    return torch.where(margin.isnan(), margin, (margin > 0).double())
