"""The runs that the claims about Jiang's theorems are judged on, inside Condition 4.1 wherever their length allows it.

Harmful overfitting is short, so its studies satisfy all conditions, the step size (6) too. Benign overfitting at the
constant of its proof takes 1e7 steps under (6), so its studies take larger steps and violate (6) only.

A step of runs this small takes an H200 3.5 ms (78,000 steps took 272 s). At paper scale no study takes more than
17,000 steps in a row by the formula of T (`theory.steps_derived`, attention 0.8): about a minute.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benign.claims import Reading, Study
from benign.claims.conditions import Conditions
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.jiang import theory
from benign.papers.jiang.theory import (
    ALL_ONE,
    Numbers,
    benign_constant,
    conditions,
    start_spread,
    strong_noise_factor,
)
from benign.spec.axes import zipped
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cell inside Condition 4.1 (constants 1) but perhaps for its step size."""

    race: float
    """N SNR^2"""
    loss: float
    """eps"""
    finest: float | None = None
    """the loss that d_h and d are large enough for; `loss` if not given"""
    samples: int = 8
    tokens: int = 3
    speed: float | None = None
    """eta times the larger squared length; the largest that condition (6) allows if not given"""
    eta: float | None = None
    """the step size itself"""
    hidden: int | None = None
    """d_h, larger than needed"""
    size: int | None = None
    """d, likewise"""
    noise: float = 1.0
    """sigma_p^2 d"""
    strong: float | None = None
    """C_p, if not 5 sqrt(M)"""
    output: float = 1.0
    """|w_O|"""
    spread: float | None = None
    """by how much sigma_V is below condition (7); as Lemma C.2 needs it if not given"""

    @property
    def snr(self) -> float:
        return math.sqrt(self.race / self.samples)

    @property
    def scale(self) -> float:
        return self.noise * max(1.0, self.snr**2)

    @property
    def width(self) -> int:
        finest = self.finest or self.loss
        return self.hidden or math.ceil(
            theory.needed_hidden(self.samples, self.snr, finest, ALL_ONE)
        )

    @property
    def dim(self) -> int:
        finest = self.finest or self.loss
        return self.size or math.ceil(theory.needed_dim(self.samples, self.width, finest, ALL_ONE))

    @property
    def factor(self) -> float:
        return self.strong or theory.strong_noise_factor(self.tokens)

    @property
    def noise_std(self) -> float:
        return math.sqrt(self.noise / self.dim)

    @property
    def rate(self) -> float:
        if self.eta is not None:
            return self.eta
        if self.speed is None:
            return theory.largest_rate(self.scale, self.width, ALL_ONE)
        return self.speed / self.scale

    @property
    def score_std(self) -> float:
        """The middle of its window."""
        window = theory.score_variances(self.scale, self.width, self.samples, self.tokens, ALL_ONE)
        return math.prod(window) ** 0.25

    @property
    def value_std(self) -> float:
        largest = theory.largest_value_std(self.scale, self.width, self.output, ALL_ONE)
        spread = self.spread or start_spread(self.samples, self.tokens, self.factor)
        return largest / spread


def side_by_side(places: Sequence[Place], *, seeds: int, steps: int, test: int = 250) -> Experiment:
    """One experiment with an axis `cell`, in the coordinates of the tokens."""

    def along(values: Sequence[Any]) -> Any:
        return zipped("cell", values)

    return Experiment(
        data=SignalNoise(
            samples=along([place.samples for place in places]),
            tokens=along([place.tokens for place in places]),
            dim=along([place.dim for place in places]),
            snr=along([place.snr for place in places]),
            noise_std=along([place.noise_std for place in places]),
            strong_noise_std=along([place.factor * place.noise_std for place in places]),
            projected=True,
            balanced=True,
        ),
        network=Attention(
            hidden=along([place.width for place in places]),
            value_dim=1,
            init=GaussianInit(
                score_std=along([place.score_std for place in places]),
                value_std=along([place.value_std for place in places]),
            ),
            output_norm=along([place.output for place in places]),
        ),
        training=GradientDescent(
            rate=along([place.rate for place in places]),
            stop_loss=along([place.loss for place in places]),
            max_steps=steps,
        ),
        evaluation=Evaluation(samples=test),
        precision="float64",
        coordinates="sampled",
        seeds=seeds,
    )


