"""What every component must do. A new one adds a row to its table and inherits these tests."""

from typing import Any

import pytest
import torch

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball
from benign.attacks.model_free import (
    AllPatch,
    CommonShift,
    Coupling,
    FeatureOrthogonal,
    FeatureSwap,
)
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.attacks.several import Balls
from benign.attacks.strong import Strong
from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.data.model import DataModel
from benign.data.signal_noise import SignalNoise
from benign.losses import margin
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit, TorchDefault
from benign.networks.linear import Linear
from benign.networks.network import Network, Pass
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec import Component
from benign.streams import RunId, Streams
from tests.reference import attacked, close

SIZES: dict[str, Any] = {"samples": 6, "tokens": 3, "dim": 5}
DATA: list[DataModel] = [
    SignalNoise(**SIZES, snr=2.0, noise_std=0.5),
    SignalNoise(**SIZES, signal=3.0, noise_std=0.5, strong_noise_std=2.0, projected=True),
    SignalNoise(**SIZES, snr=1.0, noise_std=1.0, balanced=True, flip=0.3, directions="random"),
    Mixture(samples=6, dim=5, signal=2.0, flip=0.3, balanced=True, direction="random"),
    Mixture(samples=6, dim=5, signal=2.0, cluster="truncated", flip=0.3, flip_mode="half_space"),
    Mixture(samples=6, dim=5, signal=2.0, cluster="quartic", flip=0.3, flip_mode="fixed_count"),
    FeaturePatches(**SIZES, alpha=2.0, beta=1.0, noise_std=0.1, balanced=True),
    FeaturePatches(
        **SIZES,
        alpha_by_class=(2.0, 3.0),
        beta=1.0,
        beta_spread=0.5,
        noise_std=0.1,
        projected=True,
        directions="random",
        partition="random",
    ),
]
GAUSSIAN = GaussianInit(score_std=0.5, value_std=0.5)
NETWORKS: list[Network] = [
    Attention(hidden=4, init=GAUSSIAN),
    Attention(hidden=2, heads=3, value_dim=7, init=GAUSSIAN, output_norm=1.0),
    Attention(hidden=4, init=TorchDefault(divide_by=2.0, divide_output=True), output_norm=1.0),
    Attention(hidden=4, init=GAUSSIAN, attend="uniform", train="values"),
    Attention(hidden=4, init=GAUSSIAN, attend="signal", heads=2),
    Linear(init_std=0.5, output_norm=2.0),
    # Not the symmetric presets, where f = 0 at the start: see tests/networks/test_two_layer.py.
    TwoLayer(width=9, preset="torch_default"),
    TwoLayer(width=8, activation="leaky_relu", slope=0.2, preset="torch_default"),
    TwoLayer(
        width=8,
        activation="smoothed_leaky_relu",
        slope=0.5,
        smoothness=2.0,
        preset="torch_default",
    ),
    PatchCNN(width=8, classes=3, threshold=0.5, init_std=0.5),
    PatchCNN(width=8, outputs="difference", q=2, threshold=1.0, init_std=0.5),
]
ATTACKS: list[Attack] = [
    PGD(ball=Ball(radius=0.3)),
    PGD(ball=Ball(radius=0.2, relative_to="signal", per="sample"), keep="best", steps=5),
    PGD(ball=Ball(radius=0.3), loss="cross_entropy", step=0.7),
    PGD(ball=Ball(p=1, radius=0.5, coordinates=2), start="uniform", restarts=2),
    PGD(ball=Ball(p="inf", radius=0.1, relative_to="point"), steps=6),
    OneStep(rate=0.1, clip=0.02, loss="margin"),
    OneStep(rate=0.1, ball=Ball(radius=0.05), loss="cross_entropy"),
    APGD(ball=Ball(radius=0.3), steps=8, restarts=2),
    APGD(ball=Ball(p=1, radius=0.5, per="sample"), steps=8),
    MultiNorm(balls=Balls(radius=0.1, l1=5.0, linf=0.3), steps=6),
    MultiNorm(balls=Balls(radius=0.1, l1=None, linf=0.3), combine="steepest", steps=6),
    Strong(ball=Ball(radius=0.3), steps=6, restarts=2, also=OneStep(rate=0.1, clip=0.02)),
]
# Attacks that need what generated the points, or move points without limit: tests/attacks/test_model_free.py.
KNOWING: list[Attack] = [
    FeatureSwap(clip=1.2),
    AllPatch(clip=1.2),
    Coupling(ball=Ball(radius=0.5, relative_to="signal"), meet="permutation"),
    CommonShift(size=0.02),
    FeatureOrthogonal(attack=PGD(ball=Ball(p="inf", radius=0.1))),
]
RUNS = [RunId(7, index, "") for index in range(3)]


