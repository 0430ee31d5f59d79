"""Single bits flipped in any file of a folder: detected or harmless, never another number (scripts/flip_bits.py)."""

import shutil
from collections import Counter

import flip_bits
import pytest
from flip_bits import Flipper
from safetensors.torch import load_file

from benign.sweep.folders import open_experiment
from benign.training.checkpoint import DroppedCheckpoint
from tests.faults.sweeps import typed
from tests.says import holds


@pytest.fixture(scope="module")
def flipper(tmp_path_factory) -> Flipper:
    return Flipper(tmp_path_factory.mktemp("flips"), seed=24)


def outcomes(trials: list[flip_bits.Trial]) -> Counter[str]:
    print(flip_bits.table(trials))
    return Counter(trial.outcome for trial in trials)


@pytest.mark.timeout(600)
def test_a_flipped_bit_is_detected_or_harmless(flipper):
    trials = list(flipper.trials(54))
    found = outcomes(trials)
    bad = [trial for trial in trials if trial.outcome in (flip_bits.WRONG, flip_bits.TRACEBACK)]
    assert not bad
    assert found[flip_bits.DETECTED] > found[flip_bits.HARMLESS] > 0
    assert len({(trial.state, trial.kind) for trial in trials}) == 9


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_kind_of_file_has_many_flipped_bits(tmp_path):
    found = outcomes(list(Flipper(tmp_path, seed=25).trials(180)))
    assert found.keys() == {flip_bits.DETECTED, flip_bits.HARMLESS}


def test_without_a_checksum_of_checkpoints_another_number_is_found(flipper, monkeypatch):
    monkeypatch.setattr(
        "benign.training.checkpoint.read_checked", lambda path, origin: load_file(path)
    )
    pair = ("unfinished", "checkpoint")
    trials = list(flipper.trials(40, iter([pair])))
    assert {(trial.state, trial.kind) for trial in trials} == {pair}
    assert outcomes(trials)[flip_bits.WRONG] >= 1


@pytest.mark.timeout(300)
def test_a_worker_reports_a_damaged_checkpoint_in_a_line(flipper, tmp_path):
    folder = shutil.copytree(flipper.made["unfinished"], tmp_path / "run")
    (path,) = (folder / "checkpoints").glob("*/*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    checked = typed("store", "check", folder)
    assert checked.returncode == 1
    assert str(path) in checked.stdout
    ended = typed("resume", folder, "--unit-timeout", "100")  # in a process of its own
    assert ended.returncode == 0
    (line,) = [line for line in ended.stderr.splitlines() if str(path) in line]
    assert holds(line, "checksum", "step 0")
    assert "Warning" not in ended.stderr
    assert flip_bits.records_in(folder) == flipper.sound["finished"].records


def test_a_checkpoint_of_other_code_is_dropped(flipper, tmp_path, monkeypatch):
    """A class of the user's own that has changed since would go on with weights of the former one."""
    folder = shutil.copytree(flipper.made["unfinished"], tmp_path / "run")
    monkeypatch.setattr("benign.sweep.dispatch.own_code", lambda cells: {"network mine": "changed"})
    with pytest.warns(DroppedCheckpoint, match="code"):
        open_experiment(folder).run(folder)
