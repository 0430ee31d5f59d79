"""Figures 1 and 3 of Wang et al. as studies, and where the reading of the attack's radius decides."""

import numpy as np

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.axes import zipped
from benign.claims import Reading, Study
from benign.data.mixture import Mixture
from benign.experiment import Experiment
from benign.networks.two_layer import TwoLayer
from benign.papers.wang.claims.studies import Cell, experiment, network
from benign.papers.wang.exponents import predicted
from benign.papers.wang.figures import NETWORK, RADIUS
from benign.training.setup import Evaluation, GradientDescent

RHO = 0.1
_SIZES = {
    "smoke": (20, 10, 30, 1, 50),
    "quick": (50, 40, 150, 5, 500),
    "paper": (100, 1000, 1000, 10, 2000),
}
"""samples, width, steps, seeds, test points"""


def _window(scale: str, reading: Reading, signal, dim, radius) -> Experiment:
    """Section 5: rate 0.1, a tenth of it after half the steps, PGD of 20 steps of a fifth of the radius."""
    samples, width, steps, seeds, test = _SIZES[scale]
    theory = reading["network"] == "hybrid"
    relative = "signal" if reading["radius"] == "relative" else None
    ball = Ball(radius=radius, relative_to=relative, per="sample")
    attack = PGD(
        ball=ball, steps=20 if scale == "paper" else 8, step=0.2 if scale == "paper" else 0.4
    )
    return Experiment(
        data=Mixture(samples=samples, dim=dim, signal=signal, flip=0.1),
        network=TwoLayer(width=width, preset="hybrid" if theory else "torch_default"),
        attack=attack,
        training=GradientDescent(
            rate=0.1,
            drop_every=steps // 2,
            stop_loss=0.0,
            max_steps=steps,
            first_attacked_step=1 if theory else 0,
        ),
        evaluation=Evaluation(samples=test, attack=PGD(ball=ball, steps=20, keep="best")),
        coordinates="projected",  # the same runs, in the span of points and weights
        seeds=seeds,
    )


def _fig1(scale: str, reading: Reading) -> Experiment:
    """At quick scale half the samples and half the dimensions, which keeps n r^4 / d."""
    signal = {
        "smoke": [2.0, 4.0],
        "quick": [2.5, 3.0, 3.5, 4.0, 5.0],
        "paper": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
    }[scale]
    dim = {
        "smoke": [200, 1000],
        "quick": [500, 900, 1600, 2800, 5000, 9000],
        "paper": [1000 * k for k in range(1, 19)],
    }[scale]
    return _window(scale, reading, signal, dim, RHO)


def _fig3(scale: str, reading: Reading) -> Experiment:
    dim = {
        "smoke": [200, 1000],
        "quick": [700, 1200, 2000, 3000],
        "paper": [500 * k for k in range(1, 13)],
    }[scale]
    radius = {
        "smoke": [0.05, 0.45],
        "quick": [0.05, 0.15, 0.25, 0.35, 0.45],
        "paper": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45],
    }[scale]
    return _window(scale, reading, 5.0, dim, zipped("rho", radius))


def _switch(scale: str, reading: Reading) -> Experiment:
    """Dimensions around the predicted boundary of robust accuracy, for a radius of 0.1 r and for one of 0.1."""
    samples, signals, dims, seeds, test = {
        "smoke": (20, (4.0, 8.0, 16.0), 2, 1, 50),
        "quick": (30, (4.0, 8.0, 16.0), 3, 8, 250),
        "paper": (100, (4.0, 7.0, 12.0, 20.0), 8, 10, 4000),
    }[scale]
    cells = set()
    for signal in signals:
        for share in (RHO, RHO / signal):
            expected = float(predicted(samples, share)(np.array(signal)))
            for dim in np.geomspace(0.4 * expected, 2.5 * expected, dims):
                cells.add((signal, share, max(round(dim), 2 * samples)))
    made = [Cell(samples, dim, signal, share) for signal, share, dim in sorted(cells)]
    return experiment(
        made, network("relu", samples), steps=_SIZES[scale][2] // 4, seeds=seeds, test=test, climb=6
    )


FIG1 = Study(name="wang/fig1", build=_fig1, questions=(RADIUS, NETWORK))
FIG3 = Study(name="wang/fig3", build=_fig3, questions=(RADIUS, NETWORK))
SWITCH = Study(name="wang/radius_switch", build=_switch)
