"""Feature learning on images: references of their own, images from their features, NRF-PGD and RF-PGD, pictures."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import benign as bo
from benign.attacks.balls import Ball, Balls
from benign.attacks.feature_matching import invert_features, match_features, representation
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.pgd import PGD
from benign.data.images import Images
from benign.data.sources import image_set
from benign.experiment import Experiment
from benign.losses import correct, margin
from benign.networks.patch_cnn import PatchCNN
from benign.spec.axes import replace
from benign.spec.base import SpecError
from benign.streams import Streams
from benign.sweep.dataset import _described
from benign.sweep.export import export, table
from benign.sweep.plan import runs_of
from benign.training.descent import Batch, Status, descend
from benign.training.feature_tests import FeatureTests
from benign.training.machine import check_data
from benign.training.metrics import image_features as features
from benign.training.metrics import variables
from benign.training.metrics.evaluation import measure
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup
from tests.reference import close, small_setup, start
from tests.says import says

BALL = Ball(p="inf", radius=0.1, per="sample", box=(0.0, 1.0))
ATTACK = PGD(ball=BALL, steps=2, step=0.6)
NUMBERS = ("inversion_distance", "reference_accuracy")


@pytest.fixture(autouse=True)
def nothing_kept():
    """No test is asked with the points of another."""
    features._cache.clear()
    yield
    features._cache.clear()


def setup(own: Any = None, rate: float = 0.05, at: Any = "end", **asked: Any) -> Setup:
    """A patch network on 40 images of three digits, three steps, in float64."""
    settings = {"attack": ATTACK, "samples": 12, "steps": 5, "pairs": ((0, 1), (2, 0))}
    settings |= {"matching_steps": 3} | asked
    return Setup(
        data=Images(source="digits", samples=40, classes=(1, 7, 4)),
        network=PatchCNN(width=4, classes=3, threshold=1.0, init_std=0.1),
        attack=own,
        training=GradientDescent(rate=rate, stop_loss=0.0, max_steps=3),
        evaluation=Evaluation(
            samples=10, attack=ATTACK, at=at, features=FeatureTests(**settings)
        ),
        precision="float64",
    )  # fmt: skip


def batch_of(*cells: Setup, seeds: int = 1) -> Batch:
    """The runs of an experiment of each cell, before their first step."""
    runs = [
        run
        for cell in cells
        for run in runs_of(Experiment.from_dict({**cell.as_dict(), "seeds": seeds}))
    ]
    return start([run.cell for run in runs], [run.id for run in runs])


def trained(cell: Setup, batch: Batch, kind: str) -> dict[str, torch.Tensor]:
    """A reference of the first run, trained by hand with its own streams."""
    run = batch.streams.runs[0]
    own = Streams([features._reference_id(batch.setup, run, 0)]).within(f"reference/{kind}")
    attack = ATTACK if kind == "adversarial" else None
    plain = Setup(
        data=cell.data,
        network=cell.network,
        attack=attack,
        training=cell.training,
        evaluation=Evaluation(samples=10),
        precision="float64",
    )
    params: dict[str, torch.Tensor] = {}
    for step, _ in descend(Batch.start(plain, own)):
        params = {name: part.clone() for name, part in step.batch.params.items()}
    return params


@pytest.mark.parametrize("begin", ["noise", "image"])
def test_points_are_those_of_the_definition(begin):
    """Every point, distance and number against the definitions of Li appendix A, one reference after the other."""
    cell = setup(start=begin)
    batch = batch_of(cell)
    shown = features.reference_points(batch)
    identity = features._reference_id(batch.setup, batch.streams.runs[0], 0)
    points = Streams([identity]).within("reference/points")
    sample = cell.data.sample(points, "test/0", 12, torch.float64)
    close(shown["x"], sample.x)
    first = points("start").uniform(12, 1, 64)
    if begin == "image":
        first = torch.stack([sample.x[:, (i - 1) % 12] for i in range(12)], 1)
    for kind, part in (("standard", "non_robust"), ("adversarial", "robust")):
        params = trained(cell, batch, kind)
        represent = representation(cell.network, params)
        found = invert_features(represent, represent(sample.x), first, 5, 0.1, (0.0, 1.0))
        close(shown[part], found.points)
        close(shown[f"inversion_distance_{kind}"], found.distance.mean(1))
        for x, name in (
            (sample.x, f"reference_accuracy_{kind}"),
            (shown["non_robust"], f"non_robust_feature_accuracy_of_{kind}"),
            (shown["robust"], f"robust_feature_accuracy_of_{kind}"),
        ):
            right = cell.network.forward(params, x).argmax(2) == sample.y
            assert float(shown[name]) == float(right.double().mean())


def test_targeted_attacks_are_those_of_the_definition():
    """Images of class 7 (label 1) under RF-PGD go to features of class 1; compared with the confusion without it."""
    # a start from which both confusions are above 0
    cell = replace(setup(pairs=((1, 0),), matching_steps=7, matching_step=0.3), {("root_seed",): 1})
    batch = batch_of(cell)
    shown = features.reference_points(batch)
    identity = features._reference_id(batch.setup, batch.streams.runs[0], 0)
    points = Streams([identity]).within("reference/points")
    x, goal = (
        replace(cell.data, {("classes",): (digit,)})
        .sample(points.within(f"1_0/{part}"), "test/0", 12, torch.float64)
        .x
        for digit, part in ((7, "source"), (1, "goal"))
    )
    represent = representation(cell.network, trained(cell, batch, "adversarial"))
    moved = match_features(represent, x, goal, BALL, 7, 0.3)
    close(shown["rf_success_1_0"], moved)
    assert 0.05 < (moved - x).abs().max() <= 0.1 + 1e-12
    values = measure(batch, None, at_end=True)
    for name, at in (("rf_success_1_0", moved), ("confusion_1_0", x)):
        outputs = cell.network.forward(batch.params, at)
        close(values[name], (outputs.argmax(2) == 0).double().mean(1))


def test_more_images_of_the_source_than_of_the_target_use_these_again():
    """All test images of a class at most; goals are used in turn."""
    cell = setup(samples=250, steps=1, pairs=((0, 2), (2, 0)), matching_steps=1)
    shown = features.reference_points(batch_of(replace(cell, {("data", "classes"): None} | _ten())))
    digits = {name: part.shape[1] for name, part in shown.items() if name.startswith("confusion")}
    labels = image_set("digits").test.labels
    assert digits == {
        "confusion_0_2": int((labels == 0).sum()),
        "confusion_2_0": int((labels == 2).sum()),
    }


def _ten() -> dict[tuple[str, ...], Any]:
    return {("network", "classes"): 10}


def test_runs_of_a_seed_are_tested_on_the_same_points_made_once(monkeypatch):
    """Their own attack changes nothing; a seed, a rate and the run's own draws do."""
    trainings = []
    real = features.trained

    def counted(cell, streams):
        trainings.append(len(streams))
        return real(cell, streams)

    monkeypatch.setattr(features, "trained", counted)
    standard, adversarial = setup(), setup(own=ATTACK)
    first = features.reference_points(batch_of(standard, seeds=2))
    assert trainings == [2, 2]
    second = features.reference_points(batch_of(adversarial, seeds=2))
    assert trainings == [2, 2]
    for name in first:
        assert torch.equal(first[name], second[name]), name
    assert not torch.equal(first["x"][0], first["x"][1])
    other = features.reference_points(batch_of(setup(rate=0.1)))
    assert trainings == [2, 2, 1, 1]
    assert not torch.equal(first["non_robust"][0], other["non_robust"][0])


