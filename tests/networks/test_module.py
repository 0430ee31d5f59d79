"""Any `nn.Module` as a network: against the module called directly, plain autograd and a plain training loop."""

import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import benign as bo
from benign.data.feature_patches import FeaturePatches
from benign.data.model import DataModel
from benign.networks import module as modules
from benign.networks.module import FROZEN, ModuleNetwork, SlowModule
from benign.networks.network import Network, Params
from benign.spec.axes import PerRun, Shape, default
from benign.spec.base import Count, Positive, SpecError
from benign.streams import Streams
from benign.training.setup import stack
from tests.reference import (
    close,
    doubles,
    film,
    normals,
    run_ids,
    small_data,
    small_pgd,
    small_setup,
    start,
)
from tests.registry import forgetting
from tests.says import says

PAGE = Path(__file__).parents[2] / "docs" / "modules.md"
INPUTS = 24
"""numbers of a point of `small_data`: three tokens in eight dimensions"""


class TanhPerceptron(ModuleNetwork):
    width: Shape[Count] = default(5)
    scale: PerRun[Positive] = default(1.0)

    def build(self, data):
        first = nn.Linear(data.tokens * data.dim, self.width)
        with torch.no_grad():
            first.weight.mul_(self.scale)
        return nn.Sequential(nn.Flatten(), first, nn.Tanh(), nn.Linear(self.width, 1))


class PatchFilters(ModuleNetwork):
    def build(self, data):
        filters = nn.Conv1d(data.tokens, 4, 3)
        rest = nn.Linear(4 * (data.dim - 2), 1)
        return nn.Sequential(filters, nn.Softplus(), nn.Flatten(), rest, nn.Flatten(0))


class OneEncoder(ModuleNetwork):
    def build(self, data):
        layer = nn.TransformerEncoderLayer(data.dim, 2, 6, dropout=0.0, batch_first=True)
        return nn.Sequential(layer, nn.Flatten(), nn.Linear(data.tokens * data.dim, 1))


class Autoencoding(nn.Module):
    """One matrix used twice, in two layers that share it, and one that is not used."""

    def __init__(self, dim: int):
        super().__init__()
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))).flatten(1).sum(1)


class SharedWeights(ModuleNetwork):
    def build(self, data):
        return Autoencoding(data.dim)


class FrozenFirst(ModuleNetwork):
    def build(self, data):
        first = nn.Linear(data.tokens * data.dim, 5).requires_grad_(False)
        return nn.Sequential(nn.Flatten(), first, nn.SiLU(), nn.Linear(5, 1))


class ManyClasses(ModuleNetwork):
    classes: Shape[Count] = default(4)

    def build(self, data):
        return nn.Sequential(nn.Flatten(), nn.Linear(data.tokens * data.dim, self.classes))

    def output_count(self):
        return self.classes


class BatchNormed(ModuleNetwork):
    momentum: float = 0.1

    def build(self, data):
        norm = nn.BatchNorm1d(5, momentum=self.momentum)
        first = nn.Linear(data.tokens * data.dim, 5)
        return nn.Sequential(nn.Flatten(), first, norm, nn.Tanh(), nn.Linear(5, 1))


class Doubling(nn.Module):
    """Doubles the points; with a branch that vmap cannot take, and never goes into, or without."""

    def __init__(self, branch: bool):
        super().__init__()
        self.branch = branch

    def forward(self, x):
        if self.branch and x.square().sum() < 0:
            return x
        return 2 * x


class Doubled(ModuleNetwork):
    branch: Shape[bool] = default(False)

    def build(self, data):
        last = nn.Linear(data.tokens * data.dim, 1)
        return nn.Sequential(Doubling(self.branch), nn.Flatten(), last)


class AnyModule(ModuleNetwork):
    """What a function makes; each test gives its own, under a name of its own for the cache of templates."""

    name: str
    scale: PerRun[Positive] = default(1.0)
    made: ClassVar[dict[str, Callable]] = {}

    def build(self, data):
        return self.made[self.name](self)


def made_by(name: str, make: Callable[[Any], Any], **fields: Any) -> AnyModule:
    AnyModule.made[name] = make
    return AnyModule(name=name, **fields)


def flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), *layers)


NETWORKS: list[ModuleNetwork] = [
    TanhPerceptron(),
    PatchFilters(),
    OneEncoder(),
    SharedWeights(),
    FrozenFirst(),
    ManyClasses(),
]
each_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.kind)


