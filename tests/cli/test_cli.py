"""The command line as a person types it: what it prints where, exit codes, bad input, crashes."""

import os
import re
import resource
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import benign
from benign.papers.registry import recipe
from benign.sweep.folders import open_experiment, open_result
from benign.sweep.store import Store
from benign.training import engine
from benign.training.descent import Status
from benign.training.metrics import METRICS
from tests.says import holds
from tests.tiny import FIELDS, tiny, tiny_file

ANSI = "\x1b"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    """Default folders lie under the current one."""
    monkeypatch.chdir(tmp_path)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "benign", *(str(each) for each in arguments)]


def typed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=100)


def counts(line: str) -> list[int]:
    """The numbers of a line, lowest first."""
    return sorted(int(number) for number in re.findall(r"\d+", line))


# What is quick


def modules_loaded(*arguments: str) -> set[str]:
    """The top-level names of the modules that a process of Python imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"\|\s+(\w+)\s*$", done.stderr, re.MULTILINE))


def cpu_seconds(*arguments: str) -> float:
    """The least CPU time of five processes of Python."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(5))


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        (("-c", "import benign"), 0.1),
        (("-m", "benign", "--help"), 0.3),
    ],
    ids=["import", "--help"],
)
def test_the_program_starts_quickly_and_without_torch(arguments: tuple[str, ...], limit: float):
    """CPU time, beyond that of an empty process: it depends little on what else the machine does."""
    assert modules_loaded(*arguments).isdisjoint({"torch", "numpy", "xarray", "matplotlib", "yaml"})
    assert cpu_seconds(*arguments) - cpu_seconds("-c", "pass") < limit


