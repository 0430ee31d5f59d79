"""Attacks constructed from the parts of a point instead of a search: Li Theorem 4.3, Zhang Theorem 3.

`FeatureSwap`, `AllPatch` and `Coupling` do not use the network. `CommonShift` uses it for the choice of a coordinate
and a sign, and `FeatureOrthogonal` confines any other attack to the complement of the features.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target, repeated
from benign.attacks.balls import Ball, Balls
from benign.data.feature_patches import FeaturePatches
from benign.data.model import DataModel, column
from benign.data.signal_noise import SignalNoise
from benign.losses import margin, margin_slope
from benign.networks.network import Params, Pass
from benign.spec.axes import PerRun, replace
from benign.spec.base import NonNegative, Positive

Classes = Int64[Tensor, "runs samples"]


class FeatureAttack(Attack):
    """Base class of attacks that put a feature of another class into a point.

    No feature of a patch changes by more than `clip`. With features along axes (Li Definition 2.1)
    that is the l_inf ball; other features are refused.
    """

    clip: PerRun[NonNegative]
    """eps: no coordinate moves by more"""

    def rivals(self, target: Target) -> Classes:
        """Return y' of every point: uniform on the other classes, and the same in every call."""
        own = target.y.long()
        others = target.sample.latent["features"].shape[1] // 2 - 1
        place = target.streams("rival").integers(own.shape[1]) * others >> 32
        return place + (place >= own)

    def threat(self) -> Ball:
        return replace(Ball(p="inf", radius=0.0, per="sample"), {("radius",): self.clip})

    def check_against(self, data: DataModel) -> None:
        patches = _patches_for(self, data)
        for name, wanted in (("only", "both"), ("directions", "axes")):
            if getattr(patches, name) != wanted:
                raise ValueError(
                    f"`data.{name}` must be {wanted!r} for the attack `{self.kind}`, "
                    f"got {getattr(patches, name)!r}: leave it out or use another attack"
                )

    def passes(self) -> int:
        return 0


class FeatureSwap(FeatureAttack):
    """Delta(X, y) of Li Theorem 4.3 and Proposition 3.1: the non-robust patches change their class.

    delta_p = -min(beta_p, eps) v_y + eps v_y' on the non-robust patches, 0 on the others, with y' uniform on the
    other classes. The paper has beta_p in place of the minimum, which assumes beta_p <= eps: otherwise Delta would
    leave the ball.

    >>> import benign as bo
    >>> bo.FeatureSwap(clip=0.5).threat().radius
    0.5
    """

    def perturb(self, target: Target) -> Points:
        own, rival = _pair(target, self.rivals(target), robust=False)
        clip = column(self.clip, target.x)
        removed = torch.minimum(target.sample.latent["strength"][..., None], clip)
        non_robust = ~target.sample.latent["robust"][..., None]
        return target.x + (clip * rival - removed * own) * non_robust


class AllPatch(FeatureAttack):
    """The attack that breaks robust features (papers/li.md 2.1, 2.9): eps u_y' on every patch, -eps u_y where u_y is.

    A network w_i = gamma u_i withstands it only where |J_R| (alpha - eps) > P eps, up to the noise and
    the bend of the activation. y' is uniform on the other classes.

    >>> import benign as bo
    >>> bo.AllPatch(clip=0.5).threat().label()
    'ball(p=inf, radius=0.5, per=sample)'
    """

    def perturb(self, target: Target) -> Points:
        own, rival = _pair(target, self.rivals(target), robust=True)
        return target.x + column(self.clip, target.x) * (
            rival - own * target.sample.latent["robust"][..., None]
        )


