"""Condition 1 of Zhang et al. and what the two cases of Theorem 2 add to it (papers/zhang.md 3).

Condition 1 is Jiang's Condition 4.1 without the strong noise token and with a smaller sigma_V; its symbols are
explained there. The attack moves every token by up to tau = r |mu|.
"""

import math
from typing import Literal, TypeAlias

from benign.claims.conditions import Condition, Conditions
from benign.data.noisy_copies import NoisyCopies
from benign.papers.jiang.theory import (
    ALL_ONE,
    JiangConstants,
    JiangNumbers,
    departures,
    largest_value_std,
    log_rows,
    parts,
    shared_rows,
)
from benign.training.setup import Setup

Case: TypeAlias = Literal[1, 2]
"""a weak attack, which lets attention focus; a strong one, under which it is said to stay uniform"""

_NAMES = {
    "dim": "(1) d",
    "hidden": "(1) d_h",
    "samples": "(2)",
    "tokens": "(3) M",
    "output": "(3) w_O",
    "rate": "(4)",
    "value_std": "(5) V",
    "score_low": "(5) low",
    "score_high": "(5) high",
    "loss": "(6)",
}


def conditions(
    numbers: JiangNumbers | Setup, case: Case = 1, given: JiangConstants = ALL_ONE
) -> Conditions:
    """Return Condition 1 item by item, regime and radius of a case of Theorem 2, and what its proof really uses.

    The last rows are informational. They say what Lemma 18 needs (its bracket, corrected, is positive), and the radii
    from which no classifier, or none with uniform attention, is robust (papers/zhang.md 4).
    """
    n = numbers if isinstance(numbers, JiangNumbers) else JiangNumbers.of(numbers, attacked=True)
    rows = shared_rows(n, given, _NAMES)
    rows = [_smaller_start(row, n, given) if row.name == "(5) V" else row for row in rows]
    rows += [_regime(n, case, given), *_radius(n, case, given)]
    rows += [row.informational() for row in (*_proof(n, case, given), *log_rows(n, given))]
    if not isinstance(numbers, JiangNumbers):
        rows.insert(0, Condition.setting(_departures(numbers)))
    return Conditions(f"Zhang Theorem 2 case {case} ({given})", tuple(rows))


def needed_race(loss: float, case: Case, c: JiangConstants) -> float:
    """Return the smallest N SNR^2 of Theorem 2: of order 1 in case 1, of order 1 / eps in case 2."""
    return c.regime if case == 1 else c.regime / loss


def radii(hidden: float, case: Case, c: JiangConstants) -> tuple[float, float]:
    """Return the smallest and the largest r = tau / |mu| of a case of Theorem 2."""
    edge = 1 / math.log(hidden) if hidden > 1 else math.inf
    return (0.0, edge / c.const) if case == 1 else (edge * c.const, 1 / c.const)


def largest_start(dim: float, scale: float, hidden: float, norm: float, c: JiangConstants) -> float:
    """Return the largest sigma_V of Condition 1 (5): Jiang's divided by sqrt(d), so that |u_0| tau stays small."""
    return largest_value_std(scale, hidden, norm, c) / math.sqrt(dim)


def theorem_steps(n: JiangNumbers, case: Case) -> float:
    """Return T of Theorem 2 with constant 1, M times as long in case 2."""
    steps = 1 / (n.rate * n.loss * n.signal * n.output_norm**2)
    return steps if case == 1 else n.tokens * steps


def bracket(n: JiangNumbers, c: JiangConstants) -> tuple[float, float]:
    """Return what the signal gains and what noise and attack cost in Lemma 18; its T1 exists if the first is larger.

    N (|mu| - tau)^2 against N (1 + 30 M^2) P' + 60 M^2 sigma_p^2 d, where
    P' = |mu| tau + 2 sigma_p tau sqrt(2 log(4 N M / delta)) + tau^2; printed without the N before 30 M^2.
    """
    mu = math.sqrt(n.signal)
    tau = n.radius * mu
    log = math.sqrt(2 * math.log(4 * n.samples * n.tokens / c.failure))
    slack = mu * tau + 2 * n.noise_std * tau * log + tau**2
    square = n.tokens**2
    cost = n.samples * (1 + 30 * square) * slack + 60 * square * n.noise
    return n.samples * (mu - tau) ** 2, cost


def _smaller_start(row: Condition, n: JiangNumbers, c: JiangConstants) -> Condition:
    bound = largest_start(n.dim, n.scale, n.hidden, n.output_norm, c)
    return Condition.at_most(row.name, f"{row.statement} / sqrt(d)", n.value_std, bound)


