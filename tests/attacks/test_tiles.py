"""Attacks in tiles: the same points in any company, and points that are wrong may leave."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from benign.attacks import gram, tiles
from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Balls
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.pgd import PGD
from benign.attacks.tiles import attacked_tiles, joined, outputs_in_tiles, tile_shape
from benign.data.images import Images
from benign.data.mixture import Mixture
from benign.data.model import DataModel
from benign.losses import margin
from benign.networks.network import Network
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.streams import Streams
from tests.reference import close, run_ids, small_data, small_network
from tests.registry import forgetting

NETWORKS: dict[str, tuple[Network, DataModel, float]] = {
    "attention": (small_network(score_std=0.4), small_data(dim=30), 0.8),
    "two heads": (small_network(score_std=0.4, heads=2), small_data(dim=30), 0.5),
    "two layers": (
        TwoLayer(width=8, preset="torch_default"),
        Mixture(samples=6, dim=30, signal=1.0),
        0.2,
    ),
    "classes": (
        PatchCNN(width=4, classes=3, threshold=1.0, init_std=0.1),
        Images(source="digits", samples=12, classes=(1, 7, 4)),
        0.3,
    ),
}
EACH = pytest.mark.parametrize("name", NETWORKS)


def block_of(
    name: str, split: str = "test/0", count: int = 60, runs: int = 3, dtype: Any = torch.float64
) -> Target:
    """Points that a network, after one step on them, gets partly right."""
    network, data, _ = NETWORKS[name]
    streams = Streams(run_ids(runs))
    params = network.initial_params(data, streams, dtype)
    train = data.sample(streams, "train", data.samples, dtype)
    here = network.run(params, train.x)
    slope = torch.ones_like(here.outputs) * (train.y if here.outputs.ndim == 2 else 1)
    for part, gradient in here.params_gradient(slope).items():
        params[part] += 0.02 * gradient
    sample = data.sample(streams, split, count, dtype)
    return Target(network, params, data, sample, streams.within(f"attack/{split}"))


def judge(name: str, **fields: Any) -> EnsembleAttack:
    ball = Ball(radius=NETWORKS[name][2], per="sample")
    also = PGD(ball=ball, steps=4, start="uniform")
    return EnsembleAttack(**({"ball": ball, "steps": 6, "restarts": 2, "also": also} | fields))


def margins_at(target: Target, points: Points) -> torch.Tensor:
    return margin(target.run(points).outputs, target.y)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of two slots of 16 points: several in every block, the last ones not full."""
    monkeypatch.setattr(tiles, "tile_shape", lambda target: (2, 16))


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_that_leave_change_no_sign_and_no_other_margin(name, dtype, small_tiles):
    """The points that stay have the margins that they have among all points.

    To the last bit, but where the CPU's product of a matrix and a vector rounds by the place of the row (`TwoLayer`).
    """
    blocks = [block_of(name, split, dtype=dtype) for split in ("test/0", "train")]
    attack = judge(name)
    whole, cut = attack.worst(blocks), attack.worst(blocks, signs_only=True)
    right = whole.margins > 0
    assert 0 < right.double().mean() < 1
    assert torch.equal(right, cut.margins > 0)
    close(cut.margins[right], whole.margins[right], 1e-6 if name == "two layers" else 0.0)
    assert whole.under_also is not None
    assert cut.under_also is not None
    assert torch.equal(whole.under_also, cut.under_also)
    assert cut.points is None


