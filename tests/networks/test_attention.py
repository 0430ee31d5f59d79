"""The closed-form gradients of the attention network are autograd's on the full matrices."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.networks.attention import Attention, AttentionPass
from benign.networks.initial import GaussianInit, TorchDefault
from benign.networks.network import Pass
from benign.streams import Streams
from tests.reference import (
    NotedStreams,
    by_head,
    close,
    full_weights,
    normals,
    run_ids,
    small_data,
    small_network,
)
from tests.reference.attention import Weights, attention_rows, output, outputs, token_values

SIZES = st.fixed_dictionaries(
    {
        "heads": st.sampled_from([1, 3]),
        "hidden": st.integers(1, 4),
        "value_dim": st.integers(1, 5),
        "dim": st.integers(2, 6),
        "tokens": st.integers(1, 4),
        "samples": st.integers(1, 3),
        "runs": st.integers(1, 2),
        "seed": st.integers(0, 10**6),
    }
)


class Case:
    """A random network with random points, also as full matrices of each run."""

    def __init__(self, heads, hidden, value_dim, dim, tokens, samples, runs, seed):
        self.network = small_network(0.6, 0.6, heads=heads, hidden=hidden, value_dim=value_dim)
        self.data = small_data(dim=dim, tokens=tokens, samples=samples)
        self.streams = Streams(run_ids(runs, seed))
        self.params = self.network.initial_params(self.data, self.streams, torch.float64)
        self.x = normals(runs, samples, tokens, dim, seed=seed)
        self.c = normals(runs, samples, seed=seed + 1)

    @property
    def full(self) -> list[Weights]:
        return full_weights(self.network, self.params, self.data, self.streams)


def columns(gradients: list[Tensor], weights: Weights) -> Tensor:
    """Gradients of the full matrices in the order of the engine's columns, W_V's times w_O."""
    heads = len(weights.query)
    moved = [(each @ weights.output)[:, None] for each in gradients[2 * heads :]]
    return torch.cat([*gradients[: 2 * heads], *moved], dim=1)


@given(SIZES)
@settings(max_examples=25)
def test_gradients_are_those_of_the_full_matrices(sizes):
    case = Case(**sizes)
    forward_pass = case.network.run(case.params, case.x)
    by_params = forward_pass.params_gradient(case.c)["weights"]
    by_inputs = forward_pass.inputs_gradient(case.c)
    for run, weights in enumerate(case.full):
        traced, points = weights.traced(), case.x[run].clone().requires_grad_()
        f = outputs(traced, points)
        close(forward_pass.outputs[run], f.detach())
        *matrices, inputs = torch.autograd.grad(f, [*traced.trained(), points], case.c[run])
        expected = columns(matrices, weights)
        used = expected.shape[1]
        close(by_params[run, :, :used], expected)
        assert not by_params[run, :, used:].any(), "the spare columns of the weights stay zero"
        close(by_inputs[run], inputs)


@given(SIZES)
@settings(max_examples=25)
def test_gradients_are_those_of_the_autograd_pass(sizes):
    case = Case(**sizes)
    closed, traced = case.network.run(case.params, case.x), Pass(case.network, case.params, case.x)
    expected = traced.params_gradient(case.c)["weights"]
    # The engine moves u = W_V w_O as if W_V itself moved (papers/zhang.md S2).
    case.network.values({"weights": expected}).mul_(
        case.params["output"].square().sum(1)[:, None, None]
    )
    close(closed.outputs, traced.outputs)
    close(closed.params_gradient(case.c)["weights"], expected)
    close(closed.inputs_gradient(case.c), traced.inputs_gradient(case.c))


@pytest.mark.parametrize("heads", [1, 3])
def test_attention_and_values_are_those_of_the_token_loops(heads):
    case = Case(heads, hidden=3, value_dim=5, dim=6, tokens=4, samples=2, runs=2, seed=3)
    forward_pass = case.network.run(case.params, case.x)
    for run, weights in enumerate(case.full):
        for n, point in enumerate(case.x[run]):
            for head in range(heads):
                close(
                    forward_pass.attention[run, n, head],
                    torch.stack(attention_rows(weights, head, point)),
                )
                close(
                    forward_pass.values[run, n, head],
                    torch.stack(token_values(weights, head, point)),
                )
            close(forward_pass.outputs[run, n], output(weights, point))


def test_large_scores_give_attention_of_zero_and_one_without_nan():
    case = Case(1, hidden=3, value_dim=2, dim=4, tokens=3, samples=2, runs=1, seed=5)
    case.params["weights"][:, :, :6] *= 1e4
    forward_pass = case.network.run(case.params, case.x)
    assert forward_pass.scores.abs().max() > 1e6
    assert torch.equal(forward_pass.attention, forward_pass.attention.round())
    assert forward_pass.inputs_gradient(case.c).isfinite().all()
    assert forward_pass.params_gradient(case.c)["weights"].isfinite().all()


def test_a_pass_is_closed_form_and_leaves_weights_and_points_alone():
    case = Case(2, hidden=3, value_dim=2, dim=4, tokens=3, samples=2, runs=2, seed=6)
    weights, x, c = case.params["weights"].clone(), case.x.clone(), case.c.clone()
    forward_pass = case.network.run(case.params, case.x)
    assert isinstance(forward_pass, AttentionPass)
    first = forward_pass.params_gradient(case.c)["weights"].clone()
    forward_pass.inputs_gradient(case.c)
    assert torch.equal(forward_pass.params_gradient(case.c)["weights"], first)
    assert torch.equal(case.params["weights"], weights)
    assert torch.equal(case.x, x)
    assert torch.equal(case.c, c)


def test_only_the_score_and_value_columns_are_trained():
    case = Case(2, hidden=3, value_dim=2, dim=4, tokens=3, samples=2, runs=2, seed=6)
    assert case.network.trained(case.params) == ("weights",)
    assert set(case.network.run(case.params, case.x).params_gradient(case.c)) == {"weights"}
    shapes = (case.network.queries, case.network.keys, case.network.values)
    assert [tuple(part(case.params).shape) for part in shapes] == [(2, 4, 6), (2, 4, 6), (2, 4, 2)]


@pytest.mark.parametrize("heads", [1, 2])
def test_values_are_the_initial_value_matrix_times_the_output_weights(heads):
    case = Case(heads, hidden=3, value_dim=5, dim=6, tokens=2, samples=1, runs=3, seed=7)
    for head in range(heads):
        matrix = case.network.initial_value_matrix(case.data, case.streams, torch.float64, head)
        u = torch.einsum("rdv,rv->rd", matrix, case.params["output"])
        close(case.network.values(case.params)[:, :, head], u)
        close(case.network.value_matrix(case.params, case.data, case.streams, head), matrix)


@pytest.mark.parametrize("heads", [1, 3])
def test_every_matrix_has_a_stream_of_its_own(heads):
    streams = NotedStreams(run_ids(1))
    small_network(heads=heads).initial_params(small_data(), streams, torch.float64)
    assert len(set(streams.purposes)) == len(streams.purposes) == 3 * heads + 1
    assert all(purpose.startswith("init/") for purpose in streams.purposes)


def test_heads_queries_and_keys_are_drawn_independently():
    network = small_network(0.5, 0.5, heads=2, hidden=40)
    params = network.initial_params(small_data(dim=30), Streams(run_ids(2)), torch.float64)
    queries, keys = (by_head(network, part(params)) for part in (network.queries, network.keys))
    matrices = torch.cat([queries.flatten(0, 1), keys.flatten(0, 1)]).flatten(1)
    # Correlations of 1200 pairs: |z| < 5 on each of 28, false alarm below 2e-5.
    correlations = torch.corrcoef(matrices) - torch.eye(len(matrices), dtype=torch.float64)
    assert correlations.abs().max() < 5 / 1200**0.5


def test_gaussian_weights_have_the_stated_deviations():
    network = small_network(0.2, 0.05, hidden=60, value_dim=50)
    data, streams = small_data(dim=40), Streams(run_ids(1))
    params = network.initial_params(data, streams, torch.float64)
    value = network.initial_value_matrix(data, streams, torch.float64)
    for part, std in ((network.queries(params), 0.2), (network.keys(params), 0.2), (value, 0.05)):
        count = part.numel()
        # Mean and variance of `count` normals: |z| < 5, false alarm below 2e-6 on each of six.
        assert abs(float(part.mean())) < 5 * std / count**0.5
        assert abs(float(part.square().mean()) / std**2 - 1) < 5 * (2 / count) ** 0.5


@pytest.mark.parametrize("divide_output", [False, True])
def test_torch_default_is_uniform_divided_by_the_factor(divide_output):
    init = TorchDefault(divide_by=16.0, divide_output=divide_output)
    network = Attention(hidden=300, value_dim=100, init=init)
    params = network.initial_params(small_data(dim=25), Streams(run_ids(1)), torch.float64)
    shrunk = 16.0 if divide_output else 1.0
    for part, bound in ((network.queries(params), 1 / 5 / 16), (params["output"], 1 / 10 / shrunk)):
        assert part.abs().max() <= bound
        # Of 100 uniform entries none beyond 0.8 of the bound: chance 2e-10.
        assert part.abs().max() > 0.8 * bound
        # Variance bound^2 / 3; a uniform's square has relative deviation 0.9: |z| < 5.
        assert abs(float(part.square().mean()) * 3 / bound**2 - 1) < 5 * 0.9 / part.numel() ** 0.5


def test_output_norm_rescales_the_output_weights_only():
    data, streams = small_data(), Streams(run_ids(2))
    free, fixed = small_network(), small_network(output_norm=0.7)
    drawn = free.initial_params(data, streams, torch.float64)["output"]
    scaled = fixed.initial_params(data, streams, torch.float64)["output"]
    close(scaled.norm(dim=1), torch.full((2,), 0.7, dtype=torch.float64))
    close(scaled / 0.7, drawn / drawn.norm(dim=1, keepdim=True))


def test_initial_weights_do_not_depend_on_the_batch():
    network, data, ids = small_network(heads=2), small_data(), run_ids(3)
    together = network.initial_params(data, Streams(ids), torch.float64)
    for run in range(3):
        alone = network.initial_params(data, Streams(ids[run : run + 1]), torch.float64)
        for name, part in alone.items():
            assert torch.equal(part[0], together[name][run])


def test_zero_score_std_gives_zero_scores():
    network = Attention(hidden=3, init=GaussianInit(score_std=0.0, value_std=1.0))
    params = network.initial_params(small_data(), Streams(run_ids(1)), torch.float64)
    assert not network.queries(params).any()
    assert not network.keys(params).any()
    assert network.values(params).all()
