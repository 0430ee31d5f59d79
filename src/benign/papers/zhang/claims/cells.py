"""Runs as Zhang's theorems have them: sizes and rates by Condition 1, in units in which a noise token has length 1."""

import math
from dataclasses import dataclass

from benign.claims.conditions import Conditions, radius_share, smallest_whole
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.jiang.theory import (
    ALL_ONE,
    largest_rate,
    largest_value_std,
    needed_dim,
    needed_hidden,
    score_variances,
)
from benign.papers.zhang import theory
from benign.papers.zhang.setting import pgd
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The numbers of a run; widths are the smallest, sigma_V and the rate the largest that Condition 1 allows."""

    samples: int
    tokens: int = 2
    snr: float
    loss: float
    """eps"""
    hidden: int | None = None
    """d_h, if it is not to be the smallest allowed; smaller ones are outside Condition 1"""
    faster: float = 1.0
    """rate as a multiple of condition (4)"""
    loud: bool = False
    """|V(0)| near d_h^-1/4, the most that Lemma 11 leaves: without the d^-1/2 that (5) has on top for attacks"""

    @property
    def width(self) -> int:
        least = needed_hidden(self.samples, self.snr, self.loss, ALL_ONE)
        return self.hidden or smallest_whole(least)

    @property
    def dim(self) -> int:
        return smallest_whole(needed_dim(self.samples, self.width, self.loss, ALL_ONE))

    @property
    def scale(self) -> float:
        """1 / m2, the larger of |mu|^2 and 1."""
        return max(1.0, self.snr**2)

    @property
    def rate(self) -> float:
        return self.faster * largest_rate(self.scale, self.width, ALL_ONE)

    @property
    def score_std(self) -> float:
        """The middle of its window."""
        window = score_variances(self.scale, self.width, self.samples, self.tokens, ALL_ONE)
        return math.prod(window) ** 0.25

    @property
    def value_std(self) -> float:
        if self.loud:
            tail = math.sqrt(2 * math.log(4 * self.samples * self.tokens / ALL_ONE.failure))
            return largest_value_std(self.scale, self.width, 1.0, ALL_ONE) / tail
        return theory.largest_start(self.dim, self.scale, self.width, 1.0, ALL_ONE)

    def data(self) -> SignalNoise:
        return SignalNoise(
            samples=self.samples,
            tokens=self.tokens,
            dim=self.dim,
            snr=self.snr,
            noise_std=1 / math.sqrt(self.dim),
            projected=True,
            balanced=True,
        )

    def network(self) -> Attention:
        init = GaussianInit(score_std=self.score_std, value_std=self.value_std)
        return Attention(hidden=self.width, value_dim=1, init=init, output_norm=1.0)

    def experiment(
        self, *, steps: int, seeds: int, test: int = 50, radii: list[float] | None = None
    ) -> Experiment:
        """Clean training, or training against balls of these radii as shares of |mu|."""
        return Experiment(
            data=self.data(),
            network=self.network(),
            attack=None if radii is None else pgd(radii),
            training=GradientDescent(rate=self.rate, stop_loss=self.loss, max_steps=steps),
            evaluation=Evaluation(samples=test),
            precision="float64",
            coordinates="sampled",
            pairing="common" if radii else "independent",
            seeds=seeds,
        )


def case_1(cell: Setup) -> Conditions | None:
    """Those of Theorem 2, Case 1, at cells with a radius of that case."""
    return _of_case(cell, 1)


def case_2(cell: Setup) -> Conditions | None:
    """Those of Theorem 2, Case 2, at cells with a radius of that case."""
    return _of_case(cell, 2)


def clean_case_1(cell: Setup) -> Conditions | None:
    """The same at clean cells, where a claim is decided: attacked ones, told beside, have too small a d_h."""
    return None if cell.attack is not None else theory.conditions(cell, 1)


def clean_loud(cell: Setup) -> Conditions | None:
    """The same without (5) on sigma_V: of it Lemma 18 uses |V(0)| <= d_h^-1/4 alone, which loud cells have."""
    found = clean_case_1(cell)
    return None if found is None else found.leaving("(5) V")


def _of_case(cell: Setup, case: theory.Case) -> Conditions | None:
    weak = radius_share(cell) <= weak_radius(cell)
    return theory.conditions(cell, case) if weak == (case == 1) else None


def weak_radius(setup: Setup) -> float:
    """1 / log d_h, the largest radius of Case 1 as a share of |mu|."""
    assert isinstance(setup.network, Attention)
    return theory.radii(setup.network.hidden, 1, ALL_ONE)[1]


def either_case(cell: Setup) -> Conditions | None:
    """Those of the case that the radius of a cell belongs to."""
    return case_1(cell) or case_2(cell)
