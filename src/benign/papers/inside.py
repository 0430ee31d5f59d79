"""The smallest experiment that a theorem really speaks about: sizes, rates and weights from its conditions."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims.conditions import Conditions, Moderate, smallest_whole
from benign.data.mixture import Mixture
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.two_layer import TwoLayer
from benign.papers.jiang import theory as jiang
from benign.papers.wang import theory as wang
from benign.papers.zhang import theory as zhang
from benign.spec.axes import zipped
from benign.spec.base import LARGEST, Count, FlipRate, NonNegative, Positive, Spec
from benign.stats.intervals import number
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

SMALL_START = 1e-3
"""Wang's omega sqrt(m d) / eta, which may be any number up to 1"""


@dataclass(frozen=True)
class Inside:
    """An experiment inside a theorem, and by how much."""

    experiment: Experiment
    conditions: Conditions
    steps: float
    """gradient steps to expect: the law of the theorem with constant 1"""

    def text(self) -> str:
        """The conditions as a table, and the length of a run."""
        cap = self.experiment.training.most_steps()
        return f"{self.conditions.text()}\nabout {number(self.steps)} steps, at most {number(cap)}"

    __str__ = text


class Choice(Spec):
    """What may be chosen for every paper; None is filled in from the conditions."""

    dim: Count | None = None
    """d"""
    rate: Positive | None = None
    """eta"""
    relaxed: Positive | None = None
    """leave out the condition on the rate: eta is this many times its bound (attention) or n / d (Wang)"""
    max_steps: Count | None = None
    seeds: Count = 1
    test_samples: Count = 1000


class AttentionChoice(Choice, jiang.JiangConstants):
    """What may be chosen for the theorems of Jiang and Zhang."""

    samples: Count | None = 20
    """N; None is the smallest that `log_power` allows"""
    tokens: Count = 4
    """M"""
    loss: Moderate = 0.1
    """eps"""
    snr: Moderate | None = None
    """None is the one with the smallest d"""
    hidden: Count | None = None
    """d_h"""
    score_std: Positive | None = None
    """sigma_h; None is the middle of its window"""
    value_std: Positive | None = None
    """sigma_V; None is the largest"""


class JiangChoice(AttentionChoice):
    """What may be chosen for Jiang's Theorems 4.1 and 4.2."""

    theorem: jiang.Theorem = "4.1"


class ZhangChoice(AttentionChoice):
    """What may be chosen for Zhang's Theorem 2."""

    case: zhang.Case = 1
    radius: NonNegative | None = None
    """tau / |mu|; None is the largest of case 1, the middle of case 2"""


class WangChoice(Choice, wang.WangConstants):
    """What may be chosen for Wang's Theorem 3.1."""

    activation: Literal["relu", "smooth"] = "relu"
    samples: Count = 20
    width: Count = 1000
    signal: Moderate | None = None
    """r; None is the smallest"""
    radius: NonNegative = 0.1
    """alpha / |mu|"""
    flip: FlipRate = 0.1
    """beta"""
    loss: Moderate = 0.01
    """training loss to reach"""
    slope: Positive = 0.5
    """gamma of the smooth activation"""
    smoothness: Positive = 1.0
    """H of the smooth activation"""
    robust: bool = False
    """ask for item 3 of Theorem 3.1 as well, the bound on the robust error"""


def inside_theorem(paper: str, **chosen: Any) -> Inside:
    """The smallest experiment that satisfies a theorem's conditions, with the slack of each.

    `paper` is "jiang" (`theorem="4.1"` benign, `"4.2"` harmful), "zhang" (Theorem 2, `case=1` or `2`) or "wang"
    (Theorem 3.1, `activation="relu"` or `"smooth"`). The rest may be chosen or left to the conditions: sizes, `loss`,
    `snr`, `rate` ... (see `JiangChoice`, `ZhangChoice`, `WangChoice`), and the constants that the paper hides (`const`,
    `polylog`, `failure` ...). ValueError if there is no such experiment: which condition is missed, by how much.

    >>> inside_theorem("jiang", samples=20, loss=0.01, snr=1.0).experiment.data.dim
    16000000000000
    """
    if paper not in _CHOICES:
        raise ValueError(f"`paper` must be one of {', '.join(_CHOICES)}, got {paper!r}")
    choice, build = _CHOICES[paper]
    return build(choice(**chosen))


