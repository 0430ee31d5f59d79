"""Zhang et al. on real images (papers/zhang.md 5): pictures of norm 5 under noise, small vision transformers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball, Balls
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading
from benign.data.constructions import PixelNoise
from benign.data.images import Images
from benign.experiment import Experiment
from benign.networks.network import Network
from benign.papers.image_questions import source_of
from benign.papers.recipes import Scaled
from benign.papers.vision import Size, count_tests, images, ratios, training, transformer
from benign.training.setup import Evaluation

BALL = Question(
    "ball",
    "the radius is tau = r |mu|: of every token, or of the picture?",
    {
        "image": "of the picture, all its tokens together",
        "token": "of every token, as in the definitions: a picture of M tokens moves by up to sqrt(M) tau",
        "token_sqrt": "of every token, divided by sqrt(M)",
    },
    "with tau of every token training on MNIST stayed at the class prior in our trials",
)
WEAKER = Question(
    "radius",
    "the radius on Tiny-ImageNet is printed as 0.10 |mu|, twice that on MNIST, and called weaker",
    {"printed": "0.10 |mu|", "weaker": "0.01 |mu|, as on CIFAR-10"},
    "as printed; with it training stayed at the class prior in our trials",
)
PATCH = {
    "digits": 2,
    "mnist": 7,
    "cifar10": 4,
    "cifar10_12k": 4,
    "tiny_imagenet": 8,
    "tinyimagenet20": 8,
}
"""pixels of a side of a patch: 16 tokens, 64 of the colour pictures"""
RADII = {
    "mnist": 0.05,
    "cifar10": 0.01,
    "cifar10_12k": 0.01,
    "tiny_imagenet": 0.1,
    "tinyimagenet20": 0.1,
}
"""tau / |mu| (C.2)"""
CUT_OFF = {"digits": 0.93, "mnist": 0.93} | dict.fromkeys(("cifar10", "cifar10_12k"), 0.65)
CUT_OFF |= dict.fromkeys(("tiny_imagenet", "tinyimagenet20"), 0.70)
"""accuracy that the panels of two colours are cut at (C.2)"""

Attacker = Callable[[Size, Reading, Images, float], Attack]
"""the training attack of a figure, with tau / |mu|"""


@dataclass(frozen=True, kw_only=True)
class ImageFigure:
    """A figure on images: what is trained on what, against what."""

    paper: str
    """its image set"""
    attack: Attacker
    sizes: Scaled[Size]

    def build(self, scale: str, reading: Reading) -> Experiment:
        size, source = self.sizes[scale], source_of(scale, reading, self.paper)
        data = images(size, reading, source, PATCH[source], PixelNoise(snr=ratios(size)))
        radius = RADII[self.paper if source == "digits" else source]
        if reading.get("radius") == "weaker":
            radius /= 10
        attack = self.attack(size, reading, data, radius)
        return trained(size, reading, data, transformer(size, reading, data.label_count()), attack)


def trained(
    size: Size, reading: Reading, data: Images, network: Network, attack: Attack
) -> Experiment:
    """The experiment of a figure. Test points are judged by the worst of short ascents and of the training attack."""
    threat, source = attack.threat(), str(data.source)
    assert threat is not None
    judge = EnsembleAttack(ball=threat, steps=size.judge, restarts=1, also=attack)
    return Experiment(
        data=data,
        network=network,
        attack=attack,
        training=training(size, reading),
        evaluation=Evaluation(samples=count_tests(size, reading, source), attack=judge),
        pairing="common",
        seeds=size.seeds,
    )


def pgd(size: Size, reading: Reading, data: Images, radius: float) -> PGD:
    """20 steps of 0.2 tau (section 6); fewer are longer."""
    ball = Ball(**_where(reading, data, radius))
    return PGD(ball=ball, steps=size.ascend, step=_step(size), loss="cross_entropy")


def apgd(size: Size, reading: Reading, data: Images, radius: float) -> APGD:
    """APGD on the training loss from the clean point (C.2 gives neither its loss nor its steps)."""
    return APGD(ball=Ball(**_where(reading, data, radius)), steps=size.ascend, loss="cross_entropy")


def multi_norm(size: Size, reading: Reading, data: Images, radius: float) -> MultiNorm:
    """For every point the worst of PGD in l1, l2 and linf balls of radii 20, 1 and 1/30 times tau (C.3)."""
    where = _where(reading, data, radius)
    numbers = data.dim * (data.tokens if where["per"] == "sample" else 1)
    # A step in the l1 ball moves a twentieth of the numbers: one at a time is far from the worst in 20 steps.
    balls = Balls(**where, coordinates=max(1, numbers // 20))
    return MultiNorm(balls=balls, steps=size.ascend, step=_step(size), loss="cross_entropy")


def _step(size: Size) -> float:
    return max(0.2, 2 / size.ascend)


def _where(reading: Reading, data: Images, radius: float) -> dict[str, Any]:
    """Fields of a ball, or of several, under an answer to `ball`."""
    answer = reading["ball"]
    return {
        "radius": radius / math.sqrt(data.tokens) if answer == "token_sqrt" else radius,
        "relative_to": "signal",
        "per": "sample" if answer == "image" else "token",
    }