@pytest.fixture(autouse=True)
def fresh() -> None:
    """A template warns once in a process: every test starts without any."""
    modules._template.cache_clear()
    modules._report.cache_clear()


def directly(network: ModuleNetwork, runs: int, data: DataModel | None = None) -> list[nn.Module]:
    """The modules of these runs, as a user would build them from their seeds."""
    seeds = Streams(run_ids(runs))("init/module").integers(1)[:, 0].tolist()
    points: Any = data or small_data()
    built = []
    with torch.random.fork_rng():
        for seed in seeds:
            torch.manual_seed(seed)
            built.append(network.build(points).double().eval())
    return built


def draw(network: Network, runs: int = 3, dtype: torch.dtype = torch.float64) -> Params:
    return network.initial_params(small_data(), Streams(run_ids(runs)), dtype)


def points(runs: int = 3, samples: int = 5) -> Tensor:
    return normals(runs, samples, 3, 8, seed=1)


# The base, and what may be chosen


def test_the_base_is_no_choice_and_its_subclasses_are():
    assert "module_network" not in Network.choices()
    assert Network.choices()["tanh_perceptron"] is TanhPerceptron
    with pytest.raises(SpecError, match=says("`kind`", "tanh_perceptron", "'module_network'")):
        Network.from_dict({"kind": "module_network"})
    again = Network.from_dict({"kind": "tanh_perceptron", "width": 7, "scale": 0.5})
    assert again == TanhPerceptron(width=7, scale=0.5)


# Outputs and gradients


@each_network
def test_outputs_are_those_of_the_modules_called_directly(network: ModuleNetwork):
    x = points()
    expected = torch.stack([m(each) for m, each in zip(directly(network, 3), x, strict=True)])
    expected = expected.reshape(3, 5, *([4] if network.output_count() else [])).detach()
    params = draw(network)
    close(network.forward(params, x), expected, 1e-12)
    with torch.no_grad():
        close(network.run(params, x).outputs, expected, 1e-12)


@each_network
def test_gradients_are_those_of_autograd_on_the_plain_modules(network: ModuleNetwork):
    x, params = points(), draw(network)
    with torch.no_grad():
        forward_pass = network.run(params, x)
        c = normals(*forward_pass.outputs.shape, seed=2)
        in_params, in_points = forward_pass.params_gradient(c), forward_pass.inputs_gradient(c)
    assert set(in_params) == set(network.trained(params))
    for run, module in enumerate(directly(network, 3)):
        leaf = x[run].requires_grad_()
        (module(leaf).reshape(c[run].shape) * c[run]).sum().backward()
        assert leaf.grad is not None
        close(in_points[run], leaf.grad)
        plain = {name: part for name, part in module.named_parameters() if part.requires_grad}
        assert set(plain) == set(in_params)
        for name, part in plain.items():
            if part.grad is None:  # not used
                assert not in_params[name].any()
            else:
                close(in_params[name][run], part.grad)


def test_the_second_pass_of_an_attack_has_the_weights_of_the_first():
    """The gradient in the parameters takes a pass of its own, which must not have other weights."""
    params = draw(TanhPerceptron())
    forward_pass = TanhPerceptron().run(params, points())
    params["1.weight"].mul_(2)
    with pytest.raises(RuntimeError, match="weights have changed"):
        forward_pass.params_gradient(torch.ones_like(forward_pass.outputs))


