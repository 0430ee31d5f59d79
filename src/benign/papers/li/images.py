"""Feature learning on real images (Li Tables 1 and 2, Figures 4 and 5): what the text leaves open, and its experiment.

The paper does not tell the optimiser, the attacks, the number of inverted images and how they are found (papers/li.md
3.3); here SGD with momentum, PGD-10 from the clean point for training (a GPU records its steps, which from random
points it cannot), and the steps of Ilyas et al. 2019. Images are not augmented.
"""

from dataclasses import dataclass
from typing import Any

import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.attacks.strong import EnsembleAttack
from benign.claims.study import Question, Reading
from benign.data.images import Images
from benign.experiment import Experiment, specification
from benign.networks.network import Network
from benign.networks.resnet import ResNet, WideResNet
from benign.papers.image_questions import TITLES, facts_of, source_of, which_images
from benign.papers.li.printed import PAIRS, TRAININGS
from benign.training.feature_tests import FeatureTests
from benign.training.optimisers import SGD
from benign.training.setup import Evaluation

START = Question(
    "start",
    "where does the search for an image with given features begin?",
    {"noise": "at uniform noise", "image": "at another test image, the same for both references"},
    "the caption of Figure 1",
)
CLOSE, MNIST_EPS = 8 / 255, 0.3
RADII = {"digits": 0.15, "mnist": MNIST_EPS}
"""eps in l_inf, 8/255 for coloured images; that of the digits is ours"""


@dataclass(frozen=True)
class Size:
    """What goes with the scale."""

    samples: int
    epochs: int
    seeds: int
    tests: int
    inverted: int
    """test images that are drawn anew from features"""
    steps: int
    """of the search for each"""
    ascend: int
    """steps of training attacks; the judge takes twice as many"""
    network: int
    """which of the networks of a data set, from small to the paper's"""
    batch: int = 32
    """points of an update: of 500 images 128 would leave too few updates to learn anything"""


SIZES = {
    "smoke": Size(256, 4, 1, 40, 12, 12, 2, 0),
    "quick": Size(500, 12, 3, 250, 50, 200, 4, 1),
    "paper": Size(100_000, 30, 5, 10_000, 1000, 1000, 10, 2, 128),
}


@dataclass(frozen=True)
class Case:
    """A data set of Table 1."""

    name: str
    """as in the claims' ids"""
    paper: str
    """the paper's set"""
    rate: float
    networks: tuple[Network, Network, Network]
    """at each scale"""
    epochs: int
    """of the paper"""
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def images(self) -> Question:
        return which_images(self.paper)

    def experiment(self, scale: str, reading: Reading) -> Experiment:
        """Standard and adversarial training, tested along the way."""
        size, source = SIZES[scale], source_of(scale, reading, self.paper)
        facts = facts_of(source)
        attack = PGD(ball=ball(source), steps=size.ascend, step=2.5 / size.ascend)
        asked = FeatureTests(
            attack=attack,
            samples=min(size.inverted, facts.test),
            steps=size.steps,
            start=reading["start"],  # pyright: ignore[reportArgumentType]
            pairs=self.pairs,
            matching_steps=max(2, size.steps // 10),
        )
        return Experiment(
            data=_data(source, min(size.samples, facts.train)),
            network=_seeing(self.networks[size.network], facts.channels),
            attack=[None, attack],
            training=SGD(
                rate=self.rate,
                weight_decay=5e-4,
                schedule="drops",
                batch=size.batch,
                epochs=self.epochs if scale == "paper" else size.epochs,
                stop_loss=0.0,
            ),
            evaluation=Evaluation(
                samples=min(size.tests, facts.test),
                attack=EnsembleAttack(ball=ball(source), steps=2 * size.ascend, restarts=1),
                at="snapshots",
                features=asked,
            ),
            seeds=size.seeds,
            pairing="common",
        )


MNIST = Case(
    "mnist",
    "mnist",
    0.01,
    (
        ResNet(width=4, blocks=(1, 1), classes=10),
        ResNet(width=8, blocks=(1, 1, 1), classes=10),
        ResNet(classes=10),
    ),
    30,
)
_WIDE = (
    WideResNet(depth=10, widen=1, classes=10),
    WideResNet(depth=10, widen=2, classes=10),
    WideResNet(classes=10),
)
CIFAR = Case("cifar", "cifar10", 0.1, _WIDE, 200, tuple(PAIRS.values()))
SVHN = Case("svhn", "svhn", 0.01, _WIDE, 200)


def ball(source: str) -> Ball:
    """Where attacks stay, and pixels in [0, 1]."""
    return Ball(p="inf", radius=RADII.get(source, CLOSE), per="sample", box=(0.0, 1.0))


def _data(source: str, samples: int) -> Images:
    facts = facts_of(source)
    return Images(
        source=source,
        samples=samples,
        dim=facts.channels * facts.side**2,
        channels=1 if facts.channels == 1 else 3,
        classes=tuple(range(facts.classes)),
    )


def _seeing(network: Network, channels: int) -> Network:
    """The network for pictures of so many colours."""
    return type(network).from_dict({**network.as_dict(), "channels": channels})


def by_training(result: xr.Dataset) -> xr.Dataset:
    """A result with the axis of attacks named by what it is: standard or adversarial training."""
    return result.rename(attack="training").assign_coords(training=list(TRAININGS))


def scale_told(result: xr.Dataset) -> str:
    """The size of what was run, to stand beside every number of it."""
    spec: dict[str, Any] = specification(result)
    data, network, training = spec["data"], spec["network"], spec["training"]
    shape = {
        name: network[name] for name in ("width", "blocks", "depth", "widen") if name in network
    }
    sizes = ", ".join(f"{name} {value}" for name, value in shape.items())
    seeds = result.sizes["seed"]
    eps = spec["evaluation"]["attack"]["ball"]["radius"]
    return (
        f"{TITLES[data['source']]}: {data['samples']:,} training images, {network['kind']} ({sizes}), "
        f"{training['epochs']} epochs, eps = {eps:.3g}, {seeds} seed{'s' * (seeds > 1)}, "
        f"{spec['evaluation']['features']['samples']} images drawn anew"
    )
