"""Plain numbers, and the experiment that theory has in mind for them."""

import math
from collections.abc import Mapping
from typing import Any

from benign.data.mixture import Mixture
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.two_layer import TwoLayer
from benign.papers.inside import pgd
from benign.papers.jiang import theory as jiang
from benign.papers.zhang import theory as zhang
from benign.spec.base import Count, FlipRate, NonNegative, Positive, Spec
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

WIDE = 20_000
"""dimensions from which on a run is computed in the span it stays in"""


class AttentionNumbers(Spec):
    """A transformer's attention layer on signal and noise tokens (Jiang, Zhang)."""

    samples: Count
    """N"""
    tokens: Count = 4
    """M"""
    dim: Count = 1024
    """d"""
    hidden: Count = 128
    """d_h"""
    snr: Positive
    """|mu| / (sigma_p sqrt d)"""
    noise: Positive = 1.0
    """length of a noise token, sigma_p sqrt d"""
    radius: NonNegative = 0.0
    """tau / |mu| of every token; 0 is clean training"""
    loss: Positive = 0.01
    """eps"""
    rate: Positive | None = None
    """eta; the largest that the conditions allow if not given"""
    copies: Count = 1
    """K, noise-injected copies of every point that are thought of (Zhang's guideline 2)"""

    def experiment(self) -> Experiment:
        """Theory's experiment with these numbers: initial weights in the middle of what the conditions allow."""
        scale = max(1.0, self.snr**2) * self.noise**2
        window = jiang.score_variances(scale, self.hidden, self.samples, self.tokens, jiang.ALL_ONE)
        start = zhang.largest_start(self.dim, scale, self.hidden, 1.0, jiang.ALL_ONE)
        return Experiment(
            data=SignalNoise(
                samples=self.samples,
                tokens=self.tokens,
                dim=self.dim,
                snr=self.snr,
                noise_std=self.noise / math.sqrt(self.dim),
                projected=True,
                balanced=True,
            ),
            network=Attention(
                hidden=self.hidden,
                value_dim=1,
                init=GaussianInit(score_std=math.prod(window) ** 0.25, value_std=start),
                output_norm=1.0,
            ),
            attack=pgd(self.radius, "token"),
            training=GradientDescent(
                rate=self.rate or jiang.largest_rate(scale, self.hidden, jiang.ALL_ONE),
                stop_loss=self.loss,
            ),
            **_computed(self.dim),
        )


class TwoLayerNumbers(Spec):
    """A two-layer network on two clusters with flipped labels (Wang)."""

    samples: Count
    """n"""
    dim: Count = 1000
    """d"""
    signal: Positive
    """r = |mu|, in standard deviations of the noise"""
    radius: NonNegative = 0.1
    """alpha / |mu|"""
    flip: FlipRate = 0.0
    """beta"""
    width: Count = 200
    """m"""
    loss: Positive = 0.01
    """training loss to reach"""
    rate: Positive | None = None
    """eta; n / d if not given, which trains in tens of steps"""

    def experiment(self) -> Experiment:
        return Experiment(
            data=Mixture(samples=self.samples, dim=self.dim, signal=self.signal, flip=self.flip),
            network=TwoLayer(width=self.width, activation="relu", preset="vanishing"),
            attack=pgd(self.radius, "sample"),
            training=GradientDescent(
                rate=self.rate or self.samples / self.dim,
                stop_loss=self.loss,
                first_attacked_step=1,
            ),
            **_computed(self.dim),
        )


NUMBERS: dict[str, type[AttentionNumbers] | type[TwoLayerNumbers]] = {
    "attention": AttentionNumbers,
    "two_layer": TwoLayerNumbers,
}


def experiment_for(network: str, numbers: Mapping[str, Any]) -> Experiment:
    """The experiment that theory has in mind for plain numbers."""
    if network not in NUMBERS:
        raise ValueError(f"`network` must be one of {', '.join(NUMBERS)}, got {network!r}")
    return NUMBERS[network].from_dict(numbers).experiment()


def _computed(dim: int) -> dict[str, Any]:
    """What is the same for all: five seeds, in float64, in small coordinates where d is large."""
    return {
        "evaluation": Evaluation(samples=1000),
        "precision": "float64",
        "coordinates": "sampled" if dim > WIDE else "ambient",
        "seeds": 5,
    }
