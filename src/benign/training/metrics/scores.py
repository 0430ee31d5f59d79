"""Queries, keys and scores in the theory's coordinates: Zhang Definitions 3 to 6, Jiang Definition B.2.

The first half returns whole tensors, for `experiment.replay(...).steps()`; the metrics below return one number a run.
Tokens are clean unless noted, and heads are kept apart.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import repeated
from benign.losses import loss_slope
from benign.spec.registry import has_guarantee
from benign.training.descent import Step
from benign.training.metrics.attention import (
    ByToken,
    attention_network,
    attention_on_signal_noise,
    attention_pass,
    noise_tokens,
    strong_token,
)
from benign.training.metrics.metric import PerRunValue, attacked, metric


class ByRow(NamedTuple):
    """Score gaps of every training point n and head, by the row of the scores: the token that attends."""

    signal: Float[Tensor, "runs samples heads gaps"]
    """of the row of mu_+ or mu_-"""
    noise: Float[Tensor, "runs samples heads noise_tokens gaps"]
    """of the rows of xi_{n,2}, ..., xi_{n,M}"""


class Coefficients(NamedTuple):
    """The change of every query and key in the next step, in terms of keys and queries."""

    alpha: ByToken
    """[..., heads, n, j]: the share of the key k~_{n,j} in the step of q_x"""
    beta: ByToken
    """[..., heads, n, l]: the share of the query q~_{n,l} in the step of k_x"""


def query_vectors(step: Step) -> ByToken:
    """q_x = x^T W_Q of every token x, [..., heads, hidden] (vectorised Q; Jiang Definition B.2)."""
    return _vectors(
        step,
        attention_network(step).queries(step.batch.params),
        attention_pass(step.clean_pass).queries,
    )


def key_vectors(step: Step) -> ByToken:
    """k_x = x^T W_K of every token x, [..., heads, hidden] (vectorised K; Jiang Definition B.2)."""
    return _vectors(
        step, attention_network(step).keys(step.batch.params), attention_pass(step.clean_pass).keys
    )


def _vectors(
    step: Step,
    columns: Float[Tensor, "runs dim heads_hidden"],
    known: Float[Tensor, "runs samples heads tokens hidden"],
) -> ByToken:
    """The signals are multiplied anew: a class may have no training point."""
    products = torch.bmm(step.batch.sample.latent["signal"], columns)
    signal = products.unflatten(2, (-1, attention_network(step).hidden))
    return ByToken(signal, known.transpose(2, 3)[:, :, 1:])


def score_gaps(step: Step) -> ByRow:
    """Lambda: how much larger the scores of a row of point n are for its signal s than for its noise tokens.

    Lambda_{n,s,j} = <q_s, k_s> - <q_s, k_{n,j}> and Lambda_{n,i,s,j} = <q_{n,i}, k_s> - <q_{n,i}, k_{n,j}>
    (Zhang Definition 6 and stage II, Jiang appendix D).
    """
    scores = attention_pass(step.clean_pass).scores
    return _by_row(scores[..., :1] - scores[..., 1:])


def reverse_gaps(step: Step) -> ByRow:
    """Psi: how much larger the scores of a row of point n are for token 2, the strong noise, than for other tokens.

    The last axis has the signal first, then the weak noise tokens j = 3, ..., M: Psi_{n,s}, Psi_{n,s,j} and
    Psi_{n,i,s}, Psi_{n,i,j} (Jiang appendix E).
    """
    scores = attention_pass(step.clean_pass).scores
    rivals = torch.cat([scores[..., :1], scores[..., 2:]], dim=-1)
    return _by_row(scores[..., 1:2] - rivals)


def _by_row(gaps: Float[Tensor, "runs samples heads tokens gaps"]) -> ByRow:
    return ByRow(gaps[..., 0, :], gaps[..., 1:, :])


def coefficients(step: Step) -> Coefficients:
    """alpha and beta of the next step of gradient descent, exact under attack (papers/zhang.md 2.3).

    q_x moves by sum_{n,j} alpha_{x;n,j} k~_{n,j} and k_x by sum_{n,l} beta_{x;n,l} q~_{n,l}, with the keys and
    queries of the tokens trained on. Rows x are the clean tokens, columns (n, j) the M tokens of every
    point trained on. Without an attack all (n, 1) of one class have the same key, and their sum is the
    papers' symbol: alpha_{+,+} sums `alpha.signal[:, 0, :, n, 0]` over n in S_+ (Jiang B.3, Zhang Definition 6).

    Raises ValueError if the updates of the training are not plain: momentum moves queries by more than these.
    """
    training = step.batch.setup.training
    if not has_guarantee(training, "plain_update"):
        raise ValueError(
            f"`training` is {training.kind}, but alpha and beta are the steps of plain gradient descent: use "
            "`gradient_descent`, or declare the guarantee `plain_update` of a method of your own"
        )
    sample, slopes = step.batch.sample, _score_slopes(step)
    clean_scores = attention_network(step).exposed == "values"
    columns = sample.x if clean_scores else step.attacked

    def both(tokens: Tensor) -> tuple[Tensor, Tensor]:
        products = torch.einsum("r...d,rnld->r...nl", tokens, columns)
        alpha = torch.einsum("r...nl,rnhlj->r...hnj", products, slopes)
        return alpha, torch.einsum("r...nj,rnhlj->r...hnl", products, slopes)

    pairs = zip(both(sample.latent["signal"]), both(sample.x[:, :, 1:]), strict=True)
    return Coefficients(*(ByToken(signal, noise) for signal, noise in pairs))


def _score_slopes(step: Step) -> Float[Tensor, "runs samples heads tokens tokens"]:
    """c_n G_{n,lj}: minus rate times the slope of the loss in the score of token l for token j."""
    network, output = attention_network(step), attention_pass(step.attacked_pass)
    if network.attend != "learned" or network.train == "values":
        return torch.zeros_like(output.scores)
    _, samples, tokens, _ = step.attacked.shape
    slope = loss_slope(output.outputs, step.batch.sample.y) / (samples * tokens)
    rate = torch.as_tensor(step.batch.setup.training.rate_at(step.number)).to(slope)
    moves = -rate.reshape(-1, 1) * slope
    values = output.values[..., None, :]
    means = (output.attention * values).sum(-1, keepdim=True)
    return moves[:, :, None, None, None] * output.attention * (values - means)


@metric(
    "smallest Lambda_{n,s,j} = <q_s, k_s - k_{n,j}> of a signal row, over clean points, heads and noise tokens",
    applies=noise_tokens,
)
def signal_gap_min(step: Step) -> PerRunValue:
    return score_gaps(step).signal.flatten(1).amin(1)


@metric(
    "smallest Lambda_{n,i,s,j} = <q_{n,i}, k_s - k_{n,j}> of a noise row, over clean points, heads and noise tokens",
    applies=noise_tokens,
)
def noise_gap_min(step: Step) -> PerRunValue:
    return score_gaps(step).noise.flatten(1).amin(1)


@metric(
    "smallest Psi = <q, k_{n,2} - k> of the strong token against another, over clean points, heads and all rows",
    applies=strong_token,
)
def reverse_gap_min(step: Step) -> PerRunValue:
    gaps = reverse_gaps(step)
    return torch.minimum(gaps.signal.flatten(1).amin(1), gaps.noise.flatten(1).amin(1))


@metric(
    "smaller of <q_+, k_+> and <q_-, k_->, smallest over heads", applies=attention_on_signal_noise
)
def signal_score_min(step: Step) -> PerRunValue:
    return _signal_scores(step).amin((1, 2))


@metric(
    "larger of <q_+, k_+> and <q_-, k_->, largest over heads", applies=attention_on_signal_noise
)
def signal_score_max(step: Step) -> PerRunValue:
    return _signal_scores(step).amax((1, 2))


@metric("|q_s|, mean over both signals and heads", applies=attention_on_signal_noise)
def signal_query_norm(step: Step) -> PerRunValue:
    return _mean_norm(query_vectors(step).signal)


@metric("|k_s|, mean over both signals and heads", applies=attention_on_signal_noise)
def signal_key_norm(step: Step) -> PerRunValue:
    return _mean_norm(key_vectors(step).signal)


@metric("|q_{n,i}|, mean over the noise tokens of clean points and heads", applies=noise_tokens)
def noise_query_norm(step: Step) -> PerRunValue:
    return _mean_norm(query_vectors(step).noise)


@metric("|k_{n,i}|, mean over the noise tokens of clean points and heads", applies=noise_tokens)
def noise_key_norm(step: Step) -> PerRunValue:
    return _mean_norm(key_vectors(step).noise)


@metric(
    "largest change of a score by the attack, over training points, heads and tokens",
    applies=lambda setup: attacked(setup) and attention_on_signal_noise(setup),
)
def score_shift_max(step: Step) -> PerRunValue:
    attacked, clean = (
        attention_pass(each).scores for each in (step.attacked_pass, step.clean_pass)
    )
    moved = attacked - repeated(clean, attacked)
    return moved.abs().flatten(1).amax(1)


# Scores and values of the strong noise token and of the signal, figures 3 and 4 of Jiang et al.: means over clean
# points, and over heads for scores. The signal of a point is mu_+ or mu_-; its strong token is xi_2.


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


def balance(step: Step) -> PerRunValue:
    """Frobenius norm of W_Q^T W_Q - W_K^T W_K over all heads, which gradient flow conserves (papers/zhang.md S4).

    Not a registered metric: its product of d d_h^2 multiplications doubled the time of short clean runs. It
    is the symmetric part of (W_Q + W_K)^T (W_Q - W_K): one product in place of two.
    """
    network, params = attention_network(step), step.batch.params
    if "unseen" in params:
        raise ValueError(
            "the balance of W_Q and W_K needs all of both, which these coordinates leave out: "
            "use `coordinates: ambient`"
        )
    queries, keys = (
        part.unflatten(2, (network.heads, network.hidden)).transpose(1, 2)
        for part in (network.queries(params), network.keys(params))
    )
    product = (queries + keys).transpose(-1, -2) @ (queries - keys)
    symmetric = (product + product.transpose(-1, -2)) / 2
    return torch.linalg.vector_norm(symmetric, dim=(1, 2, 3))


def _signal_scores(step: Step) -> Float[Tensor, "runs 2 heads"]:
    """<q_+, k_+> and <q_-, k_->."""
    return (query_vectors(step).signal * key_vectors(step).signal).sum(-1)


def _mean_norm(vectors: Float[Tensor, "runs *tokens heads hidden"]) -> PerRunValue:
    return torch.linalg.vector_norm(vectors, dim=-1).flatten(1).mean(1)


def _score(step: Step, row: int, key: int) -> PerRunValue:
    return attention_pass(step.clean_pass).scores[..., row, key].mean((1, 2))
