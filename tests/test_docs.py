"""The files shown in the documentation work as they stand, in a folder of a user's own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benign import cli
from benign.experiment import open_result
from tests.registry import forgetting

PAGE = Path(__file__).parents[1] / "docs" / "adding.md"
LONGEST = 80


def test_a_data_model_a_network_and_a_probe_of_a_users_own(tmp_path: Path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    assert all(block.count("\n") <= LONGEST for block in blocks)
    (tmp_path / "mine.py").write_text("\n\n".join(blocks), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    code = (
        "import mine, benign as bo; r = bo.open_result('runs/shells'); "
        "print(float(r.test_accuracy.min()), float(r.largest_margin.min()), r.attrs['runs_failed'])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    accuracy, largest, failed = map(float, told.stdout.split())
    assert accuracy > 0.7, "a quadratic network tells shells apart"
    assert largest > 0
    assert failed == 0


def test_a_paper_of_a_users_own(tmp_path: Path, monkeypatch, capsys):
    """In this process: every new one would load torch again."""
    monkeypatch.chdir(tmp_path)
    page = PAGE.with_name("papers.md").read_text(encoding="utf-8")
    file, use = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [commands] = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    Path("own.py").write_text(file, encoding="utf-8")
    for line in commands.splitlines():
        with forgetting():
            program, *words = line.split()
            assert program == "benign"
            assert cli.main(words) == 0, line
    with forgetting():
        exec(use, {})
    told = capsys.readouterr().out
    assert told.startswith("Own, 2026: How far apart")
    assert told.endswith("Accuracy over dimension and gap 3\n")
    low, high = map(float, re.findall(r"test accuracy (\S+) to (\S+)", told)[0])
    assert low < 0.8 < 0.9 < high, "wide gaps are learned, narrow ones are not"
    assert Path("runs/own/fig1/smoke/default/fig1.png").is_file()


def test_the_page_on_coordinates_runs_at_its_dimension(tmp_path: Path):
    """Clean accuracy is perfect from r = 200 on, robust accuracy at r = 1000 only; wide networks see the signal."""
    page = PAGE.with_name("coordinates.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, check=True)
    result = open_result(tmp_path / "runs/vast")
    assert (result.test_accuracy[1:] == 1).all()
    assert result.robust_accuracy.values.ravel().round(1).tolist() == [0, 0, 1]
    wide = open_result(tmp_path / "runs/wide")
    assert float(wide.test_loss.max()) < 0.3
    assert float(wide.attention_on_signal.min()) > 0.5


def test_a_folder_of_an_unknown_data_model_says_so(tmp_path: Path):
    (tmp_path / "experiment.json").write_text(
        '{"format":1,"history":[{"data":{"kind":"shells"}}]}', encoding="utf-8"
    )
    with pytest.raises(ValueError, match=r"`kind` must be one of .*, got 'shells'"):
        open_result(tmp_path)