class Constant(nn.Module):
    """One number for all points."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.level.expand(len(x))


def test_points_that_do_not_matter_have_gradient_zero():
    network = made_by("constant", lambda _: Constant())
    forward_pass = network.run(draw(network), points())
    c = normals(3, 5, seed=2)
    assert torch.equal(forward_pass.inputs_gradient(c), torch.zeros_like(points()))
    close(forward_pass.params_gradient(c)["level"], c.sum(1))


@each_network
def test_a_run_does_not_depend_on_the_others(network: ModuleNetwork):
    x, params = points(), draw(network)
    alone = network.initial_params(small_data(), Streams(run_ids(3)[1:2]), torch.float64)
    together, single = network.run(params, x), network.run(alone, x[1:2])
    c = torch.ones_like(together.outputs)
    for name, part in alone.items():
        assert torch.equal(part, params[name][1:2])
    close(together.outputs[1:2], single.outputs, 1e-12)
    close(together.inputs_gradient(c)[1:2], single.inputs_gradient(c[1:2]))
    assert not torch.equal(together.outputs[0], together.outputs[1])


def test_buffers_and_frozen_parameters_are_not_trained():
    with pytest.warns(SlowModule):
        params = draw(BatchNormed())
    held = {"2.running_mean", "2.running_var", "2.num_batches_tracked"}
    assert {name for name in params if name.startswith(FROZEN)} == {FROZEN + name for name in held}
    assert params["frozen/2.num_batches_tracked"].dtype == torch.int64
    assert FrozenFirst().trained(draw(FrozenFirst())) == ("3.weight", "3.bias")
    setup = small_setup(network=FrozenFirst(), max_steps=3)
    first, *_, last = film(start([setup]))
    assert torch.equal(first.params["frozen/1.weight"], last.params["frozen/1.weight"])
    assert not torch.equal(first.params["3.weight"], last.params["3.weight"])


def test_shared_parameters_are_stored_once_and_move_as_one():
    params = draw(SharedWeights())
    assert set(params) == {"first.weight", "first.bias", "unused.weight", "unused.bias"}


# Draws


def test_weights_depend_on_the_run_alone_and_the_session_stays_as_it_is():
    def state() -> list[Any]:
        fused = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
        return [torch.get_rng_state().tolist(), torch.get_default_dtype(), fused]

    torch.manual_seed(1)
    before = state()
    first = draw(OneEncoder())
    OneEncoder().run(first, points())
    assert state() == before
    torch.manual_seed(2)
    torch.set_default_dtype(torch.float64)
    try:
        again = draw(OneEncoder())
        OneEncoder().check_against(small_data())
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(part, again[name]) for name, part in first.items())


def test_precision_rounds_the_same_weights():
    wide, narrow = draw(TanhPerceptron()), draw(TanhPerceptron(), dtype=torch.float32)
    assert narrow["1.weight"].dtype == torch.float32
    assert torch.equal(wide["1.weight"].float(), narrow["1.weight"])


# Numbers that differ by run


def test_build_gets_the_numbers_of_its_run():
    cells = [small_setup(network=TanhPerceptron(scale=scale)) for scale in (1.0, 2.0, 4.0)]
    params = draw(stack(cells, "cpu").network)
    for run, scale in enumerate((1.0, 2.0, 4.0)):
        expected = draw(TanhPerceptron())["1.weight"][run]
        close(params["1.weight"][run], scale * expected, 1e-6)  # scaled in float32


def test_a_whole_number_of_a_run_is_whole_in_build():
    class Counted(ModuleNetwork):
        count: PerRun[Count]

        def build(self, data):
            assert isinstance(self.count, int)
            return flat(nn.Linear(INPUTS, 1))

    cells = [small_setup(network=Counted(count=count)) for count in (2, 3)]
    draw(stack(cells, "cpu").network, 2)


class Scaled(nn.Module):
    def __init__(self, scale: float | Tensor):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


class ScaledByBuffer(nn.Module):
    def __init__(self, scale: float):
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x):
        return x * self.scale


def stacked(name: str, make: Callable[[Any], Any]) -> Any:
    """Two runs, of scale 1 and 2."""
    cells = [small_setup(network=made_by(name, make, scale=scale)) for scale in (1.0, 2.0)]
    return stack(cells, "cpu").network


def test_a_number_of_the_pass_that_differs_by_run_lies_in_a_buffer():
    network = stacked("buffer", lambda self: flat(nn.Linear(INPUTS, 1), ScaledByBuffer(self.scale)))
    params, x = draw(network, 2), points(2)
    doubled = {**params, "frozen/2.scale": params["frozen/2.scale"] * 2}
    assert params["frozen/2.scale"].tolist() == [1.0, 2.0]
    close(network.forward(doubled, x), 2 * network.forward(params, x))


@pytest.mark.parametrize(
    "make",
    [
        lambda self: flat(nn.Linear(INPUTS, 1), Scaled(self.scale)),
        lambda self: flat(nn.Linear(INPUTS, 1), Scaled(torch.rand(()))),
        lambda self: flat(nn.Linear(INPUTS, 4), nn.LayerNorm(4, eps=self.scale), nn.Linear(4, 1)),
    ],
    ids=["attribute", "tensor without a name", "eps"],
)
def test_modules_that_differ_in_more_than_their_tensors_are_refused(make: Callable):
    with pytest.raises(ValueError, match=says("any_module", "`register_buffer`", "`Shape`")):
        draw(stacked("differs", make), 2)


def test_a_momentum_that_differs_by_run_is_noticed():
    def make(self: Any) -> nn.Module:
        norm = nn.BatchNorm1d(4, momentum=self.scale / 4)
        return flat(nn.Linear(INPUTS, 4), norm, nn.Linear(4, 1))

    with (
        pytest.warns(SlowModule),
        pytest.raises(ValueError, match=says("any_module", "buffers", "`register_buffer`")),
    ):
        draw(stacked("momentum", make), 2)


def test_modules_of_different_shapes_are_refused():
    def make(self: Any) -> nn.Module:
        return flat(nn.Linear(INPUTS, int(2 * self.scale)), nn.Linear(int(2 * self.scale), 1))

    with pytest.raises(ValueError, match=says("shapes", "field", "`Shape`")):
        draw(stacked("shapes", make), 2)


# The layer before the last


class Featured(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, 5), nn.Linear(5, 1)

    def represent(self, x):
        return torch.tanh(self.first(x.flatten(1)))

    def forward(self, x):
        return self.last(self.represent(x))


def test_features_of_a_module_with_represent_are_measured():
    network, x = made_by("featured", lambda self: Featured()), points().requires_grad_()
    params = draw(network)
    features = network.represent(params, x)
    read = (features * params["last.weight"]).sum(2) + params["last.bias"]
    close(read.detach(), network.forward(params, x).detach())
    c = normals(3, 5, seed=2)
    close(torch.autograd.grad(read, x, c)[0], network.run(params, x).inputs_gradient(c))


def test_a_module_that_cannot_be_batched_gives_a_warning():
    with pytest.raises(ValueError, match=says("`network`", "tanh_perceptron", "represent")):
        TanhPerceptron().represent(draw(TanhPerceptron()), points())


def test_one_by_one_networks_give_no_warning():
    class Known(BatchNormed):
        one_by_one: ClassVar[bool] = True

    network, twin, x = Known(), BatchNormed(), points()
    with warnings.catch_warnings(action="error"):
        params = draw(network)
    with pytest.warns(SlowModule):
        other = draw(twin)
    assert all(torch.equal(part, other[name]) for name, part in params.items())
    forward_pass, expected = (each.training_pass(params, x, x) for each in (network, twin))
    close(forward_pass.outputs, expected.outputs, 1e-14)
    c = normals(3, 5, seed=2)
    for name, part in expected.params_gradient(c).items():
        torch.testing.assert_close(
            forward_pass.params_gradient(c)[name], part, rtol=1e-10, atol=1e-14
        )


# Modules that cannot be computed together


def test_a_module_that_vmap_cannot_take_gives_the_same_one_by_one():
    x = points()
    easy, hard = Doubled(), Doubled(branch=True)
    with pytest.warns(SlowModule, match=says("`network`", "doubled", "control flow")):
        params = draw(hard)
    forward_pass, twin = (
        hard.run(params, x),
        easy.run(draw(easy), x),
    )  # which would raise a second warning
    c = normals(3, 5, seed=2)
    close(forward_pass.outputs, twin.outputs, 1e-12)
    close(forward_pass.inputs_gradient(c), twin.inputs_gradient(c), 1e-12)
    for name, part in twin.params_gradient(c).items():
        close(forward_pass.params_gradient(c)[name], part, 1e-12)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.cells(x)[0][:, -1])


@pytest.mark.parametrize(
    "make",
    [
        lambda self: Recurrent(),
        lambda self: flat(nn.utils.parametrizations.weight_norm(nn.Linear(INPUTS, 1))),
    ],
    ids=["no rule", "a loop inside"],
)
def test_operations_without_a_batching_rule_run_one_by_one(make: Callable):
    network, x = made_by("no rule", make), points()
    with pytest.warns(SlowModule, match="batching rule|Batching rule"):
        params = draw(network)
    for run in range(3):
        alone = {name: part[run : run + 1] for name, part in params.items()}
        close(network.run(params, x).outputs[run], network.run(alone, x[run : run + 1]).outputs[0])


# Batch statistics


def plain_loop(
    module: nn.Module, x: Tensor, y: Tensor, steps: int, radius: float
) -> Iterator[Params]:
    """Parameters and buffers after every forward pass of a loop as one would write it, with an attack of one step."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(steps):
        leaf = x.clone().requires_grad_()
        rise = torch.autograd.grad((-y * module.eval()(leaf)[:, 0]).sum(), leaf)[0]
        rise /= torch.linalg.vector_norm(rise, dim=(1, 2), keepdim=True)
        outputs = module.train()(x + radius * rise)[:, 0]
        yield {name: part.detach().clone() for name, part in module.state_dict().items()}
        optimizer.zero_grad()
        functional.softplus(-y * outputs).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("radius", [0.0, 0.6])
