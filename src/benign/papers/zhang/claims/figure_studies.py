"""Runs in the setting of Zhang's figures that the text speaks about."""

from benign.claims.study import Reading, Study, at
from benign.experiment import Experiment
from benign.papers.attention_questions import OUTPUT, network
from benign.papers.zhang.setting import changed, noisy_signals, pgd
from benign.spec.axes import logspace
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation


def _sparse(scale: str, reading: Reading) -> Experiment:
    """One signal among 16 tokens, with learned and with uniform attention; clean, so that no attack is in doubt."""
    dim, hidden = at(scale, (32, 4), (128, 16), (1024, 128))
    return Experiment(
        data=noisy_signals(dim, samples=10, snr=logspace(0.2, 8.0, at(scale, 3, 8, 16))),
        network=changed(network(hidden, reading["w_O"]), attend=["learned", "uniform"]),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 30, 400, 5000)),
        evaluation=Evaluation(samples=at(scale, 10, 200, 1000)),
        pairing="common",
        seeds=at(scale, 2, 5, 10),
    )


def _output_scales(scale: str, reading: Reading) -> Experiment:
    """w_O as drawn and divided by 16. Clean below the paper's scale: 5000 attacked steps take minutes."""
    dim, hidden = at(scale, (32, 4), (64, 8), (1024, 128))
    return Experiment(
        data=noisy_signals(dim, samples=6, snr=at(scale, [1.0, 8.0], [1.0, 4.0, 8.0], [1.0, 4.0, 8.0, 16.0])),
        network=[network(hidden, "undivided"), network(hidden, "divided")],
        attack=at(scale, None, None, pgd(0.05)),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 100, 5000, 5000)),
        evaluation=Evaluation(samples=at(scale, 5, 50, 1000)),
        seeds=at(scale, 2, 5, 8),
    )  # fmt: skip


SPARSE = Study(name="zhang/sparse", build=_sparse, questions=(OUTPUT,))
OUTPUT_SCALES = Study(name="zhang/output_scales", build=_output_scales)
