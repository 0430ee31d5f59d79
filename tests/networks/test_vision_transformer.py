"""The small vision transformer: against an `nn.Module` that takes points and heads one at a time."""

from typing import Any

import pytest
import torch
from torch import Tensor

from benign.networks.module_checks import _Trace
from benign.networks.network import Params
from benign.networks.vision_transformer import VisionTransformer
from benign.streams import Streams
from benign.testing.components import moved
from benign.training.engine import train_runs
from benign.training.fast import recording
from benign.training.setup import stack
from tests.reference import close, film, normals, run_ids, small_data, small_pgd, small_setup, start
from tests.reference.vision_transformer import SlowTransformer
from tests.training.test_engine import assert_same

READINGS: list[dict[str, Any]] = [
    {},
    {"classes": 3, "layers": 3},
    {"residual": False},
    {"layer_norm": False},
    {"residual": False, "layer_norm": False, "positions": "none"},
    {"positions": "none", "pool": "cls"},
    {"pool": "cls", "heads": 1},
    {"score_scale": False, "heads": 6, "mlp": 7},
    {"divide_by": 4.0, "layers": 1, "classes": 2},
]
each_reading = pytest.mark.parametrize("fields", READINGS, ids=str)


def small(**fields: Any) -> VisionTransformer:
    sizes: dict[str, Any] = {"hidden": 12, "heads": 3, "mlp": 5}
    return VisionTransformer(**(sizes | fields))


def draw(network: VisionTransformer, runs: int = 3) -> Params:
    """Weights away from their start, gains and shifts too."""
    streams = Streams(run_ids(runs))
    return moved(network, network.initial_params(small_data(), streams, torch.float64), streams)


def points(runs: int = 3, samples: int = 4) -> Tensor:
    return normals(runs, samples, 3, 8, seed=1)


@each_reading
def test_outputs_features_and_maps_are_those_of_a_plain_module(fields: dict[str, Any]):
    network, x = small(**fields), points()
    params = draw(network)
    outputs, features = network.forward(params, x), network.represent(params, x)
    maps = network.attention_maps(params, x)
    assert outputs.shape[2:] == (() if network.classes is None else (network.classes,))
    for run in range(3):
        slow = SlowTransformer(network, 3, 8).filled(params, run)
        close(outputs[run], slow(x[run]).detach())
        for sample in range(4):
            expected = slow.point(x[run, sample])
            close(features[run, sample], expected[0].detach())
            close(maps[run, sample], expected[1].detach())


@each_reading
def test_gradients_are_those_of_the_plain_module(fields: dict[str, Any]):
    network, x = small(**fields), points()
    params = draw(network)
    forward_pass = network.run(params, x)
    c = normals(*forward_pass.outputs.shape, seed=2)
    in_params, in_points = forward_pass.params_gradient(c), forward_pass.inputs_gradient(c)
    assert set(in_params) == set(params)
    for run in range(3):
        slow = SlowTransformer(network, 3, 8).filled(params, run)
        leaf = x[run].clone().requires_grad_()
        (slow(leaf) * c[run]).sum().backward()
        assert leaf.grad is not None
        close(in_points[run], leaf.grad)
        gradients: Any = {name: part.grad for name, part in slow.named_parameters()}
        for name in ("embed", "mlp", "head"):
            close(in_params[name][run].T, gradients[f"{name}.weight"])
            close(in_params[f"{name}_bias"][run], gradients[f"{name}.bias"])
        names = ("query", "key", "value")
        for layer in range(network.layers):
            columns = [gradients[f"{name}.{layer}.weight"].T for name in names]
            close(in_params["qkv"][run, layer], torch.cat(columns, 1))
            close(in_params["project"][run, layer].T, gradients[f"project.{layer}.weight"])
        for place in range(network.layers + 1 if network.layer_norm else 0):
            close(in_params["gain"][run, place], gradients[f"norm.{place}.weight"])
            close(in_params["shift"][run, place], gradients[f"norm.{place}.bias"])
        for name in {"positions", "class_token"} & set(params):
            close(in_params[name][run], gradients[name])


