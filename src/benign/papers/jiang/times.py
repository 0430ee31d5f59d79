"""What Jiang et al. predict in numbers: times of the stages, test loss, attention, boundary (papers/jiang.md 3 and 4).

Printed and corrected or derived forms stand side by side, and their names say which. Hidden constants are 1.
"""

import math

from benign.papers.jiang.theory import Numbers, Theorem, benign_constant, theorem_steps

DELTA = 0.01
"""failure probability delta in the log factor, where nothing else is said"""


def log_factor(samples: float, tokens: float, failure: float = DELTA) -> float:
    """L = log(6 N^2 M^2 / delta)."""
    return math.log(6 * (samples * tokens) ** 2 / failure)


def start_spread(samples: float, tokens: float, strong: float, failure: float = DELTA) -> float:
    """By how much sigma_V must stay below condition (7) for Lemma C.2: C_p sqrt(2 log(4 N M / delta)).

    The paper hides it in the tilde of (7). Without it |V_{n,2}(0)| is C_p d_h^-1/4 and the lemma fails.
    """
    return strong * math.sqrt(2 * math.log(4 * samples * tokens / failure))


def benign_stage_1_steps_printed(n: Numbers) -> float:
    """T1 of Lemma D.5: 10 M (3M+1) N / (eta d_h^1/4 (N |mu|^2 - 60 M^2 C_p^2 sigma_p^2 d) |w_O|^2).

    Infinite where N SNR^2 is at most 60 M^2 C_p^2: the lemma says nothing there.
    """
    bound = benign_constant(n.tokens, n.strong_noise_std / n.noise_std)
    excess = (n.race - bound) * n.noise
    if excess <= 0:
        return math.inf
    return 10 * n.tokens * (3 * n.tokens + 1) * n.samples / (_pace(n) * excess)


def harmful_stage_1_steps_printed(n: Numbers) -> float:
    """T1 as equation (151) prints it, with C_p^2 - 200 M: infinite for C_p^2 up to 200 M, so for C_p = 5 sqrt(M)."""
    return _harmful_stage_1(n, 200)


def harmful_stage_1_steps_corrected(n: Numbers) -> float:
    """T1 of Lemma E.3: 4 M (3M+1) N / (eta d_h^1/4 (C_p^2 - 24 M) sigma_p^2 d |w_O|^2)."""
    return _harmful_stage_1(n, 24)


def _harmful_stage_1(n: Numbers, asked: float) -> float:
    lead = (n.strong_noise_std / n.noise_std) ** 2 - asked * n.tokens
    if lead <= 0:
        return math.inf
    return 4 * n.tokens * (3 * n.tokens + 1) * n.samples / (_pace(n) * lead * n.noise)


def _pace(n: Numbers) -> float:
    return n.rate * n.hidden**0.25 * n.output_norm**2


def steps_derived(n: Numbers, theorem: Theorem, attention: float) -> float:
    """T with its constant, from the attention a that is left at the end (papers/jiang.md 3, leading constants).

    Benign: 2 / (a^2 eta eps |mu|^2 |w_O|^2), a on the signal. Harmful: N / (a^2 eta eps C_p^2 sigma_p^2 d |w_O|^2),
    a on the strong token. The printed laws (`theorem_steps`) have neither a, nor the 2, nor C_p.
    """
    strong = (n.strong_noise_std / n.noise_std) ** 2
    factor = 2.0 if theorem == "4.1" else 1 / strong
    return factor * theorem_steps(n, theorem) / attention**2


def test_loss_derived(attention: float, value: float) -> float:
    """log(1 + exp(-a V)) with attention a on the signal of fresh points and V the value of the signal."""
    return math.log1p(math.exp(-attention * value))


def test_loss_limit(loss: float, tokens: int, attention: float) -> float:
    """log(1 + eps^((2M-1) / (M^2 a))): large d, where fresh noise rows attend evenly."""
    return math.log1p(loss ** test_loss_exponent(tokens, attention))


def test_loss_exponent(tokens: int, attention: float) -> float:
    """(2M - 1) / (M^2 a): the power of eps that the test loss of benign overfitting falls with, for large d."""
    return (2 * tokens - 1) / (tokens**2 * attention)


def margin_bound_printed(loss: float, tokens: int) -> float:
    """Lemma 5.5: y f of a fresh point is at least log(1 / eps) / (2 M^2) - 1 (eq. 136, constant 1)."""
    return math.log(1 / loss) / (2 * tokens**2) - 1


def attention_left_printed(n: Numbers, row: str, failure: float = DELTA) -> float:
    """(64), (65): attention left on noise, N L^3 / sqrt(d_h) by a `signal` row, SNR^2 times that by a `noise` row.

    E.5: L^3 / sqrt(d_h) by a `strong` row, SNR^-2 times that by a `harmful signal` row. 1 or more says nothing.
    """
    cubed = log_factor(n.samples, n.tokens, failure) ** 3 / math.sqrt(n.hidden)
    factors = {"signal": n.samples, "noise": n.race, "strong": 1.0, "harmful signal": n.snr**-2}
    return factors[row] * cubed


def even_race_derived(strong: float) -> float:
    """N SNR^2 = 2 C_p^2: at uniform attention the values of the signal and of the strong token grow alike."""
    return 2 * strong**2
