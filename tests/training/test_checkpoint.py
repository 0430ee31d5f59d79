"""A training that goes on from a checkpoint is bitwise the one that was never stopped."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benign.data.images import Images
from benign.networks.two_layer import TwoLayer
from benign.training.checkpoint import Checkpoint
from benign.training.engine import Keeping, train_runs
from benign.training.methods import SGD, AdamW, GradientDescent, Training
from benign.training.setup import Evaluation, Setup
from tests.reference import run_ids, small_pgd


class Killed(Exception):
    """What a kill does to a process, as far as files go."""


def digits(training: Training) -> Setup:
    return Setup(
        data=Images(source="digits", samples=30, classes=(0, 1), labels="signed"),
        network=TwoLayer(width=8, activation="relu", preset="torch_default"),
        attack=small_pgd(),
        training=training,
        evaluation=Evaluation(samples=20, attack=small_pgd()),
    )


TRAININGS = [
    GradientDescent(rate=0.5, max_steps=9, stop_loss=0.05),
    SGD(rate=0.1, epochs=9, batch=8, stop_loss=0.05),
    AdamW(rate=0.01, epochs=9, batch=8, stop_loss=0.05),
]


def interrupted_at(step: int):
    def progress(number: int, runs: int) -> None:
        if number == step:
            raise Killed

    return progress


@pytest.mark.parametrize("training", TRAININGS, ids=lambda training: training.kind)
def test_a_resumed_training_is_the_same_to_the_bit(training, tmp_path, monkeypatch):
    cells = [digits(training), digits(training.model_copy(update={"rate": 0.3 * training.rate}))]
    keeping = Keeping(tmp_path / "whole", tmp_path / "expected")
    expected = train_runs(cells, run_ids(2), keeping=keeping)
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    keeping = Keeping(tmp_path / "kept", tmp_path / "found")
    for step in (3, 6):  # killed twice
        with pytest.raises(Killed):
            train_runs(cells, run_ids(2), "cpu", interrupted_at(step), keeping)
    begun = []
    found = train_runs(cells, run_ids(2), "cpu", lambda number, _: begun.append(number), keeping)
    assert begun[0] == 6
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    written = sorted(path.name for path in (tmp_path / "expected").iterdir())
    assert len(written) == 2
    for name in written:
        assert (tmp_path / "found" / name).read_bytes() == (
            tmp_path / "expected" / name
        ).read_bytes()


def test_runs_that_have_ended_stay_ended(tmp_path, monkeypatch):
    cells = [digits(GradientDescent(rate=0.5, max_steps=12, stop_loss=stop)) for stop in (0.4, 0.0)]
    expected = train_runs(cells, run_ids(2))
    assert 0 < expected["steps"][0] < 9
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    with pytest.raises(Killed):
        train_runs(cells, run_ids(2), "cpu", interrupted_at(9), Keeping(tmp_path))
    found = train_runs(cells, run_ids(2), keeping=Keeping(tmp_path))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_short_trainings_write_nothing(tmp_path):
    train_runs([digits(TRAININGS[0])], run_ids(1), keeping=Keeping(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


@pytest.mark.parametrize("damage", ["cut", "other batch"])
def test_a_damaged_or_foreign_checkpoint_is_left_aside(damage, tmp_path, monkeypatch):
    cells = [digits(TRAININGS[1])]
    expected = train_runs(cells, run_ids(1))
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    with pytest.raises(Killed):
        train_runs(cells, run_ids(1), "cpu", interrupted_at(4), Keeping(tmp_path))
    (path,) = files(tmp_path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        Checkpoint(path, "another").write({"place/number": torch.tensor(4)})
    begun = []
    found = train_runs(
        cells, run_ids(1), "cpu", lambda number, _: begun.append(number), Keeping(tmp_path)
    )
    assert begun[0] == 0
    np.testing.assert_array_equal(found["test_loss"], expected["test_loss"])


def test_a_checkpoint_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "one.safetensors", "one")
    checkpoint.write({"place/number": torch.tensor(1)})

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("benign.training.checkpoint.save_file", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.write({"place/number": torch.tensor(2)})
    kept = checkpoint.read("cpu")
    assert kept is not None
    assert int(kept["place/number"]) == 1


def test_the_time_between_checkpoints_is_measured(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("benign.training.checkpoint.time.monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "one.safetensors", "one")
    assert not checkpoint.due()
    now[0] = 121.0
    assert checkpoint.due()
    checkpoint.write({"place/number": torch.tensor(1)})
    assert not checkpoint.due()
    assert not Checkpoint(None, "none").due()
