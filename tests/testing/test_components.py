"""Components of a user's own are tried before work; what the trials ask is in tests/test_components.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import benign as bo
from benign.attacks.attack import Points, Target
from benign.attacks.balls import Ball
from benign.attacks.model_free import FeatureOrthogonal
from benign.attacks.pgd import PGD
from benign.data.model import DataModel, Sample
from benign.experiment import Experiment
from benign.networks.initial import GaussianInit
from benign.networks.linear import Linear
from benign.networks.network import Params
from benign.spec.axes import PerRun, Shape, default
from benign.spec.base import Count, Positive, SpecError
from benign.streams import Streams
from benign.sweep.runner import Runner
from benign.testing import components as tryout
from benign.training.descent import Step
from benign.training.metrics import evaluation_metric, point_metric
from benign.training.metrics.fresh_points import EvaluatedRuns, PointBlock
from benign.training.optimisers import GradientDescent
from tests.reference import Fields, small_data, small_network, small_pgd, small_setup
from tests.registry import forgetting
from tests.says import says

trials: list[str] = []


class TriedData(DataModel):
    """Gaussian points, right or wrong as a field says."""

    size: PerRun[Positive] = default(1.0)
    wrong: Shape[Count] = default(1)

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        trials.append(f"{self.dim} {split} {count}")
        y = streams(f"{split}/labels").signs(count, dtype=dtype)
        x = streams(f"{split}/x").normal(count, self.tokens, self.dim, dtype=dtype)
        if self.wrong == 2:
            raise KeyError("no such file")
        if self.wrong == 4:
            x = x * self.size
        numbers = torch.as_tensor(self.size, dtype=dtype).reshape(-1, 1, 1, 1)
        return Sample(x * (numbers[:1] if self.wrong == 3 else numbers), y, y)


class LuckyLabels(DataModel):
    """Labels 0 and 1 instead of -1 and +1 in one split; the first four are always 1."""

    wrong: Shape[Literal["train", "test"]] = default("train")

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        y = streams(f"{split}/l").signs(count, dtype=dtype)
        y[:, :4] = 1
        x = streams(f"{split}/x").normal(count, self.tokens, self.dim, dtype=dtype)
        y = y.clamp(min=0) if split.startswith(self.wrong) else y
        return Sample(x, y, y)


class Flipping(TriedData):
    """Flips training labels, or has a chance of flips, without a rate."""

    which: Shape[Literal["labels", "chance"]] = default("labels")

    def sample(self, streams: Streams, split: str, count: int, dtype: torch.dtype) -> Sample:
        drawn = super().sample(streams, split, count, dtype)
        return replace(drawn, y=-drawn.y) if self.which == "labels" else drawn

    def flip_chance(self, sample: Sample) -> Tensor:
        chance = super().flip_chance(sample)
        return chance + 0.1 if self.which == "chance" else chance


class TriedNetwork(Linear):
    """Its outputs are no numbers."""

    def forward(self, params: Params, x: Tensor) -> Tensor:
        return super().forward(params, x) / 0

    def run(self, params: Params, x: Tensor) -> Any:
        output = super().run(params, x)
        output.outputs = output.outputs / 0
        return output


class TriedAttack(PGD):
    """Wider than its ball."""

    def perturb(self, target: Target) -> Points:
        return target.x + 5


class RunlessNetwork(Linear):
    """Its weights have no axis of runs."""

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        return {"w": torch.zeros(20, dtype=dtype)}


class TriedInit(GaussianInit):
    """The package's, under a name of one's own."""


def two_means(definition: str) -> Any:
    """Declare a mean that gives two numbers a run."""
    return point_metric(definition, finish=lambda *means: torch.stack(means, 1))


def array_of_two(definition: str) -> Any:
    return evaluation_metric(definition, only_at_end=True, axes=lambda setup: {"place": (0, 1)})


@pytest.fixture(autouse=True)
def forget() -> None:
    tryout._try_once.cache_clear()
    trials.clear()


def experiment(**parts: Any) -> Experiment:
    fields: Fields = {"data": small_data(), "network": small_network()}
    return Experiment(**(fields | parts), training=GradientDescent(rate=0.1, max_steps=2))


def own_data(**fields: Any) -> TriedData:
    sizes: Fields = {"samples": 4, "tokens": 2, "dim": 6}
    return TriedData(**(sizes | fields))


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        (
            {"data": own_data(wrong=2)},
            ("`TriedData`", "4 points", "KeyError: 'no such file'", "test_components.py, line "),
        ),
        (
            {"data": own_data(wrong=4, size=[1.0, 2.0])},
            ("test_components.py, line ", "size", "[runs]", "`column(self.size, x)`"),
        ),
        (
            {"data": small_data(snr=[1.0, 2.0]), "network": RunlessNetwork(init_std=0.5)},
            ("`w`", "[20]", "[2, ...]", "first axis", "runs"),
        ),
        ({"data": own_data(wrong=3, size=[1.0, 2.0])}, ("`TriedData.sample`", "run", "`x`")),
        ({"network": TriedNetwork(init_std=0.5)}, ("`TriedNetwork.run`", "outputs", "finite")),
        (
            {"attack": TriedAttack(ball=Ball(radius=0.1))},
            ("`TriedAttack.perturb`", "ball", "`threat`"),
        ),
    ],
)
def test_a_wrong_part_is_refused_before_there_is_a_folder(parts, content, tmp_path: Path):
    with pytest.raises(SpecError, match=says(*content)):
        experiment(**parts).run(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("wrong", ["train", "test"])
def test_labels_are_refused_also_where_the_first_few_are_right_by_chance(wrong, tmp_path: Path):
    data = LuckyLabels(samples=4, tokens=1, dim=6, wrong=wrong)
    assert set(data.sample(Streams(tryout.RUNS[:1]), "train", 4, torch.float64).y[0].tolist()) == {
        1
    }
    with pytest.raises(ValueError, match=says("LuckyLabels.sample", "y", "{0.0, 1.0}", "-1.0")):
        experiment(data=data, network=Linear(init_std=0.5)).run(tmp_path / "runs")


@pytest.mark.parametrize("which", ["labels", "chance"])
def test_flips_without_a_rate_are_refused(which, tmp_path: Path):
    """They would not be measured: `test_noisy_error` is for data whose `flip_rate` is above 0."""
    data = Flipping(samples=4, tokens=1, dim=6, which=which)
    with pytest.raises(SpecError, match=says("`Flipping", "flip_rate`", "0")):
        experiment(data=data, network=Linear(init_std=0.5)).run(tmp_path / "runs")


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (lambda step: step.clean_margins.amax(0), "[4]"),
        (lambda step: step.loss[0], "[]"),
        (lambda step: step.loss[:, None], "[3, 1]"),
        (lambda step: float(step.loss[0]), "a float"),
        (lambda step: torch.zeros(3), "[3] for 1 run"),
    ],
    ids=["points", "scalar", "column", "float", "runs of its own"],
)
@pytest.mark.parametrize("kind", ["metric", "running metric"])
def test_a_metric_of_a_wrong_shape_is_refused_before_there_is_a_folder(
    kind, value, given, tmp_path: Path
):
    def mine(*arguments: Any) -> Any:
        return value(arguments[-1])

    with forgetting():
        (bo.metric if kind == "metric" else bo.running_metric)("something")(mine)
        with pytest.raises(SpecError) as refusal:
            experiment().run(tmp_path / "runs")
    message = str(refusal.value)
    assert "`mine`" in message
    assert given in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("register", "function", "given"),
    [
        (point_metric, lambda block: block.margins.sum(1), "[3]"),
        (point_metric, lambda block: (block.margins, block.y[:, :1]), "[3, 1]"),
        (point_metric, lambda block: block.outputs.repeat(1, 2), "[3, 16]"),
        (two_means, lambda block: (block.margins, block.y), "[3, 2]"),
        (evaluation_metric, lambda runs: runs.values["robust_accuracy"].mean(), "[]"),
        (evaluation_metric, lambda runs: runs.batch.sample.y, "[3, 4]"),
        (array_of_two, lambda runs: runs.batch.sample.y, "[3, 4]"),
        (array_of_two, lambda runs: runs.values["train_loss"], "[3]"),
    ],
    ids=["mean", "second", "sets", "finish", "scalar", "points", "axes", "no axes"],
)
def test_a_metric_on_fresh_points_of_a_wrong_shape_is_refused_before_there_is_a_folder(
    register: Any, function: Any, given: str, tmp_path: Path
):
    def mine(points_or_runs: Any) -> Any:
        return function(points_or_runs)

    with forgetting():
        register("something")(mine)
        with pytest.raises(SpecError, match=says("metric `mine`", f"gives {given} for 3 runs")):
            experiment(attack=small_pgd()).run(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_metrics_on_fresh_points_of_a_right_shape_are_measured(tmp_path: Path):
    def squares(block: PointBlock) -> Tensor:
        return block.attacked_margins.square()

    def both(runs: EvaluatedRuns) -> Tensor:
        return torch.stack([runs.values["squares"], runs.values["train_loss"]], 1)

    with forgetting():
        point_metric("mean square of the margin under attack", attacked=True)(squares)
        array_of_two("two numbers")(both)
        result = experiment(attack=small_pgd()).run(tmp_path / "runs")
    assert result.both.dims == ("seed", "place")
    assert result.squares.item() == pytest.approx(result.both[0, 0].item(), rel=1e-6)


def test_a_metric_that_fails_is_refused_with_the_error(tmp_path: Path):
    def mine(step: Step) -> Tensor:
        return step.batch.params["no such"]

    with forgetting():
        bo.metric("something")(mine)
        with pytest.raises(
            SpecError, match=says("`mine`", "KeyError: 'no such'", "test_components.py, line ")
        ):
            experiment().run(tmp_path / "runs")


def test_a_metric_may_need_more_points_than_it_is_tried_on(tmp_path: Path):
    def hundredth(step: Step) -> Tensor:
        return step.clean_margins.kthvalue(100).values

    with forgetting():
        bo.metric("something")(hundredth)
        result = experiment(data=small_data(samples=100)).run(tmp_path / "runs")
    assert result.hundredth.notnull().all()


def test_metrics_are_tried_where_they_apply_and_on_clean_points(tmp_path: Path):
    """Twice in the first and the last cell: three runs and one, however large samples and dimension are."""
    shapes: list[tuple[int, ...]] = []

    def mine(step: Step) -> Tensor:
        shapes.append(tuple(step.attacked.shape))
        assert torch.equal(step.attacked, step.batch.sample.x)
        return step.loss

    data = small_data(samples=[100, 200, 300], dim=10**9)
    sweep = experiment(data=data, attack=small_pgd(), coordinates="sampled")
    with forgetting():
        bo.metric("something", applies=lambda setup: setup.data.samples > 100)(mine)
        Runner(sweep, tmp_path)
    assert [shape[:2] for shape in shapes] == [(3, 64), (1, 64)] * 2


def test_a_part_is_tried_once_and_not_in_every_cell(tmp_path: Path):
    sweep = experiment(data=own_data(dim=[4, 5, 6, 7], size=[1.0, 2.0, 3.0]))
    Runner(sweep, tmp_path)
    assert {trial.split()[0] for trial in trials} == {"4", "7"}, "the first and the last shape"
    count = len(trials)
    Runner(sweep, tmp_path)
    assert len(trials) == count


def test_a_vast_dimension_is_tried_in_the_coordinates_of_the_runs(tmp_path: Path):
    data = small_data(dim=10**12)
    network = small_network(init=TriedInit(score_std=0.1, value_std=0.1))
    Runner(experiment(data=data, network=network, coordinates="sampled"), tmp_path)


def test_parts_of_the_package_are_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def never(case: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(tryout, "_try_once", never)
    Runner(experiment(attack=small_pgd()), tmp_path)


def test_a_part_inside_another_counts():
    inner = TriedAttack(ball=Ball(p="inf", radius=0.1))
    assert tryout._own(FeatureOrthogonal(attack=inner))
    assert tryout._own(small_setup(network=small_network(init=TriedInit(score_std=1, value_std=1))))
    assert not tryout._own(small_setup(attack=small_pgd()))
