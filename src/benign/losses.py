"""Loss and margin of outputs and labels, with their derivatives in the outputs.

With two classes a point has one output f and a label y = -1 or +1: the margin is y f and the loss
log(1 + exp(-y f)). With k classes it has outputs F_0, ..., F_{k-1} and a label y = 0, ..., k - 1: the
margin is F_y - max_{j != y} F_j and the loss the cross-entropy. The shape of the outputs decides which
definition applies: [runs, samples] or [runs, samples, classes].
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Outputs = Float[Tensor, "runs samples *classes"]
Labels = Float[Tensor, "runs samples"]


def margin(outputs: Outputs, y: Labels) -> Float[Tensor, "runs samples"]:
    """Return the margin of every point, which is positive if the point is classified correctly."""
    if _two_classes(outputs):
        return y * outputs
    own, rival = _own_and_rival(outputs, y)
    return (outputs.gather(2, own) - outputs.gather(2, rival))[..., 0]


def margin_slope(outputs: Outputs, y: Labels) -> Outputs:
    """Return the derivative of the margin: y, or +1 at the own class and -1 at its strongest rival."""
    if _two_classes(outputs):
        return y
    own, rival = _own_and_rival(outputs, y)
    one = torch.ones_like(own, dtype=outputs.dtype)
    return torch.zeros_like(outputs).scatter(2, own, one).scatter(2, rival, -one)


def own_slope(outputs: Outputs, y: Labels) -> Outputs:
    """Return the derivative of the own output: y for y f, or 1 at the own class for F_y."""
    if _two_classes(outputs):
        return y
    own = _own(y)
    return torch.zeros_like(outputs).scatter(2, own, torch.ones_like(own, dtype=outputs.dtype))


def loss(outputs: Outputs, y: Labels) -> Float[Tensor, "runs samples"]:
    """Return the logistic loss or the cross-entropy, without overflow."""
    if _two_classes(outputs):
        return -functional.logsigmoid(y * outputs)
    return -outputs.log_softmax(2).gather(2, _own(y))[..., 0]


def loss_slope(outputs: Outputs, y: Labels) -> Outputs:
    """Return the derivative of the loss: y l'(y f), or the class probabilities minus 1 at the own class."""
    if _two_classes(outputs):
        return y * logistic_slope(y * outputs)
    own = _own(y)
    return outputs.softmax(2).scatter_add(2, own, -torch.ones_like(own, dtype=outputs.dtype))


def logistic_slope(z: Tensor) -> Tensor:
    """Return l'(z) = -1 / (1 + exp(z)) of l(z) = log(1 + exp(-z)), between -1 and 0."""
    return -torch.sigmoid(-z)


def correct(margins: Float[Tensor, "runs samples"]) -> Float[Tensor, "runs samples"]:
    """Return 1 for a positive margin, 0 for another (a tie is an error), NaN for NaN; float64."""
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