def benign(cell: Setup) -> Conditions:
    """Condition 4.1 and the regime of Theorem 4.1."""
    return conditions(cell, "4.1")


def harmful(cell: Setup) -> Conditions:
    """Condition 4.1 and the regime of Theorem 4.2."""
    return conditions(cell, "4.2")


def either(cell: Setup) -> Conditions:
    """Those of the theorem whose regime the cell is in."""
    return benign(cell) if Numbers.of(cell).race >= 1 else harmful(cell)


def proven_race(tokens: int) -> float:
    """Twice the constant that the proof of Theorem 4.1 uses: N SNR^2 = 120 M^2 C_p^2."""
    return 2 * benign_constant(tokens, strong_noise_factor(tokens))


@dataclass(frozen=True)
class _Size:
    seeds: int
    steps: int
    speed: float | None = None


def _start(scale: str, reading: Reading) -> Experiment:
    seeds = {"smoke": 60, "quick": 200, "paper": 1000}[scale]
    place = Place(race=36.0, samples=36, tokens=4, loss=0.1, spread=1.0)
    return side_by_side([place], seeds=seeds, steps=0, test=1)


def _benign_stages(scale: str, reading: Reading) -> Experiment:
    """Slow enough to see the scores move while values are still small; initial values at the bound of (7)."""
    sizes = {
        "smoke": _Size(2, 90, 1e-2),
        "quick": _Size(14, 900, 1e-3),
        "paper": _Size(30, 4500, 2e-4),
    }
    size = sizes[scale]
    place = Place(race=proven_race(3), loss=0.1, speed=size.speed, spread=1.0)
    return side_by_side([place], seeds=size.seeds, steps=size.steps)


def _harmful_stages(scale: str, reading: Reading) -> Experiment:
    """Queries and keys as wide as small losses need them, so that initial values are small beside 1 / L."""
    finest = {"smoke": 0.01, "quick": 1e-3, "paper": 3e-4}[scale]
    size = {"smoke": _Size(2, 100), "quick": _Size(14, 900), "paper": _Size(30, 3000)}[scale]
    place = Place(race=1.0, samples=4, tokens=4, loss=0.1, finest=finest)
    return side_by_side([place], seeds=size.seeds, steps=size.steps)


def _benign_end(scale: str, reading: Reading) -> Experiment:
    sizes = {
        "smoke": _Size(2, 400, 0.5),
        "quick": _Size(14, 2000, 0.1),
        "paper": _Size(30, 20000, 0.01),
    }
    size = sizes[scale]
    place = Place(race=proven_race(3), loss=0.1, speed=size.speed)
    return side_by_side([place], seeds=size.seeds, steps=size.steps, test=500)


def _harmful_end(scale: str, reading: Reading) -> Experiment:
    """The largest initial values of Lemma C.2, and a thousandth of them: both satisfy condition (7)."""
    size = {"smoke": _Size(2, 500), "quick": _Size(14, 1000), "paper": _Size(30, 20000)}[scale]
    loss = 0.02 if scale == "paper" else 0.1
    place = Place(race=1.0, samples=4, tokens=4, loss=loss)
    small = replace(place, spread=1000 * start_spread(4, 4, place.factor))
    return side_by_side([place, small], seeds=size.seeds, steps=size.steps, test=500)


def _wide(place: Place, powers: Sequence[int], scale: str) -> Experiment:
    """The same with wider and wider queries and keys."""
    chosen = powers[-1:] if scale == "smoke" else powers
    places = [replace(place, hidden=10**power) for power in chosen]
    return side_by_side(places, seeds={"smoke": 2, "quick": 5, "paper": 14}[scale], steps=5000)


def _benign_wide(scale: str, reading: Reading) -> Experiment:
    race = 10 * strong_noise_factor(3) ** 2  # four times where attention flips
    return _wide(Place(race=race, loss=0.1, speed=0.2), (12, 16, 20), scale)


