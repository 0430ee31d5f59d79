"""What every component must do. A new one adds a row to its table and inherits these tests."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Balls
from benign.attacks.ensemble import EnsembleAttack
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
from benign.data.constructions import FrameNoise, PixelNoise, Rescaled
from benign.data.feature_patches import FeaturePatches
from benign.data.images import Images
from benign.data.mixture import Mixture
from benign.data.model import DataModel, Sample
from benign.data.noisy_copies import NoisyCopies
from benign.data.signal_noise import SignalNoise
from benign.losses import margin
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit, TorchDefault
from benign.networks.linear import Linear, LinearPass
from benign.networks.network import Network, Params, Pass
from benign.networks.patch_cnn import PatchCNN
from benign.networks.pictures import PictureNetwork
from benign.networks.pretrained import PretrainedViT
from benign.networks.resnet import ResNet, WideResNet
from benign.networks.two_layer import TwoLayer
from benign.networks.vision_transformer import VisionTransformer
from benign.spec.axes import PerRun, default, replace, walk
from benign.spec.base import Positive, SpecError
from benign.spec.registry import Component
from benign.streams import RunId, Streams
from benign.testing.components import moved, try_attack, try_data, try_network
from benign.training.optimisers import SGD, AdamW, GradientDescent
from tests.reference import attacked, close
from tests.says import says

Fields = dict[str, Any]
Errors = dict[str, tuple[Any, ...]]
"""by field: what it must not be, and words of the refusal"""


@dataclass(frozen=True)
class Row:
    """A component, and fields of it that must be refused."""

    component: Any
    errors: Errors


SIZES: Fields = {"samples": 6, "tokens": 3, "dim": 5}
POINT: Fields = {"samples": 6, "dim": 5}
PATCHES: Fields = SIZES | {"beta": 1.0, "noise_std": 0.1}
WIDE: Fields = PATCHES | {"dim": 6}
DATA = [
    Row(SignalNoise(**SIZES, snr=2.0, noise_std=0.5), {"dim": (1, "2", "orthogonal", "1")}),
    Row(
        SignalNoise(**SIZES, signal=3.0, noise_std=0.5, strong_noise_std=2.0, projected=True),
        {"tokens": (1, "`strong_noise_std`", "2", "1"), "snr": (1.0, "`signal`", "signal=3.0")},
    ),
    Row(
        SignalNoise(**SIZES, snr=1.0, noise_std=1.0, balanced=True, flip=0.3, directions="random"),
        {"samples": (5, "`balanced: true`", "5", "6"), "flip": (0.5, "0.5")},
    ),
    Row(
        NoisyCopies(
            **SIZES,
            snr=2.0,
            noise_std=0.5,
            strong_noise_std=1.0,
            flip=0.1,
            copies=2,
            injected_std=0.3,
        ),
        {"samples": (5, "copies=2", "5"), "copies": (0, "1", "0")},
    ),
    Row(
        NoisyCopies(**SIZES, signal=2.0, noise_std=0.5, copies=3, injected_std=0.3, projected=True),
        {"injected_std": (-1, "0", "-1")},
    ),
    Row(
        Mixture(**POINT, signal=2.0, flip=0.3, balanced=True, direction="random"),
        {"samples": (5, "`balanced: true`", "5", "6"), "tokens": (2, "1", "2")},
    ),
    Row(
        Mixture(**POINT, signal=2.0, cluster="truncated", flip=0.3, flip_mode="half_space"),
        {"direction": ("random", "`direction: axis`"), "dim": (1, "2", "1", "half_space")},
    ),
    Row(
        Mixture(**POINT, signal=2.0, cluster="quartic", flip=0.3, flip_mode="fixed_count"),
        {"direction": ((0.0,) * 5, "vector", "zero"), "noise_std": (0, "got 0")},
    ),
    Row(
        FeaturePatches(**PATCHES, alpha=2.0, balanced=True),
        {"samples": (5, "classes=2", "5", "6"), "alpha": (None, "`alpha_by_class`")},
    ),
    Row(
        FeaturePatches(
            **PATCHES,
            alpha_by_class=(2.0, 3.0),
            beta_spread=0.5,
            projected=True,
            directions="random",
            partition="random",
        ),
        {"alpha_by_class": ((1.0,), "2 classes", "1", "`alpha`")},
    ),
    Row(
        Images(source="digits", samples=6, tokens=4, construction=PixelNoise(norm=3.0, snr=0.5)),
        {"tokens": (5, "square", "5"), "source": ("../mine", "digits, mnist", "../mine")},
    ),
    Row(
        Images(
            source="digits",
            samples=6,
            dim=100,
            classes=(4, 9),
            labels="signed",
            balanced=True,
            construction=FrameNoise(snr=0.5, width=2),
        ),
        {"samples": (5, "2", "5"), "classes": ((1, 2, 3), "`labels`", "signed", "3")},
    ),
    Row(
        Images(source="digits", samples=6, dim=25, construction=Rescaled(norm=2.0)),
        {"dim": (26, "26", "25"), "construction": ({"kind": "rescaled"}, "construction.norm")},
    ),
    Row(
        Images(source="digits", samples=6, classes=(0, 1, 2)),
        {"labels": ("signed", "signed", "`classes`"), "channels": (3, "1", "3")},
    ),
    Row(
        FeaturePatches(**WIDE, alpha=2.0, alpha_spread=0.5, classes=3),
        {"dim": (5, "6", "5", "`classes`"), "robust_patches": (4, "tokens=3", "4")},
    ),
]
TINY_VIT = Path(__file__).parent / "networks" / "tiny_vit.safetensors"
"""two layers of eight columns, random, by transformers' names (`by_transformers` of networks/test_pretrained.py)"""
GAUSSIAN = GaussianInit(score_std=0.5, value_std=0.5)
NETWORKS = [
    Row(Attention(hidden=4, init=GAUSSIAN), {"hidden": (0, "1", "0")}),
    Row(
        Attention(hidden=2, heads=3, value_dim=7, init=GAUSSIAN, output_norm=1.0),
        {"output_norm": (0.0, "0.0"), "heads": (0, "1", "0")},
    ),
    Row(
        Attention(hidden=4, init=TorchDefault(divide_by=2.0, divide_output=True), output_norm=1.0),
        {"init": ({"kind": "torch_default", "divide_by": 0}, "init.divide_by", "0")},
    ),
    Row(
        Attention(hidden=4, init=GAUSSIAN, attend="uniform", train="values"),
        {"train": ("scores", "scores", "`attend: learned`", "`train: values`")},
    ),
    Row(
        Attention(hidden=4, init=GAUSSIAN, attend="signal", heads=2),
        {"train": ("scores", "scores", "`attend: learned`", "`train: values`")},
    ),
    Row(
        Attention(hidden=4, init=GAUSSIAN, train="scores"),
        {"attend": ("uniform", "`train`", "`attend: uniform`", "`train: values`")},
    ),
    Row(Linear(init_std=0.5, output_norm=2.0), {"init_std": (-1, "0", "-1")}),
    Row(TwoLayer(width=32, init_std=0.5), {"init_std": (None, "`preset: theory`", "None")}),
    Row(TwoLayer(width=9, preset="torch_default"), {"slope": (0.1, "`activation: relu`", "0.1")}),
    Row(
        TwoLayer(width=8, activation="leaky_relu", slope=0.2, preset="torch_default"),
        {"slope": (2.0, "1", "2.0"), "smoothness": (1.0, "`activation: leaky_relu`", "1.0")},
    ),
    Row(
        TwoLayer(
            width=8,
            activation="smoothed_leaky_relu",
            slope=0.5,
            smoothness=2.0,
            preset="torch_default",
        ),
        {
            "slope": (0.0, "smoothed_leaky_relu", "0.0"),
            "smoothness": (None, "smoothed_leaky_relu", "None"),
        },
    ),
    Row(
        PatchCNN(width=8, classes=3, threshold=0.5, init_std=0.5),
        {
            "classes": (1, "2", "1"),
            "outputs": ("difference", "`classes`", "2", "`outputs: classes`"),
        },
    ),
    Row(
        PatchCNN(width=8, outputs="difference", q=2, threshold=1.0, init_std=0.5),
        {"q": (1, "2", "100", "1"), "threshold": (0, "got 0")},
    ),
    Row(
        VisionTransformer(hidden=8, heads=2, mlp=6, classes=2, divide_by=0.5),
        {"classes": (1, "2", "1"), "hidden": (9, "heads=2", "9", "8")},
    ),
    Row(
        VisionTransformer(hidden=6, layers=1, heads=1, mlp=9, pool="cls", layer_norm=False),
        {"heads": (4, "`hidden`", "heads=4", "6"), "divide_by": (0, "got 0")},
    ),
    Row(
        ResNet(channels=1, width=3, blocks=(1, 1)),
        {"classes": (1, "2", "1"), "blocks": ((), "()", "(2, 2, 2, 2)")},
    ),
    Row(
        WideResNet(channels=1, depth=10, widen=1, classes=2),
        {"depth": (12, "10, 16, 22, 28, 34"), "channels": (2, "1", "3", "2")},
    ),
    Row(
        PretrainedViT(weights=str(TINY_VIT), heads=2, image_side=4, channels=1),
        {
            "std": ((0.5, 0.5, 0.0), "[0.5, 0.5, 0.0]"),
            "head": ("lost", "'trained'", "'frozen'", "lost"),
        },
    ),
]
ATTACKS = [
    Row(PGD(ball=Ball(radius=0.3), steps=6), {"steps": (0, "1", "0")}),
    Row(
        PGD(ball=Ball(radius=0.2, relative_to="signal", per="sample"), keep="best", steps=5),
        {"ball": ({"radius": 0.5, "p": 0}, "`radius`", "whole", "0.5")},
    ),
    Row(
        PGD(ball=Ball(radius=0.3), loss="cross_entropy", steps=6, step=0.7),
        {"step": (0, "got 0")},
    ),
    Row(
        PGD(ball=Ball(p=1, radius=0.5, coordinates=2), start="uniform", restarts=2, steps=6),
        {"ball": ({"radius": 1, "coordinates": 2}, "`coordinates`", "`p: 1`", "2")},
    ),
    Row(
        PGD(ball=Ball(p="inf", radius=0.1, relative_to="point"), steps=6),
        {"ball": ({"radius": 1, "box": [1.0, 0.0]}, "`box`", "[1.0, 0.0]", "lowest < highest")},
    ),
    Row(OneStep(rate=0.1, clip=0.02, loss="margin"), {"clip": (None, "`ball`")}),
    Row(
        OneStep(rate=0.1, ball=Ball(radius=0.05), loss="cross_entropy"),
        {"clip": (0.1, "`ball`"), "rate": (0, "got 0")},
    ),
    Row(APGD(ball=Ball(radius=0.3), steps=8, restarts=2), {"steps": (0, "1", "0")}),
    Row(APGD(ball=Ball(p=1, radius=0.5, per="sample"), steps=8), {"restarts": (0, "1", "0")}),
    Row(
        MultiNorm(balls=Balls(radius=0.1, l1=5.0, linf=0.3), steps=6),
        {"balls": ({"radius": 0.1, "l1": None, "linf": None}, "`l1`, `l2`", "`linf`", "`pgd`")},
    ),
    Row(
        MultiNorm(balls=Balls(radius=0.1, l1=None, linf=0.3), combine="steepest", steps=6),
        {"combine": ("most", "'worst', 'average'", "'most'")},
    ),
    Row(
        EnsembleAttack(
            ball=Ball(radius=0.3), steps=6, restarts=2, also=OneStep(rate=0.1, clip=0.02)
        ),
        {"restarts": (-1, "1", "-1")},
    ),
]
# Attacks that need what generated the points, or move points without limit: tests/attacks/test_model_free.py.
KNOWING = [
    Row(FeatureSwap(clip=1.2), {"clip": (-1, "0", "-1")}),
    Row(AllPatch(clip=1.2), {"clip": (-1, "0", "-1")}),
    Row(
        Coupling(ball=Ball(radius=0.5, relative_to="signal"), meet="permutation"),
        {"meet": ("there", "'signal'", "'permutation'", "'there'")},
    ),
    Row(CommonShift(size=0.02), {"size": (0, "got 0")}),
    Row(
        FeatureOrthogonal(attack=PGD(ball=Ball(p="inf", radius=0.1))),
        {"attack": ({"kind": "nothing"}, "`kind`", "pgd", "'nothing'")},
    ),
]
TRAININGS = [
    Row(GradientDescent(rate=0.1, drop_every=5), {"rate": (0, "got 0")}),
    Row(SGD(rate=0.1, epochs=3), {"epochs": (0, "1", "0")}),
    Row(
        AdamW(rate=0.001, epochs=3),
        {"schedule": ("steps", "'constant', 'cosine'", "'drops'", "'steps'")},
    ),
]
ALL = [*DATA, *NETWORKS, *ATTACKS, *KNOWING, *TRAININGS]
RUNS = [RunId(7, index, "") for index in range(3)]
SIGNED: DataModel = DATA[0].component
CLASSES: DataModel = FeaturePatches(**WIDE, alpha=2.0, alpha_spread=0.5, classes=3)
PICTURES = Mixture(samples=6, dim=16, signal=2.0)
VICTIMS: list[tuple[Network, DataModel]] = [
    (NETWORKS[1].component, SIGNED),
    (PatchCNN(width=4, classes=3, threshold=0.5, init_std=0.5), CLASSES),
]
DTYPES = [torch.float32, torch.float64]


