"""Condition 4.1 of Jiang et al., what Theorems 4.1 and 4.2 add, and their predictions (papers/jiang.md 3, 4 and 6).

Symbols: N samples of M tokens in d dimensions, d_h the width of queries and keys, SNR = |mu| / (sigma_p sqrt d),
eta the step size, eps the training loss to reach, L = log(6 N^2 M^2 / delta) and
m2 = min(|mu|^-2, (sigma_p^2 d)^-1). Zhang's Condition 1 is nearly the same and is built from the same rows.
Where a printed form differs from the corrected or derived one, both are given, and their names say which. Hidden
constants of predictions are 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from benign.claims.conditions import (
    Condition,
    Conditions,
    Moderate,
    one_cell,
    radius_share,
    signal_norm,
)
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit, Init, TorchDefault
from benign.spec.base import NonNegative, Positive, Spec
from benign.training.optimisers import gradient_descent_at_one_rate
from benign.training.setup import Setup

Theorem: TypeAlias = Literal["4.1", "4.2"]
"""benign, harmful"""

HARMFUL_CONSTANT = 4.0
"""N SNR^2 is at most this in the proof of Theorem 4.2 (eq. 144)"""


class JiangConstants(Spec):
    """What the O, Omega and polylog of Condition 4.1 (Jiang) and of Condition 1 (Zhang) leave open."""

    const: Moderate = 1.0
    """constant of every O and Omega"""
    polylog: Moderate = 1.0
    """log factor of every O and Omega with a tilde"""
    log_power: NonNegative = 0.0
    """polylog d is (log d)^log_power, in the conditions on N and on eps"""
    regime: Moderate = 1.0
    """constant c of N SNR^2 >= c (benign) or N SNR^2 <= c (harmful)"""
    failure: Annotated[Positive, Field(lt=1)] = 0.01
    """probability delta that something atypical is drawn"""

    @property
    def tilde(self) -> float:
        return self.const * self.polylog

    def polylog_of(self, dim: float) -> float:
        return self.const * math.log(dim) ** self.log_power

    def __str__(self) -> str:
        log = f"(log d)^{self.log_power:g}" if self.log_power else "1"
        text = f"constants {self.const:g}, log factors {self.polylog:g}, polylog d = {log}"
        return f"{text}, regime constant {self.regime:g}, delta {self.failure:g}"


ALL_ONE = JiangConstants()


@dataclass(frozen=True, kw_only=True)
class JiangNumbers:
    """The quantities that Condition 4.1 (Jiang) and Condition 1 (Zhang) bound."""

    samples: int
    tokens: int
    dim: int
    hidden: int
    snr: float
    noise_std: float
    """sigma_p"""
    strong_noise_std: float
    """of token 2; sigma_p where no token is stronger"""
    score_std: float
    """sigma_h"""
    value_std: float
    """sigma_V"""
    output_norm: float
    """|w_O|"""
    rate: float
    """eta"""
    loss: float
    """eps"""
    radius: float = 0.0
    """tau / |mu|"""

    @staticmethod
    def of(setup: Setup, attacked: bool = False) -> "JiangNumbers":
        """Return the numbers of a cell; the radius of its attack is read only if `attacked`."""
        data, network = parts(setup)
        if not setup.training.stop_loss:
            raise ValueError("`training.stop_loss` is eps and must be more than 0, got 0.0")
        score, value = _spreads(network.init, data.dim)
        return JiangNumbers(
            samples=data.samples,
            tokens=data.tokens,
            dim=data.dim,
            hidden=network.hidden,
            snr=signal_norm(setup) / (data.noise_std * math.sqrt(data.dim)),
            noise_std=data.noise_std,
            strong_noise_std=data.strong_noise_std or data.noise_std,
            score_std=score,
            value_std=value,
            output_norm=network.output_norm or _drawn_norm(network.init),
            rate=setup.training.rate,
            loss=setup.training.stop_loss,
            radius=radius_share(setup) if attacked else 0.0,
        )

    @property
    def noise(self) -> float:
        """sigma_p^2 d, the squared length of a noise token."""
        return self.noise_std**2 * self.dim

    @property
    def signal(self) -> float:
        """|mu|^2"""
        return self.snr**2 * self.noise

    @property
    def scale(self) -> float:
        """1 / m2: the larger of the two squared lengths."""
        return max(self.signal, self.noise)

    @property
    def race(self) -> float:
        """N SNR^2, which decides between signal and noise."""
        return self.samples * self.snr**2


def parts(setup: Setup) -> tuple[SignalNoise, Attention]:
    """Return data and network of a cell. Raise ValueError if Theorems 4.1 and 4.2 are about others."""
    data, network = one_cell(setup).data, setup.network
    if not isinstance(data, SignalNoise) or not isinstance(network, Attention):
        raise ValueError(
            f"`data` ({data.kind}) and `network` ({network.kind}) must be signal_noise and attention: "
            "the theorems of Jiang and Zhang are about those"
        )
    return data, network


def conditions(
    numbers: JiangNumbers | Setup, theorem: Theorem = "4.1", given: JiangConstants = ALL_ONE
) -> Conditions:
    """Return Condition 4.1 item by item, the regime of Theorem 4.1 or 4.2, and what its proof really uses.

    The last rows are informational: the theorems say that N SNR^2 is of order 1, their proofs need
    N SNR^2 > 60 M^2 C_p^2 (Lemma D.5) or N SNR^2 <= 4 (eq. 144); balanced classes need N >= 8 log(4 / delta)
    (Lemma C.1); polylog d is at least log d.
    """
    n = numbers if isinstance(numbers, JiangNumbers) else JiangNumbers.of(numbers)
    rows = [*shared_rows(n, given, _NAMES), _strong_noise(n), _regime(n, theorem, given.regime)]
    rows += [row.informational() for row in (_proof(n, theorem), *log_rows(n, given))]
    if not isinstance(numbers, JiangNumbers):
        rows.insert(0, Condition.setting(departures(numbers, attacked=False)))
    return Conditions(f"Jiang Theorem {theorem} ({given})", tuple(rows))


_NAMES = {
    "hidden": "(1)",
    "dim": "(2)",
    "samples": "(3)",
    "tokens": "(4)",
    "output": "(5)",
    "rate": "(6)",
    "value_std": "(7)",
    "score_low": "(8) low",
    "score_high": "(8) high",
    "loss": "(9)",
}


def shared_rows(n: JiangNumbers, c: JiangConstants, names: Mapping[str, str]) -> list[Condition]:
    """Return what Condition 4.1 (Jiang) and Condition 1 (Zhang) share, in the order and by the names of one of them."""
    at_least, at_most = Condition.at_least, Condition.at_most
    low, high = score_variances(n.scale, n.hidden, n.samples, n.tokens, c)
    hidden = needed_hidden(n.samples, n.snr, n.loss, c)
    dim = needed_dim(n.samples, n.hidden, n.loss, c)
    value = largest_value_std(n.scale, n.hidden, n.output_norm, c)
    variance, polylog = n.score_std**2, c.polylog_of(n.dim)
    rows = {
        "hidden": at_least("", "d_h >= max(SNR^4, SNR^-4) N^2 / eps^2", n.hidden, hidden),
        "dim": at_least("", "d >= N^2 d_h / eps^2", n.dim, dim),
        "samples": at_least("", "N >= polylog d", n.samples, polylog),
        "tokens": Condition.any_constant("", "M of order 1", n.tokens),
        "output": Condition.any_constant("", "|w_O| of order 1", n.output_norm),
        "rate": at_most("", "eta <= m2 / sqrt(d_h)", n.rate, largest_rate(n.scale, n.hidden, c)),
        "value_std": at_most("", "sigma_V <= sqrt(m2) d_h^-1/4 / |w_O|", n.value_std, value),
        "score_low": at_least("", "sigma_h^2 >= m2 d_h^-1/2 L^-2", variance, low),
        "score_high": at_most("", "sigma_h^2 <= m2 d_h^-1/2 L^-3/2", variance, high),
        "loss": at_most("", "eps <= 1 / polylog d", n.loss, 1 / polylog),
    }
    return [replace(rows[key], name=name) for key, name in names.items()]


def needed_hidden(samples: float, snr: float, loss: float, c: JiangConstants) -> float:
    """Return the smallest d_h of Condition 4.1 (1)."""
    return c.tilde * max(snr**4, snr**-4) * (samples / loss) ** 2


def needed_dim(samples: float, hidden: float, loss: float, c: JiangConstants) -> float:
    """Return the smallest d of Condition 4.1 (2)."""
    return c.tilde * (samples / loss) ** 2 * hidden


def largest_rate(scale: float, hidden: float, c: JiangConstants) -> float:
    """Return the largest step size of Condition 4.1 (6); `scale` is 1 / m2."""
    return 1 / (scale * math.sqrt(hidden) * c.tilde)


def largest_value_std(scale: float, hidden: float, output_norm: float, c: JiangConstants) -> float:
    """Return the largest sigma_V of Condition 4.1 (7)."""
    return 1 / (output_norm * math.sqrt(scale) * hidden**0.25 * c.tilde)


def score_variances(
    scale: float, hidden: float, samples: float, tokens: float, c: JiangConstants
) -> tuple[float, float]:
    """Return the smallest and the largest sigma_h^2 of Condition 4.1 (8).

    They are a factor of sqrt(L) apart; no constant is hidden here.
    """
    log = math.log(6 * samples**2 * tokens**2 / c.failure)
    largest = 1 / (scale * math.sqrt(hidden))
    return largest * log**-2, largest * log**-1.5


def strong_noise_factor(tokens: int) -> float:
    """Return C_p of Condition 4.1 (10), by how much token 2 is noisier than the others."""
    return 5 * math.sqrt(tokens)


def benign_constant(tokens: int, strong: float) -> float:
    """Return 60 M^2 C_p^2, what N SNR^2 exceeds in the proof of Theorem 4.1 (Lemma D.5, Claim 1)."""
    return 60 * (tokens * strong) ** 2


def theorem_steps(n: JiangNumbers, theorem: Theorem) -> float:
    """Return T of Theorem 4.1 or 4.2 with constant 1: gradient steps until the training loss is eps."""
    slowness = 1 / n.signal if theorem == "4.1" else n.samples / n.noise
    return slowness / (n.rate * n.loss * n.output_norm**2)


def log_rows(n: JiangNumbers, c: JiangConstants) -> list[Condition]:
    """Return what the weakest reading of polylog d in Condition 4.1 (3, 9), and balanced classes (Lemma C.1), need."""
    log = math.log(n.dim)
    return [
        Condition.at_least("N, log d", "N >= log d", n.samples, log),
        Condition.at_most("eps, log d", "eps <= 1 / log d", n.loss, 1 / log),
        Condition.at_least(
            "classes", "N >= 8 log(4 / delta)", n.samples, 8 * math.log(4 / c.failure)
        ),
    ]


def departures(setup: Setup, attacked: bool) -> list[str]:
    """Return how a cell differs from the setting of Theorems 4.1 and 4.2, or of Zhang's Theorem 2 if `attacked`."""
    data, network = parts(setup)
    differences = {
        "noise not projected off the signals": not data.projected,
        "flipped labels": data.flip > 0,
        "initial weights not Gaussian": network.init.normal_stds(data.dim) is None,
        "several heads": network.heads > 1,
        "attention not learned": network.attend != "learned",
        "a part frozen": network.train != "all",
        "a part not attacked": network.exposed != "all",
        "not gradient descent at a constant rate": not gradient_descent_at_one_rate(setup.training),
        "trained under attack": setup.attack is not None and not attacked,
        "stopped by the clean loss": setup.training.stop_on == "clean" and setup.attack is not None,
    }
    return [name for name, departs in differences.items() if departs]


