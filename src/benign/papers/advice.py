"""Advice for a person's own numbers: which theorems apply, what they predict, and how to test it.

What a paper prints stands beside what its statements become when they are corrected (papers/*.md of the
specification; the claims that decide between them are named).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.axes import cells
from benign.data.mixture import Mixture
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.two_layer import TwoLayer
from benign.papers.jiang import theory as jiang
from benign.papers.wang import theory as wang
from benign.papers.zhang import theory as zhang
from benign.papers.zhang.linear_mode import convergence_steps, expected_stall_radius
from benign.spec import Count, FlipRate, NonNegative, Positive, Spec
from benign.theory.conditions import Conditions
from benign.theory.intervals import number
from benign.training.setup import Evaluation, GradientDescent, Setup

PRINTED, CORRECTED = "printed", "corrected"
WIDE = 20_000
"""dimensions from which on a run is computed in the span it stays in"""


@dataclass(frozen=True)
class Limit:
    """A radius, or a number of steps, that a statement predicts."""

    name: str
    value: float
    """a share of |mu|, or steps"""
    form: str
    """as printed in the paper, or corrected"""
    source: str
    """the statement; of a corrected one the claim that decides"""


@dataclass(frozen=True)
class Advice:
    """What theory says about one experiment."""

    experiment: Setup
    theorems: tuple[Conditions, ...]
    regime: tuple[str, ...]
    """what the theorems predict, in sentences"""
    radii: tuple[Limit, ...]
    """in shares of |mu|"""
    steps: tuple[Limit, ...]
    """of gradient descent until the target loss"""
    radius: float
    """of the training attack, a share of |mu|"""

    def text(self, whole: bool = False) -> str:
        """All of it for a terminal; `whole` with every condition as a table."""
        lines = [line for each in self.theorems for line in _theorem(each, whole)]
        lines += ["", *self.regime, "", f"radii, as shares of |mu| (yours: {number(self.radius)})"]
        lines += _limits(self.radii)
        lines += ["", "steps until the target loss", *_limits(self.steps)]
        return "\n".join(lines)

    __str__ = text


class AttentionNumbers(Spec):
    """A transformer's attention layer on signal and noise tokens (Jiang, Zhang)."""

    samples: Count
    """N"""
    tokens: Count = 4
    """M"""
    dim: Count = 1024
    """d"""
    hidden: Count = 128
    """d_h"""
    snr: Positive
    """|mu| / (sigma_p sqrt d)"""
    noise: Positive = 1.0
    """length of a noise token, sigma_p sqrt d"""
    radius: NonNegative = 0.0
    """tau / |mu| of every token; 0 is clean training"""
    loss: Positive = 0.01
    """eps"""
    rate: Positive | None = None
    """eta; the largest that the conditions allow if not given"""

    def experiment(self) -> Experiment:
        """Theory's experiment with these numbers: initial weights in the middle of what the conditions allow."""
        scale = max(1.0, self.snr**2) * self.noise**2
        window = jiang.score_variances(scale, self.hidden, self.samples, self.tokens, jiang.ALL_ONE)
        start = zhang.largest_start(self.dim, scale, self.hidden, 1.0, jiang.ALL_ONE)
        return Experiment(
            data=SignalNoise(
                samples=self.samples,
                tokens=self.tokens,
                dim=self.dim,
                snr=self.snr,
                noise_std=self.noise / math.sqrt(self.dim),
                projected=True,
                balanced=True,
            ),
            network=Attention(
                hidden=self.hidden,
                value_dim=1,
                init=GaussianInit(score_std=math.prod(window) ** 0.25, value_std=start),
                output_norm=1.0,
            ),
            attack=_pgd(self.radius, "token"),
            training=GradientDescent(
                rate=self.rate or jiang.largest_rate(scale, self.hidden, jiang.ALL_ONE),
                stop_loss=self.loss,
            ),
            **_computed(self.dim),
        )


