"""Recipes on real images: every reading is a valid experiment without any image there; what their numbers mean."""

import numpy as np
import pytest

from benign.claims.study import SCALES
from benign.data.images import Images
from benign.experiment import Experiment
from benign.papers.image_questions import facts_of
from benign.papers.recipes import Recipe, recipes
from benign.papers.wang import image_curves

ON_IMAGES = {
    name: each
    for name, each in recipes().items()
    if any(q.name == "images" for q in each.questions)
}


@pytest.fixture(params=ON_IMAGES, ids=str)
def chosen(request: pytest.FixtureRequest) -> Recipe:
    return ON_IMAGES[request.param]


@pytest.mark.parametrize("scale", SCALES)
def test_every_reading_is_a_valid_experiment_without_images(chosen: Recipe, scale: str):
    for reading in chosen.readings("all"):
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
    fields = image_curves.UNDERTRAINING.experiment("smoke").as_dict()
    result = Experiment.from_dict({**fields, "precision": "float64"}).run(tmp_path)
    for name in ("train_loss", "test_loss", "robust_loss"):
        assert abs(image_curves.change(result, name, image_curves.CASES[2])).max() < 1e-10
    assert abs(image_curves.change(result, "train_loss", image_curves.CASES[1])).min() > 1e-4


def test_figure_6_has_all_settings_of_its_panels():
    found = image_curves.FIG6.experiment("paper")
    assert isinstance(found.data, Images)
    assert set(found.data.dim.values) == {289, 400, 784, 1024}
    np.testing.assert_allclose(sorted(set(found.attack.ball.radius.values)), [0.05, 0.1, 0.15, 0.2])
    assert len(found.data.dim) == 10