class Coupling(Attack):
    """Move points of both classes to a common point, where no classifier can separate them (Zhang Theorem 3).

    `meet` names that point (papers/zhang.md 4):

    - `meet: signal`: token 1 goes to (mu_+ + mu_-)/2, at a distance of |mu|/sqrt(2). This fools every
      classifier.
    - `meet: permutation`: token 1 and a noise token xi_a meet half-way, mu_y -> (mu_y + xi_a)/2 and
      xi_a -> (mu_-y + xi_a)/2, so that the classes differ only in the order of tokens. a is the
      token for which the longer of the two moves is shortest; if the way of token 1 to
      (mu_+ + mu_-)/2 is shorter still, it moves there. The distance is R_perm. This fools
      classifiers that ignore the order of tokens, such as network (1).

    In a smaller ball the point moves to the point of the ball that is nearest to the common point.

    >>> import benign as bo
    >>> bo.Coupling(ball=bo.Ball(radius=0.8, relative_to="signal"), meet="permutation").passes()
    0
    """

    ball: Ball
    """the ball that attacked points stay in"""
    meet: Literal["signal", "permutation"] = "signal"
    """what the attacked points of both classes have in common: every token, or the set of tokens"""

    def perturb(self, target: Target) -> Points:
        x, middle = target.x, target.sample.latent["signal"].mean(1)[:, None]
        delta = torch.zeros_like(x)
        delta[:, :, 0] = middle - x[:, :, 0]
        if self.meet == "permutation" and x.shape[2] > 1:
            delta = self._shorter(delta, x, 2 * middle - x[:, :, 0])
        return self.ball.points(x, self.ball.project(delta, self.ball.radii(target.data, x), x))

    def _shorter(
        self, delta: Points, x: Points, other: Float[Tensor, "runs samples dim"]
    ) -> Points:
        """Return the move that exchanges tokens, for points where it is shorter than `delta`.

        other: the signal of the other class.
        """
        noise = x[:, :, 1:]
        moves = torch.stack([noise - x[:, :, :1], other[:, :, None] - noise], dim=3) / 2
        lengths = self._length(moves.flatten(1, 2)).unflatten(1, noise.shape[1:3])
        length, nearest = lengths.min(2)
        place = nearest[:, :, None, None].expand(-1, -1, 1, x.shape[3])
        exchange = torch.zeros_like(x)
        exchange[:, :, :1] = moves[:, :, :, 0].gather(2, place)
        exchange.scatter_(2, place + 1, moves[:, :, :, 1].gather(2, place))
        shorter = length < self._length(delta)
        return torch.where(shorter[:, :, None, None], exchange, delta)

    def _length(self, delta: Points) -> Float[Tensor, "runs samples"]:
        """Return the radius of a ball that contains the move."""
        return self.ball.norm(delta).amax((2, 3))

    def check_against(self, data: DataModel) -> None:
        if not isinstance(data, SignalNoise):
            raise ValueError(
                f"the attack `{self.kind}` needs two signals, but `data` is `{data.kind}`: "
                "use `signal_noise` data or another attack"
            )

    def threat(self) -> Ball:
        return self.ball

    def passes(self) -> int:
        return 0


class CommonShift(Attack):
    """Add c e_j to every token, the l0 attack of radius 1 on network (1) (appE.l0).

    This adds c u_j to all values. If attention is uniform or does not see the attack, it adds exactly
    c u_j to f. Otherwise queries and attention change too, but f is still an average of the values: it lies
    between c u_j + min_l v_l and c u_j + max_l v_l, so that for every network with u != 0 some c breaks it.

    j is the coordinate in which the margin is steepest at the clean point. A second choice is made at
    the attacked point, because a long shift saturates attention and the slope there is u. The choice
    with the smaller margin is returned.

    >>> import benign as bo
    >>> bo.CommonShift(size=100.0).threat().label()
    'ball(p=0, radius=1.0)'
    """

    size: PerRun[Positive]
    """c, of any size: the l0 ball counts coordinates only"""

    def perturb(self, target: Target) -> Points:
        first, _ = self._shifted(target, target.x)
        second, reached = self._shifted(target, first)
        better = margin(target.run(second).outputs, target.y) < reached
        return torch.where(better[:, :, None, None], second, first)

    def _shifted(
        self, target: Target, points: Points
    ) -> tuple[Points, Float[Tensor, "runs samples"]]:
        """Return the clean points, shifted against the slope at other points, and the margins of those points."""
        here = target.run(points)
        slopes = here.inputs_gradient(margin_slope(here.outputs, target.y)).sum(2, keepdim=True)
        steepest = slopes.abs().argmax(3, keepdim=True)
        one = torch.zeros_like(slopes).scatter_(3, steepest, slopes.gather(3, steepest).sign())
        return target.x - column(self.size, one) * one, margin(here.outputs, target.y)

    def threat(self) -> Ball:
        return Ball(p=0, radius=1.0)

    def passes(self) -> int:
        return 5


