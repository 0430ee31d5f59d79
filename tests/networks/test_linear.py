"""The linear mode of the attention network: the same trajectory, step by step."""

from typing import Any

import pytest
import torch

from benign.networks.linear import Linear
from tests.reference import close, film, small_data, small_network, small_pgd, small_setup, start


def trajectories(tokens: int, attack):
    """The attention network without scores, and `Linear` started at its u with its |w_O|."""
    data = small_data(tokens=tokens)
    full = start([small_setup(data, small_network(score_std=0.0), attack)])
    linear = start([small_setup(data, Linear(), attack)])
    network: Any = full.setup.network
    linear.params["u"].copy_(network.values(full.params)[:, :, 0])
    linear.params["output_norm"].copy_(full.params["output"].norm(dim=1))
    return film(full), film(linear)


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("attack", [None, small_pgd(), small_pgd(per="sample")])
def test_it_is_the_attention_network_without_scores(tokens, attack):
    """papers/zhang.md S5: W_Q = W_K = 0 is never left."""
    full, linear = trajectories(tokens, attack)
    assert len(full) == len(linear) == 13
    for one, other in zip(full, linear, strict=True):
        close(other.params["u"], one.network.values(one.params)[:, :, 0])
        close(other.loss, one.loss)
        close(other.attacked, one.attacked)
    assert not one.network.queries(one.params).any()


def test_one_token_is_the_whole_network():
    """With one token attention is 1, whatever the scores."""
    data = small_data(tokens=1)
    full = start([small_setup(data, small_network(score_std=0.8))])
    linear = start([small_setup(data, Linear())])
    network: Any = full.setup.network
    linear.params["u"].copy_(network.values(full.params)[:, :, 0])
    linear.params["output_norm"].copy_(full.params["output"].norm(dim=1))
    for one, other in zip(film(full), film(linear), strict=True):
        close(other.loss, one.loss)


def test_the_start_has_the_stated_deviation():
    """30 000 entries: the sample deviation of a normal is within 4 standard errors (chance 1 in 16 000)."""
    network = Linear(init_std=0.3, output_norm=2.0)
    params = start([small_setup(small_data(dim=30_000), network)]).params
    assert abs(params["u"].std() / 0.3 - 1) < 4 / (2 * 30_000) ** 0.5
    assert torch.equal(params["output_norm"], torch.tensor([2.0], dtype=torch.float64))