def test_batch_norm_trains_as_in_a_plain_loop(radius: float):
    network = BatchNormed(momentum=0.3)
    attack = small_pgd(radius=radius, steps=1, step=1.0, per="sample") if radius else None
    setup = small_setup(network=network, attack=attack, max_steps=6, data=small_data(samples=6))
    with pytest.warns(
        SlowModule, match=says("`network`", "batch_normed", "batch statistics")
    ) as warned:
        frames = film(start([setup, setup]))
    assert len(warned) == 1
    for run, module in enumerate(directly(network, 2)):
        loop = plain_loop(module, frames[0].x[run], frames[0].y[run], len(frames), radius)
        for frame, state in zip(frames, loop, strict=True):
            for name, part in frame.params.items():
                expected = state[name.removeprefix(FROZEN)]
                torch.testing.assert_close(part[run], expected, rtol=1e-10, atol=1e-12)
    assert frames[-1].params["frozen/2.num_batches_tracked"].tolist() == [7, 7]


def test_attacks_and_tests_use_running_statistics_and_leave_them_alone():
    network, x = BatchNormed(), points()
    with pytest.warns(SlowModule):
        params = draw(network)
    network.training_pass(params, x, x)
    held = {name: part.clone() for name, part in params.items()}
    forward_pass = network.attacked_pass(params, 2 * x, x)
    assert all(torch.equal(part, held[name]) for name, part in params.items())
    for run, module in enumerate(directly(network, 3)):
        module.train()(x[run])
        close(forward_pass.outputs[run], module.eval()(2 * x[run])[:, 0].detach())
    alone = network.attacked_pass(params, 2 * x[:, :1], x[:, :1])
    close(alone.outputs, forward_pass.outputs[:, :1], 1e-12)


