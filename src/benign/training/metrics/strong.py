"""Scores and values of the strong noise token beside those of the signal: figures 3 and 4 of Jiang et al.

Means over clean points, heads too for scores; the signal of a point is mu_+ or mu_-, its strong token is xi_2.
"""

from benign.training.descent import Step
from benign.training.metrics.attention import attention_pass, strong_token
from benign.training.metrics.metric import PerRunValue, metric


@metric("<q_s, k_s>: score of the signal's row for the signal, mean", applies=strong_token)
def score_signal_for_signal(step: Step) -> PerRunValue:
    return _score(step, 0, 0)


@metric("<q_s, k_2>: score of the signal's row for the strong token, mean", applies=strong_token)
def score_signal_for_strong(step: Step) -> PerRunValue:
    return _score(step, 0, 1)


@metric("<q_2, k_s>: score of the strong token's row for the signal, mean", applies=strong_token)
def score_strong_for_signal(step: Step) -> PerRunValue:
    return _score(step, 1, 0)


@metric(
    "<q_2, k_2>: score of the strong token's row for the strong token, mean", applies=strong_token
)
def score_strong_for_strong(step: Step) -> PerRunValue:
    return _score(step, 1, 1)


@metric("y V_2: value of the strong token times the label, mean", applies=strong_token)
def value_strong_noise(step: Step) -> PerRunValue:
    """Summed over heads, as other values are."""
    values = attention_pass(step.clean_pass).values.sum(2)[..., 1]
    return (step.batch.sample.y * values).mean(1)


def _score(step: Step, row: int, key: int) -> PerRunValue:
    return attention_pass(step.clean_pass).scores[..., row, key].mean((1, 2))