def _strong_noise(n: JiangNumbers) -> Condition:
    factor = n.strong_noise_std / n.noise_std
    return Condition.equal("(10)", "C_p = 5 sqrt(M)", factor, strong_noise_factor(n.tokens))


def _regime(n: JiangNumbers, theorem: Theorem, bound: float) -> Condition:
    if theorem == "4.1":
        return Condition.at_least("regime", "N SNR^2 >= c", n.race, bound)
    return Condition.at_most("regime", "N SNR^2 <= c", n.race, bound)


def _proof(n: JiangNumbers, theorem: Theorem) -> Condition:
    if theorem == "4.1":
        bound = benign_constant(n.tokens, n.strong_noise_std / n.noise_std)
        return Condition.at_least("proof", "N SNR^2 > 60 M^2 C_p^2", n.race, bound)
    return Condition.at_most("proof", "N SNR^2 <= 4", n.race, HARMFUL_CONSTANT)


def _spreads(init: Init, dim: int) -> tuple[float, float]:
    """Standard deviations of an entry of W_Q and W_K, and of W_V."""
    if isinstance(init, GaussianInit):
        return init.score_std, init.value_std
    if not isinstance(init, TorchDefault):
        raise ValueError(f"`network.init` must be gaussian_init or torch_default, got {init.kind}")
    spread = 1 / (init.divide_by * math.sqrt(3 * dim))
    return spread, spread


