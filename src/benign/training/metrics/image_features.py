"""Feature learning on images (Li appendix A): accuracy on images made of a reference's features, NRF-PGD, RF-PGD.

Two references belong to a run: networks of the same kind, trained in the same way on the same data model, one without
an attack and one with `FeatureTests.attack`.

- The references of a run, and the points made with them, depend on the root seed, the seed index, `data`, `network` and
  `training`; with `pairing: common` on root seed and seed index alone. They do not depend on the run's own attack or
  evaluation, so a standard and an adversarial run of a seed are tested on the same points.
- Each reference draws its own training images, order and initial weights (streams `reference/standard` and
  `reference/adversarial`), independent of the run's. Test images and starts (`reference/points`) are common to both.

The points are cached in this process for later runs that are tested on them. Every process makes the same points.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benign.attacks.attack import Target, repeated
from benign.attacks.feature_matching import (
    Represent,
    invert_features,
    match_features,
    representation,
    targeted_success,
)
from benign.data.images import Images
from benign.data.model import BLOCK, Sample
from benign.data.sources import part_on
from benign.losses import correct, margin
from benign.networks.network import Network, Params
from benign.spec import axes
from benign.spec.base import canonical, digest
from benign.streams import RunId, Streams
from benign.training.descent import Batch
from benign.training.feature_tests import FeatureTests
from benign.training.metrics.fresh_points import EvaluatedRuns
from benign.training.metrics.metric import PerRunValue, evaluation_metric
from benign.training.references import of_run, trained
from benign.training.setup import Evaluation, Setup

REFERENCES = {"standard": "non_robust", "adversarial": "robust"}
"""the two references, and the features that they show"""
ATTACKS = {"standard": "nrf", "adversarial": "rf"}
"""whose features NRF-PGD and RF-PGD match"""
PICTURE_KINDS = ("original", "non-robust", "robust")
"""an image, and the images made of its features"""
PICTURES = 8
"""images of a run that are stored as pictures"""
CACHED = 64
"""runs whose points are cached: as many as a unit of work has"""

ReferencePoints: TypeAlias = dict[str, Tensor]
"""test points and numbers of references by name, each with a leading runs axis (or of one run, without it)"""

_cache: OrderedDict[str, ReferencePoints] = OrderedDict()


def on_images(setup: Setup) -> bool:
    """Return whether reference networks are trained next to the runs."""
    return setup.evaluation.features is not None


def accuracy(runs: EvaluatedRuns, kind: str) -> PerRunValue:
    """Return the feature learning accuracy (Definition A.1) on the images made of this kind of features."""
    points = runs.once(reference_points)
    return _right(runs.setup.network, runs.batch.params, points[kind], points["y"]).mean(1)


def _references(setup: Setup) -> list[tuple[str]]:
    return [(kind,) for kind in REFERENCES]


def _pairs(setup: Setup) -> list[tuple[int, int]]:
    features = setup.evaluation.features
    return list(features.pairs) if features else []


@evaluation_metric(
    "|G(X^) - G(X)| / |G(X)| reached for the {} reference, mean",
    applies=on_images,
    only_at_end=True,
    variants=_references,
)
def inversion_distance(runs: EvaluatedRuns, kind: str) -> PerRunValue:
    return runs.once(reference_points)[f"inversion_distance_{kind}"]


@evaluation_metric(
    "accuracy of the {} reference on the images that are drawn anew",
    applies=on_images,
    only_at_end=True,
    variants=_references,
)
def reference_accuracy(runs: EvaluatedRuns, kind: str) -> PerRunValue:
    return runs.once(reference_points)[f"reference_accuracy_{kind}"]


@evaluation_metric(
    "accuracy of the {} reference on these images under the attack it was trained against",
    applies=on_images,
    only_at_end=True,
    variants=lambda setup: [("adversarial",)],
)
def reference_robust_accuracy(runs: EvaluatedRuns, kind: str) -> PerRunValue:
    return runs.once(reference_points)[f"reference_robust_accuracy_{kind}"]


@evaluation_metric(
    "accuracy of the {} reference on the images made of the features of the standard one",
    applies=on_images,
    only_at_end=True,
    variants=_references,
)
def non_robust_feature_accuracy_of(runs: EvaluatedRuns, kind: str) -> PerRunValue:
    return runs.once(reference_points)[f"non_robust_feature_accuracy_of_{kind}"]


@evaluation_metric(
    "accuracy of the {} reference on the images made of the features of the adversarial one",
    applies=on_images,
    only_at_end=True,
    variants=_references,
)
def robust_feature_accuracy_of(runs: EvaluatedRuns, kind: str) -> PerRunValue:
    return runs.once(reference_points)[f"robust_feature_accuracy_of_{kind}"]


@evaluation_metric(
    "share of test images of class {} that are classified as class {}",
    applies=on_images,
    only_at_end=True,
    variants=_pairs,
)
def confusion(runs: EvaluatedRuns, source: int, goal: int) -> PerRunValue:
    return _share_of_goal(runs, f"confusion_{source}_{goal}", goal)


@evaluation_metric(
    "share of test images of class {} that are classified as class {} under NRF-PGD",
    applies=on_images,
    only_at_end=True,
    variants=_pairs,
)
def nrf_success(runs: EvaluatedRuns, source: int, goal: int) -> PerRunValue:
    return _share_of_goal(runs, f"nrf_success_{source}_{goal}", goal)


@evaluation_metric(
    "share of test images of class {} that are classified as class {} under RF-PGD",
    applies=on_images,
    only_at_end=True,
    variants=_pairs,
)
def rf_success(runs: EvaluatedRuns, source: int, goal: int) -> PerRunValue:
    return _share_of_goal(runs, f"rf_success_{source}_{goal}", goal)


def _share_of_goal(runs: EvaluatedRuns, name: str, goal: int) -> PerRunValue:
    points = runs.once(reference_points)[name]
    goals = torch.full_like(points[:, :, 0, 0], float(goal))
    outputs = _outputs(runs.setup.network, runs.batch.params, points)
    return targeted_success(outputs, goals)


def picture_axes(setup: Setup) -> dict[str, tuple]:
    """Return the axes of the pictures of a run, with their coordinates."""
    features, shape = setup.evaluation.features, setup.data.picture_shape()
    assert features is not None
    assert shape is not None, "FeatureTests.check_against refuses other data"
    channels, rows, columns = shape
    return {
        "picture": tuple(range(min(PICTURES, features.samples))),
        "kind": PICTURE_KINDS,
        "channel": tuple(range(channels)),
        "row": tuple(range(rows)),
        "column": tuple(range(columns)),
    }


@evaluation_metric(
    "test images, and the images made of their features in each reference network",
    applies=on_images,
    only_at_end=True,
    axes=picture_axes,
)
def inversions(runs: EvaluatedRuns) -> Float[Tensor, "runs picture kind channel row column"]:
    points = runs.once(reference_points)
    first = torch.stack([points[kind][:, :PICTURES] for kind in ("x", *REFERENCES.values())], 2)
    return _images(runs.setup).pictures(first.flatten(1, 2)).unflatten(1, first.shape[1:3])


def reference_points(batch: Batch) -> ReferencePoints:
    """Return the points that the runs of a batch are tested on, from the cache or made now."""
    ids = [_reference_id(batch.setup, run, place) for place, run in enumerate(batch.streams.runs)]
    keys = [_key(batch, place, each) for place, each in enumerate(ids)]
    rows = {key: _cache[key] for key in keys if key in _cache}
    lacking = {key: keys.index(key) for key in keys if key not in rows}
    if lacking:
        places = list(lacking.values())
        streams = Streams([ids[place] for place in places], batch.streams.device)
        chosen = torch.tensor(places, device=batch.streams.device)
        made = _made(axes.select(batch.setup, chosen), streams)
        for row, key in enumerate(lacking):
            rows[key] = {name: part[row] for name, part in made.items()}
    for key, row in rows.items():
        _cache[key] = row
        _cache.move_to_end(key)
    while len(_cache) > CACHED:
        _cache.popitem(last=False)
    return {name: torch.stack([rows[key][name] for key in keys]) for name in rows[keys[0]]}


def _reference_id(setup: Setup, run: RunId, place: int) -> RunId:
    """Return the id by which the references of a run draw."""
    if setup.pairing == "common":
        return RunId(run.seed, run.index, "")
    cell = of_run(setup, place)
    parts = (cell.data, cell.network, cell.training)
    return RunId(run.seed, run.index, digest([part.identity() for part in parts]))


def reference_key(setup: Setup) -> str:
    """Return the text of everything that the references of a cell depend on, except the index of the seed."""
    parts = (setup.data, setup.network, setup.training, setup.evaluation.features)
    identities = [part.identity() for part in parts if part is not None]
    return canonical([identities, setup.precision, setup.root_seed, setup.pairing])


def _key(batch: Batch, place: int, reference: RunId) -> str:
    """Return the key of the points of a run in the cache: the text of everything that they depend on."""
    cell, device = of_run(batch.setup, place), str(batch.streams.device)
    return canonical([reference_key(cell), device, reference.index, reference.cell])


def _made(setup: Setup, streams: Streams) -> ReferencePoints:
    """Train the references of runs and make their points."""
    tests, data = setup.evaluation.features, _images(setup)
    assert tests is not None
    points = streams.within("reference/points")
    sample = data.sample(points, "test/0", tests.samples, setup.dtype)
    begin = _begin(tests, sample, points)
    made, references = {"x": sample.x, "y": sample.y}, {}
    for kind, features in REFERENCES.items():
        attack = tests.attack if kind == "adversarial" else None
        reference = axes.replace(setup, {("attack",): attack, ("evaluation",): Evaluation()})
        params, finite = trained(reference, streams.within(f"reference/{kind}"))
        references[kind] = params
        represent = _exactly(representation(setup.network, params))
        images, distance = _inverted(represent, sample.x, begin, tests)
        made[features] = _blanked(images, finite)
        made[f"inversion_distance_{kind}"] = _blanked(distance.double().mean(1), finite)
        made |= _reference_numbers(reference, params, sample, points, kind)
        for name, (x, moved) in _matched(setup, points, represent):
            made[f"confusion_{name}"] = x
            made[f"{ATTACKS[kind]}_success_{name}"] = _blanked(moved, finite)
    for kind, params in references.items():
        for features in REFERENCES.values():
            right = _right(setup.network, params, made[features], sample.y)
            made[f"{features}_feature_accuracy_of_{kind}"] = right.mean(1)
    return made


def _exactly(represent: Represent) -> Represent:
    """Return the same without bfloat16, whose rounding would make the search for an image stop early."""

    def full(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return represent(x)

    return full


def _begin(tests: FeatureTests, sample: Sample, points: Streams) -> Tensor:
    """Return the first points of the search for images, which do not depend on the images."""
    if tests.start == "image":
        return sample.x.roll(1, 1)
    low, high = tests.box
    return points("start").uniform(*sample.x.shape[1:], dtype=sample.x.dtype) * (high - low) + low


def _inverted(
    represent: Represent, x: Tensor, begin: Tensor, tests: FeatureTests
) -> tuple[Tensor, Tensor]:
    """Return points X^ whose features are near those of x, and the distances of the features."""
    pairs = [
        invert_features(represent, represent(goal), first, tests.steps, tests.step, tests.box)
        for goal, first in zip(x.split(BLOCK, 1), begin.split(BLOCK, 1), strict=True)
    ]
    points, distances = zip(*pairs, strict=True)
    return torch.cat(points, 1), torch.cat(distances, 1)


def _reference_numbers(
    setup: Setup, params: Params, sample: Sample, points: Streams, kind: str
) -> Iterator[tuple[str, Tensor]]:
    """Yield the accuracies of a reference: its features mean little if it has learned nothing."""
    right = _right(setup.network, params, sample.x, sample.y)
    yield f"reference_accuracy_{kind}", right.mean(1)
    if setup.attack is not None:
        robust = []
        everyone = torch.arange(sample.y.shape[1], device=sample.y.device).expand_as(sample.y)
        for number, places in enumerate(everyone.split(BLOCK, 1)):
            draws = points.within(f"attack/{number}")
            target = Target(setup.network, params, setup.data, sample.points(places), draws)
            attacked = setup.attack.perturb(target)
            y = repeated(target.y, attacked)
            robust.append(_right(setup.network, params, attacked, y))
        yield f"reference_robust_accuracy_{kind}", torch.cat(robust, 1).mean(1)


def _matched(
    setup: Setup, points: Streams, represent: Represent
) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Yield, for every pair of classes, images of the first, and the same moved towards features of the second."""
    tests = setup.evaluation.features
    assert tests is not None
    ball = tests.matching_ball()
    for source, goal in tests.pairs:
        name = f"{source}_{goal}"
        x = _of_class(setup, points.within(f"{name}/source"), source)
        goals = _of_class(setup, points.within(f"{name}/goal"), goal)
        goals = goals[:, torch.arange(x.shape[1], device=x.device) % goals.shape[1]]
        assert ball is not None
        moved = [
            match_features(represent, *each, ball, tests.matching_steps, tests.matching_step)
            for each in zip(x.split(BLOCK, 1), goals.split(BLOCK, 1), strict=True)
        ]
        yield name, (x, torch.cat(moved, 1))