def test_runs_of_one_batch_share_points_too():
    """A radius of 0 and one of 0.1 in one batch: two runs, one training of each reference."""
    cells = [setup(own=PGD(ball=replace(BALL, {("radius",): r}), steps=2)) for r in (0.0, 0.1)]
    batch = batch_of(*cells)
    shown = features.reference_points(batch)
    assert len(features._cache) == 1
    for part in shown.values():
        assert torch.equal(part[0], part[1])


def test_points_do_not_depend_on_the_batch():
    """Seeds together, and the second alone."""
    together = features.reference_points(batch_of(setup(), seeds=2))
    features._cache.clear()
    both = batch_of(setup(), seeds=2)
    alone = features.reference_points(both.select(torch.tensor([False, True])))
    for name, part in alone.items():
        assert torch.allclose(part[0], together[name][1], rtol=0, atol=1e-10), name


def test_references_share_nothing_with_the_run():
    """Neither training images nor weights; with common pairing neither."""
    for pairing in ("independent", "common"):
        cell = replace(setup(), {("pairing",): pairing})
        batch = batch_of(cell)
        identity = features._reference_id(batch.setup, batch.streams.runs[0], 0)
        drawn = [batch.sample.latent["image"]]
        weights = [batch.params["weights"]]
        for kind in features.REFERENCES:
            own = Batch.start(batch.setup, Streams([identity]).within(f"reference/{kind}"))
            drawn.append(own.sample.latent["image"])
            weights.append(own.params["weights"])
        for i in range(3):
            for j in range(i):
                assert not torch.equal(drawn[i], drawn[j])
                assert (weights[i] - weights[j]).abs().min() > 0