def _drawn_norm(init: Init) -> float:
    """Root mean square of |w_O| when it is as drawn: uniform on +-1/sqrt(d_v)."""
    divide_by = init.divide_by if isinstance(init, TorchDefault) and init.divide_output else 1.0
    return math.sqrt(1 / 3) / divide_by


# Predictions: times of the stages, attention, test loss, boundary.


DELTA = 0.01
"""default failure probability delta of the log factor"""


def log_factor(samples: float, tokens: float, failure: float = DELTA) -> float:
    """Return L = log(6 N^2 M^2 / delta) of Condition 4.1 (8)."""
    return math.log(6 * (samples * tokens) ** 2 / failure)


def start_spread(samples: float, tokens: float, strong: float, failure: float = DELTA) -> float:
    """Return by how much sigma_V must stay below condition (7) for Lemma C.2: C_p sqrt(2 log(4 N M / delta)).

    The paper hides it in the tilde of (7). Without it |V_{n,2}(0)| is C_p d_h^-1/4 and the lemma fails.
    """
    return strong * math.sqrt(2 * math.log(4 * samples * tokens / failure))


def benign_stage_1_steps_printed(n: JiangNumbers) -> float:
    """Return T1 of Lemma D.5: 10 M (3M+1) N / (eta d_h^1/4 (N |mu|^2 - 60 M^2 C_p^2 sigma_p^2 d) |w_O|^2).

    Infinite where N SNR^2 is at most 60 M^2 C_p^2: the lemma says nothing there.
    """
    bound = benign_constant(n.tokens, n.strong_noise_std / n.noise_std)
    excess = (n.race - bound) * n.noise
    if excess <= 0:
        return math.inf
    return 10 * n.tokens * (3 * n.tokens + 1) * n.samples / (_pace(n) * excess)