class TwoLayerNumbers(Spec):
    """A two-layer network on two clusters with flipped labels (Wang)."""

    samples: Count
    """n"""
    dim: Count = 1000
    """d"""
    signal: Positive
    """r = |mu|, in standard deviations of the noise"""
    radius: NonNegative = 0.1
    """alpha / |mu|"""
    flip: FlipRate = 0.0
    """beta"""
    width: Count = 200
    """m"""
    loss: Positive = 0.01
    """training loss to reach"""
    rate: Positive | None = None
    """eta; n / d if not given, which trains in tens of steps"""

    def experiment(self) -> Experiment:
        return Experiment(
            data=Mixture(samples=self.samples, dim=self.dim, signal=self.signal, flip=self.flip),
            network=TwoLayer(width=self.width, activation="relu", preset="vanishing"),
            attack=_pgd(self.radius, "sample"),
            training=GradientDescent(
                rate=self.rate or self.samples / self.dim,
                stop_loss=self.loss,
                first_attacked_step=1,
            ),
            **_computed(self.dim),
        )


NUMBERS: dict[str, type[AttentionNumbers] | type[TwoLayerNumbers]] = {
    "attention": AttentionNumbers,
    "two_layer": TwoLayerNumbers,
}


def experiment_for(network: str, numbers: Mapping[str, Any]) -> Experiment:
    """The experiment that theory has in mind for plain numbers."""
    if network not in NUMBERS:
        raise ValueError(f"`network` must be one of {', '.join(NUMBERS)}, got {network!r}")
    return NUMBERS[network].from_dict(numbers).experiment()


def advise(
    experiment: Setup | None = None, /, network: str = "attention", **numbers: Any
) -> Advice:
    """What the theorems say about an experiment of one cell, or about plain numbers for a network.

    >>> import benign as bo
    >>> advice = bo.advise(network="attention", samples=20, snr=2.0, tokens=2, dim=4096, radius=0.1)
    >>> [(limit.name, round(limit.value, 3)) for limit in advice.radii if limit.form == "corrected"][0]
    ('no classifier is robust', 0.707)
    """
    if experiment is None:
        experiment = experiment_for(network, numbers)
    elif numbers:
        raise ValueError(f"give an experiment or numbers, not both: got {', '.join(numbers)}")
    if isinstance(experiment, Experiment):
        (_, experiment), *others = cells(experiment)
        if others:
            raise ValueError(f"the experiment has {len(others) + 1} cells: advice is for one")
    for kind, make in _ADVISERS.items():
        if isinstance(experiment.network, kind):
            return make(experiment)
    known = ", ".join(kind.__name__ for kind in _ADVISERS)
    raise ValueError(f"`network` ({experiment.network.kind}): there are theorems for {known}")


def _attention(setup: Setup) -> Advice:
    n = jiang.Numbers.of(setup, attacked=setup.attack is not None)
    edge = 1 / math.log(n.hidden) if n.hidden > 1 else math.inf
    case: zhang.Case = 1 if n.radius <= edge else 2
    if n.radius:
        theorems = (zhang.conditions(setup, case),)
    else:
        theorems = (jiang.conditions(setup, "4.1"), jiang.conditions(setup, "4.2"))
    return Advice(
        experiment=setup,
        theorems=theorems,
        regime=tuple(_race(n, case)),
        radii=tuple(_attention_radii(n, edge)),
        steps=tuple(_attention_steps(n, case)),
        radius=n.radius,
    )


def _race(n: jiang.Numbers, case: zhang.Case) -> list[str]:
    """What N SNR^2 predicts, by the theorems and by their proofs."""
    strong = n.strong_noise_std / n.noise_std
    asked = zhang.needed_race(n.loss, case, jiang.ALL_ONE) if n.radius else 1.0
    proof = jiang.benign_constant(n.tokens, strong)
    word = (
        "benign" if n.race >= asked else "harmful" if not n.radius else "not promised to be benign"
    )
    lines = [
        f"N SNR^2 = {number(n.race)}, theorem: of order {number(asked)} or more for benign overfitting "
        f"({word} with constant 1), its proof: at least {number(proof)}"
    ]
    if n.radius:
        name = "focuses on the signal" if case == 1 else "stays uniform"
        lines.append(f"radius in case {case} of Zhang's Theorem 2: attention {name}")
    return lines