class RunningMean(nn.Module):
    """Puts a new tensor in the place of its buffer, in training only."""

    mean: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(INPUTS))

    def forward(self, x):
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        return x - self.mean


def test_a_buffer_that_is_replaced_moves_too():
    network = made_by("replaced", lambda self: flat(RunningMean(), nn.Linear(INPUTS, 1)))
    x = points()
    with pytest.warns(SlowModule):
        params = draw(network)
    forward_pass = network.training_pass(params, x, x)
    close(params["frozen/1.mean"], 0.5 * x.flatten(2).mean(1))
    assert not params["frozen/1.mean"].requires_grad
    assert forward_pass.params_gradient(torch.ones(3, 5, dtype=torch.float64))["2.weight"].any()


# Mistakes reported before work starts


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


REFUSED: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "two outputs": (
        lambda self: flat(nn.Linear(INPUTS, 2)),
        ["[3]", "[3, 1]", "[3, 2]", "`output_count`"],
    ),
    "a tuple": (lambda self: nn.GRU(8, 1, batch_first=True), ["[3, 1]", "tuple"]),
    "whole numbers": (
        lambda self: nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, 1), Whole()),
        ["[3, 1]", "torch.int64"],
    ),
    "a wrong size": (
        lambda self: flat(nn.Linear(INPUTS - 1, 1)),
        ["3 points", "3 tokens", "8 dimensions", "3x24 and 23x1"],
    ),
    "no module": (lambda self: 3, ["nn.Module", "int"]),
    "a failing build": (lambda self: 1 / 0, ["ZeroDivisionError"]),
    "lazy": (lambda self: flat(nn.LazyLinear(1)), ["sizes", "1.weight", "1.bias"]),
    "dropout": (
        lambda self: flat(nn.Linear(INPUTS, 4), nn.Dropout(0.1), nn.Linear(4, 1)),
        ["random numbers", "dropout"],
    ),
    "noise": (lambda self: flat(Noisy(), nn.Linear(INPUTS, 1)), ["random numbers", "randn_like"]),
    "nothing to train": (
        lambda self: flat(nn.Linear(INPUTS, 1).requires_grad_(False)),
        ["parameter", "`requires_grad`"],
    ),
}


