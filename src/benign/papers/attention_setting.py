"""The synthetic experiments of both attention papers (Jiang, Zhang): open questions, network, data and attack."""

import math
from typing import Literal

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims.study import Question
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault

LEVEL = 0.75
"""accuracy halfway between chance and certainty"""
RADIUS = 0.05
"""tau / |mu| of Zhang's figures 1 and 2"""
NOISE_LENGTH = math.sqrt(0.4 * 1024)
"""sigma_p sqrt(d) of a noise token of Zhang's figures 1 and 2, also where d is another"""

OUTPUT = Question(
    "w_O",
    "the weights are PyTorch's default divided by 16; does that include the fixed output vector w_O?",
    {
        "undivided": "no: |w_O|^2 is about 1/3",
        "divided": "yes: |w_O|^2 is about 1/768, and values learn 256 times slower",
        "unit": "w_O rescaled to norm 1, as the theorems have it",
    },
    "closest to the curve printed in Jiang's figure 1, so agreement there is a calibration, not evidence",
)
LABELS = Question(
    "labels",
    "are the classes of a small training set balanced?",
    {
        "balanced": "as many points of one class as of the other",
        "fair": "independent fair labels, as defined",
    },
    "with two independent labels half of the runs have one class only",
)
PROJECTION = Question(
    "projection",
    "is the noise projected off the two signals?",
    {"isotropic": "no, as the experiments say", "projected": "yes, as the definitions say"},
    "the section on experiments gives a full-rank covariance",
)


def network(
    hidden: int, output: str, entries: Literal["uniform", "normal"] = "uniform"
) -> Attention:
    """Return the attention network of the experiments under an answer to `w_O`."""
    init = TorchDefault(divide_by=16, divide_output=output == "divided", entries=entries)
    return Attention(hidden=hidden, init=init, output_norm=1.0 if output == "unit" else None)


def noisy_signals(dim: int, **more) -> SignalNoise:
    """Return the data of Zhang's figures 1 and 2: isotropic noise of variance 0.4, M = 16, by default reading."""
    return SignalNoise(
        **({"tokens": 16, "dim": dim, "noise_std": math.sqrt(0.4), "balanced": True} | more)
    )


def pgd(radius: float | list[float], steps: int = 20, step: float = 0.2) -> PGD:
    """Return the attack of Zhang's experiments (papers/zhang.md section 5)."""
    return PGD(ball=Ball(radius=radius, relative_to="signal"), steps=steps, step=step)


def changed(net: Attention, **fields) -> Attention:
    """Return the network with other fields, which may be axes."""
    return Attention(**{name: value for name, value in net if name != "kind"} | fields)