def _jiang(choice: JiangChoice) -> Inside:
    samples, snr = _samples_and_snr(choice, choice.regime, harmful=choice.theorem == "4.2")
    n = _numbers(choice, samples, snr, jiang.strong_noise_factor(choice.tokens))
    steps = jiang.theorem_steps(n, choice.theorem)
    made = _attention_experiment(choice, n, steps)
    return _inside(choice, made, jiang.conditions(made, choice.theorem, choice), "(6)", steps)


def _zhang(choice: ZhangChoice) -> Inside:
    race = zhang.needed_race(choice.loss, choice.case, choice)
    n = _numbers(choice, *_samples_and_snr(choice, race), strong=1.0)
    low, high = zhang.radii(n.hidden, choice.case, choice)
    radius = math.sqrt(low * high) if choice.case == 2 else high
    start = zhang.largest_start(n.dim, n.scale, n.hidden, n.output_norm, choice)
    n = replace(
        n,
        radius=radius if choice.radius is None else choice.radius,
        value_std=choice.value_std or start,
    )
    steps = zhang.theorem_steps(n, choice.case)
    made = _attention_experiment(choice, n, steps, pgd(n.radius, "token"))
    return _inside(choice, made, zhang.conditions(made, choice.case, choice), "(4)", steps)


def _wang(choice: WangChoice) -> Inside:
    n = _wang_numbers(choice)
    # A margin grows by about eta d / (4 n) a step at first, then as log t: papers/wang.md 5.
    steps = 4 * n.samples / (n.rate * n.dim * choice.loss)
    made = _experiment(
        choice,
        steps=10 * steps,
        data=Mixture(samples=n.samples, dim=n.dim, signal=n.signal, flip=n.flip),
        network=TwoLayer(
            width=n.width,
            activation="smoothed_leaky_relu" if n.smooth else "relu",
            init_std=n.init_std,
            slope=choice.slope if n.smooth else None,
            smoothness=choice.smoothness if n.smooth else None,
        ),
        attack=pgd(n.radius, "sample"),
        rate=n.rate,
        loss=choice.loss,
        first_attacked_step=1,
    )
    return _inside(choice, made, wang.conditions(made, choice, choice.robust), "(4)", steps)


_CHOICES: dict[str, tuple[type, Callable[[Any], Inside]]] = {
    "jiang": (JiangChoice, _jiang),
    "zhang": (ZhangChoice, _zhang),
    "wang": (WangChoice, _wang),
}


def _inside(
    choice: Choice, made: Experiment, required: Conditions, rate: str, steps: float
) -> Inside:
    """What is made, unless a condition fails; `rate` is the name of the one that `relaxed` leaves."""
    if choice.relaxed is not None:
        required = required.without(rate)
    required.require()
    return Inside(made, required, steps)


def _samples_and_snr(
    choice: AttentionChoice, race: float, harmful: bool = False
) -> tuple[int, float]:
    """N and SNR: what is chosen, or the fewest samples and the ratio with the smallest d.

    d grows with max(SNR, 1/SNR), and N SNR^2 must be at least `race`, or at most that if harmful.
    """

    def snr(samples: int) -> float:
        edge = math.sqrt(race / samples)
        return choice.snr or (min(1.0, edge) if harmful else max(1.0, edge))

    if choice.samples is not None:
        return choice.samples, snr(choice.samples)
    samples = 2  # one of each class
    if choice.snr and not harmful:
        samples = max(2, smallest_whole(race / choice.snr**2))
    while samples <= LARGEST:
        _, dim = _sizes(choice, samples, snr(samples))
        needed = smallest_whole(choice.polylog_of(dim))
        if needed <= samples:
            break
        samples = needed
    return samples, snr(samples)


def _sizes(choice: AttentionChoice, samples: int, snr: float) -> tuple[int, int]:
    """d_h and d."""
    hidden = choice.hidden or smallest_whole(jiang.needed_hidden(samples, snr, choice.loss, choice))
    dim = choice.dim or smallest_whole(jiang.needed_dim(samples, hidden, choice.loss, choice))
    return hidden, dim