class Whole(nn.Module):
    def forward(self, x):
        return x.long()


@pytest.mark.parametrize("case", REFUSED)
def test_a_module_that_cannot_work_is_refused_at_once(case: str):
    make, parts = REFUSED[case]
    before = torch.get_rng_state()
    with pytest.raises(SpecError, match=says("`network`", "any_module", *parts)):
        small_setup(network=made_by(case, make))
    assert torch.equal(torch.get_rng_state(), before)


def test_build_gets_only_sizes_of_the_data():
    class Curious(ModuleNetwork):
        def build(self, data):
            return flat(nn.Linear(data.samples, 1))

    with pytest.raises(SpecError, match=says("curious", "`samples`", "field")):
        small_setup(network=Curious())


def test_classes_must_match_those_of_the_data():
    data = FeaturePatches(samples=6, tokens=3, dim=8, alpha=2.0, beta=1.0, noise_std=0.1)
    with pytest.raises(SpecError, match=says("many_classes", "4 classes", "`data`", "2 classes")):
        small_setup(data=data, network=ManyClasses())
    frames = film(start([small_setup(data=data, network=ManyClasses(classes=2), max_steps=4)]))
    assert frames[-1].outputs.shape == (1, 6, 2)
    assert frames[-1].loss < frames[0].loss


def test_dropout_that_drops_nothing_is_fine_and_a_vast_module_costs_nothing_to_check():
    network = made_by("p=0", lambda self: flat(nn.Dropout(0.0), nn.Linear(INPUTS, 1)))
    with warnings.catch_warnings(action="error"):
        small_setup(network=network)
        draw(network)
    setup = small_setup(network=TanhPerceptron(width=10**10))
    assert setup.network.cost(setup.data).weights > 10**11


def test_cost_counts_weights_and_products():
    cost = TanhPerceptron(width=5).cost(small_data())
    assert cost.weights == 3 * (5 * INPUTS + 5 + 5 + 1)
    assert cost.multiplies == 5 * INPUTS + 5
    assert INPUTS + 5 + 5 + 1 <= cost.point <= 2 * (INPUTS + 5 + 5 + 1)


# The whole way


def experiment() -> Any:
    return bo.Experiment(
        data=small_data(samples=8, snr=1.0),
        network=TanhPerceptron(width=[3, 6]),
        attack=small_pgd(radius=0.1, steps=2),
        training=bo.GradientDescent(rate=0.5, stop_loss=0.2, max_steps=30),
        evaluation=bo.Evaluation(samples=20, attack=small_pgd(radius=0.1, steps=2)),
        seeds=2,
        precision="float64",
    )


def test_an_experiment_runs_is_opened_and_replayed(tmp_path: Path):
    sweep = experiment()
    result = sweep.run(tmp_path)
    assert dict(result.sizes)["width"] == 2
    assert dict(result.sizes)["seed"] == 2
    assert result.attrs["runs_failed"] == 0
    assert bo.open_experiment(tmp_path) == sweep
    assert bo.open_result(tmp_path).identical(result)
    one = sweep.replay(width=6, seed=1)
    there = result.sel(width=6, seed=1)
    assert one.last.number == int(there.steps)
    close(one.last.loss, doubles(float(there.train_loss)))


def here(script: Path) -> None:
    with forgetting():
        runpy.run_path(str(script), run_name="__main__")


def in_a_process(script: Path) -> None:
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("run", "where"),
    [
        (here, '"runs/mine"'),
        pytest.param(in_a_process, '"runs/mine", workers=2', marks=pytest.mark.slow),
    ],
    ids=["one process", "several"],
)
def test_the_page_runs_as_it_stands(run: Any, where: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    script = "\n\n".join(blocks).replace('"runs/perceptron"', where)
    (tmp_path / "mine.py").write_text(script, encoding="utf-8")
    run(tmp_path / "mine.py")
    with forgetting():
        bo.load(tmp_path / "mine.py")  # registers the class, which the folder names
        result = bo.open_result(tmp_path / "runs" / "mine")
    assert (result.attrs["runs_failed"], result.status.size) == (0, 8)
    assert float(result.robust_accuracy.min()) > 0.7
