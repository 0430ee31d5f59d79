"""The studies that judge the claims about Jiang's theorems, inside Condition 4.1 wherever training is short enough.

Harmful overfitting is short, so its studies satisfy all conditions, condition (6) on the step size too. Benign
overfitting with the constant of its proof takes 1e7 steps under (6), so its studies violate (6), and only (6).

A step of runs this small takes an H200 3.5 ms (78,000 steps took 272 s). At paper scale no study takes more than
17,000 steps in a row by the formula of T (`theory.steps_derived`, attention 0.8): about a minute.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benign.claims.conditions import Conditions
from benign.claims.study import Reading, Scaled, Study
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.jiang import theory
from benign.papers.jiang.theory import (
    ALL_ONE,
    JiangNumbers,
    benign_constant,
    conditions,
    start_spread,
    strong_noise_factor,
)
from benign.spec.axes import zipped
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup


@dataclass(frozen=True, kw_only=True)
class JiangCell:
    """The numbers of one cell inside Condition 4.1 (all constants 1), except perhaps for the step size."""

    race: float
    """N SNR^2"""
    loss: float
    """eps"""
    finest: float | None = None
    """loss that d_h and d are large enough for; `loss` if not given"""
    samples: int = 8
    tokens: int = 3
    speed: float | None = None
    """eta times the larger squared length of a token; the largest that condition (6) allows if not given"""
    eta: float | None = None
    """step size, in place of `speed`"""
    hidden: int | None = None
    """d_h; the smallest that Condition 4.1 allows if not given"""
    size: int | None = None
    """d; the smallest that Condition 4.1 allows if not given"""
    noise: float = 1.0
    """sigma_p^2 d"""
    strong: float | None = None
    """C_p; 5 sqrt(M) if not given"""
    output: float = 1.0
    """|w_O|"""
    spread: float | None = None
    """factor by which sigma_V is below condition (7); the one that Lemma C.2 needs if not given"""

    @property
    def snr(self) -> float:
        return math.sqrt(self.race / self.samples)

    @property
    def scale(self) -> float:
        """The larger of |mu|^2 and sigma_p^2 d."""
        return self.noise * max(1.0, self.snr**2)

    @property
    def width(self) -> int:
        """d_h"""
        finest = self.finest or self.loss
        return self.hidden or math.ceil(
            theory.needed_hidden(self.samples, self.snr, finest, ALL_ONE)
        )

    @property
    def dim(self) -> int:
        """d"""
        finest = self.finest or self.loss
        return self.size or math.ceil(theory.needed_dim(self.samples, self.width, finest, ALL_ONE))

    @property
    def factor(self) -> float:
        """C_p"""
        return self.strong or theory.strong_noise_factor(self.tokens)

    @property
    def noise_std(self) -> float:
        return math.sqrt(self.noise / self.dim)

    @property
    def strong_noise_std(self) -> float:
        return self.factor * self.noise_std

    @property
    def rate(self) -> float:
        """eta"""
        if self.eta is not None:
            return self.eta
        if self.speed is None:
            return theory.largest_rate(self.scale, self.width, ALL_ONE)
        return self.speed / self.scale

    @property
    def score_std(self) -> float:
        """sigma_h, the geometric middle of its window."""
        window = theory.score_variances(self.scale, self.width, self.samples, self.tokens, ALL_ONE)
        return math.prod(window) ** 0.25

    @property
    def value_std(self) -> float:
        """sigma_V"""
        largest = theory.largest_value_std(self.scale, self.width, self.output, ALL_ONE)
        spread = self.spread or start_spread(self.samples, self.tokens, self.factor)
        return largest / spread


def experiment(
    cells: Sequence[JiangCell], *, seeds: int, steps: int, test: int = 250
) -> Experiment:
    """Return one experiment with the cells along an axis `cell`, in the coordinates of the tokens."""

    def along(name: str) -> Any:
        return zipped("cell", [getattr(cell, name) for cell in cells])

    sizes = ("samples", "tokens", "dim", "snr", "noise_std", "strong_noise_std")
    return Experiment(
        data=SignalNoise(**{name: along(name) for name in sizes}, projected=True, balanced=True),
        network=Attention(
            hidden=along("width"),
            value_dim=1,
            init=GaussianInit(score_std=along("score_std"), value_std=along("value_std")),
            output_norm=along("output"),
        ),
        training=GradientDescent(rate=along("rate"), stop_loss=along("loss"), max_steps=steps),
        evaluation=Evaluation(samples=test),
        precision="float64",
        coordinates="sampled",
        seeds=seeds,
    )


def benign(cell: Setup) -> Conditions:
    """Return Condition 4.1 with the regime of Theorem 4.1."""
    return conditions(cell, "4.1")


def harmful(cell: Setup) -> Conditions:
    """Return Condition 4.1 with the regime of Theorem 4.2."""
    return conditions(cell, "4.2")


def either(cell: Setup) -> Conditions:
    """Return the conditions of the theorem in whose regime the cell is."""
    return benign(cell) if JiangNumbers.of(cell).race >= 1 else harmful(cell)


def proven_race(tokens: int) -> float:
    """Return twice the constant of the proof of Theorem 4.1: N SNR^2 = 120 M^2 C_p^2."""
    return 2 * benign_constant(tokens, strong_noise_factor(tokens))


SEEDS = Scaled(2, 14, 30)
"""at smoke, quick and paper scale; 14 seeds without a failure show a share of 0.8"""
FEWER_SEEDS = Scaled(2, 5, 14)


def _start(scale: str, reading: Reading) -> Experiment:
    cell = JiangCell(race=36.0, samples=36, tokens=4, loss=0.1, spread=1.0)
    return experiment([cell], seeds=Scaled(60, 200, 1000)[scale], steps=0, test=1)


def _benign_stages(scale: str, reading: Reading) -> Experiment:
    """Steps so small that scores move while values are still small; initial values at the bound of (7)."""
    speed, steps = Scaled(smoke=(1e-2, 90), quick=(1e-3, 900), paper=(2e-4, 4500))[scale]
    cell = JiangCell(race=proven_race(3), loss=0.1, speed=speed, spread=1.0)
    return experiment([cell], seeds=SEEDS[scale], steps=steps)


def _harmful_stages(scale: str, reading: Reading) -> Experiment:
    """Queries and keys as wide as small losses need them, so that initial values are small relative to 1 / L."""
    finest, steps = Scaled(smoke=(0.01, 100), quick=(1e-3, 900), paper=(3e-4, 3000))[scale]
    cell = JiangCell(race=1.0, samples=4, tokens=4, loss=0.1, finest=finest)
    return experiment([cell], seeds=SEEDS[scale], steps=steps)


def _benign_end(scale: str, reading: Reading) -> Experiment:
    speed, steps = Scaled(smoke=(0.5, 400), quick=(0.1, 2000), paper=(0.01, 20_000))[scale]
    cell = JiangCell(race=proven_race(3), loss=0.1, speed=speed)
    return experiment([cell], seeds=SEEDS[scale], steps=steps, test=500)


def _harmful_end(scale: str, reading: Reading) -> Experiment:
    """The largest initial values of Lemma C.2, and a thousandth of them: both satisfy condition (7)."""
    loss, steps = Scaled(smoke=(0.1, 500), quick=(0.1, 1000), paper=(0.02, 20_000))[scale]
    cell = JiangCell(race=1.0, samples=4, tokens=4, loss=loss)
    small = replace(cell, spread=1000 * start_spread(4, 4, cell.factor))
    return experiment([cell, small], seeds=SEEDS[scale], steps=steps, test=500)


def _wide(cell: JiangCell, powers: Sequence[int], scale: str) -> Experiment:
    """Return the cell with ever wider queries and keys, d_h = 10^power; the widest alone at smoke scale."""
    widths = [10**power for power in (powers[-1:] if scale == "smoke" else powers)]
    cells = [replace(cell, hidden=width) for width in widths]
    return experiment(cells, seeds=FEWER_SEEDS[scale], steps=5000)


def _benign_wide(scale: str, reading: Reading) -> Experiment:
    race = 10 * strong_noise_factor(3) ** 2  # four times the N SNR^2 at which attention flips
    return _wide(JiangCell(race=race, loss=0.1, speed=0.2), (12, 16, 20), scale)


def _harmful_wide(scale: str, reading: Reading) -> Experiment:
    """Beyond d_h = 1e14 these steps are too large for the scores."""
    return _wide(JiangCell(race=1.0, samples=4, loss=0.1, speed=2e-3), (10, 12, 14), scale)


def _benign_inside(scale: str, reading: Reading) -> Experiment:
    """All of Condition 4.1. T is about N SNR^2 / eps^2, so N SNR^2 is only twice the value at which attention flips."""
    loss, race = Scaled(0.6, 0.3, 0.22)[scale], 5 * strong_noise_factor(2) ** 2
    cell = JiangCell(race=race, samples=4, tokens=2, loss=loss)
    return experiment([cell], seeds=FEWER_SEEDS[scale], steps=200_000)


def _benign_rates(scale: str, reading: Reading) -> Experiment:
    """One number changed at a time: eps, eta, |mu|, |w_O|. d_h and d are those of the largest |mu| and smallest eps."""
    losses = Scaled(smoke=(0.3, 0.1), quick=(0.1, 0.03, 0.01), paper=(0.1, 0.03, 0.01, 0.005))[
        scale
    ]
    factors = Scaled(smoke=(2.0,), quick=(0.5, 2.0), paper=(0.25, 0.5, 2.0, 4.0))[scale]
    race, speed = proven_race(3), 0.1
    widest = JiangCell(race=race * max(factors), loss=min(losses))
    base = JiangCell(
        race=race, loss=losses[1], finest=min(losses), hidden=widest.width, speed=speed
    )
    cells = [replace(base, loss=loss) for loss in losses]
    cells += [replace(base, speed=speed * factor) for factor in factors]
    cells += [replace(base, race=race * factor, speed=speed * factor) for factor in factors]
    cells += [replace(base, output=factor**0.5) for factor in factors]
    steps = Scaled(10_000, 10_000, 100_000)[scale]
    return experiment(cells, seeds=Scaled(2, 5, 10)[scale], steps=steps)


def _harmful_rates(scale: str, reading: Reading) -> Experiment:
    """Three groups of cells. Each changes one of eps, N, sigma_p; the rest is what its hardest cell needs."""
    losses = Scaled(smoke=(0.3, 0.2), quick=(0.1, 0.05, 0.02), paper=(0.1, 0.05, 0.02, 0.014))[
        scale
    ]
    counts = Scaled(smoke=(2, 4), quick=(2, 4, 8), paper=(2, 4, 8, 12))[scale]
    noises = Scaled(smoke=(1.0, 2.0), quick=(1.0, 2.0, 4.0), paper=(1.0, 2.0, 4.0, 6.0))[scale]
    base = JiangCell(race=1.0, samples=4, tokens=4, loss=0.1)
    cells = [replace(base, loss=loss, finest=min(losses)) for loss in losses]
    most = replace(base, samples=max(counts))
    cells += [
        replace(most, samples=count, race=count / max(counts), hidden=most.width, size=most.dim)
        for count in counts
    ]
    loudest = replace(base, race=1 / max(noises), noise=max(noises))
    shared = {"hidden": loudest.width, "eta": loudest.rate}
    cells += [replace(base, race=1 / noise, noise=noise, **shared) for noise in noises]
    steps = Scaled(10_000, 10_000, 200_000)[scale]
    return experiment(cells, seeds=Scaled(2, 5, 10)[scale], steps=steps)


def _tiny_loss(scale: str, reading: Reading) -> Experiment:
    """Two tokens, and a loss so small that the bound of Lemma 5.5 is positive."""
    loss, speed, steps = Scaled(
        smoke=(0.05, 4.0, 500), quick=(3e-4, 4.0, 6000), paper=(1e-4, 2.0, 100_000)
    )[scale]
    cell = JiangCell(race=proven_race(2), tokens=2, loss=loss, speed=speed)
    return experiment([cell], seeds=SEEDS[scale], steps=steps)


START = Study(name="jiang/start", build=_start)
BENIGN_STAGES = Study(name="jiang/benign_stages", build=_benign_stages)
HARMFUL_STAGES = Study(name="jiang/harmful_stages", build=_harmful_stages)
BENIGN_END = Study(name="jiang/benign_end", build=_benign_end)
HARMFUL_END = Study(name="jiang/harmful_end", build=_harmful_end)
BENIGN_INSIDE = Study(name="jiang/benign_inside", build=_benign_inside)
BENIGN_WIDE = Study(name="jiang/benign_wide", build=_benign_wide)
HARMFUL_WIDE = Study(name="jiang/harmful_wide", build=_harmful_wide)
BENIGN_RATES = Study(name="jiang/benign_rates", build=_benign_rates)
HARMFUL_RATES = Study(name="jiang/harmful_rates", build=_harmful_rates)
TINY_LOSS = Study(name="jiang/tiny_loss", build=_tiny_loss)
