"""kill -9 in the midst of a unit: the next run goes on from its checkpoint, to the same final weights."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from benign.cli.main import main
from tests.faults.sweeps import ENVIRONMENT, contents, python

SPECIFICATION = """
data: {kind: images, source: digits, samples: 100, tokens: 16, construction: {kind: pixel_noise, snr: 2.0}}
network: {kind: vision_transformer, classes: 10, hidden: 16, heads: 2, mlp: 16}
attack: {kind: pgd, ball: {radius: 0.05, relative_to: signal}, steps: 3}
training: {kind: adam_w, rate: 0.003, epochs: 20, batch: 20, stop_loss: 0}
evaluation: {samples: 50, attack: {kind: pgd, ball: {radius: 0.05, relative_to: signal}, steps: 3}}
"""
OFTEN = ("BENIGN_CHECKPOINT_SECONDS", "0")


def words(folder: Path, out: str) -> list[str]:
    file, out = str(folder / "digits.yaml"), str(folder / out)
    return ["run", file, "--out", out, "--workers", "1", "--keep-weights"]


def weights(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "weights").glob("*.safetensors")}


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_training_goes_on_to_the_same_weights(tmp_path, monkeypatch):
    (tmp_path / "digits.yaml").write_text(SPECIFICATION)
    assert main(words(tmp_path, "whole")) == 0
    command = python("-m", "benign", *words(tmp_path, "killed"))
    monkeypatch.setenv(*OFTEN)
    killed = subprocess.Popen(
        command,
        env={**ENVIRONMENT, OFTEN[0]: OFTEN[1]},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    kept = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 60
    while not list(kept.glob("*/*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)  # some epochs on
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert list(kept.glob("*/*.safetensors"))
    assert not contents(tmp_path / "killed")
    assert main(words(tmp_path, "killed")) == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole") != {}
    assert not list(kept.iterdir())  # nothing is left behind
