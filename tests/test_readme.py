"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benign.experiment import Experiment
from benign.papers.registry import OWN, claims
from benign.spec.yaml import read_yaml
from tests.says import holds

ROOT = Path(__file__).parents[1]


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(found) == 1
    return found[0]


def test_the_file_is_the_experiment_in_python(tmp_path: Path):
    path = tmp_path / "my.yaml"
    path.write_text(block("yaml"))
    names: dict = {}
    exec(block("python").partition("result = ")[0], names)
    assert Experiment.from_dict(read_yaml(path)) == names["sweep"]


def test_the_numbers_of_statements_are_those_of_the_registry():
    text = (ROOT / "README.md").read_text()
    [(printed, derived)] = re.findall(
        r"(\d+) statements of the four papers and (\d+) derived", text
    )
    own = [claim for name, claim in claims().items() if name.partition("/")[0] in OWN]
    assert int(derived) == sum(claim.derived for claim in own)
    assert int(printed) + int(derived) == len(own)


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", block("python")], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert holds(ran.stdout, "test_accuracy", "0.75", "snr", "3 of 3 samples")
    assert (tmp_path / "runs" / "first" / "experiment.json").exists()