def test_a_run_imports_only_what_every_run_needs():
    """The rest, 400 modules and 0.5 s, is imported by the functions that use it."""
    heavy = {"scipy.stats", "scipy.optimize", "scipy.sparse", "scipy.linalg", "matplotlib.pyplot"}
    heavy |= {"torch._dynamo", "torch._inductor", "torchvision", "timm", "dask", "plotly", "jinja2"}
    code = (
        "import benign.cli.run, benign.papers.registry as r, sys; r.recipes(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert heavy.isdisjoint(done.stdout.split())


def test_the_version_is_printed(run):
    assert run("--version") == (0, f"benign {benign.__version__}\n", "")


NAMES = ("papers", "run", "resume", "status", "show", "export", "pack", "merge", "data")
NAMES = (*NAMES, "store check", "audit", "verify", "advise", "report", "schema")


@pytest.mark.parametrize("name", ["", *NAMES])
def test_help_has_examples_that_name_real_commands(run, name):
    code, out, err = run(*name.split(), "--help")
    assert (code, err) == (0, "")
    assert "Usage: benign" in out
    examples = out.partition("Examples:")[2].strip().splitlines()
    assert examples
    assert all(re.match(rf"\s*benign ({'|'.join(NAMES)})\b", line) for line in examples)
    assert ANSI not in out


def test_the_program_alone_shows_its_help(run):
    code, out, _ = run()
    assert code == 0
    assert "Commands:" in out


def test_papers_lists_recipes_and_readings(run):
    code, out, err = run("papers")
    assert (code, err) == (0, "")
    for words in ("jiang/fig1", "zhang/fig1", "w_O: undivided*", "smoke, quick, paper"):
        assert words in out
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "zhang/fig1" not in run("papers", "jiang")[1]


def test_papers_shows_everything_about_one_recipe(run):
    code, out, _ = run("papers", "jiang/fig1")
    assert code == 0
    flat = " ".join(out.split())
    for question in recipe("jiang/fig1").questions:
        for words in (question.asks, question.reason, *question.answers.values()):
            assert words in flat
    for scale in ("smoke", "quick", "paper"):
        assert f"{scale} " in out


# Running


def test_fewer_seeds_are_reported_and_drawn_with_all_seeds_of_the_folder(run, tmp_path):
    path = tiny_file(tmp_path)
    assert run("run", path, "--seeds", "3")[0] == 0
    picture = tmp_path / "runs/tiny/test_accuracy.svg"
    drawn = picture.read_bytes()
    assert b"3 seeds" in drawn
    code, out, err = run("run", path, "--seeds", "1")
    assert code == 0
    assert any(holds(line, "runs/tiny", "3 seeds", "1") for line in out.splitlines())
    assert re.search(r"^mean.* 3 seeds$", out, re.MULTILINE)
    assert holds(err, "0 runs", "4 of 4")
    assert picture.read_bytes() == drawn
    assert "4 of 4" in run("show", path, "--seeds", "1")[1]
    out = run("run", path, "--seeds", "1", "--out", "runs/other")[1]
    assert re.search(r"^mean.* 1 seed$", out, re.MULTILINE)


def test_a_recipe_is_drawn_with_all_that_is_there(run, tmp_path):
    words = ("run", "jiang/fig1", "--scale", "smoke")
    assert run(*words, "--seeds", "2")[0] == 0
    [picture] = (tmp_path / "runs/jiang/fig1/smoke/default").glob("*.svg")
    drawn = picture.read_bytes()
    assert run(*words, "--seeds", "1")[0] == 0
    assert b"2 seeds" in drawn
    assert picture.read_bytes() == drawn


def test_show_prints_the_plan_also_if_the_folder_holds_another_experiment(run, tmp_path):
    path = tiny_file(tmp_path)
    assert run("run", path, "--seeds", "1")[0] == 0
    code, out, err = run("show", path, "--set", "training.rate=0.05")
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    assert holds(flat, "8 runs", "4 cells", "2 seeds", "runs/tiny", "--out FOLDER")
    assert re.search(r"training\.rate\W.*\b0\.5\b.*\b0\.05\b", flat)
    code, _, err = run("run", path, "--set", "training.rate=0.05")
    assert code == 2
    assert "seeds:" not in err


def test_running_a_file_prints_results_on_stdout_and_progress_on_stderr(tmp_path):
    tiny_file(tmp_path)
    done = typed("run", "tiny.yaml")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "tiny.yaml"
    assert any(holds(line, "mean", "2 seeds") for line in lines)
    assert any(holds(line, f"`benign report {Path('runs') / 'tiny'}`") for line in lines)
    assert lines[-2].startswith("runs: ")
    assert lines[-2].endswith(Status.STEP_CAP.label)
    assert lines[-1] == f"data: {Path('runs') / 'tiny'}"
    assert counts(done.stderr.splitlines()[0]) == [2, 8]
    assert "8 of 8" in done.stderr
    assert ANSI not in done.stdout + done.stderr
    assert open_result("runs/tiny").identical(tiny().run(tmp_path / "python"))


def test_a_second_call_returns_at_once_and_more_seeds_add(run, tmp_path):
    path = tiny_file(tmp_path)
    first = run("run", path)
    code, out, err = run("run", path)
    assert (code, out) == (0, first[1])
    assert err.count("\n") == 1
    assert counts(err) == [0, 0, 8, 8]
    code, _, err = run("run", path, "--seeds", "3")
    assert code == 0
    assert counts(err.splitlines()[0]) == [2, 4, 8, 12]
    assert open_experiment("runs/tiny").seeds == 3


def test_the_table_has_the_means_of_the_result(run, tmp_path):
    code, out, _ = run("run", tiny_file(tmp_path), "--set", "data.samples=2")
    result = open_result("runs/tiny")
    header, *rows = [line.split() for line in out.splitlines()[2:5]]
    assert code == 0
    assert header[:2] == ["snr", "steps"]
    for row in rows:
        cell = result.sel(snr=float(row[0])).mean("seed")
        for name, number in zip(header[1:], row[1:], strict=True):
            assert float(number) == pytest.approx(float(cell[name]), rel=1e-3)


def test_a_large_grid_has_no_table(run, tmp_path):
    many = f"data.snr={[0.1 * i for i in range(1, 26)]}"
    code, out, _ = run("run", tiny_file(tmp_path), "--set", many, "--set", "training.max_steps=1")
    assert code == 0
    assert not re.search(r"^\s*samples +snr +steps", out, re.MULTILINE)


def test_a_recipe_draws_summarises_and_says_where(run):
    code, out, _ = run("run", "jiang/fig1", "--scale", "smoke", "--reading", "w_O=unit")
    folder = Path("runs/jiang/fig1/smoke/w_O=unit")
    assert code == 0
    assert holds(out.splitlines()[0], "jiang/fig1", "smoke", "w_O=unit")
    assert holds(out, "no boundary at this level", "3 of 3 rows cross", "4 are needed")
    pictures = [folder / f"fig1.{kind}" for kind in ("pdf", "svg", "png")]
    assert f"pictures: {', '.join(map(str, pictures))}" in out
    assert out.splitlines()[-1] == f"data: {folder}"
    assert all(picture.stat().st_size > 1000 for picture in pictures)
    drawn = " ".join(re.sub("<[^>]*>", " ", pictures[1].read_text(encoding="utf-8")).split())
    for words in ("jiang/fig1", "smoke", "1 seed", "w_O=unit", "attack: none"):
        assert words in drawn
    built = recipe("jiang/fig1").experiment("smoke", recipe("jiang/fig1").reading({"w_O": "unit"}))
    assert open_experiment(folder) == built


def test_several_readings_have_folders_under_out(run, monkeypatch):
    chosen = recipe("jiang/fig1")
    undrawn = replace(chosen, figure=lambda result, caption: {}, summarise=lambda result: "")
    monkeypatch.setattr("benign.papers.requests.recipes", lambda: {chosen.name: undrawn})
    small = ["--set", "training.max_steps=2", "--set", "data.dim=16"]
    code, out, _ = run(
        "run", "jiang/fig1", "--scale", "smoke", "--readings", "all", "--out", "all", *small
    )
    labels = {chosen.label(reading) for reading in chosen.readings("all")}
    assert code == 0
    assert {path.name for path in Path("all").iterdir()} == labels
    assert out.count("data: ") == len(labels) == 7
    for reading in chosen.readings("all"):
        found = open_experiment(Path("all") / chosen.label(reading))
        fields = chosen.experiment("smoke", reading).as_dict()
        fields["training"]["max_steps"], fields["data"]["dim"] = 2, 16
        assert found.as_dict() == fields


def test_none_of_several_readings_runs_if_one_is_refused(run):
    small = ["--set", "training.max_steps=2", "--set", "data.dim=16", "--scale", "smoke"]
    tiny().run(Path("all") / "w_O=unit")
    code, _, err = run("run", "jiang/fig1", "--readings", "all", "--out", "all", *small)
    assert code == 2
    assert holds(err, str(Path("all") / "w_O=unit"), "--out FOLDER")
    assert not any(Path("all/default/records").iterdir())


def test_a_figure_that_cannot_be_drawn_does_not_lose_the_data(run):
    code, out, err = run(
        "run", "jiang/fig1", "--scale", "smoke", "--set", "data.samples=4", "--out", "a"
    )
    assert code == 1
    assert holds(err, "benign: ", "data", "figure", "jiang/fig1", "smoke", "default")
    assert "Traceback" not in err
    assert out.splitlines()[-1] == "data: a"


def test_a_diverged_run_is_an_outcome(run, tmp_path):
    code, out, _ = run("run", tiny_file(tmp_path), "--set", "training.rate=1e30")
    assert code == 0
    assert "runs: 8 diverged" in out


def test_failed_runs_are_counted_and_reported(run, tmp_path, monkeypatch):
    def fail(*_):
        raise ArithmeticError("the fan is broken")

    path = tiny_file(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(engine, "_train_batch", fail)
        code, out, err = run("run", path)
        assert code == 1
        assert "runs: 8 failed" in out
        assert "8 runs: ArithmeticError: the fan is broken" in err
        assert "same command" in err
        assert "the fan is broken" not in out
        assert "Traceback" not in out + err
        _, out, err = run("run", path, "-v")
        assert "Traceback" in err
        assert "Traceback" not in out
    assert "the fan is broken" in run("show", "runs/tiny")[1]
    code, out, err = run("run", path)
    assert code == 0
    assert " failed" not in out
    assert "8 runs" in err.splitlines()[0]


def test_an_interrupted_run_says_how_to_go_on(run, tmp_path, monkeypatch):
    train, path = engine._train_batch, tiny_file(tmp_path)

    def interrupt_at_four(cells, *arguments):
        if cells[0].data.samples == 4:
            raise KeyboardInterrupt
        return train(cells, *arguments)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(engine, "_train_batch", interrupt_at_four)
        code, _, err = run("run", path)
    assert code == 130
    assert err.splitlines()[-1].startswith("benign: interrupted")
    assert "same command" in err.splitlines()[-1]
    code, _, err = run("run", path)
    assert code == 0
    assert counts(err.splitlines()[0]) == [1, 4, 4, 8]


# Showing, packing, merging


def test_show_prints_the_plan_and_writes_nothing(run, tmp_path):
    path = tiny_file(tmp_path)
    for arguments in (("show", path), ("run", path, "--dry-run")):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert holds(out, "samples  2:  2, 4", "8 runs", "4 cells", "2 seeds", "4 samples x 3")
        assert re.search(r"memory .*\d [KM]iB", out)
        assert re.search(r"time .*\d s\b.* loss .*\b40\b", out)
        assert "runs/tiny" in out
        assert not Path("runs").exists()


def test_show_knows_the_time_of_runs_that_take_all_their_steps(run, tmp_path):
    path = tiny_file(tmp_path, "training.stop_loss=0")
    assert re.search(r"time (?!.* loss ).*\d s\b.*\b40\b", run("show", path)[1])


def test_show_counts_what_is_done(run, tmp_path):
    path = tiny_file(tmp_path)
    run("run", path)
    out = run("show", path)[1]
    assert "8 of 8" in out
    assert re.search(r"^ *time +[^\d\n]+$", out, re.MULTILINE), "no seconds"
    assert "8 of 12" in run("show", path, "--seeds", "3")[1]


def test_show_abbreviates_long_axes(run):
    _, out, _ = run("show", "jiang/fig1", "--scale", "paper")
    assert re.search(r"snr +10: +0\.15625, .*, \.\.\., 15\.625", out)
    assert holds(out, "500 runs", "100 cells", "5 seeds")


def test_the_specification_that_show_prints_can_be_run(run, tmp_path):
    _, out, _ = run("show", "zhang/fig1", "--scale", "smoke", "-v")
    text = out[out.index("data:\n") :]
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    assert yaml.safe_load(text)["seeds"] == 1
    assert run("show", "mine.yaml")[0] == 0
    assert benign.Experiment.from_yaml("mine.yaml") == recipe("zhang/fig1").experiment("smoke")


def test_show_of_a_folder_prints_statuses_and_damage(run, tmp_path):
    run("run", tiny_file(tmp_path))
    code, out, err = run("show", "runs/tiny")
    assert (code, err) == (0, "")
    assert re.search(r"status +\d converged, \d .*step cap", out)
    assert "2 intact, 0 damaged" in out
    assert "kind: signal_noise" in run("show", "runs/tiny", "-v")[1]
    path = min(Path("runs/tiny/records").glob("*.npz"))
    path.write_bytes(path.read_bytes()[:100])
    out = run("show", "runs/tiny")[1]
    assert "4 missing" in out
    assert "1 intact, 1 damaged" in out
    assert path.name in out.replace("\n", "").replace(" ", "")


def test_pack_and_merge_print_counts(run, tmp_path):
    run("run", tiny_file(tmp_path))
    code, out, _ = run("pack", "runs/tiny", "a.pack")
    assert (code, out.count("\n")) == (0, 1)
    assert holds(out, "2 records", "runs/tiny", "a.pack")
    for there, numbers in ((0, ["2", "0", "0"]), (2, ["0", "2", "0"])):
        code, out, _ = run("merge", "a.pack", "new")
        assert (code, out.count("\n")) == (0, 1)
        assert re.findall(r"\d+", out) == numbers, f"{there} were there before"
        assert holds(out, "records", "new", "damaged")
    assert open_result("new").identical(open_result("runs/tiny"))


# Folders that know where they come from


def made(folder: str) -> dict:
    return Store.open(folder, writing=False).about.made


def test_a_folder_knows_the_command_that_made_it(run, tmp_path):
    run("run", tiny_file(tmp_path), "--set", "training.rate=0.25")
    expected = {"benign": benign.__version__, "changes": ["training.rate=0.25"]}
    assert made("runs/tiny") == {**expected, "target": str(tmp_path / "tiny.yaml")}
    out = run("show", "runs/tiny")[1]
    assert holds(" ".join(out.split()), "training.rate=0.25", benign.__version__)


def test_a_folder_of_a_recipe_is_resumed_and_drawn_again(run):
    small = ["--scale", "smoke", "--reading", "w_O=unit", "--set", "training.max_steps=30"]
    code, first, _ = run("run", "jiang/fig1", *small, "--out", "a")
    assert code == 0
    assert made("a") == {
        "benign": benign.__version__,
        "target": "jiang/fig1",
        "scale": "smoke",
        "reading": recipe("jiang/fig1").reading({"w_O": "unit"}),
        "changes": ["training.max_steps=30"],
    }
    about, picture = Store.open("a").about, Path("a/fig1.svg")
    before = picture.read_text(encoding="utf-8")
    for path in [picture, min(Path("a/records").glob("*.npz"))]:
        path.unlink()
    code, out, err = run("run", "a")
    assert code == 0
    assert 0 not in counts(err.splitlines()[0])
    assert out.splitlines()[1:] == first.splitlines()[1:]
    assert picture.read_text(encoding="utf-8") == before
    assert Store.open("a").about == about


def test_a_folder_may_grow_and_be_run_elsewhere(run, tmp_path):
    run("run", tiny_file(tmp_path))
    assert run("run", "runs/tiny", "--seeds", "3")[0] == 0
    assert open_experiment("runs/tiny").seeds == 3
    assert run("run", "runs/tiny", "--out", "copy")[0] == 0
    assert open_experiment("copy") == open_experiment("runs/tiny")
    assert open_result("copy").attrs["runs_missing"] == 0
    code, _, err = run("run", "runs/tiny", "--scale", "smoke")
    assert code == 2
    assert holds(err, "--scale", "recipe", "runs/tiny")


def test_show_prints_the_specification_alone(run, tmp_path):
    run("run", tiny_file(tmp_path))
    code, text, err = run("show", "runs/tiny", "--yaml")
    assert (code, err) == (0, "")
    assert text.startswith("benign: 1\n")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    assert benign.Experiment.from_yaml("mine.yaml") == tiny()
    assert run("show", "tiny.yaml", "--yaml")[1] == text
    (tmp_path / "mine.yaml").write_text(text.replace("benign: 1", "benign: 2"), encoding="utf-8")
    code, _, err = run("run", "mine.yaml")
    assert code == 2
    assert holds(err, "benign: benign: ", "version", "2")


def test_the_plain_file_is_a_part_of_what_it_grew_to(run, tmp_path):
    path = tiny_file(tmp_path)
    first = run("run", path)[1]
    assert run("run", path, "--set", "training.rate=[0.5, 0.25]")[0] == 0
    code, out, err = run("run", path)
    assert (code, out) == (0, first)
    assert "0 runs" in err.splitlines()[0]


def test_one_other_value_shares_no_folder_whichever_came_first(run, tmp_path):
    path, change = tiny_file(tmp_path), ("--set", "training.rate=0.25")
    for number, orders in enumerate([((), change), (change, ())]):
        out = ("--out", f"folder {number}")
        assert run("run", path, *orders[0], *out)[0] == 0
        code, _, err = run("run", path, *orders[1], *out)
        assert code == 2
        assert "--out FOLDER" in err
    text = " ".join(run("run", "--help")[1].split())
    assert re.search(r"--set FIELD=VALUE [^-]*--out", text)


def test_another_experiment_is_refused_with_the_remedy_first(run, tmp_path):
    path = tiny_file(tmp_path)
    run("run", path)
    changes = [f"data.{name}" for name in ("dim=9", "tokens=4", "noise_std=1", "flip=0.1")]
    changes += ["training.rate=0.1", "training.max_steps=9", "evaluation.samples=9"]
    code, _, err = run("run", path, *(word for each in changes for word in ("--set", each)))
    assert code == 2
    first, *_, last = err.splitlines()
    assert first.startswith("benign: runs/tiny ")
    assert holds(first, "folder", "--out FOLDER")
    assert "more" in last


def test_a_variable_that_was_not_measured_is_reported_and_measured_again(run, tmp_path):
    path = tiny_file(tmp_path)
    run("run", path)

    @benign.metric("a loss of one's own")
    def loss_by_command(step):
        return step.loss

    try:
        code, _, err = run("run", path)
        assert code == 0
        assert holds(err, "benign: runs/tiny: ", "`loss_by_command`", "recompute=True")
        code, _, err = run("run", path, "--recompute")
        assert code == 0
        assert counts(err.splitlines()[0]) == [2, 8]
        assert "loss_by_command" not in err
        assert open_result("runs/tiny").loss_by_command.notnull().all()
    finally:
        del METRICS["loss_by_command"]


def test_set_reaches_a_field_that_the_file_leaves_at_its_default(run, tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in FIELDS.items() if k != "evaluation"}))
    for change in ("evaluation.samples=7", "network.init.divide_by=2", "root_seed=5"):
        code, out, err = run("show", path, "-v", "--set", change)
        assert code == 0, err
        name, _, value = change.rpartition(".")[2].partition("=")
        assert f"{name}: {value}" in out
    code, _, err = run("show", path, "--set", "evaluation.attack.steps=3")
    assert code == 2
    assert holds(err, "evaluation.attack.steps", "`steps`")
    code, _, err = run("show", path, "--set", "evaluation.sampels=3")
    assert holds(err, "evaluation.sampels", "`samples`")


