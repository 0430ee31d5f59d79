"""Attacks of many points in tiles of one fixed shape.

A tile has slots, and each slot some points of one run. All tiles of a batch have the same shape, whichever points are
in them: so the result of a point does not depend, to the last bit, on the points that left before (products of other
shapes round differently). Small tiles stay in the cache of a CPU: see `tile_shape`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from benign.attacks.attack import Attack, Points, Target
from benign.attacks.balls import Ball, Units
from benign.data.model import Sample
from benign.losses import Outputs, margin
from benign.spec import axes
from benign.spec.registry import has_guarantee

SIZES = (250, 125, 50)
"""points of a slot; each divides the one before, so that tiles cut short a block nowhere"""
NUMBERS, NUMBERS_ON_GPU = 2**18, 2**27
"""numbers of a tensor of a tile, at most if the smallest slot allows it. The test of a unit of zhang/fig1 took 5.6 s at
2^24 on an H200, 4.7 with 2^25, 3.9 with 2^26, 3.7 with 2^27: smaller tiles wait for launches, larger ones fill up less.
On a CPU a tile of one run and 50 points of 16 tokens took 0.89 of the time of 250 points."""

Margins = Float[Tensor, "runs samples"]


def tile_shape(target: Target) -> tuple[int, int]:
    """Return how many slots a tile has, and how many points a slot."""
    runs, samples, tokens, dim = target.x.shape
    numbers = tokens * max(dim, target.network.cost(target.data).columns)
    most = NUMBERS_ON_GPU if target.x.is_cuda else NUMBERS
    points = next((size for size in SIZES if runs * size * numbers <= most), SIZES[-1])
    slots = max(1, most // (points * numbers))
    return min(runs, slots), min(points, samples)


@dataclass(frozen=True)
class Tile:
    """The points of some slots, as a target of their own."""

    target: Target
    runs: Int64[Tensor, "slots 1"]
    places: Int64[Tensor, "slots points"]

    def of(
        self, values: Float[Tensor, "runs samples *axes"]
    ) -> Float[Tensor, "slots points *axes"]:
        """Return the values of the tile's points."""
        return values[self.runs, self.places]

    def write(self, values: Tensor, part: Tensor) -> None:
        """Write values of the tile's points. Points that fill up a tile are written again, with equal values."""
        values[self.runs, self.places] = part


@dataclass(frozen=True)
class _TileTarget(Target):
    """Points of some slots; random starts are those of their blocks, drawn for all points."""

    starts: "_Starts"
    runs: Int64[Tensor, "slots 1"]
    places: Int64[Tensor, "slots points"]

    def uniform(self, ball: Ball, radius: Units, part: str) -> Points:
        return self.starts.draw(part)[self.runs, self.places]


@dataclass(frozen=True)
class _Starts:
    """The random starts of an attack on all points of a target, each drawn once."""

    target: Target
    attack: Attack | None
    drawn: dict[str, Points] = field(default_factory=dict)

    def draw(self, part: str) -> Points:
        if part not in self.drawn:
            ball, target = getattr(self.attack, "ball"), self.target  # noqa: B009
            self.drawn[part] = target.uniform(ball, ball.radii(target.data, target.x), part)
        return self.drawn[part]


@dataclass(frozen=True)
class _JoinedTarget(Target):
    """The points of several blocks in a row; random starts are those of each block."""

    blocks: Sequence[Target]

    def uniform(self, ball: Ball, radius: Units, part: str) -> Points:
        starts = [
            block.uniform(ball, ball.radii(block.data, block.x), part) for block in self.blocks
        ]
        return torch.cat(starts, dim=1)


def joined(blocks: Sequence[Target]) -> Target:
    """Return the points of several blocks as one target for attacks by point."""
    first, samples = blocks[0], [block.sample for block in blocks]
    if len(blocks) == 1:
        return first
    x, y, clean_y = (
        torch.cat([getattr(each, name) for each in samples], dim=1)
        for name in ("x", "y", "clean_y")
    )
    sample = Sample(x, y, clean_y)
    return _JoinedTarget(
        first.network, first.params, first.data, sample, first.streams, tuple(blocks)
    )


