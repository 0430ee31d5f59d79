"""References are trained as runs are, and go on after a kill as if there had been none."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.data.images import Images
from benign.networks.patch_cnn import PatchCNN
from benign.training import references
from benign.training.checkpoint import REFERENCE, Checkpoint, CheckpointConfig
from benign.training.engine import train_runs
from benign.training.optimisers import SGD, GradientDescent, Training
from benign.training.setup import Evaluation, Setup
from tests.reference import run_ids, start
from tests.says import says

ATTACK = PGD(ball=Ball(p="inf", radius=0.1, per="sample", box=(0.0, 1.0)), steps=2, start="uniform")
METHODS: list[Training] = [
    SGD(rate=0.1, batch=16, epochs=6, weight_decay=1e-3, stop_loss=0.4),
    GradientDescent(rate=0.5, stop_loss=1.07, max_steps=6),
]


class Killed(Exception):
    """What a process was stopped by."""


def setup(training: Training) -> Setup:
    return Setup(
        data=Images(source="digits", samples=40, classes=(1, 7, 4)),
        network=PatchCNN(width=8, classes=3, threshold=0.1, init_std=0.1),
        attack=ATTACK,
        training=training,
        evaluation=Evaluation(samples=10),
        precision="float64",
    )


def trained(training: Training) -> references.Reference:
    batch = start([setup(training)] * 3)
    return references.trained(batch.setup, batch.streams)


@pytest.mark.parametrize("training", METHODS, ids=lambda method: method.kind)
def test_a_reference_is_what_the_engine_trains(training, tmp_path):
    """The same weights that runs of this setup end with, those that stop early among them."""
    found = trained(training)
    arrays = train_runs(
        [setup(training)] * 3, run_ids(3), config=CheckpointConfig(weights=tmp_path)
    )
    assert len(set(arrays["steps"].tolist())) > 1, "some are to leave before others"
    from benign.training.engine import weights_name

    for run, each in enumerate(run_ids(3)):
        kept = load_file(tmp_path / f"{weights_name(setup(training), each)}.safetensors")
        assert torch.equal(kept["weights"], found.params["weights"][run])
    assert found.finite.all()


@pytest.mark.parametrize("training", METHODS, ids=lambda method: method.kind)
@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_training_goes_on(training, after, tmp_path, monkeypatch):
    """To the bit, wherever it was stopped."""
    whole = trained(training)
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    real = references._ReferenceTraining.record
    sizes: list[int] = []

    def killing(self, batch, status):
        real(self, batch, status)
        sizes.append(len(batch))
        if len(sizes) == after:
            raise Killed

    monkeypatch.setattr(references._ReferenceTraining, "record", killing)
    with references.checkpointing(CheckpointConfig(tmp_path)):
        with pytest.raises(Killed):
            trained(training)
        again = trained(training)
        steps = len(sizes)
        last = trained(training)
    assert len(sizes) == steps, "what has ended is not trained again"
    for each in (again, last):
        assert torch.equal(each.params["weights"], whole.params["weights"])
        assert torch.equal(each.finite, whole.finite)


def bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of the last tensor
    path.write_bytes(data)


def without(name: str) -> Callable[[Path], None]:
    def forge(path: Path) -> None:
        kept = load_file(path)
        del kept[name]
        Checkpoint(path, path.stem.removeprefix(REFERENCE)).write(kept)

    return forge


DAMAGES = [bit, without("ended/weights"), without("sound"), without("place/index")]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("damage", DAMAGES, ids=["bit", "weights", "sound", "index"])
def test_a_damaged_checkpoint_of_references_starts_their_training_again(
    damage, ended, tmp_path, monkeypatch
):
    whole = trained(METHODS[0])
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    steps: list[int] = []

    def report(number: int, training: int) -> None:
        steps.append(number)
        if number == 2 and not ended and steps.count(2) == 1:
            raise Killed

    with references.checkpointing(CheckpointConfig(tmp_path), report):
        with nullcontext() if ended else pytest.raises(Killed):
            trained(METHODS[0])
        (path,) = tmp_path.iterdir()
        damage(path)
        first = len(steps)
        with pytest.warns(UserWarning, match=says(str(path), "step 0")):
            again = trained(METHODS[0])
    assert steps[first] == 0
    assert torch.equal(again.params["weights"], whole.params["weights"])
    assert torch.equal(again.finite, whole.finite)


def test_steps_of_references_are_reported_as_those_of_no_run(tmp_path):
    reported: list[tuple[int, int]] = []
    with references.checkpointing(CheckpointConfig(tmp_path), lambda *step: reported.append(step)):
        trained(METHODS[0])
    assert [training for _, training in reported] == [0] * len(reported)
    steps = [number for number, _ in reported]
    assert len(steps) > 2
    assert steps == sorted(set(steps))


def test_a_checkpoint_of_another_training_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    with references.checkpointing(CheckpointConfig(tmp_path)):
        for training in METHODS:
            trained(training)
        names = _names(tmp_path)
        batch = start([setup(METHODS[0])] * 3)
        references.trained(batch.setup, batch.streams.within("other"))
    assert len(names) == 2
    assert len(_names(tmp_path)) == 3


def test_nothing_is_kept_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BENIGN_CHECKPOINT_SECONDS", "0")
    monkeypatch.chdir(tmp_path)
    trained(METHODS[0])
    assert not _names(tmp_path)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