def name(row: Row) -> str:
    return row.component.label()


def numbers(component: Any) -> dict[tuple[str, ...], Any]:
    """Every number of a component that may differ by run, as far as it is given."""
    found = {path: value for path, role, value in walk(component) if role == "run"}
    return {path: value for path, value in found.items() if value is not None}


def varied(component: Any) -> list[Any]:
    """The component of three runs that differ in all these numbers."""
    shares = (1.0, 0.9, 0.8)
    cells = [
        replace(component, {path: x * share or 1 - share for path, x in numbers(component).items()})
        for share in shares
    ]
    return [cell.family().from_dict(cell.as_dict()) for cell in cells]


def data_of(network: Network) -> DataModel:
    """Points the network can be tried on."""
    if isinstance(network, PictureNetwork):
        return PICTURES
    return SIGNED if network.output_count() is None else CLASSES


def victims(attack: Attack) -> list[tuple[Network, DataModel]]:
    """Networks and points the attack can be tried on."""
    able = []
    for network, data in VICTIMS:
        with suppress(ValueError):
            attack.check_against(data)
            able.append((network, data))
    return able


@pytest.mark.parametrize("row", ALL, ids=name)
def test_a_component_is_what_its_fields_say(row: Row):
    component = row.component
    again = component.family().from_dict(component.as_dict())
    assert again == component
    assert type(again) is type(component)
    assert component.as_dict().get("kind", component.default_kind) == component.kind


