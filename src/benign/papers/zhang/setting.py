"""The setting of Zhang's synthetic experiments (papers/zhang.md section 5)."""

import math

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention

LEVEL = 0.75
"""accuracy halfway between chance and certainty"""
RADIUS = 0.05
"""tau / |mu| of figures 1 and 2"""
NOISE_LENGTH = math.sqrt(0.4 * 1024)
"""sigma_p sqrt(d) of a noise token of figures 1 and 2, also where d is another"""


def noisy_signals(dim: int, **more) -> SignalNoise:
    """As in figures 1 and 2: isotropic noise of variance 0.4, M = 16, by default reading."""
    return SignalNoise(
        **({"tokens": 16, "dim": dim, "noise_std": math.sqrt(0.4), "balanced": True} | more)
    )


def pgd(radius: float | list[float], steps: int = 20, step: float = 0.2) -> PGD:
    """The attack of the paper's experiments."""
    return PGD(ball=Ball(radius=radius, relative_to="signal"), steps=steps, step=step)


def changed(net: Attention, **fields) -> Attention:
    """The network with other fields, which may be axes."""
    return Attention(**{name: value for name, value in net if name != "kind"} | fields)
