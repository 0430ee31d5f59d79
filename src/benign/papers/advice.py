"""Advice for a person's own numbers: which theorems apply, what they predict, and how to test it.

Each number comes as the paper prints it and as its corrected statement has it (papers/*.md of the
specification; the claims that decide between them are named).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benign.claims.conditions import Conditions
from benign.networks.attention import Attention
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.papers.jiang import theory as jiang
from benign.papers.li import theory as li
from benign.papers.numbers import experiment_for
from benign.papers.wang import theory as wang
from benign.papers.wang.bounds import averaged_alignment, linear_rule_errors, robust_error_floor
from benign.papers.zhang import theory as zhang
from benign.papers.zhang.bounds import augmented_race
from benign.papers.zhang.linear_mode import convergence_steps, expected_stall_radius
from benign.spec.axes import cells
from benign.stats.intervals import number
from benign.training.setup import Setup

PRINTED, CORRECTED = "printed", "corrected"


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
    """in shares of the signal"""
    steps: tuple[Limit, ...]
    """of gradient descent until the target loss"""
    radius: float
    """of the training attack, likewise"""
    unit: str = "|mu|"
    """what radii are shares of"""

    def text(self, whole: bool = False) -> str:
        """All of it for a terminal; `whole` with every condition as a table."""
        lines = [line for each in self.theorems for line in _theorem(each, whole)]
        lines += [
            "",
            *self.regime,
            "",
            f"radii, as shares of {self.unit} (yours: {number(self.radius)})",
        ]
        lines += _limits(self.radii)
        if self.steps:
            lines += ["", "steps until the target loss", *_limits(self.steps)]
        return "\n".join(lines)

    __str__ = text


def advise(
    experiment: Setup | None = None, /, network: str = "attention", **numbers: Any
) -> Advice:
    """What the theorems say about an experiment of one cell, or about plain numbers for a network.

    >>> import benign as bo
    >>> advice = bo.advise(network="attention", samples=20, snr=2.0, tokens=2, dim=4096, radius=0.1)
    >>> [round(each.value, 3) for each in advice.radii if each.name == "no classifier is robust"]
    [1.0, 0.707]
    """
    if experiment is not None and numbers:
        raise ValueError(f"give an experiment or numbers, not both: got {', '.join(numbers)}")
    copies = int(numbers.get("copies", 1))
    (_, cell), *others = cells(experiment or experiment_for(network, numbers))
    if others:
        raise ValueError(f"the experiment has {len(others) + 1} cells: advice is for one of them")
    for kind, make in _ADVISERS.items():
        if isinstance(cell.network, kind):
            advice = make(cell)
            if copies == 1:
                return advice
            copied = _copied(jiang.JiangNumbers.of(cell), copies)
            return replace(advice, regime=(*advice.regime, copied))
    known = ", ".join(kind.__name__ for kind in _ADVISERS)
    raise ValueError(f"`network` ({cell.network.kind}): there are theorems for {known}")


def _attention(setup: Setup) -> Advice:
    n = jiang.JiangNumbers.of(setup, attacked=setup.attack is not None)
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


def _race(n: jiang.JiangNumbers, case: zhang.Case) -> list[str]:
    """What N SNR^2 predicts, by the theorems and by their proofs."""
    strong = n.strong_noise_std / n.noise_std
    needed = zhang.needed_race(n.loss, case, jiang.ALL_ONE) if n.radius else 1.0
    proof = jiang.benign_constant(n.tokens, strong)
    word = (
        "benign" if n.race >= needed else "harmful" if not n.radius else "not promised to be benign"
    )
    lines = [
        f"N SNR^2 = {number(n.race)}, theorem: of order {number(needed)} or more for benign overfitting "
        f"({word} with constant 1), its proof: at least {number(proof)}"
    ]
    if n.radius:
        name = "focuses on the signal" if case == 1 else "stays uniform"
        lines.append(f"radius in case {case} of Zhang's Theorem 2: attention {name}")
    return lines


def _copied(n: jiang.JiangNumbers, copies: int, injected: float = 1.0) -> str:
    """Guideline 2 of Zhang et al.: N, SNR and N SNR^2 with K noise-injected copies of every point."""
    printed, corrected = augmented_race(n.race, copies, injected)
    return (
        f"{copies} copies of every point with as much noise again: N {n.samples} -> {copies * n.samples}, SNR "
        f"{number(n.snr)} -> {number(n.snr / math.sqrt(1 + injected**2))}, N SNR^2 {number(n.race)} -> "
        f"{number(printed)} as printed, {number(corrected)} corrected, since copies share the noise they were made "
        "from (zhang/guide.augmentation; `benign run zhang/augment` measures it)"
    )


def _attention_radii(n: jiang.JiangNumbers, edge: float) -> list[Limit]:
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


def _largest_bracket(n: jiang.JiangNumbers) -> float:
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


def _attention_steps(n: jiang.JiangNumbers, case: zhang.Case) -> list[Limit]:
    mu = math.sqrt(n.signal)

    def corrected(tokens: int) -> float:
        steps = convergence_steps(n.loss, n.rate, mu, tokens, n.radius * mu, n.output_norm)
        return float(steps)

    printed = zhang.theorem_steps(n, case) if n.radius else jiang.theorem_steps(n, "4.1")
    source = f"Zhang Theorem 2 case {case}" if n.radius else "Jiang Theorem 4.1"
    return [
        Limit("constant 1", printed, PRINTED, source),
        Limit("attention on the signal alone", corrected(1), CORRECTED, "zhang.md S8, M = 1"),
        Limit("uniform attention", corrected(n.tokens), CORRECTED, "zhang/thm2.case2.slowdown_M"),
    ]


def _two_layer(setup: Setup) -> Advice:
    n = wang.WangNumbers.of(setup)
    level = n.signal**2 * math.sqrt(n.samples / n.dim)
    margin = float(averaged_alignment(n.signal, n.dim, n.samples, n.flip))
    errors = [linear_rule_errors(margin, r * n.signal, n.flip).robust for r in (0.0, n.radius)]
    clean, robust = (number(float(error)) for error in errors)
    floor = number(float(robust_error_floor(n.signal, n.radius * n.signal, n.flip)))
    return Advice(
        experiment=setup,
        theorems=(wang.conditions(setup),),
        regime=(
            f"n r^4 / d = {number(level**2)}: by Theorem 3.1 the clean error falls exponentially in it",
            f"the linear rule that training comes close to errs on {clean} of clean points, {robust} of attacked ones",
            f"Theorem 3.2: no classifier errs on less than {floor} of attacked points (labels flipped as in training)",
        ),
        radii=(
            Limit("no classifier is robust", 1.0, PRINTED, "Wang Theorem 3.2, alpha >= |mu|"),
            Limit(
                "robust error is bounded", level / n.signal, PRINTED, "Theorem 3.1 item 3, C = 1"
            ),
            Limit(
                "half the points are robust",
                margin / n.signal,
                CORRECTED,
                "wang/derived.linear-predictor",
            ),
        ),
        steps=_two_layer_steps(n, setup.training.stop_loss),
        radius=n.radius,
    )


def _two_layer_steps(n: wang.WangNumbers, loss: float) -> tuple[Limit, ...]:
    """A margin grows by about eta d / (4 n) a step at first, then as log t (papers/wang.md 5); a loss of 0 is never
    reached."""
    if not loss:
        return ()
    steps = 4 * n.samples / (n.rate * n.dim * loss)
    return (Limit("loss falls as 1 / t", steps, CORRECTED, "wang.md 5"),)


def _patch_cnn(setup: Setup) -> Advice:
    n = li.LiNumbers.of(setup)
    counts = n.robust_patches, n.other_patches
    regime = [
        f"standard training prefers non-robust features: n_N beta^q / (n_R alpha^q) = "
        f"{number(li.density_slack(*counts, n.alpha, n.beta, n.q))}, asked: more than 1"
    ]
    if n.eps:
        slack = li.robust_network_slack(*counts, n.alpha, n.eps, n.q)
        regime.append(
            f"a network of robust features can be robust in all classes: {number(slack)}, asked: more than 1"
        )
    return Advice(
        experiment=setup,
        theorems=(li.conditions(setup, "4.4" if n.eps else "4.3"),),
        regime=tuple(regime),
        radii=(Limit("no classifier is robust", 0.5, CORRECTED, "li/asm.separation"),),
        steps=(),
        radius=n.eps / n.alpha,
        unit="alpha",
    )


_ADVISERS: dict[type, Callable[[Setup], Advice]] = {
    Attention: _attention,
    TwoLayer: _two_layer,
    PatchCNN: _patch_cnn,
}


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