def _attention_radii(n: jiang.Numbers, edge: float) -> list[Limit]:
    barrier = min(math.sqrt(0.5), 0.5 * math.sqrt(1 + n.snr**-2))
    stall = float(expected_stall_radius(1.0, n.snr, n.tokens, n.samples))
    return [
        Limit("attention learns", edge, PRINTED, "Zhang Theorem 2 case 1, 1 / log d_h"),
        Limit(
            "attention learns",
            _largest_bracket(n),
            CORRECTED,
            "Lemma 18 with its proof's constants",
        ),
        Limit("no classifier is robust", 1.0, PRINTED, "Zhang Theorem 3"),
        Limit(
            "no classifier is robust", math.sqrt(0.5), CORRECTED, "zhang/thm3.half_at_1_over_sqrt2"
        ),
        Limit("nor any that ignores positions", barrier, CORRECTED, "zhang/thm3.perm_barrier"),
        Limit(
            "nor uniform attention",
            math.sqrt(0.5) / n.tokens,
            CORRECTED,
            "zhang/case2.stall_radius",
        ),
        Limit("uniform attention does not even fit", stall, CORRECTED, "zhang/case2.stall_radius"),
    ]


def _largest_bracket(n: jiang.Numbers) -> float:
    """The radius up to which the corrected T1 of Lemma 18 exists; 0 where it never does."""

    def exists(radius: float) -> bool:
        gain, cost = zhang.bracket(replace(n, radius=radius), jiang.ALL_ONE)
        return gain > cost

    low, high = 0.0, 1.0
    if not exists(low):
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exists(middle) else (low, middle)
    return low


def _attention_steps(n: jiang.Numbers, case: zhang.Case) -> list[Limit]:
    mu = math.sqrt(n.signal)

    def corrected(tokens: int) -> float:
        found = convergence_steps(n.loss, n.rate, mu, tokens, n.radius * mu, n.output_norm)
        return float(found)

    printed = zhang.theorem_steps(n, case) if n.radius else jiang.theorem_steps(n, "4.1")
    source = f"Zhang Theorem 2 case {case}" if n.radius else "Jiang Theorem 4.1"
    return [
        Limit("constant 1", printed, PRINTED, source),
        Limit("attention on the signal alone", corrected(1), CORRECTED, "zhang.md S8, M = 1"),
        Limit("uniform attention", corrected(n.tokens), CORRECTED, "zhang/thm2.case2.slowdown_M"),
    ]


def _two_layer(setup: Setup) -> Advice:
    n = wang.Numbers.of(setup)
    noise = n.signal**2 * math.sqrt(n.samples / n.dim)
    margin = wang.linear_margin(n)
    return Advice(
        experiment=setup,
        theorems=(wang.conditions(setup),),
        regime=(
            f"n r^4 / d = {number(noise**2)}: the theorem's clean error falls exponentially in it",
            f"the linear predictor errs on {number(wang.predicted_error(n, 0.0))} of clean points and on "
            f"{number(wang.predicted_error(n, n.radius))} of attacked ones",
        ),
        radii=(
            Limit("no classifier is robust", 1.0, PRINTED, "Wang Theorem 3.2, alpha >= |mu|"),
            Limit(
                "robust error is bounded", noise / n.signal, PRINTED, "Theorem 3.1 item 3, C = 1"
            ),
            Limit(
                "half the points are robust",
                margin / n.signal,
                CORRECTED,
                "wang/derived.linear-predictor",
            ),
        ),
        steps=(
            Limit(
                "until margins grow",
                4 * n.samples / (n.rate * n.dim * setup.training.stop_loss),
                CORRECTED,
                "wang.md 5",
            ),
        ),
        radius=n.radius,
    )


_ADVISERS: dict[type, Callable[[Setup], Advice]] = {Attention: _attention, TwoLayer: _two_layer}


def _theorem(conditions: Conditions, whole: bool) -> list[str]:
    if whole:
        return conditions.text().splitlines()
    if conditions.hold:
        return [f"inside {conditions.title}"]
    return [f"outside {conditions.title}:", *(f"  {row.miss()}" for row in conditions.failing)]


def _limits(limits: tuple[Limit, ...]) -> list[str]:
    width = max(len(limit.name) for limit in limits)
    return [
        f"  {limit.name:{width}}  {number(limit.value):>8}  {limit.form}: {limit.source}"
        for limit in limits
    ]


def _pgd(radius: float, per: Any) -> PGD | None:
    """The attack of the papers' experiments."""
    if not radius:
        return None
    return PGD(ball=Ball(radius=radius, relative_to="signal", per=per), steps=20, step=0.2)


def _computed(dim: int) -> dict[str, Any]:
    """What is the same for all: five seeds, in float64, in small coordinates where d is large."""
    return {
        "evaluation": Evaluation(samples=1000),
        "precision": "float64",
        "coordinates": "sampled" if dim > WIDE else "ambient",
        "seeds": 5,
    }