@pytest.mark.parametrize("row", ALL, ids=name)
def test_a_component_refuses_in_words(row: Row):
    fields = row.component.as_dict()
    assert row.errors, "a row says at least one field that is refused"
    for field, (value, *parts) in row.errors.items():
        with pytest.raises(SpecError, match=says(field, *parts)):
            row.component.family().from_dict(fields | {field: value})
    with pytest.raises(SpecError, match=says("nothing_of_the_kind", *fields.keys() - {"kind"})):
        row.component.family().from_dict(fields | {"nothing_of_the_kind": 1})


@pytest.mark.parametrize("family", list(Component.families), ids=lambda family: family.__name__)
def test_every_component_of_the_package_has_a_row(family: type):
    used = {type(row.component) for row in ALL}
    used |= {type(row.component.init) for row in NETWORKS if isinstance(row.component, Attention)}
    used |= {type(row.component.construction) for row in DATA if isinstance(row.component, Images)}
    ours = {each for each in Component.families[family].values() if "benign." in each.__module__}
    assert ours <= used


def test_every_number_of_a_run_is_varied_in_some_row():
    """A field of a component, but for those of components inside it, that may differ by run."""
    for kind in {type(row.component) for row in ALL}:
        rows = [row.component for row in ALL if type(row.component) is kind]
        here = {path for row in rows for path, role, _ in walk(row) if role == "run"}
        given = {path for row in rows for path in numbers(row)}
        assert here == given, f"{kind.__name__}: no row gives {here - given}"


