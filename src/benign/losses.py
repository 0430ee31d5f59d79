"""Loss and margin of outputs and labels, with their derivatives in the outputs.

With two classes a point has one output f and a label y = -1 or +1: the margin is y f and the loss
log(1 + exp(-y f)). With k classes it has outputs F_1, ..., F_k and a label y = 0, ..., k - 1: the
margin is F_y - max_{j != y} F_j and the loss the cross-entropy. Which one it is, the outputs' shape
tells: [runs, samples] or [runs, samples, classes].
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Outputs = Float[Tensor, "runs samples *classes"]
Labels = Float[Tensor, "runs samples"]


def margin(outputs: Outputs, y: Labels) -> Float[Tensor, "runs samples"]:
    """Positive where the point is classified rightly."""
    if _two_classes(outputs):
        return y * outputs
    own, rival = _own_and_rival(outputs, y)
    return (outputs.gather(2, own) - outputs.gather(2, rival))[..., 0]


def margin_slope(outputs: Outputs, y: Labels) -> Outputs:
    """Derivative of the margin: y, or +1 at the own class and -1 at its strongest rival."""
    if _two_classes(outputs):
        return y
    own, rival = _own_and_rival(outputs, y)
    one = torch.ones_like(own, dtype=outputs.dtype)
    return torch.zeros_like(outputs).scatter(2, own, one).scatter(2, rival, -one)


def own_slope(outputs: Outputs, y: Labels) -> Outputs:
    """Derivative of the own output: y of y f, or 1 at the own class of F_y."""
    if _two_classes(outputs):
        return y
    own = _own(y)
    return torch.zeros_like(outputs).scatter(2, own, torch.ones_like(own, dtype=outputs.dtype))


def loss(outputs: Outputs, y: Labels) -> Float[Tensor, "runs samples"]:
    """Logistic loss or cross-entropy, without overflow."""
    if _two_classes(outputs):
        return -functional.logsigmoid(y * outputs)
    return -outputs.log_softmax(2).gather(2, _own(y))[..., 0]


def loss_slope(outputs: Outputs, y: Labels) -> Outputs:
    """Derivative of the loss: y l'(y f), or the class probabilities less 1 at the own class."""
    if _two_classes(outputs):
        return y * logistic_slope(y * outputs)
    own = _own(y)
    return outputs.softmax(2).scatter_add(2, own, -torch.ones_like(own, dtype=outputs.dtype))


def logistic_slope(z: Tensor) -> Tensor:
    """l'(z) = -1 / (1 + exp(z)) of l(z) = log(1 + exp(-z)), between -1 and 0."""
    return -torch.sigmoid(-z)


def correct(margins: Float[Tensor, "runs samples"]) -> Float[Tensor, "runs samples"]:
    """1 where a margin is positive, 0 where not (a tie is an error), NaN where it is NaN; float64."""
    margins = margins.double()
    return torch.where(margins.isnan(), margins, (margins > 0).double())


def _two_classes(outputs: Tensor) -> bool:
    return outputs.ndim == 2


def _own(y: Labels) -> Tensor:
    return y.long()[..., None]


def _own_and_rival(outputs: Tensor, y: Labels) -> tuple[Tensor, Tensor]:
    own = _own(y)
    others = outputs.scatter(2, own, torch.full_like(own, -torch.inf, dtype=outputs.dtype))
    return own, others.argmax(2, keepdim=True)
