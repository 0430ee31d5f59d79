"""Places inside Condition 4.1, and experiments made of several of them side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.jiang import theory
from benign.papers.jiang.theory import ALL_ONE
from benign.papers.jiang.times import start_spread
from benign.spec.axes import zipped
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation


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
