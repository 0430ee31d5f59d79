"""Attention and values of attention networks on signal-noise data (Zhang, Jiang)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention, AttentionPass
from benign.networks.network import Pass
from benign.training.descent import Step
from benign.training.metrics.fresh_points import PerPoint, PointBlock
from benign.training.metrics.metric import PerRunValue, attacked, metric, point_metric
from benign.training.setup import Setup


class ByToken(NamedTuple):
    """A quantity of every distinct clean training token (Zhang Definitions 2 and 3)."""

    signal: Float[Tensor, "runs 2 *rest"]
    """of mu_+ and of mu_-"""
    noise: Float[Tensor, "runs samples noise_tokens *rest"]
    """of xi_{n,2}, ..., xi_{n,M} of every training point n"""


def attention_on_signal_noise(setup: Setup) -> bool:
    return isinstance(setup.network, Attention) and isinstance(setup.data, SignalNoise)


def noise_tokens(setup: Setup) -> bool:
    """Return whether points have a noise token."""
    return attention_on_signal_noise(setup) and setup.data.tokens > 1


def strong_token(setup: Setup) -> bool:
    data = setup.data
    return (
        isinstance(data, SignalNoise)
        and isinstance(setup.network, Attention)
        and data.strong_noise_std is not None
    )


@metric(
    "attention on the signal token, mean over clean points, heads and rows",
    applies=attention_on_signal_noise,
)
def attention_on_signal(step: Step) -> PerRunValue:
    return _attention(step.clean_pass)[..., 0].mean((1, 2, 3))


@metric(
    "attention on the signal token, mean over attacked points, heads and rows",
    applies=lambda setup: attacked(setup) and attention_on_signal_noise(setup),
)
def attention_on_signal_attacked(step: Step) -> PerRunValue:
    return _attention(step.attacked_pass)[..., 0].mean((1, 2, 3))


@point_metric(
    "attention on token 1 (the signal) of fresh clean points, mean over rows",
    applies=lambda setup: isinstance(setup.network, Attention),
)
def test_attention_on_signal(block: PointBlock) -> PerPoint:
    return _attention(block.clean_pass)[..., 0].mean((2, 3)).double()


@metric(
    "attention on the strong noise token, mean over clean points, heads and rows",
    applies=strong_token,
)
def attention_on_strong_noise(step: Step) -> PerRunValue:
    return _attention(step.clean_pass)[..., 1].mean((1, 2, 3))


@metric(
    "entropy of an attention row, mean over clean points, heads and rows",
    "nats",
    attention_on_signal_noise,
)
def attention_entropy(step: Step) -> PerRunValue:
    return _entropy(step.clean_pass)


@metric(
    "entropy of an attention row, mean over attacked points, heads and rows",
    "nats",
    lambda setup: attacked(setup) and attention_on_signal_noise(setup),
)
def attention_entropy_attacked(step: Step) -> PerRunValue:
    return _entropy(step.attacked_pass)


@metric(
    "V_+ = <mu_+, u>, value of the positive signal, summed over heads",
    applies=attention_on_signal_noise,
)
def value_positive_signal(step: Step) -> PerRunValue:
    return _signal_values(step)[:, 0]


@metric(
    "V_- = <mu_-, u>, value of the negative signal, summed over heads",
    applies=attention_on_signal_noise,
)
def value_negative_signal(step: Step) -> PerRunValue:
    return _signal_values(step)[:, 1]


@metric(
    "largest |V_{n,i}| over the noise tokens of clean points, summed over heads",
    applies=attention_on_signal_noise,
)
def value_noise_max(step: Step) -> PerRunValue:
    values = attention_pass(step.clean_pass).values.sum(2)[:, :, 1:]
    return values.abs().flatten(1).amax(1) if values.numel() else torch.zeros_like(step.loss)


@metric("Frobenius norm of W_Q over all heads", "1/length", attention_on_signal_noise)
def query_norm(step: Step) -> PerRunValue:
    return _norm(step, attention_network(step).queries(step.batch.params), 0)


@metric("Frobenius norm of W_K over all heads", "1/length", attention_on_signal_noise)
def key_norm(step: Step) -> PerRunValue:
    return _norm(step, attention_network(step).keys(step.batch.params), 1)


@metric("norm of u = W_V w_O over all heads", "1/length", attention_on_signal_noise)
def value_norm(step: Step) -> PerRunValue:
    return _norm(step, attention_network(step).values(step.batch.params), 2)


def _norm(step: Step, part: Float[Tensor, "runs dim columns"], place: int) -> PerRunValue:
    return torch.hypot(torch.linalg.vector_norm(part, dim=(1, 2)), left_out_norm(step, place))


def left_out_norm(step: Step, place: int) -> PerRunValue:
    """Return the norm of the part of W_Q, W_K, u, or u summed over heads that the coordinates leave out."""
    squares = step.batch.params.get("unseen")
    return torch.zeros_like(step.loss) if squares is None else squares[:, place].sqrt()


def attention_pass(output: Pass) -> AttentionPass:
    assert isinstance(output, AttentionPass)
    return output


def _attention(output: Pass) -> Float[Tensor, "runs samples heads tokens tokens"]:
    return attention_pass(output).attention


def _entropy(output: Pass) -> PerRunValue:
    return torch.special.entr(_attention(output)).sum(-1).mean((1, 2, 3))


def attention_network(step: Step) -> Attention:
    network = step.batch.setup.network
    assert isinstance(network, Attention)
    return network


def _signal_values(step: Step) -> Float[Tensor, "runs 2"]:
    u = attention_network(step).values(step.batch.params).sum(2)
    return torch.einsum("rsd,rd->rs", step.batch.sample.latent["signal"], u)
