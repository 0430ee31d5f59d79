"""What shells are offered, asked as they ask: a process a question, words in the environment."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import completion_names
import pytest

from benign.cli import completion
from tests.tiny import tiny, tiny_file

BENIGN = [sys.executable, "-m", "benign"]
HEAVY = {"torch", "numpy", "xarray", "matplotlib", "yaml"}


def kept() -> dict[str, Any]:
    return json.loads(completion.NAMES.read_text(encoding="utf-8"))


def ask(*words: str, folder: Path | None = None, shell: str = "bash") -> list[str]:
    """What is offered for the last of these words."""
    if shell == "bash":
        told = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        told = {"_TYPER_COMPLETE_ARGS": " ".join(words)}
    environment = {**os.environ, **told, "_BENIGN_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        BENIGN, env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if shell == "bash" else done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a file, two folders of results and other things."""
    folder = tmp_path_factory.mktemp("here")
    tiny_file(folder)
    for name in ("runs/mine", "runs/deep/er/theirs"):
        tiny().prepare(folder / name)
    (folder / "runs/pictures").mkdir()
    (folder / ".hidden").mkdir()
    return folder


def test_the_names_are_those_of_the_package():
    assert kept() == completion_names.names(), "run python scripts/completion_names.py"


OFFERED = {
    "st": ["status"],
    "run jiang/fig": [f"jiang/fig{number}" for number in (1, 2, 3, 4)],
    "run ti": ["tiny.yaml"],
    "run runs/": ["runs/mine", "runs/deep/er/theirs"],
    "resume runs/deep": ["runs/deep/er/theirs"],
    "status ": ["runs/mine", "runs/deep/er/theirs"],
    "run jiang/fig1 --scale ": ["smoke", "quick", "paper"],
    "verify li/thm": [name for name in kept()["claims"] if name.startswith("li/thm")],
    "papers wang": ["wang", *(name for name in kept()["recipes"] if name.startswith("wang"))],
    "data ci": ["cifar10"],
    "run x --readings a": ["all"],
    "run x --track m": ["mlflow=sqlite:///"],
    "run nothing-of-this-name": [""],
    # Bash breaks words at `=`, and replaces the last one.
    "run jiang/fig1 --reading w_": ["w_O=undivided", "w_O=divided", "w_O=unit"],
    "run jiang/fig1 --reading w_O =": ["undivided", "divided", "unit"],
    "run jiang/fig1 --reading w_O = d": ["divided"],
    "run jiang/fig1 --scale = q": ["quick"],
}


@pytest.mark.parametrize("typed", OFFERED)
def test_names_are_offered(typed, folder):
    assert ask("benign", *typed.split(" "), folder=folder) == OFFERED[typed]


def test_readings_are_those_of_what_is_named():
    known = kept()["recipes"]["jiang/fig1"]
    asked = {f"{q}={answer}" for q, answers in known["questions"].items() for answer in answers}
    assert {*ask("benign", "run", "jiang/fig1", "--reading", "")} == asked
    assert asked < {*ask("benign", "verify", "jiang", "--reading", "")}


def test_zsh_is_told_titles():
    [offered] = ask("benign run jiang/fig1", shell="zsh")
    assert '"jiang/fig1":"Figure 1' in offered


def test_an_answer_is_quick():
    environment = {**os.environ, "_BENIGN_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": "benign\nrun\nzh", "COMP_CWORD": "2"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "benign"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    loaded = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "zhang/fig1" in done.stdout
    assert not loaded & HEAVY
    assert after.ru_utime - before.ru_utime < 1.0  # 0.2 s alone


def test_looking_for_folders_ends_after_a_moment(tmp_path, monkeypatch):
    """A home directory may hold a million folders."""
    for number in range(50):
        (tmp_path / f"folder{number}").mkdir()
    clock = iter(range(1000))
    monkeypatch.setattr(completion.time, "monotonic", lambda: next(clock) * completion.PATIENCE / 9)
    looked: list[str] = []
    monkeypatch.setattr(completion.os.path, "isfile", lambda path: looked.append(path) or False)
    assert completion.folders(f"{tmp_path}/") == []
    assert len(looked) < 10


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_script_works_in_bash(tmp_path):
    """Installed where `--install-completion` puts it, sourced, and asked by bash's own variables."""
    (tmp_path / "benign").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m benign "$@"\n')
    (tmp_path / "benign").chmod(0o755)
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # who started the tests?
    install = ["benign", "--install-completion", "bash"]
    subprocess.run(install, env=environment, check=True, capture_output=True)
    [script] = tmp_path.rglob("*.sh")
    assert str(script) in (tmp_path / ".bashrc").read_text()
    [function] = re.findall(r"-F (\w+) benign", script.read_text())
    asked = f"""
        source '{script}'
        COMP_WORDS=(benign run jiang/fig1 --reading w_O = u) COMP_CWORD=6
        {function} benign
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], env=environment, capture_output=True, text=True)
    assert done.stdout == "undivided unit\n", done.stderr
