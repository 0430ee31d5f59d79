"""Random starts of an attack, uniform in a ball of R^d, in the coordinates of the span (papers/wang.md 6.4).

The component of a start beyond the span keeps its direction: steps do not change it, and projections scale it with the
rest. So only its length matters, which is one more coordinate of every token, at which all points and weights are
zero. The ascent from there is the same as in R^d. (Training imports this module, the modes do not need it.)
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
    """Points and weights with one more coordinate, zero for all but starts, which have their length beyond the span."""

    dim: int
    """d"""
    view: View | None
    """the view of the span, to draw starts in R^d; if None, the coordinates of starts are drawn"""

    def uniform(self, ball: Ball, radius: Units, part: str) -> Points:
        streams = self.streams.within(part)
        if self.view is not None:
            return self._viewed(self.view, ball, radius, streams)
        samples, tokens, wide = self.x.shape[1:]
        inside = streams("direction").normal(samples, tokens, wide - 1, dtype=self.x.dtype)
        beyond = chi_square(streams("beyond"), self.dim - (wide - 1), samples, tokens).sqrt()
        direction = torch.cat([inside, beyond[..., None].to(inside)], dim=3)
        return ball.filled(streams, radius, direction, self.dim)

    def _viewed(self, view: View, ball: Ball, radius: Units, streams: Streams) -> Points:
        """Return the starts that the same run has in R^d, in the view."""
        shape = (*self.x.shape[:3], self.dim)
        whole = ball.uniform(streams, radius, self.x.new_zeros(()).expand(shape))
        inside = view.of(whole)
        squares = [torch.linalg.vector_norm(part, dim=3).square() for part in (whole, inside)]
        beyond = (squares[0] - squares[1]).clamp_min(0).sqrt()
        return torch.cat([inside, beyond[..., None]], dim=3)


def widened(target: Target, dim: int, view: View | None) -> WideTarget:
    """Return the target with that coordinate, for starts of R^dim."""
    network, data, sample = target.network, target.data, target.sample
    assert isinstance(network, TokenRows)
    vectors = {name: pad(sample.latent[name], (0, 1)) for name in vector_names(data, sample)}
    sample = replace(sample, x=pad(sample.x, (0, 1)), latent=sample.latent | vectors)
    params, wide = network.widened(target.params, data), data.reduced(data.dim + 1)
    return WideTarget(network, params, wide, sample, target.streams, dim, view)
