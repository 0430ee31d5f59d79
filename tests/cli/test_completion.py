"""What a shell offers when Tab is pressed: typer's own completion, asked as shells ask it."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from benign.claims.study import SCALES
from benign.cli import data, options
from benign.data.sources import KNOWN
from benign.papers.registry import papers, recipes

BENIGN = [sys.executable, "-m", "benign"]
HEAVY = {"torch", "numpy", "xarray", "matplotlib", "yaml"}


def question(shell: str, *words: str) -> dict[str, str]:
    """The environment in which a shell asks to complete the last of these words."""
    if shell == "bash":
        asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        asked = {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return {**os.environ, **asked, "_BENIGN_COMPLETE": f"complete_{shell}"}


def complete(*words: str, shell: str = "bash") -> str:
    done = subprocess.run(
        BENIGN, env=question(shell, *words), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_the_names_are_those_of_the_package():
    assert sorted(options.recipes("")) == sorted(recipes())
    assert options.papers("") == sorted(papers())
    assert set(options.SCALES) == set(SCALES)
    assert set(data.IMAGE_SETS) == set(KNOWN)


OFFERED = {
    "stat": "status",
    "store c": "check",
    "run jiang/fig": "jiang/fig1 jiang/fig2 jiang/fig3 jiang/fig4",
    "run jiang/fig1 --scale ": "smoke quick paper",
    "run x --readings a": "all",
    "verify l": "li",
    "papers compare": "compare compare/architectures",
    "data ci": "cifar10",
    "run runs/": "",  # nothing offered: shells then complete files and folders
}


@pytest.mark.parametrize("typed", OFFERED)
def test_names_are_offered(typed):
    assert complete("benign", *typed.split(" ")).split() == OFFERED[typed].split()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(shell):
    offered = complete("benign run wang/fig", shell=shell)
    assert set(re.findall(r"wang/\w+", offered)) == {f"wang/fig{number}" for number in range(1, 7)}


def test_an_answer_is_quick():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "benign"],
        env=question("bash", "benign", "run", "zh"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "zhang/fig1" in done.stdout
    assert not loaded & HEAVY


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_shown(shell):
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [*BENIGN, "--show-completion", shell]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "_BENIGN_COMPLETE" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_script_works_in_bash(tmp_path):
    """Installed where `--install-completion` puts it, sourced, and asked by bash's own variables."""
    (tmp_path / "benign").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m benign "$@"\n')
    (tmp_path / "benign").chmod(0o755)
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # the tests have no shell
    install = ["benign", "--install-completion", "bash"]
    subprocess.run(install, env=environment, check=True, capture_output=True)
    [script] = tmp_path.rglob("*.sh")
    assert str(script) in (tmp_path / ".bashrc").read_text()
    [function] = re.findall(r"-F (\w+) benign", script.read_text())
    asked = f"""
        source '{script}'
        COMP_WORDS=(benign run jiang/fig1 --scale q) COMP_CWORD=4
        {function} benign
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], env=environment, capture_output=True, text=True)
    assert done.stdout == "quick\n", done.stderr
