"""Recipes on real images: every reading is a valid experiment without any image there; what their numbers mean."""

from typing import Any

import numpy as np
import pytest

from benign.claims.study import SCALES
from benign.data.constructions import PixelNoise
from benign.data.images import Images
from benign.experiment import Experiment
from benign.papers.images import ImageSize, count_tests, facts_of, images, sample_pictures
from benign.papers.recipes import Recipe
from benign.papers.registry import recipes
from benign.papers.wang import images as wang_images
from benign.sweep.dataset import assemble

ON_IMAGES = {
    name: each
    for name, each in recipes().items()
    if any(q.name == "images" for q in each.questions)
}


@pytest.fixture(params=ON_IMAGES, ids=str)
def chosen(request: pytest.FixtureRequest) -> Recipe:
    return ON_IMAGES[request.param]


def printed(name: str, **answers: str) -> Any:
    """A recipe at the paper's scale; its fields may be axes."""
    recipe = ON_IMAGES[name]
    return recipe.experiment("paper", recipe.reading(answers))


@pytest.mark.parametrize("scale", SCALES)
def test_every_reading_is_a_valid_experiment_without_images(chosen: Recipe, scale: str):
    readings = chosen.readings("all")
    if scale == "paper":  # large grids: what differs by scale is the images
        readings = [each for each in readings if each | {"images": "paper"} == chosen.reading()]
    for reading in readings:
        experiment = chosen.experiment(scale, reading)
        assert isinstance(experiment.data, Images)
        if (scale == "smoke" and reading["images"] == "paper") or reading["images"] == "digits":
            assert experiment.data.source == "digits"
        elif reading["images"] == "paper":
            assert experiment.data.source in ("mnist", "cifar10", "svhn", "tiny_imagenet")
        facts = facts_of(experiment.data.source)
        assert experiment.evaluation.samples <= facts.test
        assert chosen.caption(experiment, scale, reading)


# Wang


def test_small_pictures_with_steps_and_start_rescaled_are_the_same_run(tmp_path):
    fields = wang_images.UNDERTRAINING.experiment("smoke").as_dict()
    result = Experiment.from_dict({**fields, "precision": "float64"}).run(tmp_path)
    for name in ("train_loss", "test_loss", "robust_loss"):
        assert abs(wang_images.change(result, name, wang_images.CASES[2])).max() < 1e-10
    assert abs(wang_images.change(result, "train_loss", wang_images.CASES[1])).min() > 1e-4


def test_figure_6_has_all_settings_of_its_panels():
    found = printed("wang/fig6")
    assert set(found.data.dim.values) == {289, 400, 784, 1024}
    np.testing.assert_allclose(sorted(set(found.attack.ball.radius.values)), [0.05, 0.1, 0.15, 0.2])
    assert len(found.data.dim) == 10


# Zhang and Jiang


@pytest.mark.parametrize(
    ("name", "source", "samples", "ratios"),
    [
        ("zhang/fig1cd", "mnist", (1000, 6000), (0.4, 2.0)),
        ("zhang/fig4", "mnist", (1000, 6000), (0.4, 2.0)),
        ("zhang/fig5", "cifar10", (1000, 10_000), (0.4, 10.0)),
        ("zhang/fig6", "tiny_imagenet", (100, 1000), (0.4, 10.0)),
        ("zhang/fig7", "mnist", (1000, 6000), (0.4, 2.0)),
        ("zhang/fig8", "mnist", (500, 5000), (0.4, 2.2)),
        ("jiang/fig2", "mnist", (3000, 8400), (0.2, 2.0)),
    ],
)
def test_grids_are_the_printed_ones(name, source, samples, ratios):
    data = printed(name).data
    assert data.source == source
    assert (min(data.samples.values), max(data.samples.values)) == samples
    snr = data.construction.snr
    assert (min(snr.values), max(snr.values)) == ratios


def test_a_radius_called_weaker_is_a_tenth_of_the_printed_one():
    answers = {"printed": 0.1, "weaker": 0.01}
    for answer, radius in answers.items():
        built: Any = printed("zhang/fig6", radius=answer)
        assert built.attack.ball.radius == pytest.approx(radius)
        assert built.evaluation.attack.ball.radius == pytest.approx(radius)


def test_sets_with_few_images_have_smaller_grids():
    size = ImageSize(samples=(1000, 6000, 6), ratios=(0.4, 2.0, 3), epochs=1, test=2000)
    reading = {"classes": "two"}
    data: Any = images(size, reading, "digits", 2, PixelNoise(snr=1.0))
    assert max(data.samples.values) <= 302  # of 0 and 1
    assert count_tests(size, reading, "digits") <= 58
    assert (data.labels, data.class_count()) == ("signed", 2)
    whole: Any = images(size, {"classes": "all"}, "tinyimagenet20", 8, PixelNoise(snr=1.0))
    assert max(whole.samples.values) == 6000
    assert (whole.tokens, whole.dim, whole.label_count()) == (64, 192, 20)


@pytest.mark.parametrize(
    ("answer", "per", "radius"),
    [("image", "sample", 0.05), ("token", "token", 0.05), ("token_sqrt", "token", 0.0125)],
)
def test_the_ball_is_read_in_three_ways(answer, per, radius):
    experiment = printed("zhang/fig4", ball=answer)
    ball = experiment.attack.threat()
    assert (ball.per, ball.radius, ball.relative_to) == (per, radius, "signal")
    assert experiment.evaluation.attack.threat() == ball


def test_literal_answers_are_the_printed_training():
    answers = {"optimiser": "gradient_descent", "start": "divided", "architecture": "bare"}
    found = printed("zhang/fig1cd", **answers)
    assert (found.training.rate, found.training.stop_loss) == (0.1, 0.01)
    assert (found.network.divide_by, found.network.residual, found.network.layer_norm) == (
        16,
        False,
        False,
    )
    assert (found.attack.steps, found.attack.step) == (20, 0.2)


def test_pictures_are_drawn_where_their_set_is_here(tmp_path, monkeypatch):
    result = assemble(ON_IMAGES["jiang/fig2"].experiment("smoke"), [])
    assert list(sample_pictures(result, "samples", "a caption")) == ["samples"]
    drawn = ON_IMAGES["jiang/fig2"].draw(result, tmp_path, "a caption")
    assert [path.suffix for path in drawn] == [".pdf", ".svg", ".png"] * 2
    monkeypatch.setenv("BENIGN_DATA", str(tmp_path))
    absent = assemble(ON_IMAGES["jiang/fig2"].experiment("quick"), [])
    assert sample_pictures(absent, "none", "a caption") == {}