@EACH
def test_points_that_are_wrong_are_attacked_no_more(name, small_tiles, monkeypatch):
    target, attacked = block_of(name), []
    perturb = PGD.perturb

    def counting(attack: PGD, target: Target) -> Points:
        attacked.append(target.y.numel())
        return perturb(attack, target)

    monkeypatch.setattr(PGD, "perturb", counting)
    attack = judge(name, also=None)
    clean = margins_at(target, target.x)
    attack.worst([target], signs_only=True)
    slots = sum(-(-int(right) // 16) for right in (clean > 0).sum(1))
    assert attacked == [32] * -(-slots // 2)


@EACH
def test_tiles_find_what_the_whole_finds(name, small_tiles):
    target, attack = block_of(name), judge(name)
    points = attack.perturb(target)
    close(margins_at(target, points), attack.worst([target]).margins)
    close(outputs_in_tiles(target, points), target.run(points).outputs)
    pgd = PGD(ball=attack.ball.each()[0], steps=3, start="uniform")
    found = torch.zeros_like(target.x)
    for tile, part, _ in attacked_tiles(pgd, target):
        tile.write(found, part)
    close(found, pgd.perturb(target))


def test_blocks_attacked_together_have_the_starts_that_each_has(small_tiles):
    blocks = [
        block_of("attention", f"test/{number}", count) for number, count in enumerate((40, 24))
    ]
    attack = judge("attention")
    apart = torch.cat([attack.worst([block]).margins for block in blocks], dim=1)
    close(attack.worst(blocks).margins, apart)


def test_runs_of_different_radii_and_networks_keep_their_own(small_tiles):
    """A run in a tile of other runs is the run alone."""
    target = block_of("attention")
    radii = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    together = judge("attention", ball=Ball(radius=1.0), also=None)
    together = together.model_copy(
        update={"ball": Ball(radius=1.0).model_copy(update={"radius": radii})}
    )
    cut = together.worst([target], signs_only=True).margins > 0
    for run in range(3):
        one = replace(
            target,
            params={part: value[run : run + 1] for part, value in target.params.items()},
            sample=target.sample.select(torch.tensor([run])),
            streams=target.streams[run : run + 1],
        )
        alone = judge("attention", ball=Ball(radius=float(radii[run])), also=None)
        assert torch.equal(alone.worst([one]).margins[0] > 0, cut[run])


def test_an_attack_that_may_look_at_several_points_gets_whole_blocks(small_tiles):
    """A user's own attack, and one with several sets of points."""
    target, seen = block_of("attention"), []
    with forgetting():

        class Own(Attack):
            def perturb(self, target: Target) -> Points:
                seen.append(target.x.shape[1])
                return target.x

        judge("attention", also=Own()).worst(
            [target, block_of("attention", "test/1")], signs_only=True
        )
    assert seen == [60, 60]
    average = MultiNorm(balls=Balls(radius=0.8), combine="average")
    attack = judge("attention", also=average)
    sets = average.perturb(target).split(60, dim=1)
    lowest = torch.stack([margins_at(target, points) for points in sets]).amin(0)
    for signs_only in (False, True):
        assert (attack.worst([target], signs_only=signs_only).margins <= lowest.clamp_min(0)).all()
    assert attack.worst([target]).under_also is None


def test_an_output_that_is_no_number_stays_none():
    target = block_of("attention")
    target.params["weights"][1] = torch.nan
    for signs_only in (False, True):
        margins = judge("attention").worst([target], signs_only=signs_only).margins
        assert margins[1].isnan().all()
        assert not margins[[0, 2]].isnan().any()


def test_shapes_depend_on_sizes_alone():
    assert tile_shape(block_of("attention", count=20)) == (3, 20)
    assert tile_shape(block_of("attention", count=1000)) == (3, 250)
    wide = replace(
        block_of("attention"),
        sample=replace(block_of("attention").sample, x=torch.empty(3, 60, 5, 2000, device="meta")),
    )
    assert tile_shape(wide) == (1, 50)
    assert joined([wide]) is wide


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["attention", "two heads", "two layers"])
def test_points_that_leave_change_no_sign_on_a_gpu(name, small_tiles, monkeypatch):
    monkeypatch.setattr(gram, "pays", lambda *sizes: True)
    blocks = [on_gpu(block_of(name, f"test/{number}", dtype=torch.float32)) for number in range(2)]
    attack = judge(name)
    whole, cut = attack.worst(blocks), attack.worst(blocks, signs_only=True)
    right = whole.margins > 0
    assert torch.equal(right, cut.margins > 0)
    assert torch.equal(whole.margins[right], cut.margins[right])


def on_gpu(target: Target) -> Target:
    sample = target.sample
    return replace(
        target,
        params={part: value.cuda() for part, value in target.params.items()},
        sample=replace(
            sample, x=sample.x.cuda(), y=sample.y.cuda(), clean_y=sample.clean_y.cuda(), latent={}
        ),
        streams=Streams(target.streams.runs, "cuda", "attack/"),
    )
