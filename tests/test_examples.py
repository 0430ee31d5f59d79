"""examples/kou: a fifth paper in one folder, which no other file of the program mentions."""

import re
from pathlib import Path

from benign.cli import main as cli
from tests.registry import forgetting
from tests.says import holds
from tests.test_layout import ROOT, texts

FOLDER = ROOT / "examples" / "kou"
LONGEST = 150


def test_a_paper_takes_less_than_150_lines():
    lines = sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in FOLDER.iterdir()
        if path.is_file()
    )
    assert lines < LONGEST


def test_it_runs_from_the_command_line(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with forgetting():
        assert cli.main(["papers", "kou", "--plugin", str(FOLDER)]) == 0
        assert cli.main(["run", "kou/fig1", "--scale", "smoke", "--plugin", str(FOLDER)]) == 0
    printed = capsys.readouterr().out
    assert "Kou, Chen, Chen, Gu" in printed
    assert any(holds(line, "0.75", "signal", "3 of 3 dim") for line in printed.splitlines())
    assert "runs: 15 converged" in printed
    folder = tmp_path / "runs/kou/fig1/smoke/default"
    assert (folder / "fig1.png").stat().st_size > 10_000
    drawn = (folder / "fig1.svg").read_text(encoding="utf-8")
    assert holds(drawn, "kou/fig1", "smoke")
    assert "Reading" not in drawn, "the recipe asks nothing"


def test_its_claims_are_judged(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with forgetting():
        words = ["--plugin", str(FOLDER), "verify", "kou", "--scale", "smoke", "--out", "verdicts"]
        assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert "kou/thm3.2.exponent" in printed
    assert "kou/thm3.2.benign" in printed
    # One seed of each dimension, with the largest signal; runs without flipped labels (12 %) do not count.
    assert re.search(r"([23]) of \1 runs", printed)


def test_no_other_file_mentions_the_example():
    word = re.compile(r"\bkou\b|two_?patches|relu_?cnn", re.IGNORECASE)
    # tests/spec/test_plugins.py installs the example as a package, and loads it from its folder.
    own = ("examples/kou/", "tests/test_examples.py", "tests/spec/test_plugins.py", "docs/")
    found = [
        name
        for name, text in texts()
        if word.search(text) and not name.startswith(own) and not name.endswith(".md")
    ]
    assert not found
