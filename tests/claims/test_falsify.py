"""A planted false lemma is found and shrunk, a true one is not; the text of the result says so."""

from pathlib import Path

import pytest

import benign as bo
from benign.claims.conditions import Condition, Conditions
from benign.claims.falsify import falsify
from tests.says import holds, says

AXES = {"data": bo.Mixture(samples=[2, 4], dim=3, signal=1.0)}
SPACE = {"samples": (2, 64), "dim": [5, 20, 80], "signal": (0.2, 8.0)}


def setup(seeds: int = 2) -> bo.Experiment:
    return bo.Experiment(
        data=bo.Mixture(samples=10, dim=20, signal=1.0),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.05, max_steps=20),
        evaluation=bo.Evaluation(samples=200),
        seeds=seeds,
    )


def strong(cell: bo.Experiment) -> Conditions:
    """|mu| >= 3."""
    row = Condition.at_least("(1)", "|mu| >= 3", cell.data.signal_norm(), 3.0)
    return Conditions("a lemma", (row,))


def learned(run) -> bool:
    return run.test_accuracy > 0.9


def test_a_false_lemma_is_found_and_shrunk(tmp_path: Path):
    outcome = falsify(setup(), learned, space=SPACE, budget=120, folder=tmp_path)
    counter = outcome.counterexample
    assert counter is not None
    assert counter.where["samples"] == 2, "fewer samples are worse still"
    assert counter.where["dim"] == 5 or counter.where["signal"] < 3
    assert outcome.runs <= 120
    again = bo.Experiment.from_yaml(counter.file)
    assert again == counter.experiment
    assert not learned(again.run(tmp_path / "again").isel(seed=counter.failing[0]))
    assert str(counter).endswith(f"replay(seed={counter.failing[0]})")
    assert "# samples = 2" in counter.file.read_text()
    repeated = falsify(setup(), learned, space=SPACE, budget=120, folder=tmp_path)
    assert repeated == outcome


def test_a_true_lemma_has_no_counterexample(tmp_path: Path):
    outcome = falsify(setup(), learned, space=SPACE, inside=strong, budget=70, folder=tmp_path)
    assert outcome.counterexample is None
    assert (outcome.runs, outcome.cells, outcome.exhausted) == (70, 35, False)
    assert holds(
        str(outcome), "no counterexample", "70 runs", "35 cells", f"{outcome.points} points"
    )
    assert not (tmp_path / "counterexample.yaml").exists()
    more = falsify(setup(), learned, space=SPACE, inside=strong, budget=80, folder=tmp_path)
    assert (more.counterexample, more.runs) == (None, 80)


def test_another_lemma_reuses_the_runs_of_the_folder(tmp_path: Path):
    falsify(setup(), learned, space=SPACE, inside=strong, budget=32, folder=tmp_path)
    outcome = falsify(
        setup(), lambda run: run.test_accuracy < 0.5, space=SPACE, budget=40, folder=tmp_path
    )
    assert outcome.counterexample is not None


def test_a_share_of_seeds_may_fail(tmp_path: Path):
    def not_the_first(run) -> bool:
        return bool(run.seed != 0)

    space = {"signal": [1.0, 2.0]}
    outcome = falsify(setup(), not_the_first, space=space, allowed=0.5, folder=tmp_path)
    assert outcome.counterexample is None
    assert outcome.exhausted
    assert holds(str(outcome), "no counterexample", "space")
    strict = falsify(setup(), not_the_first, space=space, folder=tmp_path)
    assert strict.counterexample is not None
    assert strict.counterexample.failing == (0,)


def test_a_space_without_cells_inside_is_reported(tmp_path: Path):
    outcome = falsify(
        setup(), learned, space=SPACE, inside=lambda cell: False, budget=4, folder=tmp_path / "none"
    )
    assert holds(str(outcome), "conditions", "400 points")
    assert "counterexample" not in str(outcome)


def test_points_that_are_not_valid_experiments_are_skipped(tmp_path: Path):
    balanced = setup(1).model_copy(
        update={"data": bo.Mixture(samples=10, dim=5, signal=4.0, balanced=True)}
    )
    outcome = falsify(balanced, learned, space={"samples": (2, 12)}, budget=4, folder=tmp_path)
    assert outcome.cells == 4
    assert outcome.points > 4, "odd numbers of samples cannot be balanced"


def test_a_wrong_space_is_refused(tmp_path: Path):
    def search(space):
        return falsify(setup(), learned, space=space, folder=tmp_path)

    for name in ("colour", "max_steps"):
        with pytest.raises(ValueError, match=says("`space`", "axes", "samples", f"'{name}'")):
            search({name: [1]})
    with pytest.raises(ValueError, match=says("`space`", "samples", "0 < low <= high", "(8, 2)")):
        search({"samples": (8, 2)})
    with pytest.raises(ValueError, match=says("axes", "`space`")):
        falsify(setup().model_copy(update=AXES), learned, space={}, folder=tmp_path)