def test_set_may_mend_a_file_that_is_not_complete(run, tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in FIELDS.items() if k != "training"}))
    assert run("show", path)[0] == 2
    assert run("show", path, "--set", "training={rate: 0.5}")[0] == 0


def test_an_experiment_of_ones_own_is_drawn(run, tmp_path):
    attack = "attack={kind: pgd, ball: {radius: 0.1}, steps: 2}"
    _, out, _ = run("run", tiny_file(tmp_path, attack))
    assert "pictures: runs/tiny/test_accuracy.pdf" in out
    assert Path("runs/tiny/robust_accuracy.svg").is_file()
    run("run", tmp_path / "tiny.yaml", "--width", "column")
    assert 'width="241.2pt"' in Path("runs/tiny/robust_accuracy.svg").read_text(), "3.35 inches"
    _, out, _ = run("run", tiny_file(tmp_path, "data.samples=2", name="line.yaml"))
    assert "pictures: runs/line/accuracy.pdf, runs/line/accuracy.svg" in out
    _, out, _ = run("run", tiny_file(tmp_path, "data.samples=2", "data.snr=1", name="one.yaml"))
    assert "pictures" not in out


# Bad input: each fails before work starts, in one message, with exit code 2 and no traceback.

BAD: dict[str, tuple[Any, ...]] = {
    "negative dim": (["run", "tiny.yaml", "--set", "data.dim=-4"], "data.dim", "1", "-4"),
    "snr and signal": (
        ["run", "tiny.yaml", "--set", "data.signal=1"],
        "`snr`",
        "`signal`",
        "signal=1.0",
    ),
    "odd balanced": (
        ["run", "tiny.yaml", "--set", "data.balanced=true", "--set", "data.samples=3"],
        "`samples`",
        "`balanced: true`",
        "3",
        "4",
    ),
    "empty axis": (["run", "tiny.yaml", "--set", "data.snr=[]"], "data.snr", "axis", "[]"),
    "unknown field": (["run", "tiny.yaml", "--set", "data.size=3"], "data.size", "samples"),
    "unknown part": (
        ["run", "tiny.yaml", "--set", "dat.dim=3"],
        "dat.dim=3",
        "`dat`",
        "data, network",
    ),
    "no value": (["run", "tiny.yaml", "--set", "data.dim"], "data.dim", "field=value"),
    "seeds 0": (["run", "tiny.yaml", "--seeds", "0"], "seeds", "1", "0"),
    "seeds x": (["run", "tiny.yaml", "--seeds", "x"], "--seeds", "whole number", "'x'"),
    "too many runs": (
        ["run", "tiny.yaml", "--seeds", "1000000"],
        "4,000,000",
        "`seeds`",
        "1,000,000",
    ),
    "too large": (
        ["run", "tiny.yaml", "--set", "data.dim=100000000000"],
        "`dim` 100000000000",
        "`samples` 4",
        "`tokens` 3",
        "GiB",
        "`coordinates: sampled`",
    ),
    "beyond floats": (
        ["run", "tiny.yaml", "--set", "data.dim=1" + "0" * 400],
        "data.dim",
        "1" + "0" * 30,
    ),
    "no width": (
        ["run", "tiny.yaml", "--width", "wide"],
        "`width`",
        "column, page",
        "'wide'",
    ),
    "no device": (["run", "tiny.yaml", "--device", "cuda:99"], "`device`", "cpu", "'cuda:99'"),
    "no workers": (["run", "tiny.yaml", "--workers", "0"], "`workers`", "1", "0"),
    "unwritable": (["run", "tiny.yaml", "--out", "tiny.yaml/x"], "--out", "tiny.yaml", "file"),
    "a file as folder": (
        ["run", "tiny.yaml", "--out", "tiny.yaml"],
        "--out",
        "tiny.yaml",
        "folder",
    ),
    "a folder in use": (["run", "tiny.yaml", "--out", "."], "experiment.json", "folder"),
    "no such file": (["run", "none.yaml"], "none.yaml", "No such file"),
    "no such recipe": (["run", "jiang/fig9"], "'jiang/fig9'", "jiang/fig1"),
    "very long name": (["run", "x" * 5000], "xxx"),
    "unknown scale": (
        ["run", "jiang/fig1", "--scale", "huge"],
        "`scale`",
        "smoke, quick, paper",
        "'huge'",
    ),
    "unknown question": (["run", "jiang/fig1", "--reading", "x=y"], "`x`", "jiang/fig1", "w_O"),
    "unknown answer": (
        ["run", "jiang/fig1", "--reading", "w_O=x"],
        "`w_O`",
        "undivided, divided, unit",
        "'x'",
    ),
    "no answer": (["run", "jiang/fig1", "--reading", "w_O"], "--reading 'w_O'", "w_O=divided"),
    "unknown readings": (
        ["run", "jiang/fig1", "--readings", "x"],
        "`readings`",
        "default, all, product",
        "'x'",
    ),
    "both readings": (
        ["run", "jiang/fig1", "--readings", "all", "--reading", "w_O=unit"],
        "--reading ",
        "--readings",
    ),
    "a scale for a file": (
        ["run", "tiny.yaml", "--scale", "smoke"],
        "--scale",
        "tiny.yaml",
        "--set",
    ),
    "a reading for a file": (
        ["run", "tiny.yaml", "--reading", "a=b"],
        "--reading",
        "tiny.yaml",
        "--set",
    ),
    "python tag": (["run", "tag.yaml"], "tag.yaml", "YAML", "python/object/apply", "line 1"),
    "alias bomb": (["run", "bomb.yaml"], "bomb.yaml", "aliases", "line 2"),
    "deep nesting": (["run", "deep.yaml"], "deep.yaml", "nested", "20"),
    "binary": (["run", "binary.yaml"], "binary.yaml", "UTF-8"),
    "huge file": (["run", "huge.yaml"], "huge.yaml", "65,536"),
    "many unknown fields": (["run", "fields.yaml"], "field0", "network", "197"),
    "terminal codes": (["run", "codes.yaml"], "?[2J: ", "codes.yaml, line 25"),
    "show of nothing": (["show", "nothing"], "'nothing'", "jiang/fig1"),
    "show of a device": (["show", "tiny.yaml", "--device", "tpu"], "`device`", "cpu", "'tpu'"),
    "show with no workers": (["show", "tiny.yaml", "--workers", "0"], "`workers`", "1", "0"),
    "show of the too large": (
        ["show", "tiny.yaml", "--set", "data.dim=100000000000"],
        "dim",
        "GiB",
    ),
    "papers of nobody": (["papers", "nobody"], "'nobody'", "compare, jiang"),
    "pack of nothing": (["pack", "nothing", "a.pack"], "nothing ", "pack", "folder"),
    "pack over a file": (["pack", "nothing", "tiny.yaml"], "nothing ", "pack", "folder"),
    "merge of nothing": (["merge", "nothing", "a"], "nothing ", "pack", "folder"),
    "merge of a file": (["merge", "tiny.yaml", "a"], "tiny.yaml", "pack"),
    "no target": (["run"], "target", "`benign run --help`"),
    "unknown option": (["run", "tiny.yaml", "--colour"], "--colour", "`benign run --help`"),
    "unknown command": (["fly"], "'fly'", "`benign --help`"),
}
FILES = {
    "tag.yaml": b"data: !!python/object/apply:os.mkdir ['pwned']\n",
    "bomb.yaml": b"a: &a [1, 1]\nb: [*a, *a]\n",
    "deep.yaml": b"a: " + b"[" * 10_000,
    "binary.yaml": b"\x89PNG\xff\xfe\x00",
    "huge.yaml": b"a: " + b"1" * 200_000,
    "fields.yaml": "\n".join(f"field{i}: 1" for i in range(200)).encode(),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_short_message(run, tmp_path, case):
    tiny_file(tmp_path)
    tiny_file(tmp_path, name="codes.yaml")
    with open("codes.yaml", "a", encoding="utf-8") as file:
        file.write('"\\e[2J": 1\n')
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    arguments, *parts = BAD[case]
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("benign: ")
    assert holds(err, *parts)
    assert len(err.splitlines()) <= 8
    assert max(len(line) for line in err.splitlines()) <= 320
    assert "Traceback" not in err
    assert ANSI not in err
    assert sorted(tmp_path.rglob("*")) == before  # nothing was begun


def test_bad_input_of_the_module(tmp_path, monkeypatch, capsys):
    """`python -m benign`, but for the process."""
    tiny_file(tmp_path)
    monkeypatch.setattr(sys, "argv", ["benign", "run", "tiny.yaml", "--set", "data.dim=-4"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("benign", run_name="__main__")
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert holds(err, "benign: data.dim: ", "1", "-4")


def test_verbose_shows_where_bad_input_was_noticed(run, tmp_path):
    code, _, err = run("run", tiny_file(tmp_path), "--set", "data.dim=-4", "-v")
    assert code == 2
    assert "Traceback" in err
    assert holds(err.splitlines()[-1], "benign: data.dim: ", "1", "-4")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(run, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, _, err = run("run", tiny_file(tmp_path), "--out", "locked/run")
    assert code == 2
    assert holds(err, "locked/run", "Permission denied")


def test_a_full_disk_is_no_traceback(run, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "runs/tiny/records/x.npz")

    monkeypatch.setattr(Store, "write", full)
    code, _, err = run("run", tiny_file(tmp_path))
    assert code == 1
    assert err.splitlines()[-1] == "benign: runs/tiny/records/x.npz: No space left on device"


# Crashes

SLOW = [
    "data.samples=[2, 4, 6, 8, 10, 12]",
    "data.dim=32",
    "training.stop_loss=0",
    "training.rate=0.01",
    "training.max_steps=200",
]


def records(folder: Path) -> list[Path]:
    return list((folder / "records").glob("*.npz"))


@contextmanager
def started(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The command line in a session of its own; none of its processes outlives the block."""
    with subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell that starts a job in the background makes it deaf to interrupts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_sweep_is_finished_by_the_same_command(run, tmp_path, workers):
    tiny_file(tmp_path, *SLOW)
    recompute = ["run", "tiny.yaml", "--out", "killed", "--workers", str(workers)]
    killed = tmp_path / "killed"
    begun = time.monotonic()
    with started(*recompute) as process:
        while not records(killed):
            assert process.poll() is None
            assert time.monotonic() - begun < 60
            time.sleep(0.005)
        process.kill()
        # Returns when nobody holds the pipes any longer: no worker outlives its parent.
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in records(killed)}
    assert 1 <= len(kept) < 6
    code, _, err = run(*recompute)
    assert code == 0
    assert f"{4 * len(kept)} of 24" in err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert open_result(killed).identical(tiny(*SLOW).run(tmp_path / "whole"))


INTERRUPTED = ("benign: ", "interrupted", "same command")
"""what the last line holds"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("after", [0.5, 3.0, 6.0])
def test_ctrl_c_twice_ends_workers_and_all_at_once(tmp_path, after):
    """While the workers start, as they begin, and in the midst of work."""
    tiny_file(tmp_path, *SLOW, "training.max_steps=100000")
    with started("run", "tiny.yaml", "--workers", "2") as process:
        assert process.stderr is not None
        assert counts(process.stderr.readline()) == [6, 24]
        time.sleep(after)
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
            time.sleep(0.3)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.splitlines()[0] == "tiny.yaml"  # then what it may cost
    assert holds(err.splitlines()[-1], *INTERRUPTED)
    assert "Traceback" not in err


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_ctrl_c_once_finishes_the_units_under_way(run, tmp_path, workers):
    tiny_file(tmp_path, *SLOW)
    with started("run", "tiny.yaml", "--out", "cut", "--workers", workers) as process:
        begun = time.monotonic()
        while not any((tmp_path / "cut" / "taken").glob("*.json")):
            assert time.monotonic() - begun < 60
            time.sleep(0.005)
        under_way = [path.stem for path in (tmp_path / "cut" / "taken").glob("*.json")]
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "ctrl-c" in err
    assert holds(err.splitlines()[-1], *INTERRUPTED)
    kept = {path.stem for path in records(tmp_path / "cut")}
    assert set(under_way) <= kept
    assert len(kept) < 6
    assert not any((tmp_path / "cut" / "taken").glob("*.json"))
    assert run("run", "tiny.yaml", "--out", "cut")[0] == 0
    assert open_result(tmp_path / "cut").identical(tiny(*SLOW).run(tmp_path / "whole"))