def _harmful_wide(scale: str, reading: Reading) -> Experiment:
    """Beyond 1e14 these steps are too large for the scores."""
    return _wide(Place(race=1.0, samples=4, loss=0.1, speed=2e-3), (10, 12, 14), scale)


def _benign_inside(scale: str, reading: Reading) -> Experiment:
    """All of Condition 4.1, step size too: T is about N SNR^2 / eps^2, so this is just twice where attention turns."""
    loss = {"smoke": 0.6, "quick": 0.3, "paper": 0.22}[scale]
    race = 5 * strong_noise_factor(2) ** 2
    place = Place(race=race, samples=4, tokens=2, loss=loss)
    return side_by_side([place], seeds={"smoke": 2, "quick": 5, "paper": 14}[scale], steps=200_000)


def _benign_rates(scale: str, reading: Reading) -> Experiment:
    """One number changed at a time: eps, eta, |mu|, |w_O|; d_h and d are those of the largest |mu|, smallest eps."""
    losses = {"smoke": (0.3, 0.1), "quick": (0.1, 0.03, 0.01), "paper": (0.1, 0.03, 0.01, 0.005)}[
        scale
    ]
    factors = {"smoke": (2.0,), "quick": (0.5, 2.0), "paper": (0.25, 0.5, 2.0, 4.0)}[scale]
    race, speed = proven_race(3), 0.1
    widest = Place(race=race * max(factors), loss=min(losses))
    base = Place(race=race, loss=losses[1], finest=min(losses), hidden=widest.width, speed=speed)
    places = [replace(base, loss=loss) for loss in losses]
    places += [replace(base, speed=speed * factor) for factor in factors]
    places += [replace(base, race=race * factor, speed=speed * factor) for factor in factors]
    places += [replace(base, output=factor**0.5) for factor in factors]
    seeds = {"smoke": 2, "quick": 5, "paper": 10}[scale]
    return side_by_side(places, seeds=seeds, steps=100_000 if scale == "paper" else 10_000)


def _harmful_rates(scale: str, reading: Reading) -> Experiment:
    """Three groups, in each one number changed and the rest as the hardest of its cells needs it: eps, N, sigma_p."""
    losses = {"smoke": (0.3, 0.2), "quick": (0.1, 0.05, 0.02), "paper": (0.1, 0.05, 0.02, 0.014)}[
        scale
    ]
    counts = {"smoke": (2, 4), "quick": (2, 4, 8), "paper": (2, 4, 8, 12)}[scale]
    noises = {"smoke": (1.0, 2.0), "quick": (1.0, 2.0, 4.0), "paper": (1.0, 2.0, 4.0, 6.0)}[scale]
    first = Place(race=1.0, samples=4, tokens=4, loss=0.1)
    finest = min(losses)
    places = [replace(first, loss=loss, finest=finest) for loss in losses]
    most = replace(first, samples=max(counts))
    places += [
        replace(most, samples=count, race=count / max(counts), hidden=most.width, size=most.dim)
        for count in counts
    ]
    loudest = replace(first, race=1 / max(noises), noise=max(noises))
    shared = {"hidden": loudest.width, "eta": loudest.rate}
    places += [replace(first, race=1 / noise, noise=noise, **shared) for noise in noises]
    seeds = {"smoke": 2, "quick": 5, "paper": 10}[scale]
    return side_by_side(places, seeds=seeds, steps=200_000 if scale == "paper" else 10_000)


def _tiny_loss(scale: str, reading: Reading) -> Experiment:
    """Two tokens, and a loss so small that the bound of Lemma 5.5 is positive."""
    loss = {"smoke": 0.05, "quick": 3e-4, "paper": 1e-4}[scale]
    size = {
        "smoke": _Size(2, 500, 4.0),
        "quick": _Size(14, 6000, 4.0),
        "paper": _Size(30, 100_000, 2.0),
    }[scale]
    place = Place(race=proven_race(2), tokens=2, loss=loss, speed=size.speed)
    return side_by_side([place], seeds=size.seeds, steps=size.steps)


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
