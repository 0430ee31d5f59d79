"""The studies that judge the claims about Wang's theorems and lemmas, in exact coordinates: d is only a number there.

With condition (4) of Assumption 1, eta <= 1/(C d^2), a run of any length stays at its first step. `FIRST`,
`FIRST_STEP` and `ACTIVE` satisfy it; in the others eta is a multiple of n/d, and their verdicts say so.
derived.eta-invariance judges what that changes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.claims.conditions import Conditions
from benign.claims.study import Reading, Scaled, Study
from benign.data.mixture import Mixture
from benign.experiment import Experiment
from benign.networks.two_layer import TwoLayer
from benign.papers.inside import inside_theorem
from benign.papers.wang import theory
from benign.papers.wang.exponents import predicted
from benign.papers.wang.setting import FLIP, RHO
from benign.spec.axes import zipped
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup

GOOD_RUN = 0.8
"""probability of a good run: 1 - 2 delta with the delta = 0.1 of the conditions"""
CASES = ("relu", "smooth")
SLOPE, SMOOTHNESS = 0.5, 1.0
"""gamma and H of the smooth activation"""


@dataclass(frozen=True)
class WangCell:
    """The numbers of one cell."""

    samples: int
    dim: int
    signal: float
    radius: float
    """alpha / |mu|"""
    pace: float | None = 1.0
    """eta d / n; the largest eta of condition (4) if None"""

    @property
    def rate(self) -> float:
        if self.pace is None:
            return theory.largest_rate(self.dim, theory.ALL_ONE)
        return self.pace * self.samples / self.dim


def inside(case: str, pace: float | None, width: int, **chosen: Any) -> WangCell:
    """Return the smallest cell inside Theorem 3.1 with its item 3, except for the rate if a pace is given."""
    made = inside_theorem("wang", activation=case, width=width, relaxed=pace, robust=True, **chosen)
    data, _ = theory.parts(made.experiment)
    return WangCell(data.samples, data.dim, data.signal, chosen["radius"], pace)


def network(case: str, width: int, slope: float = SLOPE, **more: Any) -> TwoLayer:
    """Return the network of a case, with a vanishing start unless `more` has another."""
    bend = {"activation": "smoothed_leaky_relu", "slope": slope, "smoothness": SMOOTHNESS}
    more = {"preset": "vanishing"} | more
    return TwoLayer(width=width, **(bend if case == "smooth" else {}), **more)


def experiment(
    cells: Sequence[WangCell],
    networks: Any,
    *,
    steps: int,
    seeds: int,
    test: int,
    ascend: int = 10,
    data: dict[str, Any] | None = None,
    **more: Any,
) -> Experiment:
    """Return the cells along an axis `cell`, trained for a fixed number of steps against PGD, judged by a stronger
    attack."""

    def along(name: str) -> Any:
        return zipped("cell", [getattr(cell, name) for cell in cells])

    ball = Ball(radius=along("radius"), relative_to="signal", per="sample")
    attack = PGD(ball=ball, steps=ascend, step=3 / ascend)
    sizes: dict[str, Any] = {name: along(name) for name in ("samples", "dim", "signal")}
    sizes["flip"] = FLIP
    judge = EnsembleAttack(ball=ball, steps=20, restarts=1, also=attack)
    parts = {
        "data": Mixture(**(sizes | (data or {}))),
        "attack": attack,
        "training": GradientDescent(
            rate=along("rate"), stop_loss=0.0, max_steps=steps, first_attacked_step=1
        ),
        "evaluation": Evaluation(samples=test, attack=judge),
    }
    fixed = {"precision": "float64", "coordinates": "sampled", "seeds": seeds, "network": networks}
    return Experiment(**(parts | fixed | more))


def assumption(setup: Setup) -> Conditions | None:
    """Return Assumption 1; None at the cells of figures, which have another network."""
    _, layer = theory.parts(setup)
    return theory.conditions(setup) if layer.preset in ("theory", "vanishing") else None


def for_robust_error(setup: Setup) -> Conditions | None:
    """Return Assumption 1 with the further conditions of item 3 of Theorem 3.1."""
    return None if assumption(setup) is None else theory.conditions(setup, robust=True)


def smooth_only(setup: Setup) -> Conditions | None:
    return assumption(setup) if theory.WangNumbers.of(setup).smooth else None


def relu_only(setup: Setup) -> Conditions | None:
    return None if theory.WangNumbers.of(setup).smooth else assumption(setup)


STARTS = (1e-3, 1e-2, 1e-1, 1.0)
"""omega sqrt(m d) / eta, which condition (3) bounds by 1"""


def _first(scale: str, reading: Reading) -> Experiment:
    samples, const, seeds = Scaled(smoke=(20, 2.0, 2), quick=(30, 5.0, 15), paper=(100, 10.0, 60))[
        scale
    ]
    cells, networks = [], []
    for case in CASES:
        cell = inside(case, None, samples, samples=samples, radius=0.03, const=const)
        for start in STARTS:
            std = start * cell.rate / math.sqrt(samples * cell.dim)
            cells.append(cell)
            networks.append(network(case, samples, preset="theory", init_std=std))
    return experiment(cells, zipped("cell", networks), steps=8, seeds=seeds, test=1)


def _first_step(scale: str, reading: Reading) -> Experiment:
    """One step at the rate of condition (4), after which attacks and certificates judge the training points."""
    samples, const, seeds = Scaled(smoke=(20, 2.0, 2), quick=(30, 5.0, 30), paper=(100, 10.0, 60))[
        scale
    ]
    cells = [
        inside(case, None, samples, samples=samples, radius=0.03, const=const) for case in CASES
    ]
    networks = zipped("cell", [network(case, samples) for case in CASES])
    return experiment(cells, networks, steps=1, seeds=seeds, test=1)


def _active(scale: str, reading: Reading) -> Experiment:
    sizes, seeds = Scaled(
        smoke=((20, 40), 3), quick=((20, 40, 80), 15), paper=((50, 100, 200), 30)
    )[scale]
    cells = [inside("relu", None, size, samples=size, radius=0.05) for size in sizes]
    networks = zipped("cell", [network("relu", size) for size in sizes])
    return experiment(cells, networks, steps=1, seeds=seeds, test=1)


def _inside(scale: str, reading: Reading) -> Experiment:
    size, const, steps, seeds = Scaled(
        smoke=(20, 2.0, 20, 2), quick=(30, 5.0, 200, 30), paper=(100, 10.0, 2000, 60)
    )[scale]
    cells = [
        inside(case, 2.0, size, samples=size, radius=0.03, const=const, flip=0.1) for case in CASES
    ]
    networks = zipped("cell", [network(case, size) for case in CASES])
    return experiment(cells, networks, steps=steps, seeds=seeds, test=Scaled(50, 200, 2000)[scale])


def _long(scale: str, reading: Reading) -> Experiment:
    """Few samples and a slope near 1, where the printed rates fall below log 2 in the fewest steps."""
    steps, seeds = Scaled(smoke=(100, 1), quick=(4000, 5), paper=(10_000, 10))[scale]
    cells = [inside("smooth", 6.0, 6, samples=5, radius=0.05)]
    layer = network("smooth", 6, slope=0.9)
    return experiment(cells, layer, steps=steps, seeds=seeds, test=1, ascend=4)


def _long_relu(scale: str, reading: Reading) -> Experiment:
    """More samples, so that every neuron is active on some of them.

    With ReLU the rate falls below log 2 after about 5e5 steps, an hour of a GPU: it is vacuous at these scales, and its
    claim says so.
    """
    steps, seeds = Scaled(smoke=(20, 1), quick=(100, 5), paper=(10_000, 10))[scale]
    cells = [inside("relu", 4.0, 40, samples=40, radius=0.05)]
    return experiment(cells, network("relu", 40), steps=steps, seeds=seeds, test=1, ascend=4)


RADII = (0.0, 0.025, 0.05, 0.1, 0.3, 0.6, 1.0)


def _radii(scale: str, reading: Reading) -> Experiment:
    steps, seeds, test = Scaled(smoke=(20, 2, 100), quick=(100, 15, 500), paper=(1000, 30, 4000))[
        scale
    ]
    sized = inside("relu", 1.0, 20, samples=20, radius=0.1)
    cells = [WangCell(sized.samples, sized.dim, sized.signal, rho) for rho in RADII]
    more: dict[str, Any] = {"pairing": "common"}
    return experiment(cells, network("relu", 20), steps=steps, seeds=seeds, test=test, **more)


PACES = (0.5, 0.125, 0.03125)
"""eta d / n; a factor of 4 apart, so that snapshots share eta T (with the usual factor of 5 they share none)"""


def _paces(scale: str, reading: Reading) -> Experiment:
    steps, seeds, test = Scaled(smoke=(64, 2, 50), quick=(1024, 20, 250), paper=(8192, 20, 2000))[
        scale
    ]
    sized = inside("relu", 1.0, 20, samples=20, radius=0.1)
    cells = [WangCell(sized.samples, sized.dim, sized.signal, 0.1, pace) for pace in PACES]
    made = experiment(cells, network("relu", 20), steps=steps, seeds=seeds, test=test, ascend=5)
    evaluation = made.evaluation.model_copy(update={"at": "snapshots"})
    return made.model_copy(update={"evaluation": evaluation, "pairing": "common"})


SCALING_BASE = WangCell(16, 16_000_000, 160.0, 0.01)


def _scaling(scale: str, reading: Reading) -> Experiment:
    """n, r and d varied one at a time, with d >= 19 n r^2 and d <= r^4: inside except for the rate.

    No label is flipped: one flip more or less among 8 labels would hide the exponent of n.
    """
    base, steps = SCALING_BASE, Scaled(10, 60, 400)[scale]
    cells = [
        base,
        *(WangCell(n, base.dim, base.signal, base.radius) for n in (8, 32)),
        *(WangCell(base.samples, base.dim, r, base.radius) for r in (128.0, 200.0)),
        *(WangCell(base.samples, d, base.signal, base.radius) for d in (24_000_000, 35_000_000)),
    ]
    made = experiment(
        cells, network("smooth", 16), steps=steps, seeds=Scaled(2, 10, 30)[scale], test=Scaled(200, 1000, 4000)[scale],
        ascend=3, pairing="common", data={"flip": 0.0},
    )  # fmt: skip
    # Claims use clean margins only, so the cheap training attack judges.
    return made.model_copy(
        update={"evaluation": Evaluation(samples=made.evaluation.samples, attack=made.attack)}
    )


def _levels(scale: str, reading: Reading) -> Experiment:
    """Errors large enough to count: r^2 sqrt(n/d) from 0.8 to 2.5, alpha from 0 to 0.5, d >= 64 n r^2."""
    steps, seeds, test = Scaled(smoke=(10, 2, 200), quick=(60, 12, 500), paper=(400, 20, 10_000))[
        scale
    ]
    cells = [
        WangCell(20, 512_000, r, alpha / r)
        for r in (11.0, 14.0, 17.0, 20.0)
        for alpha in (0.0, 0.25, 0.5)
    ]
    more: dict[str, Any] = {"pairing": "common"}
    width = Scaled(20, 40, 1000)[scale]  # few neurons add an error of their own
    return experiment(cells, network("relu", width), steps=steps, seeds=seeds, test=test, **more)


def _modes(scale: str, reading: Reading) -> Experiment:
    size, const, steps, seeds = Scaled(
        smoke=(20, 2.0, 20, 2), quick=(30, 5.0, 60, 60), paper=(100, 10.0, 1000, 60)
    )[scale]
    cell = inside("relu", 2.0, size, samples=size, radius=0.03, const=const)
    modes = {"flip_mode": ["independent", "half_space"]}
    test = Scaled(50, 100, 2000)[scale]
    return experiment(
        [cell], network("relu", size), steps=steps, seeds=seeds, test=test, data=modes
    )


def _one_step(scale: str, reading: Reading) -> Experiment:
    seeds, test = Scaled(smoke=(2, 200), quick=(10, 1000), paper=(50, 20_000))[scale]
    cell = WangCell(50, 3000, 4.0, 0.15)
    return experiment([cell], network("smooth", 20), steps=1, seeds=seeds, test=test)


FLOOR_RADII = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.2)


def _floor(scale: str, reading: Reading) -> Experiment:
    """Many samples in few dimensions, where networks come close to the lower bound for all classifiers."""
    steps, seeds, test = Scaled(smoke=(20, 2, 200), quick=(100, 5, 1000), paper=(1000, 10, 10_000))[
        scale
    ]
    cells = [WangCell(100, 10, 1.5, rho) for rho in FLOOR_RADII]
    return experiment(
        cells,
        network("relu", 20),
        steps=steps,
        seeds=seeds,
        test=test,
        ascend=20,
        coordinates="ambient",
    )


def _switch(scale: str, reading: Reading) -> Experiment:
    """Dimensions around the predicted boundary of robust accuracy, for the radii 0.1 r and 0.1."""
    samples, signals, dims, steps, seeds, test = Scaled(
        smoke=(20, (4.0, 8.0, 16.0), 2, 7, 1, 50),
        quick=(30, (4.0, 7.0, 12.0, 20.0), 4, 37, 8, 250),
        paper=(100, (4.0, 7.0, 12.0, 20.0), 5, 250, 10, 2000),
    )[scale]
    cells = set()
    for signal in signals:
        for share in (RHO, RHO / signal):
            expected = float(predicted(samples, share)(np.array(signal)))
            for dim in np.geomspace(0.3 * expected, 3.5 * expected, dims):
                cells.add((signal, share, max(round(dim), 2 * samples)))
    made = [WangCell(samples, dim, signal, share) for signal, share, dim in sorted(cells)]
    return experiment(made, network("relu", samples), steps=steps, seeds=seeds, test=test, ascend=6)


FIRST = Study(name="wang/first", build=_first)
FIRST_STEP = Study(name="wang/first_step", build=_first_step)
ACTIVE = Study(name="wang/active", build=_active)
INSIDE = Study(name="wang/inside", build=_inside)
LONG = Study(name="wang/long", build=_long)
LONG_RELU = Study(name="wang/long_relu", build=_long_relu)
BY_RADIUS = Study(name="wang/radii", build=_radii)
BY_PACE = Study(name="wang/paces", build=_paces)
SCALING = Study(name="wang/scaling", build=_scaling)
LEVELS = Study(name="wang/levels", build=_levels)
MODES = Study(name="wang/modes", build=_modes)
ONE_STEP = Study(name="wang/one_step", build=_one_step)
FLOOR = Study(name="wang/floor", build=_floor)
SWITCH = Study(name="wang/radius_switch", build=_switch)