def blocks_of(target: Target) -> Sequence[Target]:
    """Return the blocks of a joined target, or the target itself."""
    return target.blocks if isinstance(target, _JoinedTarget) else (target,)


def by_point(attack: Attack) -> bool:
    """Return whether points may be attacked in tiles: one by one, with random starts in the attack's `ball` alone."""
    return has_guarantee(attack, "separate_points") and has_guarantee(attack, "ball_starts")


def attacked_tiles(
    attack: Attack | None, target: Target, chosen: Bool[Tensor, "runs samples"] | None = None
) -> Iterator[tuple[Tile, Points, Margins]]:
    """Attack the chosen points, or all of them, tile by tile; yield tiles, attacked points and margins.

    Without an attack the points are the clean ones.
    """
    for tile, of_tile in _tiles(attack, target, chosen):
        found = tile.target.x if of_tile is None else of_tile.perturb(tile.target)
        yield tile, found, margin(tile.target.run(found).outputs, tile.target.y)


def outputs_in_tiles(target: Target, points: Points) -> Outputs:
    """Return the outputs on attacked points, one for each point of the target."""
    outputs: Tensor | None = None
    for tile, _ in _tiles(None, target, None):
        part = tile.target.run(tile.of(points)).outputs
        if outputs is None:
            outputs = part.new_empty(*points.shape[:2], *part.shape[2:])
        tile.write(outputs, part)
    assert outputs is not None
    return outputs


def _tiles(
    attack: Attack | None, target: Target, chosen: Bool[Tensor, "runs samples"] | None
) -> Iterator[tuple[Tile, Attack | None]]:
    """Yield tiles of the chosen points, or of all, each with the attack on its slots."""
    slots, points = tile_shape(target)
    if chosen is None:
        chosen = torch.ones_like(target.y, dtype=torch.bool)
    runs, places = _slots(chosen, points)
    everyone, starts = torch.arange(len(target.y)), _Starts(target, attack)
    for begin in range(0, len(runs), slots):
        rows = torch.arange(begin, begin + slots).clamp_max_(len(runs) - 1)
        whole = torch.equal(runs[rows], everyone)
        tile = _tile(target, starts, runs[rows], places[rows], whole)
        yield tile, attack if attack is None or whole else axes.select(attack, tile.runs[:, 0])


def _slots(
    chosen: Bool[Tensor, "runs samples"], points: int
) -> tuple[Int64[Tensor, " slots"], Int64[Tensor, "slots points"]]:
    """Return the run and the points of every slot, on the CPU; a slot that is not full repeats its first point.

    First come the first slots of all runs, then their second ones.
    """
    chosen = chosen.cpu()
    order, counts = (~chosen).byte().argsort(dim=1, stable=True), chosen.sum(1)
    runs, places = [], []
    for begin in range(0, int(counts.max()), points):
        some = (counts > begin).nonzero()[:, 0]
        number = torch.arange(begin, begin + points).expand(len(some), -1)
        number = torch.where(number < counts[some, None], number, begin)
        runs.append(some)
        places.append(order[some].gather(1, number))
    if not runs:
        return counts[:0], order[:0, :points]
    return torch.cat(runs), torch.cat(places)


def _tile(target: Target, starts: _Starts, runs: Tensor, places: Tensor, whole: bool) -> Tile:
    """Return the tile of these slots; `whole`: they are those of all runs, in their order."""
    device, sample = target.x.device, target.sample
    runs, places = runs.to(device), places.to(device)
    column = runs[:, None]
    network, data, params = target.network, target.data, target.params
    if not whole:
        network, data = axes.select(network, runs), axes.select(data, runs)
        params = {name: part[runs] for name, part in params.items()}
    x, y, clean_y = (part[column, places] for part in (sample.x, sample.y, sample.clean_y))
    points = Sample(x, y, clean_y)
    of_tile = _TileTarget(network, params, data, points, target.streams, starts, column, places)
    return Tile(of_tile, column, places)