def _numbers(
    choice: AttentionChoice, samples: int, snr: float, strong: float
) -> jiang.JiangNumbers:
    """All numbers, in units in which a noise token has length 1 (papers/jiang.md 1.5) and |w_O| = 1."""
    hidden, dim = _sizes(choice, samples, snr)
    scale, noise_std = max(1.0, snr**2), 1 / math.sqrt(dim)
    window = jiang.score_variances(scale, hidden, samples, choice.tokens, choice)
    rate = jiang.largest_rate(scale, hidden, choice) * (choice.relaxed or 1.0)
    return jiang.JiangNumbers(
        samples=samples,
        tokens=choice.tokens,
        dim=dim,
        hidden=hidden,
        snr=snr,
        noise_std=noise_std,
        strong_noise_std=strong * noise_std,
        score_std=choice.score_std or math.prod(window) ** 0.25,
        value_std=choice.value_std or jiang.largest_value_std(scale, hidden, 1.0, choice),
        output_norm=1.0,
        rate=choice.rate or rate,
        loss=choice.loss,
    )


def _attention_experiment(
    choice: AttentionChoice, n: jiang.JiangNumbers, steps: float, attack: Attack | None = None
) -> Experiment:
    """Uniform attention would take M^2 times as many steps (papers/zhang.md S8): the cap allows for that.

    The width of values is 1: only u = W_V w_O and |w_O| matter.
    """
    stronger = n.strong_noise_std > n.noise_std
    return _experiment(
        choice,
        steps=4 * n.tokens**2 * steps,
        data=SignalNoise(
            samples=n.samples,
            tokens=n.tokens,
            dim=n.dim,
            snr=n.snr,
            noise_std=n.noise_std,
            strong_noise_std=n.strong_noise_std if stronger else None,
            projected=True,
        ),
        network=Attention(
            hidden=n.hidden,
            value_dim=1,
            init=GaussianInit(score_std=n.score_std, value_std=n.value_std),
            output_norm=n.output_norm,
        ),
        attack=attack,
        rate=n.rate,
        loss=n.loss,
    )


def attention_along(axis: str, cells: list[Experiment], start: float = 1.0) -> Attention:
    """The networks of cells inside theorems, zipped along an axis; `start` multiplies their initial values."""
    networks = [jiang.parts(cell)[1] for cell in cells]
    inits = [network.init for network in networks if isinstance(network.init, GaussianInit)]
    return Attention(
        hidden=zipped(axis, [network.hidden for network in networks]),
        value_dim=1,
        init=GaussianInit(
            score_std=zipped(axis, [init.score_std for init in inits]),
            value_std=zipped(axis, [start * init.value_std for init in inits]),
        ),
        output_norm=1.0,
    )


def descent_along(axis: str, cells: list[Experiment], max_steps: int) -> GradientDescent:
    """Their step sizes and losses to reach, likewise."""
    return GradientDescent(
        rate=zipped(axis, [cell.training.rate for cell in cells]),
        stop_loss=zipped(axis, [cell.training.stop_loss for cell in cells]),
        max_steps=max_steps,
    )


def _experiment(
    choice: Choice, *, steps: float, rate: float, loss: float, first_attacked_step: int = 0, **parts: Any
) -> Experiment:  # fmt: skip
    """The one place where an experiment is made, and where its coordinates are chosen."""
    return Experiment(
        training=GradientDescent(
            rate=rate,
            stop_loss=loss,
            max_steps=choice.max_steps or smallest_whole(min(steps, LARGEST)),
            first_attacked_step=first_attacked_step,
        ),
        evaluation=Evaluation(samples=choice.test_samples),
        precision="float64",
        coordinates="sampled",  # no machine holds d numbers
        seeds=choice.seeds,
        **parts,
    )


def pgd(radius: float, per: Literal["token", "sample"]) -> PGD | None:
    """The attack of the papers' experiments: 20 steps of a fifth of the radius."""
    if radius == 0:
        return None
    return PGD(ball=Ball(radius=radius, relative_to="signal", per=per), steps=20, step=0.2)


def _wang_numbers(choice: WangChoice) -> wang.WangNumbers:
    n = wang.WangNumbers(
        samples=choice.samples,
        dim=choice.dim or 1,
        signal=choice.signal or 1.0,
        radius=choice.radius,
        flip=choice.flip,
        width=choice.width,
        init_std=0.0,
        rate=0.0,
        smooth=choice.activation == "smooth",
    )
    if choice.signal is None:
        n = replace(n, signal=wang.smallest_signal(n, choice, choice.dim, choice.robust))
    dim = choice.dim or smallest_whole(wang.needed_dim(n, choice))
    relaxed = choice.relaxed and choice.relaxed * n.samples / dim
    rate = choice.rate or relaxed or wang.largest_rate(dim, choice)
    start = SMALL_START * rate / math.sqrt(n.width * dim)
    return replace(n, dim=dim, rate=rate, init_std=start)
