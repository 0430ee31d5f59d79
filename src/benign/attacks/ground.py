"""The ground that a climb walks on: perturbations, where they rise, and what the network makes of them."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.losses import AttackLoss, slope
from benign.losses import Outputs
from benign.networks.network import Pass

Delta = Float[Tensor, "*pair runs samples tokens coordinates"]
"""perturbations, in the coordinates of a ground; another ground than R^d may need a pair of tensors"""


def first_draw(start: Literal["zero", "uniform"], restart: int) -> str | None:
    """The streams from which a climb's first perturbation is drawn; None where it is zero."""
    return None if start == "zero" and restart == 0 else f"start/{restart}"


class PerturbationSpace:
    """Perturbations as vectors of R^d.

    Another ground may write them in other coordinates. Sums, multiples and choices of perturbations must be those
    of the tensors, whose last axes are [runs, samples, tokens, coordinates]; all else that a climb needs is asked here.
    """

    def __init__(self, target: Target, ball: Ball):
        self.target, self.ball = target, ball
        self.y = target.y
        self.radius = ball.radii(target.data, target.x)
        self._points: Tensor | None = None

    def begin(self, draw: str | None) -> Delta:
        """The first perturbation of a climb: zero, or uniform in the ball from the streams of this name."""
        if draw is None:
            return torch.zeros_like(self.target.x)
        return self._uniform(draw)

    def _uniform(self, draw: str) -> Points:
        return self.target.uniform(self.ball, self.radius, draw)

    def run(self, delta: Delta) -> Pass:
        """What the network makes of the perturbed points; gradients in inputs are in the perturbation.

        The next such gradient may be written over the last.
        """
        # The same memory for all steps: fresh memory costs more than the sum.
        self._points = self.ball.points(self.target.x, delta, out=self._points)
        return self.target.run(self._points)

    def look(self, delta: Delta, loss: AttackLoss) -> tuple[Outputs, Delta]:
        """The outputs at the perturbed points, and the steepest direction there; the next look may write over it."""
        seen = self.run(delta)
        gradient = seen.inputs_gradient(slope(loss, seen.outputs, self.y))
        return seen.outputs, self.steepest(gradient)

    def move(
        self, delta: Delta, ascent_direction: Delta, length: Units, out: Delta | None = None
    ) -> Delta:
        """The nearest perturbation inside to delta + length * rise."""
        return self.project(torch.addcmul(delta, ascent_direction, length, out=out))

    def ascend(self, delta: Delta, loss: AttackLoss, length: Units, steps: int) -> Delta:
        """Where so many steps lead, each of this length along the steepest direction. May be in place."""
        for _ in range(steps):
            _, ascent_direction = self.look(delta, loss)
            delta = self.move(delta, ascent_direction, length, out=delta)
        return delta

    def steepest(self, gradient: Delta) -> Delta:
        """The perturbation of unit norm along which a linear function rises fastest. May be in place."""
        return self.ball.steepest(gradient)

    def project(self, delta: Delta) -> Delta:
        """The nearest perturbation inside the ball and the box. May be in place."""
        return self.ball.project(delta, self.radius, self.target.x)

    def points(self, delta: Delta) -> Points:
        """The perturbed points."""
        return self.ball.points(self.target.x, delta)

    def finish(self, delta: Delta) -> tuple[Points, Pass]:
        """The perturbed points, and the pass on them whose loss is descended."""
        points = self.points(delta)
        return points, self.target.train(points)
