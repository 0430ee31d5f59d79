"""The specification of tests of learned features on images (Li appendix A).

training/metrics/image_features.py runs them. A module of its own, because `Evaluation` contains the specification and
the metrics import `Evaluation`.
"""

from typing import Literal

from pydantic import StrictFloat

from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.data.model import DataModel
from benign.spec.base import Count, Positive, Spec, Whole


class FeatureTests(Spec):
    """Which features a network has learned, tested with two reference networks of the same kind (Li appendix A).

    One reference is trained without an attack, the other with `attack`. Test images are drawn anew from the features of
    each: those from the standard reference show what Li calls non-robust features, the others robust ones. The accuracy
    of a run on them is its feature learning accuracy. For `pairs` of classes, images of the first are moved in a ball
    until their features are near those of images of the second: NRF-PGD and RF-PGD.

    >>> import benign as bo
    >>> ball = bo.Ball(p="inf", radius=8 / 255, per="sample", box=(0.0, 1.0))
    >>> bo.FeatureTests(attack=bo.PGD(ball=ball), pairs=[[3, 5]]).pairs
    ((3, 5),)
    """

    attack: Attack
    """training attack of the adversarial reference; it does not depend on how the run is trained"""
    samples: Count = 250
    """test images that are drawn anew"""
    steps: Count = 1000
    """of the search for an image from features"""
    step: Positive = 0.1
    """length of its first step, in the units of the points"""
    start: Literal["noise", "image"] = "noise"
    """its first point: uniform noise in the box, or another of the test images; the same for both references"""
    box: tuple[StrictFloat, StrictFloat] = (0.0, 1.0)
    """lowest and highest value of a coordinate of an image that is drawn anew"""
    pairs: tuple[tuple[Whole, Whole], ...] = ()
    """labels of source and target, for NRF-PGD and RF-PGD; none: no such attacks"""
    ball: Ball | None = None
    """the ball of NRF-PGD and RF-PGD; that of `attack`, if not given"""
    matching_steps: Count = 100
    """steps of NRF-PGD and RF-PGD"""
    matching_step: Positive = 0.25
    """length of their first step, as a share of the radius"""

    def check(self) -> None:
        if not self.box[0] < self.box[1]:
            raise ValueError(
                f"`box` must be [lowest, highest] with lowest < highest, got {[*self.box]}"
            )
        if self.pairs and self.matching_ball() is None:
            raise ValueError(
                "`ball` must be given with `pairs`: `attack` has no single ball to take in its place"
            )
        ball = self.matching_ball() if self.pairs else None
        if ball is not None and ball.relative_to is not None:
            raise ValueError(
                f"`ball.relative_to` must be left out for `pairs`, got {ball.relative_to!r}: "
                "give `ball` with `radius` in the units of the points"
            )

    def matching_ball(self) -> Ball | None:
        """Return the ball of NRF-PGD and RF-PGD, or None if `attack` has no single ball."""
        threat = self.attack.threat()
        return self.ball or (threat if isinstance(threat, Ball) else None)

    def check_against(self, data: DataModel) -> None:
        """Raise ValueError if networks trained on this data cannot be tested in this way."""
        if data.picture_shape() is None:
            raise ValueError(
                f"`evaluation.features` is for pictures (`images`), but `data` is `{data.kind}`: leave it out"
            )
        self.attack.check_against(data)
        most, count = data.most_tests(), data.label_count()
        if most is not None and self.samples > most:
            raise ValueError(
                f"`evaluation.features.samples` must be at most {most:,}, the test images of `data`, "
                f"got {self.samples:,}"
            )
        for pair in self.pairs:
            if count is None or max(pair) >= count or pair[0] == pair[1]:
                raise ValueError(
                    f"`evaluation.features.pairs` must hold two labels of {count or 'several'} classes "
                    f"(`labels: classes`), got {[*pair]}"
                )