def test_the_gradient_is_that_of_differences():
    network, x = small(classes=3, pool="cls"), points(1, 2)
    params = draw(network, 1)
    names = list(params)

    def outputs(x: Tensor, *parts: Tensor) -> Tensor:
        return network.forward(dict(zip(names, parts, strict=True)), x)

    leaves = [part.requires_grad_() for part in (x, *params.values())]
    assert torch.autograd.gradcheck(outputs, leaves, fast_mode=True)


def test_runs_may_change_places():
    network, x, params = small(), points(), draw(small())
    order = torch.tensor([2, 0, 1])
    turned = network.forward({name: part[order] for name, part in params.items()}, x[order])
    close(turned, network.forward(params, x)[order], 1e-13)


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_without_positions_the_order_of_tokens_does_not_matter(pool: Any):
    x, order = points(), torch.tensor([2, 0, 1])
    blind, seeing = small(positions="none", pool=pool), small(pool=pool)
    params = draw(blind)
    close(blind.forward(params, x[:, :, order]), blind.forward(params, x), 1e-12)
    known = draw(seeing)
    apart = seeing.forward(known, x[:, :, order]) - seeing.forward(known, x)
    assert float(apart.abs().max()) > 1e-3


def test_weights_start_as_those_of_linear_layers_divided():
    cells = [small_setup(network=small(divide_by=by, hidden=48, pool="cls")) for by in (1.0, 16.0)]
    network, streams = stack(cells, "cpu").network, Streams(run_ids(1) * 2)
    params = network.initial_params(small_data(), streams, torch.float64)
    for name, inputs in (("embed", 8), ("qkv", 48), ("project", 48), ("mlp", 48), ("head", 5)):
        for part in (params[name], params[f"{name}_bias"]):
            close(part[1], part[0] / 16, 1e-14)
        close(params[name][0].std(), (3 * inputs) ** -0.5, 0.3 if name == "head" else 0.1)
        assert float(params[name][0].abs().max()) <= inputs**-0.5
    assert (params["gain"] == 1).all()
    assert (params["shift"] == 0).all()
    close(params["positions"].std(), 0.02, 0.15)
    assert torch.equal(params["positions"][0], params["positions"][1])
    assert params["class_token"].shape == (2, 1, 48)


def test_attention_maps_are_distributions_and_uniform_without_queries():
    network, params = small(), draw(small())
    maps = network.attention_maps(params, points())
    assert maps.shape == (3, 4, 2, 3, 3, 3)
    close(maps.sum(-1), torch.ones(3, 4, 2, 3, 3))
    blank = params | {name: torch.zeros_like(params[name]) for name in ("qkv", "qkv_bias")}
    close(network.attention_maps(blank, points()), torch.full_like(maps, 1 / 3))


def test_cost_counts_weights_numbers_and_products():
    for fields in READINGS[:5]:
        network, data = VisionTransformer(**fields), small_data(tokens=16, dim=49)
        params = network.initial_params(data, Streams(run_ids(1)), torch.float32)
        cost = network.cost(data)
        assert cost.weights == 3 * sum(part.numel() for part in params.values())

        class Whole(torch.nn.Module):
            def forward(self, x: Tensor, network=network, params=params) -> Tensor:
                leaves = {name: part.requires_grad_() for name, part in params.items()}
                return network.forward(leaves, x[None])

        trace = _Trace(Whole(), torch.randn(200, 16, 49).requires_grad_())
        assert 0.98 < cost.multiplies * 200 / trace.multiplies < 1.02
        assert 0.8 < cost.point * 200 / trace.numbers < 1.25


def test_it_learns_under_attack_in_the_engine():
    setup = small_setup(network=small(), attack=small_pgd(radius=0.2), max_steps=60, rate=0.3)
    frames = film(start([setup, setup]))
    assert (frames[-1].loss < 0.3 * frames[0].loss).all()


@pytest.mark.gpu
def test_a_gpu_replays_the_same_steps(monkeypatch: pytest.MonkeyPatch):
    cells = [
        small_setup(network=small(), attack=small_pgd(), rate=rate, max_steps=30)
        for rate in (0.1, 0.2)
    ]
    recorded = train_runs(cells, run_ids(2), "cuda")
    monkeypatch.setattr(recording, "WARM_UP", 10**9)
    assert_same(recorded, train_runs(cells, run_ids(2), "cuda"))