def _regime(n: JiangNumbers, case: Case, c: JiangConstants) -> Condition:
    statement = "N SNR^2 >= c" if case == 1 else "N SNR^2 >= c / eps"
    return Condition.at_least("regime", statement, n.race, needed_race(n.loss, case, c))


def _radius(n: JiangNumbers, case: Case, c: JiangConstants) -> list[Condition]:
    low, high = radii(n.hidden, case, c)
    if case == 1:
        return [Condition.at_most("radius", "tau <= |mu| / log d_h", n.radius, high)]
    return [
        Condition.at_least("radius low", "tau >= |mu| / log d_h", n.radius, low),
        Condition.at_most("radius high", "tau <= |mu|", n.radius, high),
    ]


def _proof(n: JiangNumbers, case: Case, c: JiangConstants) -> list[Condition]:
    uniform = 1 / (math.sqrt(2) * n.tokens)
    rows = [
        Condition.at_least("proof", "N SNR^2 >= 60 M^2", n.race, 60 * n.tokens**2),
        Condition.at_least("Lemma 18", "signal's gain > cost of noise and attack", *bracket(n, c)),
        Condition.at_most("robust", "tau < |mu| / sqrt(2)", n.radius, math.sqrt(0.5)),
    ]
    if case == 2:
        rows.append(Condition.at_most("uniform", "tau < |mu| / (sqrt(2) M)", n.radius, uniform))
    return rows


def _departures(setup: Setup) -> list[str]:
    data, names = parts(setup)[0], departures(setup, attacked=True)
    threat = setup.attack.threat() if setup.attack else None
    if data.strong_noise_std not in (None, data.noise_std):
        names.append("a strong noise token")
    if isinstance(data, NoisyCopies):
        names.append("copies of points")
    if threat is not None and threat.per == "sample":
        names.append("one ball for all tokens")
    return names


# Times of the stages, as printed and as corrected.


def stage_1_steps_corrected(n: JiangNumbers, c: JiangConstants = ALL_ONE) -> float:
    """Return T1 of Lemma 18 from its own inequalities: N before 30 M^2 restored, |w_O| squared.

    10 M (3M + 1) N / (eta d_h^1/4 [N (|mu| - tau)^2 - N (1 + 30 M^2) P' - 60 M^2 sigma_p^2 d] |w_O|^2)
    """
    gain, cost = bracket(n, c)
    return _stage_1_steps(n, gain - cost, n.output_norm**2)


def stage_1_steps_printed(n: JiangNumbers, c: JiangConstants = ALL_ONE) -> float:
    """Return T1 of Lemma 18 as printed: (N + 30 M^2) P' in the bracket, |w_O| to the first power."""
    gain, cost = bracket(n, c)
    square = n.tokens**2
    noise = 60 * square * n.noise
    slack = (cost - noise) / (n.samples * (1 + 30 * square))
    printed = (n.samples + 30 * square) * slack + noise
    return _stage_1_steps(n, gain - printed, n.output_norm)


def loss_steps_printed(n: JiangNumbers) -> float:
    """Return T of Lemma 21 with constant 1: 1 / (eta eps (|mu| + tau)^2 |w_O|^2), which falls with tau."""
    reach = math.sqrt(n.signal) * (1 + n.radius)
    return 1 / (n.rate * n.loss * (reach * n.output_norm) ** 2)


def stage_2_steps_printed(n: JiangNumbers, c: JiangConstants = ALL_ONE) -> float:
    """Return T2 of Lemma 19 with constant 1: 1 / (eta (|mu| + tau)^2 |w_O|^2 log(6 N^2 M^2 / delta))."""
    log = math.log(6 * (n.samples * n.tokens) ** 2 / c.failure)
    return loss_steps_printed(n) * n.loss / log


def minimal_steps_printed(n: JiangNumbers) -> float:
    """Return N max(SNR^2, SNR^-4), the shortest training that section 4 compares with others, without its eps."""
    return n.samples * max(n.snr**2, n.snr**-4)


def minimal_steps_corrected(n: JiangNumbers) -> float:
    """Return the shortest training of section 4 with the eps^-2 it lacks: T of Theorem 2 at the largest rate."""
    return minimal_steps_printed(n) / n.loss**2


def wang_steps(n: JiangNumbers) -> float:
    """Return d^2 / (|mu|^2 eps^2), with which section 4 compares it; |mu| is in units of a noise coordinate."""
    return n.dim**2 * n.noise_std**2 / (n.signal * n.loss**2)


def _stage_1_steps(n: JiangNumbers, slack: float, output: float) -> float:
    if slack <= 0:
        return math.inf
    start = 10 * n.tokens * (3 * n.tokens + 1) * n.samples
    return start / (n.rate * n.hidden**0.25 * slack * output)