def test_the_cache_holds_only_so_many_runs(monkeypatch):
    monkeypatch.setattr(features, "CACHED", 2)
    batch = batch_of(setup(steps=1, pairs=()), seeds=3)
    shown = features.reference_points(batch)
    assert len(shown["y"]) == 3
    assert len(features._cache) == 2


def test_ties_are_errors():
    """A network of zeros gives every class the same output: no image is classified rightly, none as its goal."""
    batch = batch_of(setup())
    for part in batch.params.values():
        part.zero_()
    values = measure(batch, None, at_end=True)
    named = ["robust_feature_accuracy", "non_robust_feature_accuracy", "nrf_success_0_1"]
    assert [float(values[name]) for name in named] == [0.0, 0.0, 0.0]
    outputs = torch.zeros(1, 4, 3)
    assert correct(margin(outputs, torch.zeros(1, 4))).sum() == 0


def test_a_reference_that_diverged_shows_nothing(monkeypatch):
    """NaN for what was asked with it; the confusion without an attack needs no reference."""
    real = features.trained

    def diverging(cell, streams):
        params, sound = real(cell, streams)
        return params, torch.full_like(sound, cell.attack is None)

    monkeypatch.setattr(features, "trained", diverging)
    values = measure(batch_of(setup()), None, at_end=True)
    lost = {name for name, value in values.items() if value.isnan().any()}
    assert lost == {
        "robust_feature_accuracy", "inversion_distance_adversarial", "rf_success_0_1", "rf_success_2_0",
        "robust_feature_accuracy_of_standard", "robust_feature_accuracy_of_adversarial", "inversions",
    }  # fmt: skip