def harmful_stage_1_steps_printed(n: JiangNumbers) -> float:
    """Return T1 of Lemma E.3 as equation (151) prints it, with C_p^2 - 200 M: negative for C_p = 5 sqrt(M)."""
    return _harmful_stage_1(n, 200)


def harmful_stage_1_steps_corrected(n: JiangNumbers) -> float:
    """Return T1 of Lemma E.3: 4 M (3M+1) N / (eta d_h^1/4 (C_p^2 - 24 M) sigma_p^2 d |w_O|^2).

    Infinite for C_p^2 up to 24 M: the lemma says nothing there.
    """
    steps = _harmful_stage_1(n, 24)
    return steps if steps > 0 else math.inf


def _harmful_stage_1(n: JiangNumbers, factor: float) -> float:
    lead = (n.strong_noise_std / n.noise_std) ** 2 - factor * n.tokens
    if lead == 0:
        return math.inf
    return 4 * n.tokens * (3 * n.tokens + 1) * n.samples / (_pace(n) * lead * n.noise)


def _pace(n: JiangNumbers) -> float:
    return n.rate * n.hidden**0.25 * n.output_norm**2


def steps_derived(n: JiangNumbers, theorem: Theorem, attention: float) -> float:
    """Return T of Theorem 4.1 or 4.2 with its constant, from the attention a that is left at the end.

    Derived in papers/jiang.md 3 (leading constants).

    Benign: 2 / (a^2 eta eps |mu|^2 |w_O|^2), a on the signal. Harmful: N / (a^2 eta eps C_p^2 sigma_p^2 d |w_O|^2),
    a on the strong token. The printed laws (`theorem_steps`) have neither a, nor the 2, nor C_p.
    """
    strong = (n.strong_noise_std / n.noise_std) ** 2
    factor = 2.0 if theorem == "4.1" else 1 / strong
    return factor * theorem_steps(n, theorem) / attention**2


def test_loss_derived(attention: float, value: float) -> float:
    """Return log(1 + exp(-a V)), the test loss derived for Theorem 4.1 (papers/jiang.md 3).

    a is the attention of fresh points on the signal, V the value of the signal.
    """
    return math.log1p(math.exp(-attention * value))


def test_loss_limit(loss: float, tokens: int, attention: float) -> float:
    """Return log(1 + eps^((2M-1) / (M^2 a))), the test loss derived for Theorem 4.1 at large d.

    There the noise rows of fresh points attend evenly (papers/jiang.md 3).
    """
    return math.log1p(loss ** test_loss_exponent(tokens, attention))


def test_loss_exponent(tokens: int, attention: float) -> float:
    """Return (2M - 1) / (M^2 a), the power of eps with which the test loss of Theorem 4.1 falls at large d."""
    return (2 * tokens - 1) / (tokens**2 * attention)


def margin_bound_printed(loss: float, tokens: int) -> float:
    """Return log(1 / eps) / (2 M^2) - 1, the least y f of a fresh point by Lemma 5.5 (eq. 136, constant 1)."""
    return math.log(1 / loss) / (2 * tokens**2) - 1


def attention_left_printed(n: JiangNumbers, row: str, failure: float = DELTA) -> float:
    """Return the attention left on noise.

    Equations (64), (65): N L^3 / sqrt(d_h) by a `signal` row, SNR^2 times that by a `noise` row.
    E.5: L^3 / sqrt(d_h) by a `strong` row, SNR^-2 times that by a `harmful signal` row. 1 or more says nothing.
    """
    cubed = log_factor(n.samples, n.tokens, failure) ** 3 / math.sqrt(n.hidden)
    factors = {"signal": n.samples, "noise": n.race, "strong": 1.0, "harmful signal": n.snr**-2}
    return factors[row] * cubed


def even_race_derived(strong: float) -> float:
    """Return N SNR^2 = 2 C_p^2, the boundary between Theorems 4.1 and 4.2 that is derived at uniform attention.

    There the values of the signal and of the strong token grow alike.
    """
    return 2 * strong**2
