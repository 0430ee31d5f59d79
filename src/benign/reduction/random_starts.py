"""Random starts of an attack, uniform in a ball of R^d, seen from the span (papers/wang.md 6.4).

What a start has beyond the span is never turned: a step adds nothing to it, and a projection scales it with the
rest. So its length is all that matters of it, and is one more coordinate of every token, at which all points and
weights are zero. The climb from there is the one in R^d.
"""

from dataclasses import dataclass, replace

import torch
from torch.nn.functional import pad

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Units
from benign.bartlett import chi_square
from benign.reduction.modes import starts_at_random
from benign.reduction.protocols import TokenRows
from benign.reduction.test_points import View, vector_names
from benign.spec.registry import has_guarantee
from benign.streams import Streams


def draws_starts(attack: Attack) -> bool:
    """Return whether the attack has random starts that must be those of R^d.

    For `EnsembleAttack` any random starts will do, also those in the ball of the span.
    """
    return has_guarantee(attack, "ball_starts") and starts_at_random(attack)


@dataclass(frozen=True)
class WideTarget(Target):
    """Points and weights with one more coordinate, which is zero; starts have their length beyond the span there."""

    dim: int
    """d"""
    view: View | None
    """how starts of R^d are seen; without it they are drawn as they are seen"""

    def uniform(self, ball: Ball, radius: Units, part: str) -> Points:
        streams = self.streams.within(part)
        if self.view is not None:
            return self._seen(self.view, ball, radius, streams)
        samples, tokens, wide = self.x.shape[1:]
        inside = streams("direction").normal(samples, tokens, wide - 1, dtype=self.x.dtype)
        beyond = chi_square(streams("beyond"), self.dim - (wide - 1), samples, tokens).sqrt()
        direction = torch.cat([inside, beyond[..., None].to(inside)], dim=3)
        return ball.filled(streams, radius, direction, self.dim)

    def _seen(self, view: View, ball: Ball, radius: Units, streams: Streams) -> Points:
        """The starts that the same run has in R^d."""
        shape = (*self.x.shape[:3], self.dim)
        whole = ball.uniform(streams, radius, self.x.new_zeros(()).expand(shape))
        inside = view.of(whole)
        squares = [torch.linalg.vector_norm(each, dim=3).square() for each in (whole, inside)]
        beyond = (squares[0] - squares[1]).clamp_min(0).sqrt()
        return torch.cat([inside, beyond[..., None]], dim=3)


def widened(target: Target, dim: int, view: View | None) -> WideTarget:
    """The target with that coordinate, for starts of R^dim."""
    network, data, sample = target.network, target.data, target.sample
    assert isinstance(network, TokenRows)
    vectors = {name: pad(sample.latent[name], (0, 1)) for name in vector_names(data, sample)}
    sample = replace(sample, x=pad(sample.x, (0, 1)), latent=sample.latent | vectors)
    params, wide = network.widened(target.params, data), data.reduced(data.dim + 1)
    return WideTarget(network, params, wide, sample, target.streams, dim, view)