def test_references_from_infinite_weights_have_diverged():
    """The status of a reference's own training counts."""
    cell = replace(setup(), {("network", "init_std"): 1e308})
    values = measure(batch_of(cell), None, at_end=True)
    assert values["non_robust_feature_accuracy"].isnan().all()
    assert values["reference_accuracy_standard"].isnan().all()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two radii, two seeds, tested along training."""
    features._cache.clear()
    attack = PGD(ball=replace(BALL, {("radius",): 0.1}), steps=2)
    fields = setup(own=attack, at="snapshots").as_dict() | {"seeds": 2, "precision": "float32"}
    fields["attack"]["ball"]["radius"] = [0.0, 0.1]
    folder = tmp_path_factory.mktemp("features") / "run"
    return Experiment.from_dict(fields).run(folder), folder


def test_a_result_has_every_number_and_pictures(finished):
    result, _ = finished
    assert (result.status == Status.STEP_CAP).all()
    for kind in ("standard", "adversarial"):
        for name in NUMBERS:
            assert result[f"{name}_{kind}"].dims == ("radius", "seed")
            values = result[f"{name}_{kind}"]
            assert (values.sel(radius=0.0) == values.sel(radius=0.1)).all()
    for name in ("robust_feature_accuracy", "non_robust_feature_accuracy"):
        assert result[f"{name}_curve"].dims == ("radius", "seed", "step")
        last = result[f"{name}_curve"].sel(step=3)
        assert np.array_equal(last.values, result[name].values)
    pictures = result["inversions"]
    assert pictures.dims[2:] == ("picture", "kind", "channel", "row", "column")
    assert (pictures.shape, pictures.dtype) == ((2, 2, 8, 3, 1, 8, 8), np.float32)
    assert list(pictures["kind"].values) == ["original", "non-robust", "robust"]
    assert 0 <= float(pictures.min()) < float(pictures.max()) <= 1
    originals = pictures.sel(kind="original").values.reshape(-1, 64)
    known = image_set("digits").test.images.flatten(1).numpy() / 255
    for each in originals:
        assert np.abs(known - each).max(1).min() < 1e-6


def test_pictures_survive_pack_merge_and_export(finished, tmp_path):
    result, folder = finished
    bo.pack(folder, tmp_path / "one.pack")
    bo.merge(tmp_path / "one.pack", tmp_path / "new")
    merged = bo.open_result(tmp_path / "new")
    xr.testing.assert_identical(merged["inversions"], result["inversions"])
    for kind, opened in ((".nc", _netcdf), (".zarr", _zarr)):
        export(result, tmp_path / f"result{kind}")
        there = opened(tmp_path / f"result{kind}")
        xr.testing.assert_equal(there["inversions"], result["inversions"])
    exported = table(result)
    assert "inversions" not in exported
    assert set(exported.dims) == {"radius", "seed"}
    assert "nrf_success_0_1" in exported


def _netcdf(path: Any) -> xr.Dataset:
    return xr.open_dataset(path, engine="h5netcdf")


def _zarr(path: Any) -> xr.Dataset:
    return xr.open_zarr(path, consolidated=False)


def test_pictures_of_several_sizes_are_left_out():
    """An axis of resolutions: one array cannot hold them; the numbers stay."""
    wanted = [variables(replace(setup(), {("data", "dim"): dim})) for dim in (16, 64)]
    left = _described(wanted)
    assert set(wanted[0]) - set(left) == {"inversions"}
    assert set(_described(wanted[:1])) == set(wanted[0])


def asked_of(cell: Setup) -> set[str]:
    """Return the variables that only `evaluation.features` gives."""
    plain = replace(cell, {("evaluation", "features"): None})
    return variables(cell).keys() - variables(plain).keys()


def test_without_feature_tests_there_are_no_such_variables():
    cell = replace(setup(), {("evaluation",): Evaluation(samples=10)})
    assert asked_of(setup()) == {
        *(f"{name}_{kind}" for name in NUMBERS for kind in ("standard", "adversarial")),
        *(f"{kind}_feature_accuracy_of_{each}" for kind in ("robust", "non_robust") for each in features.REFERENCES),
        *(f"{name}_{pair}" for name in ("confusion", "nrf_success", "rf_success") for pair in ("0_1", "2_0")),
        "reference_robust_accuracy_adversarial", "robust_feature_accuracy", "non_robust_feature_accuracy", "inversions",
    }  # fmt: skip
    assert asked_of(cell) == set()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"samples": 298}, ["samples", "297", "298"]),
        ({"pairs": ((0, 3),)}, ["pairs", "3 classes", "[0, 3]"]),
        ({"pairs": ((1, 1),)}, ["pairs", "[1, 1]"]),
        ({"box": (1.0, 1.0)}, ["`box`", "lowest < highest", "[1.0, 1.0]"]),
        ({"attack": MultiNorm(balls=Balls(radius=0.1))}, ["`ball`", "`pairs`"]),
        ({"ball": Ball(radius=0.1, relative_to="point")}, ["ball.relative_to", "point"]),
    ],
)  # fmt: skip
def test_impossible_feature_tests_are_refused(asked, words):
    with pytest.raises(SpecError) as error:
        setup(**asked)
    for word in words:
        assert word in str(error.value)


def test_other_data_and_small_coordinates_are_refused():
    asked = FeatureTests(attack=ATTACK)
    with pytest.raises(
        SpecError, match=says("`evaluation.features`", "`images`", "`signal_noise`")
    ):
        Setup.from_dict(small_setup().as_dict() | {"evaluation": {"features": asked.as_dict()}})
    with pytest.raises(SpecError, match=says("`coordinates`", "ambient", "'auto'")):
        Setup.from_dict(setup().as_dict() | {"coordinates": "auto"})


def test_a_set_with_too_few_test_images_is_refused_before_work(tmp_path, monkeypatch):
    """A file of one's own, whose size no specification knows."""
    arrays = {
        f"{part}_{split}": np.zeros((30, 4, 4) if part == "x" else 30, np.uint8 if part == "x" else np.int64)
        for part in "xy"
        for split in ("train", "test")
    }  # fmt: skip
    for split in ("train", "test"):
        arrays[f"y_{split}"][:15] = 1
    np.savez(tmp_path / "mine.npz", **arrays)  # pyright: ignore[reportArgumentType]
    monkeypatch.setenv("BENIGN_DATA", str(tmp_path))
    mine = Images(source="mine", samples=20, dim=16, channels=1, classes=(0, 1))
    asked = FeatureTests(attack=ATTACK, samples=31)
    cell = replace(
        setup(), {("data",): mine, ("evaluation",): Evaluation(samples=10, features=asked)}
    )
    with pytest.raises(ValueError, match=says("`evaluation.samples`", " 30", " 31", "mine")):
        check_data([cell])
    check_data([replace(cell, {("evaluation", "features", "samples"): 30})])
