"""The benchmark compares like with like: every contestant computes the same losses from the same start."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.peers import by_benign, by_loop, by_vmap, report
from benchmarks.peers.problems import FIGURES, Problem

ROOT = Path(__file__).resolve().parents[2]
RUNS, STEPS = 3, 6


def losses_of_loop(problem: Problem) -> Tensor:
    return by_loop.prepare(problem.task(RUNS, "cpu"))(STEPS)


@pytest.mark.parametrize("figure", FIGURES)
def test_loop_vmap_and_benign_compute_the_same_in_float64(figure: str):
    problem = Problem.of(figure, 6, "smoke", "float64")
    expected = losses_of_loop(problem)
    torch.testing.assert_close(
        by_vmap.prepare(problem.task(RUNS, "cpu"))(STEPS), expected, rtol=1e-9, atol=0
    )
    for coordinates in ("ambient", "projected") if FIGURES[figure].exact else ("ambient",):
        ours = by_benign.prepare(problem.batch(0, RUNS, "cpu", coordinates))(STEPS)
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("figure", FIGURES)
def test_losses_move_and_differ_between_runs(figure: str):
    """Else agreement would say nothing."""
    problem = Problem.of(figure, 6, "smoke", "float64")
    first, last = by_loop.prepare(problem.task(RUNS, "cpu"))(1), losses_of_loop(problem)
    assert ((last - first).abs() > 1e-3 * first).all()
    assert len({f"{loss:.6f}" for loss in last.tolist()}) == RUNS


@pytest.mark.parametrize("figure", FIGURES)
def test_jax_computes_the_same(figure: str):
    pytest.importorskip("jax")
    from benchmarks.peers.by_jax import Prepared

    problem = Problem.of(figure, 6, "smoke")
    found = Prepared(problem.task(RUNS, "cpu"))(STEPS)
    torch.testing.assert_close(found, losses_of_loop(problem), rtol=1e-4, atol=0)


def test_a_later_share_of_the_runs_is_that_of_the_whole_batch():
    """benign trains the runs in several processes."""
    problem = Problem.of("zhang/fig1", 6, "smoke", "float64")
    whole = problem.batch(0, 4, "cpu").sample.x
    assert torch.equal(problem.batch(2, 2, "cpu").sample.x, whole[2:])


def test_doubling_doubles_one_number():
    problem = Problem.of("jiang/fig1", 6, "smoke")
    assert problem.twice("dim").cell.data.dim == 2 * problem.cell.data.dim
    assert problem.twice("width").cell.network.hidden == 2 * problem.cell.network.hidden  # pyright: ignore[reportAttributeAccessIssue]
    assert problem.twice("samples").cell.data.samples == 12
    assert problem.twice("runs").cell == problem.cell


def row(name: str, seconds: float) -> report.Row:
    shape = {"samples": 2, "tokens": 1, "dim": 4, "width": 3}
    return report.Row(
        "li/fig3", name, shape, 1, seconds, seconds, 1 / seconds, 10.0, 0.5, 10**6, 0.0, 0.0
    )


def test_ratios_say_how_many_times_as_fast():
    loop, ours = report.compared([row("loop", 3.0), row("benign", 0.5)])
    assert (ours.ratio_to_loop, loop.ratio_to_loop, ours.ratio_to_jax) == (6.0, 1.0, None)


def test_the_page_holds_the_tables_of_the_results():
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert report.page(text, report.results()) == text, "run `python -m benchmarks.peers.report`"


@pytest.mark.slow
def test_the_command_works(tmp_path: Path):
    file = tmp_path / "found.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers",
        "--quick",
        "--cores",
        "1",
        "--figure",
        "wang/fig1",
    ]
    subprocess.run([*command, "--json", str(file)], cwd=ROOT, check=True)
    rows = json.loads(file.read_text())["rows"]
    assert {"loop", "vmap", "benign", "benign_exact"} <= {each["name"] for each in rows}
    assert all(each["seconds_a_run_step"] > 0 and each["operations"] > 0 for each in rows)
