"""The runs that the claims about Jiang's boundaries are judged on, in the settings of the experiments."""

import math
from dataclasses import dataclass

from benign.claims import Reading, Study
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import Axis, logspace, zipped
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

STRONG_LENGTH = 2048.0
"""C_p^2 sigma_p^2 d of figures 3 and 4"""


@dataclass(frozen=True)
class Row:
    """A row of a boundary map: all that is fixed while N SNR^2 / C_p^2 goes up."""

    strong: float = 20.0
    samples: int = 16
    dim: int = 1024


ROWS = {
    "smoke": (Row(), Row(strong=5.0), Row(samples=4), Row(dim=128)),
    "quick": (
        *(Row(strong=strong) for strong in (2.0, 5.0, 10.0, 20.0)),
        *(Row(samples=samples) for samples in (4, 8, 32)),
        *(Row(dim=dim) for dim in (128, 8192)),
    ),
}
ROWS["paper"] = (*ROWS["quick"], Row(samples=64), Row(dim=65536))


def _boundary(scale: str, reading: Reading) -> Experiment:
    """Weights as in the experiments, Gaussian; lengths of tokens, and d_h / d, the same for every d."""
    races = logspace(1.2, 4.8, {"smoke": 5, "quick": 10, "paper": 25}[scale])
    grid = [(row, race) for row in ROWS[scale] for race in races]
    std = [1 / (16 * math.sqrt(3 * row.dim)) for row, _ in grid]
    strong = [math.sqrt(STRONG_LENGTH / row.dim) for row, _ in grid]

    def along(values: list) -> Axis:
        return zipped("cell", values)

    return Experiment(
        data=SignalNoise(
            tokens=4,
            samples=along([row.samples for row, _ in grid]),
            dim=along([row.dim for row, _ in grid]),
            snr=along([row.strong * math.sqrt(race / row.samples) for row, race in grid]),
            noise_std=along([s / row.strong for s, (row, _) in zip(strong, grid, strict=True)]),
            strong_noise_std=along(strong),
            projected=True,
            balanced=True,
        ),
        network=Attention(
            hidden=along([row.dim // 2 for row, _ in grid]),
            value_dim=1,
            init=GaussianInit(score_std=along(std), value_std=along(std)),
            output_norm=math.sqrt(1 / 3),
        ),
        training=GradientDescent(rate=0.1, stop_loss=0.05, max_steps=2000),
        evaluation=Evaluation(samples=100),
        precision="float64",
        coordinates="sampled",
        seeds={"smoke": 1, "quick": 4, "paper": 10}[scale],
    )


def _cnn(scale: str, reading: Reading) -> Experiment:
    """One attention head and a CNN with the cubed ReLU on the same data, all noise tokens alike, SNR below 1.

    Both start small, and both take steps of a size that is stable at the end of training.
    """
    attention = Attention(
        hidden=64,
        value_dim=1,
        init=GaussianInit(score_std=0.1, value_std=1e-3),
        output_norm=1.0,
    )
    cnn = PatchCNN(width=10, outputs="difference", q=3, threshold=1.0, init_std=0.05)
    most = {"smoke": 5, "quick": 7, "paper": 9}[scale]
    dim = {"smoke": 200, "quick": 400, "paper": 4000}[scale]
    return Experiment(
        data=SignalNoise(
            samples=[2**power for power in range(1, most)],
            tokens=4,
            dim=dim,
            snr=0.5,
            noise_std=1 / math.sqrt(dim),
            projected=True,
            balanced=True,
        ),
        network=zipped("model", [attention, cnn]),
        training=GradientDescent(rate=zipped("model", [2.0, 5.0]), stop_loss=0.05, max_steps=5000),
        evaluation=Evaluation(samples=500),
        seeds={"smoke": 1, "quick": 5, "paper": 10}[scale],
        pairing="common",
    )


BOUNDARY = Study(name="jiang/boundary", build=_boundary)
CNN = Study(name="jiang/cnn", build=_cnn)
