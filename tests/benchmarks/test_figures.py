"""Whole figures: the contestants compute the same thing, in numbers where nothing is drawn and in law elsewhere."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.figures import by_loop, loop_attacks, report
from benchmarks.figures.cases import AttackCase, BallCase, as_dict, checkpoints, from_dict
from benchmarks.figures.compare import extrapolated, laws
from benchmarks.figures.law import Outcome, compare
from benchmarks.figures.problems import FIGURES, Sample, restricted, sample_of
from benchmarks.figures.reading import case_of
from benchmarks.figures.work import _divisor, _rows_of
from benchmarks.peers.by_loop import module_of
from benchmarks.peers.problems import Problem
from benign.attacks.apgd import APGD
from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.one_step import OneStep
from benign.attacks.pgd import PGD
from benign.papers.registry import recipe
from benign.spec import axes
from benign.spec.axes import cells
from benign.sweep.plan import runs_of, units_of
from benign.sweep.progress import Watcher

ROOT = Path(__file__).resolve().parents[2]


def attacks(p, per: str, radius: float) -> dict:
    """The same attacks for benign and for the loop, without random starts."""
    ball, case = Ball(p=p, per=per, radius=radius), BallCase(p, per, radius)  # pyright: ignore[reportArgumentType]
    pgd, pgd_case = PGD(ball=ball, steps=9, step=0.2), AttackCase("pgd", case, 9, 0.2)
    return {
        "pgd": (pgd, pgd_case),
        "best": (
            PGD(ball=ball, steps=9, step=0.3, keep="best"),
            replace(pgd_case, step=0.3, best=True),
        ),
        "ensemble": (
            EnsembleAttack(ball=ball, steps=25, restarts=1, also=pgd),
            AttackCase("ensemble", case, 25, 0.1, True, 1, pgd_case),
        ),
    }


@pytest.mark.parametrize(
    ("figure", "p", "per"),
    [("zhang/fig1", 2, "token"), ("wang/fig1", 2, "sample"), ("li/fig3", "inf", "sample")],
)
@pytest.mark.parametrize("kind", ["pgd", "best", "ensemble"])
def test_the_loop_attacks_as_benign_does(figure: str, p, per: str, kind: str):
    """On the same points and weights in float64."""
    problem = Problem.of(figure, 6, "smoke", "float64")
    batch, task = problem.batch(0, 2, "cpu"), problem.task(2, "cpu")
    ours, theirs = attacks(p, per, 0.7)[kind]
    expected = ours.perturb(batch.target(batch.sample, "attack/0"))
    for run in range(2):
        x, y = task.x[run], task.y[run]
        delta = loop_attacks.perturb(module_of(task, run), x, y, theirs)
        assert delta.abs().max() > 0.05
        torch.testing.assert_close(x + delta, expected[run], rtol=0, atol=1e-6)


def test_the_loop_makes_the_one_step_of_benign():
    problem = Problem.of("li/fig3", 6, "smoke", "float64")
    batch, task = problem.batch(0, 1, "cpu"), problem.task(1, "cpu")
    expected = OneStep(rate=50.0, clip=0.4).perturb(batch.target(batch.sample, "attack/0"))
    case = AttackCase("one_step", BallCase("inf", "sample", 0.4), step=50.0)
    x = task.x[0]
    found = x + loop_attacks.perturb(module_of(task, 0), x, task.y[0], case)
    torch.testing.assert_close(found, expected[0], rtol=0, atol=1e-6)


def test_apgd_checks_its_progress_where_benign_does():
    from benign.attacks import apgd

    for steps in (5, 20, 50, 100):
        assert checkpoints(steps) == dict(apgd._checkpoints(steps))


@pytest.mark.parametrize(("p", "per"), [(2, "token"), (2, "sample"), ("inf", "sample")])
def test_random_starts_fill_the_ball(p, per: str):
    """Half of the volume is below 2^(-1/size) of the radius in every unit, and above it."""
    torch.manual_seed(0)
    x = torch.zeros(4000, 2, 3)
    delta = loop_attacks._uniform(x, BallCase(p, per, 2.0))
    if p == "inf":
        assert delta.abs().max() <= 2.0
        assert delta.std() == pytest.approx(2 / 3**0.5, rel=0.02)
        return
    axes, size = ((-1,), 3) if per == "token" else ((-2, -1), 6)
    lengths = torch.linalg.vector_norm(delta, dim=axes) / 2
    assert lengths.max() <= 1 + 1e-6
    assert (lengths < 0.5 ** (1 / size)).float().mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.slow
def test_jax_attacks_as_the_loop_does():
    """Slow without compilation, and slower with it; from a given start, as in random restarts."""
    jax = pytest.importorskip("jax")
    from benchmarks.figures import jax_attacks

    torch.manual_seed(1)
    x, y = torch.randn(3, 2, 4, dtype=torch.float64), torch.tensor([1.0, -1, 1]).double()
    w = torch.randn(4, 5, dtype=torch.float64)
    start = 0.2 * torch.randn_like(x)
    case = AttackCase("ensemble", BallCase(2, "token", 0.7), 8, 0.1, True, 1)
    with jax.enable_x64(True), jax.disable_jit():
        here = [jax.numpy.asarray(part.numpy()) for part in (x, y, w, start)]

        def ours(points):
            return jax.numpy.tanh(points @ here[2]).sum((1, 2))

        found = jax_attacks.apgd(ours, here[0], here[1], case, here[3])[0]
        short = jax_attacks.pgd(ours, here[0], here[1], case)
    theirs = (lambda points: (points @ w).tanh().sum((1, 2)), x, y, case)
    expected = loop_attacks.apgd(*theirs, start).delta
    np.testing.assert_allclose(np.asarray(found), expected.numpy(), atol=1e-9)
    np.testing.assert_allclose(np.asarray(short), loop_attacks.pgd(*theirs).numpy(), atol=1e-9)


# The comparison in law


def made(rng, cells: int, shift: float = 0.0) -> list[Outcome]:
    """Runs with two numbers that depend on each other, and one that a wrong contestant shifts."""
    found = []
    for cell in range(cells):
        loss, noise = rng.normal(2) if cell % 2 else rng.normal(0), rng.normal()
        values = {"loss": loss, "twice": 2 * loss + 0.1 * noise, "steps": noise + shift}
        found.append(Outcome(cell, cell * 2 // cells, values))
    return found


@pytest.fixture
def few_permutations(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.figures.law.PERMUTATIONS", 1000)


@pytest.mark.usefixtures("few_permutations")
def test_equal_contestants_seldom_differ():
    """At most about one time in a hundred; five of 60 would happen by chance in 0.03 % of such tests."""
    rng = np.random.default_rng(0)
    assert sum(not compare(made(rng, 24), made(rng, 24), k).equal for k in range(60)) < 5


@pytest.mark.usefixtures("few_permutations")
def test_a_shifted_contestant_is_found():
    rng = np.random.default_rng(0)
    found = [compare(made(rng, 24), made(rng, 24, shift=1.6), k) for k in range(10)]
    assert sum(not law.equal for law in found) == 10
    assert {law.worst.split(",")[0] for law in found} == {"steps"}
    assert all(law.difference == pytest.approx(-1.6, abs=1.2) for law in found)


@pytest.mark.usefixtures("few_permutations")
def test_equal_numbers_do_not_hide_a_difference():
    """The mean of equal numbers rounds differently in each permutation."""
    rng = np.random.default_rng(0)
    one, two = (
        [
            Outcome(c, 0, {"steps": 20.1, "loss": rng.normal(shift)})
            for c in range(10)
            for _ in "abc"
        ]
        for shift in (0.0, 2.0)
    )
    law = compare(one, two)
    assert not law.equal
    assert law.worst == "loss, all cells"


@pytest.mark.usefixtures("few_permutations")
def test_rounding_is_no_difference():
    """One contestant sums shares in float32: its accuracies of 1 are 1.0000001 in all cells."""
    rng = np.random.default_rng(0)
    one, two = (
        [Outcome(c, 0, {"accuracy": right, "loss": rng.normal()}) for c in range(20)]
        for right in (1.0, 1.0000001)
    )
    law = compare(one, two)
    assert law.equal
    assert law.worst == "loss, all cells"


def test_a_missing_number_is_an_error():
    one, two = Outcome(0, 0, {"loss": 1.0}), Outcome(0, 0, {"loss": 1.0, "steps": 2.0})
    with pytest.raises(ValueError, match="lacks"):
        compare([one], [two])


def outcomes(sample: Sample, values: Sequence[dict]) -> list[Outcome]:
    return [
        Outcome(run.cell, run.band, value) for run, value in zip(sample.runs, values, strict=True)
    ]


def shortened(figure: str, seeds: int, steps: int) -> Sample:
    """A figure at smoke scale with other seeds and fewer steps."""
    build = FIGURES[figure].build

    def fewer(scale: str):
        whole = build(scale)
        training = whole.training.model_copy(update={"max_steps": steps})
        changed = whole.model_copy(update={"seeds": seeds, "training": training})
        if figure == "li/fig3":  # else nothing is learned in so few steps, and all agree trivially
            faster = {("network", "init_std"): 0.1, ("training", "rate"): 2.0}
            changed = axes.replace(changed, faster)
        return changed

    FIGURES["changed"] = replace(FIGURES[figure], build=fewer)
    try:
        return sample_of("changed", "smoke", "cpu", None)
    finally:
        del FIGURES["changed"]


def by_benign(sample: Sample) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        result = sample.experiment.run(Path(folder) / "store", watcher=Watcher())
    return outcomes(sample, [row["values"] for row in _rows_of(sample, result)])


def by_the_loop(sample: Sample, **changes) -> list[Outcome]:
    torch.manual_seed(0)
    return outcomes(
        sample, [by_loop.run(replace(run.case, **changes), "cpu") for run in sample.runs]
    )


def by_jax(sample: Sample) -> list[Outcome]:
    from benchmarks.figures.by_jax import Batching, Runs

    runs = Runs([run.case for run in sample.runs], "cpu")
    return outcomes(sample, runs.results(Batching(16, sample.runs[0].case.tests), seed=3))


@pytest.fixture(scope="module")
def few_steps() -> tuple[Sample, list[Outcome]]:
    """A small figure with benign's results."""
    sample = shortened("linear", 4, 20)
    return sample, by_benign(sample)


