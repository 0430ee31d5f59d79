"""Every recipe: its scales, its readings, and one small run from specification to picture."""

import pytest

from benign.claims.study import SCALES, StudyError
from benign.experiment import Experiment
from benign.papers.recipes import Recipe
from benign.papers.registry import recipe, recipes
from benign.spec.axes import Axis
from tests.says import says

RECIPES = recipes()


SAME_CODE = {
    *("zhang/fig4", "zhang/fig5", "zhang/fig6", "zhang/fig8"),  # as zhang/fig1cd and zhang/fig7
    *("li/table1_cifar", "li/table1_svhn"),  # as li/table1_mnist
}
"""recipes that differ from another in numbers and images only"""


@pytest.fixture(params=RECIPES, ids=str)
def chosen(request: pytest.FixtureRequest) -> Recipe:
    return RECIPES[request.param]


def test_scales_change_sizes_only(chosen: Recipe):
    built = [chosen.experiment(scale) for scale in SCALES]
    counts = [sum(len(unit.runs) for unit in each.units()) for each in built]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
    for other in built[1:]:
        assert type(other.network) is type(built[0].network)
        if not isinstance(other.training.rate, Axis):  # an axis follows the sizes
            assert other.training.rate == built[0].training.rate
        assert (other.attack is None) == (built[0].attack is None)


def test_every_reading_is_another_experiment(chosen: Recipe):
    readings = chosen.readings("all")
    assert len(readings) == 1 + sum(len(q.answers) - 1 for q in chosen.questions)
    # At quick scale: the papers' images are others than the digits only there.
    specs = [str(chosen.experiment("quick", reading).as_dict()) for reading in readings]
    assert len(set(specs)) == len(specs)
    labels = [chosen.label(reading) for reading in readings]
    assert labels[0] == "default"
    assert len(set(labels)) == len(labels)
    count = 1
    for question in chosen.questions:
        count *= len(question.answers)
    assert len(chosen.readings("product")) == count


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SAME_CODE else n for n in RECIPES],
)
def test_from_specification_to_picture(name: str, tmp_path):
    chosen = RECIPES[name]
    experiment, reading = chosen.experiment("smoke"), chosen.reading()
    result = experiment.run(tmp_path / "run")
    assert result.attrs["runs_missing"] == result.attrs["runs_failed"] == 0
    caption = chosen.caption(experiment, "smoke", reading)
    assert "1 seed" in caption
    pictures = chosen.draw(result, tmp_path, caption)
    assert {picture.suffix for picture in pictures} == {".pdf", ".png", ".svg"}
    drawn = next(p for p in pictures if p.suffix == ".svg").read_text(encoding="utf-8")
    assert chosen.name in drawn
    assert len(chosen.summarise(result)) > 100
    assert Experiment.from_dict(experiment.as_dict()) == experiment


def test_the_unknown_is_refused_with_what_there_is(chosen: Recipe):
    with pytest.raises(StudyError, match=says("'nobody/fig9'", "jiang/fig1", "wang/fig1")):
        recipe("nobody/fig9")
    with pytest.raises(StudyError, match=says("`scale`", "smoke", "quick", "paper", "'huge'")):
        chosen.experiment("huge")
    with pytest.raises(StudyError, match=says("reading", "`colour`")):
        chosen.reading({"colour": "red"})
    question = chosen.questions[0]
    with pytest.raises(StudyError, match=says(f"`{question.name}`", *question.answers, "perhaps")):
        chosen.reading({question.name: "perhaps"})
    with pytest.raises(StudyError, match=says("`readings`", "default", "all", "product", "some")):
        chosen.readings("some")
