"""Taking the attention network apart: set attention, frozen parts, paths that do not see the attack."""

from typing import Any

import pytest
import torch
from torch import Tensor

from benign.networks.attention import Attention
from benign.networks.network import Params
from benign.spec.base import SpecError
from tests.reference import (
    attacked,
    by_head,
    close,
    film,
    normals,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)
from tests.says import says

EXPOSED = pytest.mark.parametrize("exposed", ["values", "scores"])


def slow_outputs(network: Attention, params: Params, scored: Tensor, valued: Tensor) -> Tensor:
    """f with scores of one set of tokens and values of another, head by head."""
    queries = by_head(network, network.queries(params))
    keys = by_head(network, network.keys(params))
    total = torch.zeros(scored.shape[:2], dtype=torch.float64)
    for head in range(network.heads):
        q = torch.einsum("rnmd,rdh->rnmh", scored, queries[:, head])
        k = torch.einsum("rnmd,rdh->rnmh", scored, keys[:, head])
        z = torch.einsum("rnmd,rd->rnm", valued, network.values(params)[:, :, head])
        rows = torch.einsum("rnlh,rnjh->rnlj", q, k).softmax(-1) @ z[..., None]
        total = total + rows[..., 0].mean(-1)
    return total


def case(**fields):
    batch = start([small_setup(network=small_network(heads=2, **fields))])
    x = batch.sample.x
    moved = x + 0.3 * normals(*x.shape, seed=5)
    return batch, x, moved, normals(*x.shape[:2], seed=6)


@EXPOSED
def test_one_path_gets_attacked_tokens_and_the_other_clean_ones(exposed):
    batch, x, moved, c = case(exposed=exposed)
    network: Any = batch.setup.network
    params = batch.params
    forward_pass = network.attacked_pass(params, moved, x)
    weights = params["weights"].clone().requires_grad_()
    points = moved.clone().requires_grad_()
    pair = (points, x) if exposed == "scores" else (x, points)
    slow = slow_outputs(network, {**params, "weights": weights}, *pair)
    close(forward_pass.outputs, slow.detach())
    by_weights, by_points = torch.autograd.grad((c * slow).sum(), [weights, points])
    scale = params["output"].square().sum(1)[:, None, None]
    gradient = forward_pass.params_gradient(c)["weights"]
    close(network.score_columns(gradient), network.score_columns(by_weights))
    close(network.values({"weights": gradient}), scale * network.values({"weights": by_weights}))
    close(forward_pass.inputs_gradient(c), by_points)


@EXPOSED
def test_unattacked_points_show_no_difference(exposed):
    batch, x, _, c = case(exposed=exposed)
    network, params = batch.setup.network, batch.params
    split, plain = network.attacked_pass(params, x, x), network.run(params, x)
    close(split.outputs, plain.outputs)
    close(split.params_gradient(c)["weights"], plain.params_gradient(c)["weights"])


def test_the_parts_of_an_attack_differ_and_the_whole_is_stronger():
    """Long attacks from the clean point: who sees both paths does at least as well as who sees one.

    To 0.02, where 0.1 and more separate points: each attack ends near a local minimum.
    """
    attack = small_pgd(0.4, steps=60, step=0.1, keep="best")
    margins = {}
    for exposed in ("all", "values", "scores"):
        batch, x, _, _ = case(exposed=exposed)
        network, params, y = batch.setup.network, batch.params, batch.sample.y
        points = attacked(attack, network, params, batch.setup.data, x, y)
        margins[exposed] = y * network.attacked_pass(params, points, x).outputs
    assert (margins["all"] <= margins["values"] + 0.02).all()
    assert (margins["all"] <= margins["scores"] + 0.02).all()
    assert (margins["values"] - margins["scores"]).abs().max() > 1e-3


@EXPOSED
def test_training_and_the_test_use_the_split(exposed):
    cells = [
        small_setup(small_data(), small_network(exposed=part), small_pgd(0.5))
        for part in ("all", exposed)
    ]
    whole, split = (film(start([cell])) for cell in cells)
    y = split[3].y
    params, x, points = split[3].params, split[3].x, split[3].attacked
    pair = (points, x) if exposed == "scores" else (x, points)
    close(split[3].outputs, slow_outputs(split[3].network, params, *pair))
    assert (y * split[3].outputs).min() >= (y * whole[3].outputs).min() - 0.5  # both trained
    assert not torch.allclose(whole[-1].params["weights"], split[-1].params["weights"])


@pytest.mark.parametrize("train", ["values", "scores"])
@pytest.mark.parametrize("attack", [None, small_pgd()])
def test_a_frozen_part_does_not_move_and_the_other_does(train, attack):
    frames = film(start([small_setup(network=small_network(heads=2, train=train), attack=attack)]))
    network, first, last = frames[0].network, frames[0].params, frames[-1].params
    moved = {
        "scores": not torch.equal(
            network.score_columns(first["weights"]), network.score_columns(last["weights"])
        ),
        "values": not torch.equal(network.values(first), network.values(last)),
    }
    assert moved == {"scores": train == "scores", "values": train == "values"}


def test_a_frozen_part_leaves_the_first_step_of_the_other_alone():
    frozen, free = (
        film(start([small_setup(network=small_network(train=train))]))[1].params["weights"]
        for train in ("values", "all")
    )
    network = small_network()
    assert torch.equal(network.value_columns(frozen), network.value_columns(free))


@pytest.mark.parametrize("attend", ["uniform", "signal"])
def test_attention_can_be_set(attend):
    frames = film(
        start([small_setup(network=small_network(attend=attend, heads=2), attack=small_pgd())])
    )
    for frame in frames[:: len(frames) - 1]:
        u = frame.network.values(frame.params).sum(2)
        token = frame.attacked.mean(2) if attend == "uniform" else frame.attacked[:, :, 0]
        close(frame.outputs, torch.einsum("rnd,rd->rn", token, u))
    network = frames[0].network
    start_weights, end = frames[0].params["weights"], frames[-1].params["weights"]
    assert torch.equal(network.score_columns(start_weights), network.score_columns(end))
    assert frames[-1].loss < frames[0].loss


def test_uniform_attention_is_the_linear_mode():
    """Attention set to 1/M is what W_Q = W_K = 0 gives."""
    either = ({"attend": "uniform"}, {"score_std": 0.0})
    uniform, linear = (
        film(start([small_setup(network=small_network(**fields), attack=small_pgd())]))
        for fields in either
    )
    for one, other in zip(uniform, linear, strict=True):
        close(one.loss, other.loss)


def test_training_nothing_is_refused():
    with pytest.raises(SpecError, match=says("`train`", "scores", "`attend: uniform`")):
        small_network(train="scores", attend="uniform")