def test_the_loop_agrees_with_benign_in_law_and_a_wrong_one_does_not(few_steps):
    sample, ours = few_steps
    assert compare(by_the_loop(sample), ours).equal
    law = compare(by_the_loop(sample, noise_std=1.4), ours)
    assert not law.equal
    assert law.p < 1e-3


def test_jax_agrees_with_benign_in_law(few_steps):
    """In one program: runs of two sizes, padded, in batches whose runs end at different steps."""
    pytest.importorskip("jax")
    sample, ours = few_steps
    found = by_jax(sample)
    assert compare(found, ours).equal
    assert not compare(by_the_loop(sample, noise_std=1.4), found).equal


def test_a_wrong_contestant_makes_its_ratio_void():
    rng = np.random.default_rng(0)

    def rows(shift: float):
        return {"rows": [vars(each) for each in made(rng, 20, shift)]}

    checked, void = laws({"loop": rows(3.0), "jax": rows(0.0), "benign": rows(0.0)})
    assert list(void) == ["loop"]
    assert not checked["loop, jax"]["equal"]
    assert "void" in report.table([_file(void=void, ratio_to_loop=None)])


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES)
def test_all_three_agree_in_law(figure: str):
    pytest.importorskip("jax")
    seeds = {"zhang/fig1": 6, "jiang/fig1": 6}.get(figure, 16)
    sample = shortened(figure, seeds, {"linear": 400, "jiang/fig1": 200}.get(figure, 30))
    three = {"loop": by_the_loop(sample), "jax": by_jax(sample), "benign": by_benign(sample)}
    for one, two in (("loop", "benign"), ("jax", "benign"), ("loop", "jax")):
        law = compare(three[one], three[two])
        assert law.p > 1e-3, (one, two, law)
    changed = {"noise_std": 1.5 * sample.runs[0].case.noise_std}
    if figure == "li/fig3":
        changed = {"alpha": 1.0}
    assert not compare(by_the_loop(sample, **changed), three["benign"]).equal


