"""How long training takes by the formulas of Zhang et al., as printed and as corrected (papers/zhang.md 3 and 7).

`theory.theorem_steps` is T of Theorem 2; `linear_mode.convergence_steps` the law that uniform and focused attention
really follow (S8).
"""

import math

from benign.papers.jiang.theory import ALL_ONE, Constants, Numbers
from benign.papers.zhang.theory import bracket


def stage_1_steps_corrected(n: Numbers, c: Constants = ALL_ONE) -> float:
    """T1 of Lemma 18 from its own inequalities: the N before 30 M^2 restored, |w_O| squared; infinite without signal.

    10 M (3M + 1) N / (eta d_h^1/4 [N (|mu| - tau)^2 - N (1 + 30 M^2) P' - 60 M^2 sigma_p^2 d] |w_O|^2)
    """
    gain, cost = bracket(n, c)
    return _stage_1_steps(n, gain - cost, n.output_norm**2)


def stage_1_steps_printed(n: Numbers, c: Constants = ALL_ONE) -> float:
    """T1 of Lemma 18 as printed: (N + 30 M^2) P' in the bracket, |w_O| to the first power."""
    gain, cost = bracket(n, c)
    square = n.tokens**2
    noise = 60 * square * n.noise
    slack = (cost - noise) / (n.samples * (1 + 30 * square))
    printed = (n.samples + 30 * square) * slack + noise
    return _stage_1_steps(n, gain - printed, n.output_norm)


def loss_steps_printed(n: Numbers) -> float:
    """T of Lemma 21 with constant 1: 1 / (eta eps (|mu| + tau)^2 |w_O|^2), which falls with tau."""
    reach = math.sqrt(n.signal) * (1 + n.radius)
    return 1 / (n.rate * n.loss * (reach * n.output_norm) ** 2)


def stage_2_steps_printed(n: Numbers, c: Constants = ALL_ONE) -> float:
    """T2 of Lemma 19 with constant 1: 1 / (eta (|mu| + tau)^2 |w_O|^2 log(6 N^2 M^2 / delta))."""
    log = math.log(6 * (n.samples * n.tokens) ** 2 / c.failure)
    return loss_steps_printed(n) * n.loss / log


def minimal_steps_printed(n: Numbers) -> float:
    """N max(SNR^2, SNR^-4): the shortest training that section 4 compares with others, without its eps."""
    return n.samples * max(n.snr**2, n.snr**-4)


def minimal_steps_corrected(n: Numbers) -> float:
    """The same with the eps^-2 that widths and the theorem's T bring: T of Theorem 2 at the largest rate."""
    return minimal_steps_printed(n) / n.loss**2


def wang_steps(n: Numbers) -> float:
    """d^2 / (|mu|^2 eps^2), which section 4 sets beside it, with |mu| in units of a noise coordinate."""
    return n.dim**2 * n.noise_std**2 / (n.signal * n.loss**2)


def _stage_1_steps(n: Numbers, room: float, output: float) -> float:
    if room <= 0:
        return math.inf
    start = 10 * n.tokens * (3 * n.tokens + 1) * n.samples
    return start / (n.rate * n.hidden**0.25 * room * output)