def name(component: Component) -> str:
    return component.label()


def start(network: Network):
    """A batch of points, the network's first weights, and any weights on its outputs."""
    streams = Streams(RUNS)
    sample = DATA[0].sample(streams, "train", 6, torch.float64)
    params = network.initial_params(DATA[0], streams, torch.float64)
    outputs = network.forward(params, sample.x)
    return sample, params, streams("test weights").normal(*outputs.shape[1:])


@pytest.mark.parametrize("component", [*DATA, *NETWORKS, *ATTACKS, *KNOWING], ids=name)
def test_a_component_is_what_its_fields_say(component: Component):
    again = component.family().from_dict(component.as_dict())
    assert again == component
    assert type(again) is type(component)
    assert component.as_dict()["kind"] == component.kind


@pytest.mark.parametrize("family", list(Component.families), ids=lambda family: family.__name__)
def test_every_component_of_the_package_has_a_row(family: type):
    used = {type(each) for each in (*DATA, *NETWORKS, *ATTACKS, *KNOWING)}
    used |= {type(each.init) for each in NETWORKS if isinstance(each, Attention)}
    ours = {each for each in Component.families[family].values() if "benign." in each.__module__}
    assert ours <= used


@pytest.mark.parametrize("data", DATA, ids=name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_data_depends_on_the_run_alone(data: DataModel, dtype: torch.dtype):
    together = data.sample(Streams(RUNS), "train", 6, dtype)
    assert together.x.shape == (3, 6, data.tokens, 5)
    assert together.x.dtype == together.y.dtype == dtype
    labels = {0.0, 1.0} if isinstance(data, FeaturePatches) else {-1.0, 1.0}
    assert set(together.y.unique().tolist()) <= labels
    for run in range(3):
        alone = data.sample(Streams([RUNS[run]]), "train", 6, dtype)
        for part in ("x", "y", "clean_y"):
            assert torch.equal(getattr(together, part)[run], getattr(alone, part)[0])
    fresh = data.sample(Streams(RUNS), "test/0", 6, dtype)
    assert not torch.equal(fresh.x, together.x)


@pytest.mark.parametrize("network", NETWORKS, ids=name)
def test_gradients_of_a_network_are_those_of_autograd(network: Network):
    sample, params, c = start(network)
    seen, traced = network.run(params, sample.x), Pass(network, params, sample.x)
    close(seen.outputs, network.forward(params, sample.x))
    close(seen.inputs_gradient(c), traced.inputs_gradient(c))
    assert set(seen.params_gradient(c)) == set(network.trained(params))


@pytest.mark.parametrize("network", NETWORKS, ids=name)
def test_a_run_of_a_network_does_not_see_the_others(network: Network):
    sample, params, c = start(network)
    alone = {key: value[1:2] for key, value in params.items()}
    drawn = network.initial_params(DATA[0], Streams(RUNS[1:2]), torch.float64)
    together, single = network.run(params, sample.x), network.run(alone, sample.x[1:2])
    close(together.outputs[1:2], single.outputs)
    close(together.inputs_gradient(c)[1:2], single.inputs_gradient(c[1:2]))
    for key, part in together.params_gradient(c).items():
        close(part[1:2], single.params_gradient(c[1:2])[key])
        assert torch.equal(drawn[key], alone[key])
    assert network.cost(DATA[0]).weights > 0


@pytest.mark.parametrize("attack", ATTACKS, ids=name)
@pytest.mark.parametrize("network", NETWORKS, ids=name)
def test_an_attack_hurts_inside_its_ball(attack: Attack, network: Network):
    sample, params, _ = start(network)
    clean = network.forward(params, sample.x)
    y = sample.y if clean.ndim == 2 else (sample.y > 0).double()  # classes are counted from 0
    before = torch.get_rng_state()
    points = attacked(attack, network, params, DATA[0], sample.x, y)
    assert torch.equal(torch.get_rng_state(), before)
    threat = attack.threat()
    assert threat is not None
    inside = [
        ball.norm(points - sample.x) <= ball.radii(DATA[0], sample.x) * (1 + 1e-10)
        for ball in threat.each()
    ]
    assert torch.stack([each.flatten(2).all(2) for each in inside]).any(0).all()
    assert (margin(network.forward(params, points), y) < margin(clean, y)).all()
    assert attack.passes() > 0