# The runs


@pytest.mark.parametrize("figure", FIGURES)
def test_a_sample_has_runs_of_the_figure_with_their_draws(figure: str):
    whole = FIGURES[figure].build("smoke")
    sample = sample_of(figure, "smoke", "cpu", 4)
    keys = {run.key: run.id for run in runs_of(whole)}
    chosen = list(runs_of(sample.experiment))
    assert len(chosen) == len(sample.runs) <= len(keys)
    assert all(keys[run.key] == run.id for run in chosen)
    for run, ours in zip(chosen, sample.runs, strict=True):
        assert (
            case_of(run.cell) == ours.case == from_dict(json.loads(json.dumps(as_dict(ours.case))))
        )


def test_a_sample_has_every_size_and_every_band():
    sample = sample_of("zhang/fig1", "paper", "cpu", 44)
    assert (len(sample.runs), sample.figure_runs) == (44, 660)
    assert {run.stratum for run in sample.runs} == {
        (n, b) for n in range(2, 23, 2) for b in range(4)
    }
    assert {run.stratum for run in sample.thinned(40)} == {run.stratum for run in sample.runs}


def test_all_cells_make_the_units_of_the_whole_figure():
    whole = recipe("jiang/fig1").experiment("smoke")
    same = restricted(whole, [cell for _, cell in cells(whole)], whole.seeds)
    assert [unit.key for unit in units_of([same])] == [unit.key for unit in units_of([whole])]


