"""A training that goes on from a checkpoint is bitwise the one that was never stopped."""

import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from benign.data.images import Images
from benign.networks.two_layer import TwoLayer
from benign.training.checkpoint import Checkpoint
from benign.training.engine import CheckpointConfig, Results, _Training, train_runs
from benign.training.optimisers import SGD, AdamW, GradientDescent, Training
from benign.training.setup import Evaluation, Setup
from tests.reference import run_ids, small_pgd, start
from tests.says import says


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
    config = CheckpointConfig(tmp_path / "whole", tmp_path / "expected")
    expected = train_runs(cells, run_ids(2), config=config)
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    config = CheckpointConfig(tmp_path / "kept", tmp_path / "found")
    for step in (3, 6):  # killed twice
        with pytest.raises(Killed):
            train_runs(cells, run_ids(2), "cpu", interrupted_at(step), config)
    begun = []
    found = train_runs(cells, run_ids(2), "cpu", lambda number, _: begun.append(number), config)
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
    cells = [
        digits(GradientDescent(rate=0.5, max_steps=12, stop_loss=stop)) for stop in (0.45, 0.0)
    ]
    expected = train_runs(cells, run_ids(2))
    assert 0 < expected["steps"][0] < 9
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    with pytest.raises(Killed):
        train_runs(cells, run_ids(2), "cpu", interrupted_at(9), CheckpointConfig(tmp_path))
    found = train_runs(cells, run_ids(2), config=CheckpointConfig(tmp_path))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_short_trainings_write_nothing(tmp_path):
    train_runs([digits(TRAININGS[0])], run_ids(1), config=CheckpointConfig(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def place_of(path: Path, name: str) -> int:
    """Where the bytes of a tensor begin in a file, read without safetensors."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return 8 + length + json.loads(data[8 : 8 + length])[name]["data_offsets"][0]


def flip(path: Path, name: str, byte: int = 0) -> None:
    """Flip the lowest bit of a byte of a tensor."""
    data = bytearray(path.read_bytes())
    data[place_of(path, name) + byte] ^= 1
    path.write_bytes(data)


def forged(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint and write them as the program would, with the right checksum."""
    kept = load_file(path)
    change(kept)
    Checkpoint(path, path.stem).write(kept)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "no checksum": lambda path: save_file(load_file(path), path, {"origin": path.stem}),
    "other batch": lambda path: Checkpoint(path, "another").write(load_file(path)),
    "other numerics": lambda path: Checkpoint(path, path.stem, CheckpointConfig(numerics=77)).write(
        load_file(path)
    ),
    "other code": lambda path: Checkpoint(path, path.stem, CheckpointConfig(code="before")).write(
        load_file(path)
    ),
    "bit of a weight": lambda path: flip(path, "weights/inner", 2),
    "bit of the step": lambda path: flip(path, "place/number"),
    "bit of a moment": lambda path: flip(path, "moments/inner/square", 2),
    "bit of a result": lambda path: flip(path, "arrays/train_loss_curve", 6),
}
FORGERIES: dict[str, Callable[[dict[str, torch.Tensor]], object]] = {
    "no weights": lambda kept: kept.pop("weights/inner"),
    "weights of another shape": lambda kept: kept.update({"weights/inner": torch.ones(1, 2)}),
    "weights of another type": lambda kept: kept.update(
        {"weights/inner": kept["weights/inner"].double()}
    ),
    "one more": lambda kept: kept.update({"weights/more": torch.ones(1)}),
    "no index": lambda kept: kept.pop("place/index"),
    "empty index": lambda kept: kept.update({"place/index": kept["place/index"][:0]}),
    "index of no run": lambda kept: kept.update({"place/index": torch.tensor([5])}),
    "a run twice": lambda kept: kept.update({"place/index": torch.tensor([0, 0])}),
    "step 1e9": lambda kept: kept.update({"place/number": torch.tensor(10**9)}),
    "step -1": lambda kept: kept.update({"place/number": torch.tensor(-1)}),
    "two steps": lambda kept: kept.update({"place/number": torch.tensor([1, 2])}),
    "no final weights": lambda kept: kept.pop("final/inner"),
    "no loss of the last step": lambda kept: kept.pop("place/reached"),
    "a loss of two runs": lambda kept: kept.update({"place/reached": torch.ones(2)}),
    "an array of another shape": lambda kept: kept.update({"arrays/test_loss": torch.ones(3)}),
    "an array that nobody knows": lambda kept: kept.update({"arrays/new": torch.ones(1)}),
    "a running metric of two runs": lambda kept: kept.update(
        {name: torch.ones(2) for name in kept if name.startswith("tallies/")}
    ),
    "no running metrics": lambda kept: [
        kept.pop(name) for name in list(kept) if name.startswith("tallies/")
    ],
}
DAMAGES |= {name: partial(forged, change=change) for name, change in FORGERIES.items()}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_checkpoint_starts_the_batch_again(damage, tmp_path, monkeypatch):
    cells = [digits(TRAININGS[2])]
    expected = train_runs(cells, run_ids(1))
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    with pytest.raises(Killed):
        train_runs(cells, run_ids(1), "cpu", interrupted_at(4), CheckpointConfig(tmp_path))
    (path,) = files(tmp_path)
    DAMAGES[damage](path)
    begun = []
    with pytest.warns(UserWarning, match=says(str(path), "step 0")):
        found = train_runs(
            cells,
            run_ids(1),
            "cpu",
            lambda number, _: begun.append(number),
            CheckpointConfig(tmp_path),
        )
    assert begun[0] == 0
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_a_checkpoint_is_compared_before_anything_is_filled(tmp_path, monkeypatch):
    """The last tensor to be compared is wrong: final weights and arrays stay as they were."""
    cells = [digits(TRAININGS[2])]
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    with pytest.raises(Killed):
        train_runs(cells, run_ids(1), "cpu", interrupted_at(4), CheckpointConfig(tmp_path))
    (path,) = files(tmp_path)
    forged(path, FORGERIES["weights of another shape"])
    batch = start(cells)
    results = Results(batch.setup, 1)
    results.allocate(batch)
    blank = {name: values.copy() for name, values in results.arrays.items()}
    training = _Training(batch, results, Checkpoint(path, path.stem))
    with pytest.warns(UserWarning, match=says(str(path), "step 0")):
        assert training.resumed("cpu") is None
    for name, values in results.arrays.items():
        np.testing.assert_array_equal(values, blank[name], err_msg=name)
    assert not any(part.any() for part in results.final.raw_params.values())


def test_a_checkpoint_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "one.safetensors", "one")
    checkpoint.write({"place/number": torch.tensor(1)})

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("benign.training.checkpoint.save_file", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.write({"place/number": torch.tensor(2)})
    assert checkpoint.resume("cpu", lambda kept: int(kept["place/number"])) == 1


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
