"""Files and folders of a person's own: loaded by name, from the command line and from Python."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import benign as bo
from benign.claims.study import StudyError
from benign.cli import main as cli
from benign.papers.recipes import recipe, recipes
from benign.spec import plugins as outside
from tests.registry import forgetting
from tests.says import holds, says
from tests.tiny import FIELDS

ROOM = '''"""Nobody: A paper of a person's own."""'''
PARTS = '''
"""A data model that leaves nothing to learn, and a probe."""

import torch

import benign as bo
from benign.data.model import DataModel, Sample


class Flatland(DataModel):
    """Every point is the same."""

    def sample(self, streams, split, count, dtype):
        y = streams(f"{split}/labels").signs(count, dtype=dtype)
        return Sample(torch.ones(len(streams), count, self.tokens, self.dim, dtype=dtype), y, y)


@bo.metric("a number that is always 7")
def seven(step):
    return torch.full_like(step.loss, 7.0)
'''
FIGURES = '''
"""One recipe."""

import benign as bo
from benign.papers.recipes import Recipe

from .parts import Flatland


def build(scale, reading):
    return bo.Experiment(
        data=Flatland(samples=[2, 3], tokens=1, dim=2),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.1, max_steps=3),
        evaluation=bo.Evaluation(samples=4),
    )


def draw(result, folder, caption):
    return []


def summarise(result):
    return f"seven: {float(result.seven.min())}"


RECIPES = [
    Recipe(name="flat/fig1", title="Nothing", shows="nothing", build=build, draw=draw, summarise=summarise)
]
'''


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, with a registry that forgets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(outside.VARIABLE, raising=False)
    with forgetting():
        yield


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    folder = tmp_path / "flat"
    folder.mkdir()
    for name, text in (("__init__", ROOM), ("parts", PARTS), ("figures", FIGURES)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("place", ["before", "after", "equals"])
def test_a_room_outside_is_a_paper_like_the_others(flat, capsys, place):
    option = {"before": ["--plugin", "flat"], "after": [], "equals": ["--plugin=flat"]}[place]
    words = [*option, "papers", *(["--plugin", "flat"] if place == "after" else [])]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "Nobody: A paper of a person's own." in out
    assert "flat/fig1" in out
    assert "jiang/fig1" in out


def test_a_recipe_outside_runs_is_shown_and_opened(flat, capsys):
    code, out, err = run(capsys, "--plugin", "flat", "run", "flat/fig1", "--scale", "smoke")
    assert (code, err.count("failed")) == (0, 0)
    assert "seven: 7.0" in out
    code, out, _ = run(capsys, "show", "runs/flat/fig1/smoke/default", "--plugin", "flat")
    assert code == 0
    assert "2 runs" in out


def test_a_file_of_ones_own_kinds_runs_in_two_processes(flat, tmp_path, capsys, monkeypatch):
    """Workers know the classes and the probe: neither is NaN or unknown there."""
    fields = {
        **FIELDS,
        "data": {"kind": "flatland", "samples": [2, 3], "tokens": 1, "dim": 2},
        "network": {"kind": "linear"},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    monkeypatch.setenv(outside.VARIABLE, str(flat))
    code, _, err = run(capsys, "run", "own.yaml", "--workers", "2")
    assert code == 0, err
    result = bo.open_result("runs/own")
    assert result.attrs["runs_failed"] == result.attrs["runs_missing"] == 0
    assert (result.seven == 7).all()


def test_two_paths_of_the_environment_and_one_typed_are_all_loaded(
    flat, tmp_path, capsys, monkeypatch
):
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(
            f'"""Paper {name}."""\nRECIPES = []\n', encoding="utf-8"
        )
    monkeypatch.setenv(outside.VARIABLE, os.pathsep.join(["first.py", "second.py"]))
    code, out, _ = run(capsys, "papers", "--plugin", "flat")
    assert code == 0
    assert all(words in out for words in ("Paper first.", "Paper second.", "Nobody"))


def test_loading_from_python(flat):
    with pytest.raises(StudyError, match=says("recipe", "'flat/fig1'")):
        recipe("flat/fig1")
    room = bo.load(flat)
    assert bo.load("flat") is room
    assert bo.recipe("flat/fig1").experiment("smoke").data.kind == "flatland"


REFUSED: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "missing.py": (None, ("missing.py: ", "Python file", "folder", "__init__.py")),
    "notes.txt": ("", ("notes.txt: ", "Python file", "__init__.py")),
    "my-paper.py": ("", ("my-paper.py: ", "'my-paper'", "name", "module")),
    "json.py": ("", ("json.py: ", "'json'", "name", "module", "__init__.py")),
    "torch.py": ("", ("torch.py: ", "'torch'", "name", "module")),
    "broken.py": ("x = 1\ndef f(:\n", ("broken.py: ", "SyntaxError: ", "(broken.py, line 2)")),
    "raises.py": ("import benign as bo\n\nbo.Ball(radius=-1)\n", ("SpecError: ", "radius", "-1", "raises.py, line 3)")),
    "taken.py": (PARTS.replace("Flatland", "Mixture"), ("taken.py", "`mixture`", "benign.data.mixture.Mixture")),
    "probe.py": (PARTS.replace("Flatland", "Hills").replace("seven", "status"), ("probe.py", "`status`", "results")),
    "jiang.py": ("RECIPES = []", ("jiang.py: ", "'jiang'", "name", "paper")),
    "other.py": (FIGURES.replace("from .parts", "from flat.parts"), ("recipe", "'flat/fig1'", "`other/...`")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_loaded_is_refused_with_its_place(flat, tmp_path, capsys, name):
    text, parts = REFUSED[name]
    path = tmp_path / "own" / name
    path.parent.mkdir()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    code, out, err = run(capsys, "--plugin", "flat", "papers", "--plugin", str(path))
    assert (code, out) == (2, "")
    assert holds(err, *parts)
    assert "Traceback" not in err


def test_a_mended_file_is_read_anew(tmp_path):
    path = tmp_path / "mended.py"
    path.write_text("1 / 0", encoding="utf-8")
    with pytest.raises(
        outside.OutsideError, match=says("mended.py: ", "ZeroDivisionError: ", "line 1")
    ):
        bo.load(path)
    path.write_text("RECIPES = []", encoding="utf-8")
    bo.load(path)
    assert "mended" in outside.papers()


def test_with_needs_a_path(capsys):
    code, _, err = run(capsys, "run", "flat/fig1", "--plugin")
    assert code == 2
    assert holds(err, "'--plugin'", "argument")


def test_a_recipe_that_was_not_loaded_is_told_with_the_way(flat, capsys):
    code, _, err = run(capsys, "run", "flat/fig1")
    assert code == 2
    assert holds(err, "'flat/fig1'", "`benign --plugin flat ...`")
    assert "flat/fig1" not in recipes()