class FeatureOrthogonal(Attack):
    """Another attack, confined to perturbations orthogonal to all 2k features (derived.init-residual).

    Its effect comes from P_perp w, the part of the weights that noiseless training never moves (Li
    Lemma D.2) and that Lemma D.28 ignores. The other attack runs the network at x + P_perp delta,
    so its steps, its best point and its restarts are those of the confined problem.

    >>> import benign as bo
    >>> inner = bo.PGD(ball=bo.Ball(p="inf", radius=0.5, per="sample"))
    >>> bo.FeatureOrthogonal(attack=inner).threat().p
    'inf'
    """

    attack: Attack
    """the attack to confine"""

    def perturb(self, target: Target) -> Points:
        confined = _OffFeatures(**vars(target))
        return confined.confine(self.attack.perturb(confined))

    def check_against(self, data: DataModel) -> None:
        self.attack.check_against(data)
        directions = _patches_for(self, data).directions
        if directions == "axes":
            return
        ball = self.attack.threat()
        if not isinstance(ball, Ball) or not ball.is_round:
            raise ValueError(
                f"`data.directions` must be 'axes' with this `attack`, got {directions!r}: off features that "
                "are not axes only an l2 ball without a box keeps its points, so use either"
            )

    def threat(self) -> Ball | Balls | None:
        return self.attack.threat()

    def passes(self) -> int:
        return self.attack.passes()

    def stored_perturbations(self) -> int:
        return 2 + self.attack.stored_perturbations()


@dataclass(frozen=True)
class _OffFeatures(Target):
    """A target that ignores the components of a perturbation along the features."""

    def off(self, delta: Points) -> Points:
        """Return P_perp delta."""
        features = self.sample.latent["features"][:, None]
        return delta - delta @ features.transpose(2, 3) @ features

    def confine(self, points: Points) -> Points:
        x = repeated(self.x, points)
        return x + self.off(points - x)

    def run(self, points: Points) -> Pass:
        return _OffFeaturesPass(self, super().run(self.confine(points)))


class _OffFeaturesPass(Pass):
    """A pass whose inputs move only off the features."""

    def __init__(self, target: _OffFeatures, confined: Pass):
        self._target, self._confined = target, confined
        self.outputs = confined.outputs

    def params_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Params:
        return self._confined.params_gradient(c)

    def inputs_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Points:
        return self._target.off(self._confined.inputs_gradient(c))


def _patches_for(attack: Attack, data: DataModel) -> FeaturePatches:
    if not isinstance(data, FeaturePatches):
        raise ValueError(
            f"the attack `{attack.kind}` needs features, but `data` is `{data.kind}`: "
            "use `feature_patches` data or another attack"
        )
    return data


def _pair(target: Target, rivals: Classes, *, robust: bool) -> tuple[Points, Points]:
    """Return u_y and u_y' of every point, or v_y and v_y', each [runs, samples, 1, dim]."""
    features = target.sample.latent["features"]
    first = 0 if robust else features.shape[1] // 2
    runs = torch.arange(len(features), device=features.device)[:, None]
    own, rival = (
        features[runs, first + classes][:, :, None] for classes in (target.y.long(), rivals)
    )
    return own, rival
