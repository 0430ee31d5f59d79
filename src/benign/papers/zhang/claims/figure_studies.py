"""The runs of Zhang's figures beside figure 1, and runs in the setting of the figures that the text speaks about."""

import math

from benign.axes import logspace, zipped
from benign.claims.study import Reading, Study, at
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.papers.attention_questions import OUTPUT, network
from benign.papers.zhang.claims.cells import pgd
from benign.training.setup import Evaluation, GradientDescent

RADII_OF_FIGURE_3 = [0.02, 0.1, 0.5]
SCAN = [0.3, 0.34, 0.37, 0.45, 0.55]
"""radii beside those of the figure: around the linear stall radius 0.354, and to both sides of 0.5"""


def _data(dim: int, **more) -> SignalNoise:
    """As in figures 1 and 2: isotropic noise of variance 0.4, M = 16, by default reading."""
    return SignalNoise(
        **({"tokens": 16, "dim": dim, "noise_std": math.sqrt(0.4), "balanced": True} | more)
    )


def _changed(net: Attention, **fields) -> Attention:
    """The network with other fields, which may be axes."""
    return Attention(**{name: value for name, value in net if name != "kind"} | fields)


def _figure_2(scale: str, reading: Reading) -> Experiment:
    """N = 22 with several SNR, then SNR = 12 with several N; the paper does not say which."""
    ratios = at(scale, [0.16, 16.0], [0.16, 1.0, 4.0, 16.0], [0.16, 1.0, 4.0, 8.0, 12.0, 16.0])
    sizes = at(scale, [2, 6], [2, 10, 22], [2, 6, 10, 14, 18])
    largest = at(scale, 6, 22, 22)
    samples = [largest] * len(ratios) + sizes
    dim, hidden = at(scale, (32, 4), (128, 16), (1024, 128))
    return Experiment(
        data=_data(
            dim,
            samples=zipped("curve", samples),
            snr=zipped("curve", ratios + [12.0] * len(sizes)),
        ),
        network=network(hidden, reading["w_O"]),
        attack=pgd(0.05),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 10, 150, 5000)),
        evaluation=Evaluation(
            samples=at(scale, 10, 60, 1000), at=at(scale, "end", "end", "snapshots")
        ),
        seeds=at(scale, 1, 2, 5),
    )


def _figure_3(scale: str, reading: Reading) -> Experiment:
    """N = 25, SNR = 16, M = 2; sigma_p sqrt(d) = 1.6 at every scale, so |mu| = 25.6."""
    dim, hidden = at(scale, (32, 4), (128, 32), (1024, 512))
    return Experiment(
        data=SignalNoise(samples=25, tokens=2, dim=dim, snr=16.0, noise_std=1.6 / math.sqrt(dim)),
        network=network(hidden, reading["w_O"]),
        attack=pgd(sorted(RADII_OF_FIGURE_3 + at(scale, [], SCAN[::2], SCAN))),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 10, 150, 5000)),
        evaluation=Evaluation(samples=at(scale, 10, 30, 1000)),
        seeds=at(scale, 2, 4, 5),
    )


def _heads(scale: str, reading: Reading) -> Experiment:
    """Several heads with w_O as printed, not rescaled."""
    dim, hidden = at(scale, (32, 4), (128, 16), (1024, 128))
    heads = at(scale, [1, 2], [1, 2, 4], [1, 2, 4, 8])
    return Experiment(
        data=_data(dim, tokens=4, samples=10, snr=logspace(0.3, 5.0, at(scale, 2, 5, 12))),
        network=_changed(network(hidden, reading["w_O"]), heads=heads),
        attack=pgd(0.05),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 10, 120, 5000)),
        evaluation=Evaluation(samples=at(scale, 10, 40, 1000)),
        seeds=at(scale, 1, 4, 8),
    )


def _sparse(scale: str, reading: Reading) -> Experiment:
    """One signal among 16 tokens, with learned and with uniform attention; clean, so that no attack is in doubt."""
    dim, hidden = at(scale, (32, 4), (128, 16), (1024, 128))
    return Experiment(
        data=_data(dim, samples=10, snr=logspace(0.2, 8.0, at(scale, 3, 8, 16))),
        network=_changed(network(hidden, reading["w_O"]), attend=["learned", "uniform"]),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 30, 400, 5000)),
        evaluation=Evaluation(samples=at(scale, 10, 200, 1000)),
        pairing="common",
        seeds=at(scale, 2, 5, 10),
    )


def _output_scales(scale: str, reading: Reading) -> Experiment:
    """w_O as drawn and divided by 16. Clean below the paper's scale: 5000 attacked steps take minutes."""
    dim, hidden = at(scale, (32, 4), (64, 8), (1024, 128))
    return Experiment(
        data=_data(dim, samples=6, snr=at(scale, [1.0, 8.0], [1.0, 4.0, 8.0], [1.0, 4.0, 8.0, 16.0])),
        network=[network(hidden, "undivided"), network(hidden, "divided")],
        attack=at(scale, None, None, pgd(0.05)),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 100, 5000, 5000)),
        evaluation=Evaluation(samples=at(scale, 5, 50, 1000)),
        seeds=at(scale, 2, 5, 8),
    )  # fmt: skip


FIGURE_2 = Study(name="zhang/fig2", build=_figure_2, questions=(OUTPUT,))
FIGURE_3 = Study(name="zhang/fig3", build=_figure_3, questions=(OUTPUT,))
HEADS = Study(name="zhang/heads", build=_heads, questions=(OUTPUT,))
SPARSE = Study(name="zhang/sparse", build=_sparse, questions=(OUTPUT,))
OUTPUT_SCALES = Study(name="zhang/output_scales", build=_output_scales)
