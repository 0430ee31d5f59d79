"""A recorded attack trains the same runs, though every step writes over the one before."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from benign.attacks.apgd import APGD
from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.data.images import Images
from benign.networks.attention import Attention
from benign.networks.network import Network
from benign.networks.resnet import ResNet
from benign.networks.vision_transformer import VisionTransformer
from benign.training.engine import train_runs
from benign.training.fast import recording
from benign.training.fast.recording import can_record
from benign.training.optimisers import AdamW, GradientDescent
from benign.training.setup import Evaluation, Setup
from tests.reference import run_ids, small_network, small_pgd, small_setup
from tests.training.test_engine import assert_same, different_runs


class Replay:
    """Does what a CUDA graph does: computes again, into the memory of the first time."""

    def __init__(self, make: Callable[[], Any]):
        self.make, self.made = make, make()

    def replay(self) -> None:
        for mine, new in zip(tensors(self.made), tensors(self.make()), strict=True):
            mine.copy_(new)


def tensors(made: Any) -> list[Tensor]:
    """The tensors of points with their pass, or of gradients."""
    if isinstance(made, dict):
        return list(made.values())
    points, output = made
    return [points, *(part for part in vars(output).values() if isinstance(part, Tensor))]


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Replay]:
    """Recordings on the CPU, by `Replay`."""
    made: list[Replay] = []

    def recorded(make: Callable[[], Any]) -> tuple[Replay, Any]:
        made.append(Replay(make))
        return made[-1], made[-1].made

    monkeypatch.setattr(recording, "recorded", recorded)
    monkeypatch.setattr(recording, "can_record", lambda *_: True)
    return made


def test_writing_over_the_last_step_changes_nothing(monkeypatch, replays):
    cells = different_runs(attacked=True)
    with monkeypatch.context() as without:
        without.setattr(recording, "WARM_UP", 10**9)
        expected = train_runs(cells, run_ids(5))
    assert not replays
    assert_same(train_runs(cells, run_ids(5)), expected)
    assert len(replays) > 1  # one for each batch that lasts
    sizes = [len(each.made[0]) for each in replays]
    assert sizes == sorted(sizes, reverse=True)


def test_a_batch_that_soon_changes_is_not_recorded(replays):
    cell = small_setup(attack=small_pgd(), max_steps=recording.WARM_UP - 1)
    train_runs([cell], run_ids(1))
    assert not replays


@pytest.mark.gpu
@pytest.mark.parametrize("p", [2, "inf"])
def test_a_gpu_replays_the_same_steps(p, monkeypatch):
    ball = Ball(p=p, radius=0.1)
    cells = [
        small_setup(network=small_network(hidden=8), attack=PGD(ball=ball), rate=rate, max_steps=30)
        for rate in (0.5, 1.0)
    ]
    recorded = train_runs(cells, run_ids(2), "cuda")
    monkeypatch.setattr(recording, "WARM_UP", 10**9)
    assert_same(recorded, train_runs(cells, run_ids(2), "cuda"))


class OnGpu(Tensor):
    """Says that it is there; this machine may have none."""

    is_cuda = property(lambda self: True)  # pyright: ignore[reportAssignmentType]


class Derived(Attention):
    """May do anything with values."""


THERE = torch.zeros(1, 1, 1, 1).as_subclass(OnGpu)
PLAIN = PGD(ball=Ball(radius=0.1))


def network(of: type[Attention] = Attention) -> Network:
    return of(hidden=2, init=small_network().init)


def test_plain_ascents_are_recorded_only_on_a_gpu():
    assert can_record(PLAIN, network(), THERE)
    assert can_record(PGD(ball=Ball(p="inf", radius=0.1), keep="best"), network(), THERE)
    assert can_record(PGD(ball=Ball(p="inf", radius=0.1, box=(0.0, 1.0))), network(), THERE)
    assert can_record(APGD(ball=Ball(radius=0.1)), network(), THERE)
    assert can_record(None, network(), THERE)
    assert not can_record(PLAIN, network(), torch.zeros(1, 1, 1, 1))


@pytest.mark.parametrize(
    "attack",
    [
        PGD(ball=Ball(radius=0.1), start="uniform"),
        PGD(ball=Ball(radius=0.1), restarts=2),
        APGD(ball=Ball(radius=0.1), restarts=2),
        APGD(ball=Ball(radius=0.1), start="uniform"),
        APGD(ball=Ball(p=1, radius=0.1)),
        PGD(ball=Ball(radius=0.1), stop_when_wrong=True),
        PGD(ball=Ball(p=1, radius=0.1)),
        PGD(ball=Ball(radius=0.1, box=(0.0, 1.0))),
    ],
    ids=lambda attack: attack.label(),
)
def test_what_draws_or_decides_by_values_is_not(attack):
    assert not can_record(attack, network(), THERE)


def test_a_class_answers_for_itself():
    assert not can_record(PLAIN, network(Derived), THERE)


class Cycle:
    """An object that only a collection deletes."""

    def __init__(self):
        self.itself = self


def test_collections_are_quick_where_steps_are_recorded_and_delete_what_is_new():
    old = Cycle()
    gone = weakref.ref(old)
    with recording.quick_collections("cuda"):
        frozen = gc.get_freeze_count()
        with recording.quick_collections("cuda"):
            new = weakref.ref(Cycle())
            # A frozen object may be deleted meanwhile, but the inner block freezes none.
            assert frozen >= gc.get_freeze_count() > 10_000
        del old
        gc.collect()
        assert new() is None
        assert gone() is not None
    gc.collect()
    assert gone() is None
    assert gc.get_freeze_count() == 0
    with recording.quick_collections("cpu"):
        assert gc.get_freeze_count() == 0


CUBE = Ball(p="inf", radius=0.05, per="sample", box=(0.0, 1.0))
ATTACKS = [
    None,
    PGD(ball=Ball(radius=0.05), steps=3),
    APGD(ball=Ball(radius=0.05), steps=5),
    PGD(ball=CUBE),
]
NETWORKS = [
    (VisionTransformer(classes=10, hidden=8, heads=2, mlp=8), 16),
    (ResNet(channels=1, classes=10, width=4, blocks=(1, 1)), 1),
]
TRAININGS = [
    GradientDescent(rate=0.1, max_steps=12, stop_loss=0.0),
    AdamW(rate=0.01, epochs=4, batch=10, stop_loss=0.0),
]


@pytest.mark.filterwarnings(
    "ignore:Attempting to run cuBLAS"
)  # torch 2.11, at its first backward pass
@pytest.mark.gpu
@pytest.mark.parametrize("training", TRAININGS, ids=lambda training: training.kind)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.label() if attack else "none")
@pytest.mark.parametrize(("network", "tokens"), NETWORKS, ids=["vit", "resnet"])
def test_a_gpu_replays_autograd(training, attack, network, tokens, monkeypatch):
    """The gradient in the weights is recorded as well, and mini-batches take each other's place. Signs of gradients
    near 0 turn with their rounding."""
    cell = Setup(
        data=Images(source="digits", samples=40, tokens=tokens),
        network=network,
        attack=attack,
        training=training,
        evaluation=Evaluation(samples=20, attack=small_pgd()),
    )
    recorded = train_runs([cell] * 2, run_ids(2), "cuda")
    monkeypatch.setattr(recording, "WARM_UP", 10**9)
    plain = train_runs([cell] * 2, run_ids(2), "cuda")
    for name in ("train_loss", "test_loss", "train_loss_curve"):
        torch.testing.assert_close(
            *(torch.as_tensor(each[name]) for each in (recorded, plain)), rtol=2e-2, atol=2e-2
        )