def _of_class(setup: Setup, streams: Streams, label: int) -> Tensor:
    """Return test images of one class in random order: all of them, but at most as many as are made."""
    data, tests = _images(setup), setup.evaluation.features
    assert tests is not None
    chosen = data.classes[label] if data.classes else label
    count = int((part_on(data.source, "test", str(streams.device)).labels == chosen).sum())
    only = {("classes",): (chosen,), ("labels",): "classes", ("balanced",): False}
    model = axes.replace(data, only)
    return model.sample(streams, "test/0", min(count, tests.samples), setup.dtype).x


def _images(setup: Setup) -> Images:
    assert isinstance(setup.data, Images), "FeatureTests.check_against refuses other data"
    return setup.data


def _outputs(network: Network, params: Params, points: Tensor) -> Tensor:
    return torch.cat([network.run(params, part).outputs for part in points.split(BLOCK, 1)], 1)


def _right(
    network: Network, params: Params, points: Tensor, y: Tensor
) -> Float[Tensor, "runs samples"]:
    """Return 1 where a point is classified rightly; a tie is an error."""
    return correct(margin(_outputs(network, params, points).double(), y.double()))


def _blanked(part: Tensor, finite: Bool[Tensor, " runs"]) -> Tensor:
    """Return the part with NaN in the runs whose reference diverged."""
    keep = finite.reshape(-1, *[1] * (part.ndim - 1))
    return part.where(keep, torch.nan)