@pytest.mark.parametrize("row", DATA, ids=name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_data_model_keeps_its_promises(row: Row, dtype: torch.dtype):
    try_data(varied(row.component), dtype)


@pytest.mark.parametrize("row", DATA, ids=name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_data_depends_on_the_run_alone(row: Row, dtype: torch.dtype):
    """Bit by bit; and fewer points are the first of more."""
    data: DataModel = row.component
    together = data.sample(Streams(RUNS), "train", 6, dtype)
    for run in range(3):
        alone = data.sample(Streams([RUNS[run]]), "train", 6, dtype)
        chosen = together.select(torch.tensor([run]))
        assert set(chosen.latent) == set(alone.latent)
        pairs = [(chosen.latent[part], alone.latent[part]) for part in alone.latent]
        for part in ("x", "y", "clean_y"):
            pairs.append((getattr(chosen, part), getattr(alone, part)))
        assert all(torch.equal(*pair) for pair in pairs)
    fewer = data.sample(Streams(RUNS), "train", 4, dtype)
    assert torch.equal(fewer.x, together.x[:, :4])
    assert torch.equal(fewer.clean_y, together.clean_y[:, :4])
    fresh = data.sample(Streams(RUNS), "test/0", 6, dtype)
    assert not torch.equal(fresh.x, together.x)
    assert torch.equal(fresh.y, fresh.clean_y), "labels of fresh points are not flipped"


@pytest.mark.parametrize("row", NETWORKS, ids=name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_network_keeps_its_promises(row: Row, dtype: torch.dtype):
    network: Network = row.component
    try_network(varied(network), data_of(network), dtype)
    assert network.cost(data_of(network)).weights > 0


@pytest.mark.parametrize("row", NETWORKS, ids=name)
def test_a_point_of_a_network_does_not_see_the_others(row: Row):
    network: Network = row.component
    data, streams = data_of(network), Streams(RUNS)
    x = data.sample(streams, "train", 6, torch.float64).x
    params = moved(network, network.initial_params(data, streams, torch.float64), streams)
    turned = network.forward(params, x.flip(1)).flip(1)
    close(network.forward(params, x), turned)
    close(network.forward(params, x[:, :2]), turned[:, :2])


@pytest.mark.parametrize("row", [*ATTACKS, *KNOWING], ids=name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_attack_keeps_its_promises(row: Row, dtype: torch.dtype):
    attack: Attack = row.component
    able = victims(attack)
    assert able
    for network, data in able if dtype == torch.float64 else able[:1]:
        try_attack(varied(attack)[:2], network, data, dtype)
    assert attack.passes() >= 0
    assert attack.stored_perturbations() > 0


@pytest.mark.parametrize("row", ATTACKS, ids=name)
@pytest.mark.parametrize("victim", NETWORKS, ids=name)
def test_an_attack_hurts(row: Row, victim: Row):
    attack, network = row.component, victim.component
    streams = Streams(RUNS)
    data = PICTURES if isinstance(network, PictureNetwork) else SIGNED
    sample = data.sample(streams, "train", 6, torch.float64)
    params = moved(network, network.initial_params(data, streams, torch.float64), streams)
    clean = network.forward(params, sample.x)
    y = sample.y if clean.ndim == 2 else (sample.y > 0).double()  # classes are counted from 0
    points = attacked(attack, network, params, data, sample.x, y)
    assert (margin(network.forward(params, points), y) < margin(clean, y)).all()
    assert attack.passes() > 0


# The checks bite: components that are wrong in one thing each.


class FirstRunsSize(DataModel):
    """Gives the number of run 0 to all runs."""

    size: PerRun[Positive] = default(1.0)

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        y = streams(f"{split}/labels").signs(count, dtype=dtype)
        x = streams(f"{split}/points").normal(count, self.tokens, self.dim, dtype=dtype)
        return Sample(x * float(torch.as_tensor(self.size).flatten()[0]), y, y)


class GloballyDrawn(DataModel):
    """Draws from torch's own generator."""

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        y = streams(f"{split}/labels").signs(count, dtype=dtype)
        x = torch.randn(len(streams), count, self.tokens, self.dim, dtype=dtype)
        return Sample(x, y, y)


class OneTokenMore(DataModel):
    """Gives points of another size than it says."""

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        y = streams(f"{split}/labels").signs(count, dtype=dtype)
        x = streams(f"{split}/x").normal(count, self.tokens + 1, self.dim, dtype=dtype)
        return Sample(x, y, y)


class SteepPass(LinearPass):
    def params_gradient(self, c: Tensor) -> Params:
        return {"u": 17 * super().params_gradient(c)["u"]}


class SteepLinear(Linear):
    """Its parameter gradient is 17 times too large."""

    def run(self, params: Params, x: Tensor) -> LinearPass:
        return SteepPass(params, x)


class ColumnOutput(Linear):
    """Gives outputs [runs, samples, 1] and says one a point."""

    def forward(self, params: Params, x: Tensor) -> Tensor:
        return super().forward(params, x)[..., None]

    def run(self, params: Params, x: Tensor) -> Pass:
        return Pass(self, params, x)


class AfraidAlone(PGD):
    """Does nothing to a run that is alone."""

    def perturb(self, target: Target) -> Points:
        return super().perturb(target) if len(target.x) > 1 else target.x.clone()


class Relabels(PGD):
    """Changes the labels of its target."""

    def perturb(self, target: Target) -> Points:
        target.y.neg_()
        return super().perturb(target)


class TooFar(PGD):
    """Leaves its ball."""

    def perturb(self, target: Target) -> Points:
        return target.x + 2 * (super().perturb(target) - target.x)


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        (FirstRunsSize(**SIZES), ("sample", "[runs]", "`x`")),
        (GloballyDrawn(**SIZES), ("sample", "torch", "generator", "streams")),
        (OneTokenMore(**SIZES), ("sample", "x", "[3, 4, 4, 5]", "[3, 4, 3, 5]")),
        (SteepLinear(init_std=0.5), ("run", "autograd", "`forward`", "gradient of u")),
        (ColumnOutput(init_std=0.5), ("run", "outputs", "[3, 4, 1]", "[3, 4]")),
        (AfraidAlone(ball=Ball(radius=0.3)), ("perturb", "[runs]", "`points`")),
        (Relabels(ball=Ball(radius=0.3)), ("perturb", "target", "`y`")),
        (TooFar(ball=Ball(radius=0.3)), ("perturb", "ball", "`threat`")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_wrong_components_are_refused(wrong: Any, parts: tuple[str, ...]):
    trial: Any = {DataModel: try_data, Network: try_network, Attack: try_attack}[wrong.family()]
    others = {DataModel: (), Network: (SIGNED,), Attack: VICTIMS[0]}[wrong.family()]
    with pytest.raises(ValueError, match=says(f"`{type(wrong).__name__}", *parts)):
        trial(varied(wrong), *others)
