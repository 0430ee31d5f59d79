"""What the pages of docs/ show works as it stands there: code, files, commands, names."""

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

import benign
from benign import parts, plot
from benign.cli import main as cli
from benign.cli.main import app
from benign.experiment import Experiment
from benign.papers.registry import recipes
from benign.spec import plugins
from benign.sweep.folders import open_result
from benign.training.metrics import METRICS
from tests.registry import forgetting
from tests.says import says

ROOT = Path(__file__).parents[1]
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
SHOWN = {
    **PAGES,
    **{name: (ROOT / f"{name}.md").read_text() for name in ("README", "CONTRIBUTING")},
}
LONGEST = 80
"""lines of a block of code"""

ELSEWHERE = {"modules", "papers"}
"""pages whose code is run by other tests: tests/networks/test_module.py, and one below"""

# What must hold after the code of a page; each is added to the page's script.
AFTERWARDS = {
    "adding": """
    assert result.test_accuracy.min() > 0.6, "a quadratic network separates the shells"
    assert result.largest_margin.min() > 0 and result.attrs["runs_failed"] == 0
    assert {"largest_margin", "largest_margin_curve"} <= set(result.data_vars)
    signed = {"kind": "sign_descent", "rate": 0.02, "stop_loss": 0.3, "max_steps": 500}
    attack = {"kind": "straight_in_every_basis", "ball": {"radius": 0.01}}
    fields = {**sweep.as_dict(), "training": signed, "attack": attack, "seeds": 1}
    fields["data"]["gap"] = 2.0
    assert bo.Experiment.from_dict(fields).run("runs/signed").train_loss.max() <= 0.3
""",
    "around": """
from pathlib import Path

assert len(runs) == 6 < len(steps) and runs.status.isin(["converged", "step_cap"]).all()
assert len(list(Path("logs").rglob("events.*"))) == 6
""",
    "coordinates": """
assert abs(ambient.train_loss - projected.train_loss).max() < 1e-10
""",
    "own-lemma": """
assert (found.runs, found.grid_runs) == (112, 528)
assert found.exponent_is(4).p_value > 0.01 > found.exponent_is(2).p_value
first, second = (
    bo.constant(times, "steps", f"1 / (rate * stop_loss * {part})", kind="O")
    for part in ("signal**2", "(signal**2 + dim / samples)")
)
assert first.along["signal"].bounded is False and second.bounded is not False
assert 1 < second.low.value < second.high.value < 1.5
counter = search.counterexample
assert counter.where["samples"] == 8 and counter.where["dim"] > 20
assert bo.Experiment.from_yaml("runs/lemma/counterexample.yaml") == counter.experiment
""",
    "tutorial": """
from pathlib import Path

drawn = ("accuracy", "loss", "loss-of-one-run")
assert all(Path(f"runs/first/{name}.png").exists() for name in drawn) and len(table) == 24
assert bo.Experiment.from_yaml("first.yaml") == sweep, "the same as a file"
""",
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def run_page(name: str, folder: Path) -> None:
    """Run the code of a page as one script, in a folder with the files it shows (blocks that begin with `# name.yaml`).

    It runs in this process: a new one would load torch again.
    """
    code = []
    for block in blocks(PAGES[name], "(?:python|yaml)"):
        assert block.count("\n") <= LONGEST
        if named := re.match(r"# ([\w/]+\.(?:py|yaml))\n", block):
            (folder / named[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / named[1]).write_text(block, encoding="utf-8")
        else:
            code.append(block)
    script = folder / "page.py"
    script.write_text("\n\n".join([*code, AFTERWARDS.get(name, "")]), encoding="utf-8")
    with forgetting():
        runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("name", sorted(p for p in PAGES if blocks(PAGES[p], "python")))
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, monkeypatch):
    if name in ELSEWHERE:
        pytest.skip("run by a test of its own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run_page(name, tmp_path)
    if name == "coordinates":
        check_coordinates(tmp_path)
    if name == "tutorial":
        check_commands(PAGES[name])


def check_commands(page: str) -> None:
    """Run the commands of a page in order, where its code has run; those that would compute more only as a dry run."""
    [shown] = blocks(page, "console")
    for line in shown.splitlines():
        _, program, *words = shlex.split(line, comments=True)
        more = ["--dry-run"] if {"--seeds", "--set"} & set(words) else []
        assert program == "benign"
        assert cli.main([*words, *more]) == 0, line


def test_a_paper_of_a_users_own(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file, use, *_ = blocks(PAGES["papers"], "python")
    [commands] = blocks(PAGES["papers"], "sh")
    Path("own.py").write_text(file, encoding="utf-8")
    for line in commands.splitlines():
        with forgetting():
            program, *words = line.split()
            assert program == "benign"
            assert cli.main(words) == 0, line
    with forgetting():
        exec(use, {})
    printed = capsys.readouterr().out
    assert printed.startswith("Own, 2026: How far apart")
    assert "own/fig1.wide" in printed
    assert printed.endswith("Accuracy over dimension and gap 3\n")
    low, high = map(float, re.findall(r"test accuracy (\S+) to (\S+)", printed)[0])
    assert low < 0.8 < 0.9 < high, "wide gaps are learned, narrow ones are not"
    assert Path("runs/own/fig1/smoke/default/fig1.png").is_file()
    drawn = Path("runs/own/fig1/smoke/start=hybrid/fig1.svg").read_text(encoding="utf-8")
    assert "preset=hybrid" in drawn


def test_the_installed_package_of_the_page(tmp_path: Path, monkeypatch):
    """Its files are installed as setuptools does, and its own tests pass."""
    found = re.findall(
        r"```(?:python|toml)\n# (my-paper/\S+)\n(.*?)```", PAGES["papers"], re.DOTALL
    )
    files = {name: text for name, text in found}
    tree = blocks(PAGES["papers"], "text")[0]
    assert all(name.removeprefix("my-paper/") in tree for name in files)
    assert len(files) == 4
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    project = tomllib.loads(files["my-paper/pyproject.toml"])["project"]
    info = tmp_path / "my-paper" / f"my_paper-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    group, points = plugins.GROUP, project["entry-points"][plugins.GROUP]
    listed = "\n".join(f"{name} = {module}" for name, module in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{listed}\n")
    monkeypatch.syspath_prepend(tmp_path / "my-paper")
    plugins._entry_points.cache_clear()
    with forgetting():
        tests = runpy.run_path(str(tmp_path / "my-paper/tests/test_my_paper.py"))
        tests["test_the_figure_is_a_valid_experiment_at_every_scale"]()
        tests["test_the_claims_hold_at_smoke_scale"](tmp_path / "runs")
    plugins._entry_points.cache_clear()


def check_coordinates(folder: Path) -> None:
    """Clean accuracy is perfect from r = 200 on, robust accuracy only at 1000; wide networks attend to the signal."""
    result = open_result(folder / "runs/vast")
    assert (result.test_accuracy[1:] == 1).all()
    assert result.robust_accuracy.values.ravel().round(1).tolist() == [0, 0, 1]
    wide = open_result(folder / "runs/wide")
    assert float(wide.test_loss.max()) < 0.3
    assert float(wide.attention_on_signal.min()) > 0.5


@pytest.mark.parametrize("name", sorted(p for p in SHOWN if blocks(SHOWN[p], "yaml")))
def test_the_files_of_a_page_are_experiments(name: str):
    for block in blocks(SHOWN[name], "yaml"):
        assert Experiment.from_dict(yaml.safe_load(block)).units()


def commands() -> list[str]:
    """Return every command on the pages, without its comment."""
    shown = [block for page in SHOWN.values() for block in blocks(page, "console")]
    lines = [line for block in shown for line in block.splitlines() if line.startswith("$ ")]
    return sorted({line[2:].split("  #")[0].strip() for line in lines})


@pytest.mark.parametrize("line", commands())
def test_a_command_shown_is_a_command(line: str):
    program, *words = shlex.split(line)
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert Path(program).name == "benign"
    if "--plugin" in words[:1]:
        words = words[2:]
    command, rest = typer.main.get_command(app), words
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]  # pyright: ignore[reportAttributeAccessIssue]
    params = command.make_context(name, rest).params  # refuses what the command does not know
    recipe = str(params.get("target") or params.get("name") or "")
    if re.fullmatch(r"(jiang|li|wang|zhang)/\w+", recipe):
        assert recipe in recipes()
        assert params.get("scale") in (None, "smoke", "quick", "paper")
        recipes()[recipe].reading(dict(each.split("=") for each in params.get("reading") or ()))


def symbol_rows() -> list[list[str]]:
    """Return the rows of the tables of symbols; a bar inside a cell is written with a backslash."""
    lines = [line for line in PAGES["symbols"].splitlines() if line.startswith("| ")]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [row for row in rows if row[0].strip() not in ("symbol", "---")]


@pytest.mark.parametrize("row", symbol_rows(), ids=lambda row: row[2].strip())
def test_every_name_in_the_tables_of_symbols_exists(row: list[str]):
    known = {name: metric.units for name, metric in METRICS.items()}
    assert len(row) == 5
    names = re.findall(r"`([^`]+)`", row[2])
    assert names
    for name in names:
        owner, _, field = name.rpartition(".")
        if owner:
            assert field in getattr(benign, owner).model_fields
        else:
            assert known[name] == row[3].strip(), "the unit of a variable"


def test_examples_use_public_names_only():
    """Everything else is internal and may change without notice."""
    shown = [block for page in SHOWN.values() for block in blocks(page, "python")]
    shown += [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")]
    used = re.findall(r"^(?:from|import) (benign[\w.]*)", "\n".join(shown), re.MULTILINE)
    assert set(used) <= {"benign", "benign.parts", "benign.claims"}


def test_every_public_name_has_a_place_in_the_reference():
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs/api").glob("*.md")]
    shown = re.findall(r"^::: benign\.(\S+)", "\n".join(pages), re.MULTILINE)
    introduction = (ROOT / "docs/api/parts.md").read_text(encoding="utf-8").partition(":::")[0]
    aliases = {name for name in parts.__all__ if re.search(rf"`{name}\b", introduction)}
    wanted = [*benign.__all__, *(f"plot.{name}" for name in plot.__all__)]
    wanted += [f"parts.{name}" for name in parts.__all__ if name not in aliases]
    assert sorted(shown) == sorted(wanted)


def test_a_folder_with_an_unknown_data_model_is_refused(tmp_path: Path):
    (tmp_path / "experiment.json").write_text(
        '{"format":1,"history":[{"data":{"kind":"shells"}}]}', encoding="utf-8"
    )
    with pytest.raises(ValueError, match=says("`kind`", "mixture", "'shells'")):
        open_result(tmp_path)


def test_the_citation_is_complete():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert all(citation[name] for name in ("message", "title", "authors", "version", "license"))
    assert len(citation["references"]) == 4
    for paper in citation["references"]:
        assert paper["title"] in (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
        assert all(author["family-names"] for author in paper["authors"])


def test_issue_forms_are_valid():
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= form.keys()
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert len(ids) == len(set(ids)) > 0
