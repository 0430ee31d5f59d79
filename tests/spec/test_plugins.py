"""Plugins: files and folders that a user names, and papers of installed packages."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import benign as bo
from benign.claims.study import StudyError
from benign.cli import main as cli
from benign.papers.registry import (
    Paper,
    claims,
    matching,
    papers,
    recipe,
    recipes,
    register,
)
from benign.spec import plugins
from tests.registry import forgetting
from tests.says import holds, says
from tests.tiny import FIELDS

PAPER = '''"""Nobody: A paper of a user's own."""'''
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


FIG1 = Recipe(name="flat/fig1", title="Nothing", shows="nothing")


@FIG1.builds
def build(scale, reading):
    return bo.Experiment(
        data=Flatland(samples=[2, 3], tokens=1, dim=2),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.1, max_steps=3),
        evaluation=bo.Evaluation(samples=4),
    )


@FIG1.draws
def draw(result, caption):
    return {}


@FIG1.summarises
def summarise(result):
    return f"seven: {float(result.seven.min())}"


RECIPES = [FIG1]
'''


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, with a registry that forgets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(plugins.VARIABLE, raising=False)
    plugins._entry_points.cache_clear()
    with forgetting():
        yield
    plugins._entry_points.cache_clear()


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    folder = tmp_path / "flat"
    folder.mkdir()
    for name, text in (("__init__", PAPER), ("parts", PARTS), ("figures", FIGURES)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("place", ["before", "after", "equals"])
def test_a_loaded_folder_is_a_paper_like_the_others(flat, capsys, place):
    option = {"before": ["--plugin", "flat"], "after": [], "equals": ["--plugin=flat"]}[place]
    words = [*option, "papers", *(["--plugin", "flat"] if place == "after" else [])]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "Nobody: A paper of a user's own." in out
    assert "flat/fig1" in out
    assert "jiang/fig1" in out


def test_a_loaded_recipe_runs_is_shown_and_opened(flat, capsys):
    code, out, err = run(capsys, "--plugin", "flat", "run", "flat/fig1", "--scale", "smoke")
    assert (code, err.count("failed")) == (0, 0)
    assert "seven: 7.0" in out
    code, out, _ = run(capsys, "show", "runs/flat/fig1/smoke/default", "--plugin", "flat")
    assert code == 0
    assert "2 runs" in out


@pytest.mark.parametrize(
    ("part", "decorator"), [("build", "builds"), ("figure", "draws"), ("summarise", "summarises")]
)
def test_a_recipe_that_lacks_a_part_is_refused(flat, part, decorator):
    figures = flat / "figures.py"
    figures.write_text(figures.read_text().replace(f"@FIG1.{decorator}\n", ""))
    bo.load(flat)
    expected = says("'flat/fig1'", f"`{part}`", f"`@RECIPE.{decorator}`")
    with pytest.raises(StudyError, match=expected) as refused:
        bo.recipe("flat/fig1")
    assert sum(f"`{name}`" in str(refused.value) for name in ("build", "figure", "summarise")) == 1


def test_a_file_of_ones_own_kinds_runs_in_two_processes(flat, tmp_path, capsys, monkeypatch):
    """Workers know the classes and the probe: neither is NaN or unknown there."""
    fields = {
        **FIELDS,
        "data": {"kind": "flatland", "samples": [2, 3], "tokens": 1, "dim": 2},
        "network": {"kind": "linear"},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    monkeypatch.setenv(plugins.VARIABLE, str(flat))
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
    monkeypatch.setenv(plugins.VARIABLE, os.pathsep.join(["first.py", "second.py"]))
    code, out, _ = run(capsys, "papers", "--plugin", "flat")
    assert code == 0
    assert all(words in out for words in ("Paper first.", "Paper second.", "Nobody"))


def test_loading_from_python(flat):
    with pytest.raises(StudyError, match=says("recipe", "'flat/fig1'")):
        recipe("flat/fig1")
    module = bo.load(flat)
    assert bo.load("flat") is module
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
def test_a_file_that_cannot_be_loaded_is_refused_with_its_place(flat, tmp_path, capsys, name):
    text, parts = REFUSED[name]
    path = tmp_path / "own" / name
    path.parent.mkdir()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    code, out, err = run(capsys, "--plugin", "flat", "papers", "--plugin", str(path))
    assert (code, out) == (2, "")
    assert holds(err, *parts)
    assert "Traceback" not in err


def test_a_corrected_file_is_read_anew(tmp_path):
    path = tmp_path / "mended.py"
    path.write_text("1 / 0", encoding="utf-8")
    with pytest.raises(
        plugins.PluginError, match=says("mended.py: ", "ZeroDivisionError: ", "line 1")
    ):
        bo.load(path)
    path.write_text("RECIPES = []", encoding="utf-8")
    bo.load(path)
    assert path.resolve() in plugins.papers()


def test_a_copy_of_an_installed_paper_is_refused_with_the_remedy(install, tmp_path, capsys):
    site = install("kou", kou_files())
    for name, text in kou_files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    code, _, err = run(capsys, "--plugin", "kou", "papers")
    assert code == 2
    where = str(site / "kou" / "__init__.py")
    assert holds(err, "'kou'", "kou-paper 1.5", where, "`--plugin`", "`pip uninstall kou-paper`")
    assert "rename" not in err


def test_the_option_needs_a_path(capsys):
    code, _, err = run(capsys, "run", "flat/fig1", "--plugin")
    assert code == 2
    assert holds(err, "'--plugin'", "argument")


def test_the_message_for_a_recipe_that_is_not_loaded_says_how_to_load_it(flat, capsys):
    code, _, err = run(capsys, "run", "flat/fig1")
    assert code == 2
    assert holds(err, "'flat/fig1'", "`benign --plugin flat ...`")
    assert "flat/fig1" not in recipes()


@pytest.mark.parametrize("pattern", ["flat", "flat/", "flat/thm*"])
def test_the_message_for_claims_that_are_not_loaded_says_how_to_load_them(flat, capsys, pattern):
    code, _, err = run(capsys, "verify", pattern)
    assert code == 2
    assert holds(err, repr(pattern), "`benign --plugin flat ...`")
    assert "--plugin" not in run(capsys, "verify", "nowhere")[2]


# Installed packages.

KOU = Path(__file__).parents[2] / "examples" / "kou"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that installs modules with an entry point `benign.papers` on Python's path."""
    site = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(site)

    def installed(name: str, files: dict[str, str]) -> Path:
        for file, text in files.items():
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).write_text(text, encoding="utf-8")
        info = site / f"{name}_paper-1.5.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-paper\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {name}\n")
        return site

    return installed


def kou_files() -> dict[str, str]:
    return {f"kou/{file.name}": file.read_text("utf-8") for file in KOU.glob("*.py")}


def test_an_installed_paper_is_found_run_and_opened(install, capsys):
    install("kou", kou_files())
    code, out, err = run(capsys, "papers", "kou")
    assert (code, err) == (0, "")
    assert "Kou, Chen, Chen, Gu: " in out
    assert "kou/fig1" in out
    assert set(matching(["kou"])) == {
        claims()["kou/thm3.2.exponent"],
        claims()["kou/thm3.2.benign"],
    }
    settings = ["--set", "training.max_steps=2", "--set", "data.signal=[2, 4]"]
    code, out, err = run(capsys, "run", "kou/fig1", "--scale", "smoke", *settings, "--workers", "2")
    assert code == 0, err
    assert papers()["kou"].origin == "the installed package kou-paper 1.5"


def test_a_file_names_a_kind_of_an_installed_paper(install):
    """An unknown kind is looked for in installed packages before it is refused."""
    install("flat", {"flat/__init__.py": PAPER, "flat/parts.py": PARTS, "flat/figures.py": FIGURES})
    data = {"kind": "flatland", "samples": 2, "tokens": 1, "dim": 2}
    made = bo.Experiment.from_dict({**FIELDS, "data": data, "network": {"kind": "linear"}})
    assert made.data.kind == "flatland"


def test_an_installed_paper_and_its_own_folder_are_one_paper(install):
    site = install("kou", kou_files())
    assert recipe("kou/fig1").name == "kou/fig1"
    bo.load(site / "kou")
    assert list(papers()).count("kou") == 1


def test_the_example_is_loaded_from_its_folder(capsys):
    code, out, _ = run(capsys, "--plugin", str(KOU), "papers", "kou")
    assert code == 0
    assert "kou/fig1" in out
    assert {claim.id for claim in matching(["kou"])} == {"kou/thm3.2.exponent", "kou/thm3.2.benign"}


BROKEN: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "missing": ({}, ("missing-paper 1.5", "ModuleNotFoundError", "'missing'")),
    "raises": ({"raises.py": "1 / 0"}, ("raises-paper 1.5", "ZeroDivisionError")),
    "inner": (
        {"inner/__init__.py": "", "inner/figures.py": "import nothing_of_this_name"},
        ("inner-paper 1.5", "ModuleNotFoundError", "nothing_of_this_name"),
    ),
    "listless": (
        {"listless/__init__.py": "", "listless/figures.py": ""},
        ("listless-paper 1.5", "RECIPES"),
    ),
    "other": (
        {"other.py": FIGURES.replace("from .parts import", "from json import loads as")},
        ("other-paper 1.5", "recipe", "'flat/fig1'", "`other/...`"),
    ),
    "jiang": (
        {"jiang.py": "RECIPES = []"},
        ("jiang-paper 1.5", "'jiang'", "benign.papers.jiang.figures"),
    ),
}


@pytest.mark.filterwarnings("default::benign.spec.plugins.PluginWarning")
@pytest.mark.parametrize("name", BROKEN)
def test_an_installed_paper_that_is_broken_is_reported_and_left_out(install, capsys, name):
    files, parts = BROKEN[name]
    install(name, files)
    code, out, err = run(capsys, "papers")
    assert code == 0
    assert "jiang/fig1" in out
    assert holds(err, *parts, f"`pip uninstall {name}-paper`")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert run(capsys, "papers")[2] == ""  # once a process


def test_claims_of_an_installed_paper_that_cannot_be_imported_are_reported(install):
    files = {"own/__init__.py": "", "own/figures.py": "RECIPES = []", "own/claims.py": "1 / 0"}
    install("own", files)
    assert "own" in papers()  # names and recipes import no claims
    with pytest.warns(plugins.PluginWarning, match=says("own-paper 1.5", "ZeroDivisionError")):
        claims()


def test_claims_of_a_loaded_folder_that_cannot_be_imported_are_refused(flat):
    (flat / "claims.py").write_text("1 / 0", encoding="utf-8")
    bo.load(flat)
    assert recipe("flat/fig1").title == "Nothing"
    with pytest.raises(StudyError, match=says("flat", "ZeroDivisionError")):
        claims()


def test_two_papers_of_one_name_are_refused_with_both_places():
    register(Paper("mine", "Mine", figures="mine.figures", claims="mine.figures"))
    register(Paper("mine", "Mine", figures="mine.figures", claims="mine.figures"))
    with pytest.raises(StudyError, match=says("mine.figures", "yours.figures", "'mine'", "rename")):
        register(Paper("mine", "Mine", figures="yours.figures", claims="yours.figures"))


STATEMENTS = {
    "import benign": "import benign; assert 'benign.spec.plugins' not in sys.modules",
    "a component": "import benign; benign.Ball(radius=1.0)",
    "papers": "from benign.papers.registry import OWN, papers; assert tuple(papers()) == OWN; assert calls",
    "no claims": "from benign.papers.registry import recipes; recipes(); "
    "assert not [name for name in sys.modules if '.claims.' in name and 'papers' in name]",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_metadata_is_searched_only_for_questions_about_papers(name, tmp_path):
    """Our own papers are found when only `src` is on Python's path."""
    source = Path(bo.__file__).parents[1]
    counted = (
        "import sys, importlib.metadata as m; calls, search = [], m.entry_points\n"
        f"def entry_points(**what): calls.extend([1] * ({plugins.GROUP!r} in what.values())); return search(**what)\n"
        "m.entry_points = entry_points; "
    )
    after = "" if "papers" in STATEMENTS[name] else "; assert not calls"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    code = counted + STATEMENTS[name] + after
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)


def test_a_file_named_like_a_module_of_python_is_refused(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)  # few programs import it
    (tmp_path / "this.py").write_text("RECIPES = []", encoding="utf-8")
    with pytest.raises(plugins.PluginError, match=says("this.py", "rename", "of Python itself")):
        bo.load(tmp_path / "this.py")