def test_a_part_of_wang_on_a_cpu_and_all_of_it_elsewhere():
    here, there = (sample_of("wang/fig1", "paper", device, None) for device in ("cpu", "cuda"))
    assert here.part
    assert len(here.runs) == 8
    assert not there.part
    assert len(there.runs) == there.figure_runs == 1800


def test_seconds_are_extrapolated_by_stratum():
    sample = sample_of("jiang/fig1", "quick", "cpu", None)
    few = sample.thinned(40)
    assert len(few) < len(sample.runs)
    cost = {
        stratum: 1.0 + place
        for place, stratum in enumerate(sorted({r.stratum for r in sample.runs}))
    }
    rows = [{"row": r.row, "band": r.band, "seconds": cost[r.stratum]} for r in few]
    assert extrapolated(rows, sample.runs) == pytest.approx(
        sum(cost[r.stratum] for r in sample.runs)
    )


def test_what_the_contestants_do_not_do_is_refused():
    cell = next(runs_of(recipe("zhang/fig1").experiment("smoke"))).cell
    for changed in (
        cell.data.model_copy(update={"projected": True}),
        cell.data.model_copy(update={"flip": 0.1}),
    ):
        with pytest.raises(ValueError, match="contestants"):
            case_of(cell.model_copy(update={"data": changed}))
    apgd = APGD(ball=Ball(radius=1.0))
    with pytest.raises(ValueError, match="contestants"):
        case_of(cell.model_copy(update={"attack": apgd}))


def test_a_sample_of_wang_on_a_gpu_has_two_signals_of_every_dimension():
    sample = sample_of("wang/fig1", "paper", "cuda", FIGURES["wang/fig1"].runs["cuda"])
    assert len(sample.runs) == len({run.stratum for run in sample.runs}) == 36


def test_a_chunk_divides_the_tests():
    assert [_divisor(1000, 250), _divisor(60, 250), _divisor(500, 300)] == [250, 60, 250]


# The page


def _file(**row) -> dict:
    given = {
        "figure": "li/fig3", "device": "cpu", "scale": "paper", "runs": 10, "figure_runs": 10, "loop_s": 30.0,
        "jax_s": 20.0, "compile_s": 4.0, "benign_s": 10.0, "ratio_to_loop": 3.0, "ratio_to_jax": 2.0, "floor_s": 2.5,
        "void": {},
    }  # fmt: skip
    return {"machine": {"device": "a CPU", "cores": 2}, "figures": [given | row]}


def test_the_table_has_ratios_and_the_floor():
    text = report.table([_file()])
    assert (
        "| li/fig3 | 2 cores, a CPU | 10 | 30 | 20 (4) | 10 | **3.00** | **2.00** | 2.5 | 0.25 |"
        in text
    )
    assert "30* |" in report.table([_file(loop_extrapolated=True, loop_runs=4)])


@pytest.mark.parametrize("file", report.PAGES, ids=lambda file: file.name)
def test_the_page_holds_the_table_of_the_results(file: Path):
    text = file.read_text(encoding="utf-8")
    assert report.page(text, report.results()) == text, "run `python -m benchmarks.figures.report`"


@pytest.mark.slow
def test_the_command_works(tmp_path: Path):
    file = tmp_path / "found.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.figures",
        "--scale",
        "smoke",
        "--only",
        "loop,benign",
    ]
    subprocess.run([*command, "linear", "--json", str(file)], cwd=ROOT, check=True)
    (row,) = json.loads(file.read_text())["figures"]
    assert row["benign_s"] > 0
    assert row["ratio_to_loop"] == pytest.approx(row["loop_s"] / row["benign_s"], rel=1e-3)
    split = row["split"]
    assert split["covers"] == pytest.approx(1, abs=0.1)
    assert sum(split["seconds"].values()) == pytest.approx(
        split["covers"] * split["wall"] * split["workers"], rel=0.01
    )
    assert split["seconds"]["training"] > 0
    assert split["seconds"]["drawing"] > 0
