"""Perturbations of points in a ball, and the ascent that PGD and its relatives share."""

from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from benign.attacks.attack import BestSoFar, Delta, Points, Target
from benign.attacks.balls import Ball, Units
from benign.attacks.losses import AttackLoss, slope
from benign.losses import Outputs, margin
from benign.networks.network import Pass


def start_stream(start: Literal["zero", "uniform"], restart: int) -> str | None:
    """Return the name of the streams that draw an ascent's first perturbation, or None if that is zero."""
    return None if start == "zero" and restart == 0 else f"start/{restart}"


class PerturbationSpace:
    """Perturbations as vectors of R^d.

    A subclass may use other coordinates (`GramSpace`). Attacks add, scale and select perturbations as tensors whose
    last axes are [runs, samples, tokens, coordinates]; everything else that depends on coordinates is a method here.
    """

    def __init__(self, target: Target, ball: Ball):
        self.target, self.ball = target, ball
        self.y = target.y
        self.radius = ball.radii(target.data, target.x)
        self._points: Tensor | None = None

    def begin(self, draw: str | None) -> Delta:
        """Return the first perturbation: zero, or uniform in the ball from the streams of this name."""
        if draw is None:
            return torch.zeros_like(self.target.x)
        return self._uniform(draw)

    def _uniform(self, draw: str) -> Points:
        return self.target.uniform(self.ball, self.radius, draw)

    def run(self, delta: Delta) -> Pass:
        """Run the network on the perturbed points. Gradients in inputs are in the coordinates of the perturbation.

        The next call may overwrite such a gradient.
        """
        # All steps use the same memory: allocating it costs more than the sum.
        self._points = self.ball.points(self.target.x, delta, out=self._points)
        return self.target.run(self._points)

    def evaluate(self, delta: Delta, loss: AttackLoss) -> tuple[Outputs, Delta]:
        """Return the outputs at the perturbed points and the steepest direction, which the next call may overwrite."""
        here = self.run(delta)
        gradient = here.inputs_gradient(slope(loss, here.outputs, self.y))
        return here.outputs, self.steepest(gradient)

    def move(
        self, delta: Delta, ascent_direction: Delta, length: Units, out: Delta | None = None
    ) -> Delta:
        """Return the projection of delta + length * ascent_direction."""
        return self.project(torch.addcmul(delta, ascent_direction, length, out=out))

    def momentum_step(
        self,
        here: Delta,
        before: Delta | None,
        ascent_direction: Delta,
        length: Units,
        momentum: float,
        out: Delta | None = None,
    ) -> Delta:
        """Return P(here + m (new - here) + (1 - m) (here - before)), where m is the momentum and new is `move`.

        Without a perturbation before, return new.
        """
        new = self.move(here, ascent_direction, length, out=out)
        if before is None:
            return new
        new.mul_(momentum).add_(here, alpha=2 - 2 * momentum)
        return self.project(new.sub_(before, alpha=1 - momentum))

    def ascend(
        self,
        delta: Delta,
        loss: AttackLoss,
        length: Units,
        steps: int,
        *,
        best: BestSoFar | None = None,
        wrong: Bool[Tensor, "runs samples"] | None = None,
    ) -> Delta:
        """Return the last iterate of projected steepest ascent. May be in place.

        best: is updated with every iterate.
        wrong: if given, these points stay where they are, and so does each point from its first wrong iterate on.
        """
        if best is None and wrong is None:
            return self._steps(delta, loss, length, steps)
        for _ in range(steps):
            outputs, ascent_direction = self.evaluate(delta, loss)
            margins = margin(outputs, self.y)
            if best is not None:
                best.update(delta, margins)
            if wrong is None:
                delta = self.move(delta, ascent_direction, length, out=delta)
                continue
            wrong = wrong | (margins <= 0)
            if wrong.all():
                return delta
            before = delta.clone()
            delta = self.move(delta, ascent_direction, length, out=delta)
            delta = torch.where(wrong[:, :, None, None], before, delta)
        if best is not None:
            best.update(delta, margin(self.run(delta).outputs, self.y))
        return delta

    def _steps(self, delta: Delta, loss: AttackLoss, length: Units, steps: int) -> Delta:
        """Ascend without margins: a subclass may have a faster way."""
        for _ in range(steps):
            _, ascent_direction = self.evaluate(delta, loss)
            delta = self.move(delta, ascent_direction, length, out=delta)
        return delta

    def steepest(self, gradient: Delta) -> Delta:
        """Return the perturbation of unit norm along which a linear function rises fastest. May be in place."""
        return self.ball.steepest(gradient)

    def project(self, delta: Delta) -> Delta:
        """Return the nearest perturbation inside the ball and the box. May be in place."""
        return self.ball.project(delta, self.radius, self.target.x)

    def points(self, delta: Delta) -> Points:
        """Return the perturbed points."""
        return self.ball.points(self.target.x, delta)

    def finish(self, delta: Delta) -> tuple[Points, Pass]:
        """Return the perturbed points, and the pass on them whose loss training descends."""
        points = self.points(delta)
        return points, self.target.training_pass(points)
