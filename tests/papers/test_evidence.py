"""Claims judge the runs of their evidence: not those of the scale, not missing ones, none that ended otherwise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from benign.claims import Evidence, Outcome, Study, Verdict, judge
from benign.experiment import Experiment
from benign.papers.jiang.claims.figures import BOUNDARY
from benign.papers.jiang.claims.studies import BENIGN_END
from benign.papers.jiang.theory import JiangNumbers
from benign.papers.li.claims.studies import STANDARD
from benign.papers.registry import claims
from benign.papers.verify import Verifier
from benign.papers.wang.claims.extremes import rhos
from benign.papers.wang.claims.studies import BY_PACE, BY_RADIUS, FIRST, FLOOR, INSIDE
from benign.papers.zhang.claims.weak import WEAK, _effects
from benign.spec.axes import cells
from benign.training.descent import Status

WEAK_CLAIMS = ("zhang/lem4.attn_ratio", "zhang/lem6.margin_gap", "zhang/derived.frozen_gap")


def changed(study: Study, **changes: object) -> Experiment:
    """The study at smoke scale with other fields."""
    return Experiment.from_dict({**study.experiment("smoke").as_dict(), **changes})


def judged_in(name: str, folder: Path) -> Verdict:
    """The verdict on what a folder holds, as by `benign verify --no-run`."""
    (judged,) = Verifier("smoke", folder, None).judge(claims()[name])
    assert not judged.verdict.error, judged.verdict.error
    return judged.verdict


def on(name: str, experiment: Experiment, result: xr.Dataset) -> Verdict:
    return judge(claims()[name], Evidence("smoke", {}, (result,), (experiment,)))


def bases(verdict: Verdict) -> dict[str, str]:
    return {part.name: part.measured.basis for part in verdict.parts if part.measured}


def counted(verdict: Verdict) -> int:
    """`5 of 7 runs` -> 7, `largest of 7 seeds` -> 7."""
    (basis,) = bases(verdict).values()
    return int(basis.split(" of ")[1].split()[0])


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Study], tuple[Experiment, xr.Dataset]]:
    """Studies at smoke scale, each run once."""
    known: dict[str, tuple[Experiment, xr.Dataset]] = {}

    def run(study: Study) -> tuple[Experiment, xr.Dataset]:
        if study.name not in known:
            experiment = study.experiment("smoke")
            known[study.name] = experiment, experiment.run(tmp_path_factory.mktemp("runs"))
        return known[study.name]

    return run


@pytest.mark.parametrize("name", WEAK_CLAIMS)
def test_a_smaller_study_is_judged_on_its_own_runs(name: str, tmp_path: Path):
    """One radius of three and one seed of two, so two runs and not twelve."""
    radius = WEAK.experiment("smoke").as_dict()["attack"]["ball"]["radius"][1]
    attack = WEAK.experiment("smoke").as_dict()["attack"]
    attack["ball"]["radius"] = radius
    small = changed(WEAK, attack=attack, seeds=1)
    small.run(tmp_path / "zhang" / "weak_attack" / "smoke" / "default")
    verdict = judged_in(name, tmp_path)
    if name == "zhang/lem4.attn_ratio":
        assert verdict.reason  # one seed has no interval
        assert not {"c=0.1", "c=1"} & set(bases(verdict))
    else:
        assert len(_effects(verdict.evidence)) == 2
        assert counted(verdict) == 1  # seeds


def test_runs_that_are_missing_or_diverged_are_not_judged(ran):
    experiment, result = ran(WEAK)
    status = result.status.copy()
    status[{"radius": 0, "size": 0, "seed": 0}] = Status.MISSING
    status[{"radius": 2, "size": 1, "seed": 1}] = Status.DIVERGED
    for name in WEAK_CLAIMS[1:]:
        for runs, count in ((result, 12), (result.assign(status=status), 10)):
            verdict = on(name, experiment, runs)
            assert len(_effects(verdict.evidence)) == count
            assert counted(verdict) == 2  # seeds


def test_too_many_runs_without_weights_leave_a_claim_open(ran):
    experiment, result = ran(WEAK)
    status = xr.where(result.seed == 0, Status.DIVERGED, result.status)
    verdict = on("zhang/derived.frozen_gap", experiment, result.assign(status=status))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "6 of 12" in verdict.reason


REPLAYED = [
    (WEAK, "zhang/lem6.margin_gap"),
    (BENIGN_END, "jiang/F.noise_bounded"),
    (STANDARD, "li/text.transfer"),
    (INSIDE, "wang/lemB9.monotone-margin"),
    (INSIDE, "wang/corB31.all-neurons-align"),
]


@pytest.mark.parametrize(("study", "name"), REPLAYED, ids=[name for _, name in REPLAYED])
@pytest.mark.parametrize("field", ["steps", "train_loss", "status"])
def test_a_record_that_is_not_of_the_run_decides_nothing(ran, study: Study, name: str, field: str):
    """Of the last seed of every cell, so that it is judged whichever cells the claim asks for."""
    experiment, result = ran(study)
    last = {"seed": experiment.seeds - 1}
    converged = result.status[last] == Status.CONVERGED
    altered = {
        "steps": result.steps[last] - 1,
        "train_loss": 1.1 * result.train_loss[last],
        "status": xr.where(converged, int(Status.STEP_CAP), int(Status.CONVERGED)),
    }[field]
    tampered = result.assign({field: xr.where(result.seed == last["seed"], altered, result[field])})
    sound, verdict = (on(name, experiment, each) for each in (result, tampered))
    assert not sound.error
    assert not verdict.error, verdict.error
    assert sound.parts[0].measured
    assert not any(part.measured for part in verdict.parts)
    assert f"seed {last['seed']}" in verdict.reason
    if field != "status":
        assert any(f"{float(number):g}"[:4] in verdict.reason for number in altered.values.ravel())


# Rows of the boundary map.


def flips(experiment: Experiment, strongest: float = 2.5) -> xr.Dataset:
    """Attention that flips from strong noise to signal where N SNR^2 is so many times C_p^2, in every row."""
    leads, losses = [], []
    for _, cell in cells(experiment):
        n = JiangNumbers.of(cell)
        race = n.race / (n.strong_noise_std / n.noise_std) ** 2
        leads.append(np.tanh(np.log(race / strongest)))
        losses.append(0.2 * (strongest / race) ** 2)
    seeds = np.ones((1, experiment.seeds))
    both = ("cell", "seed")
    return xr.Dataset(
        {
            "attention_on_signal": (both, np.array(leads)[:, None] * seeds),
            "attention_on_strong_noise": (both, 0 * np.array(leads)[:, None] * seeds),
            "test_loss": (both, np.array(losses)[:, None] * seeds),
        }
    )


def with_cells(experiment: Experiment, order: Callable[[list[Any]], list[Any]]) -> Experiment:
    """The experiment with cells left out or in another order."""

    def changed(fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        if fields.keys() == {"zipped", "values"}:
            return fields | {"values": order(fields["values"])}
        return {name: changed(each) for name, each in fields.items()}

    return Experiment.from_dict(changed(experiment.as_dict()))


ROW_CLAIMS = ("jiang/derived.boundary_Cp", "jiang/thm.sharp_1overN", "jiang/thm.width")


def values(verdict: Verdict) -> list[float]:
    assert not verdict.error, verdict.error
    return [part.measured.estimate.value for part in verdict.parts if part.measured]


@pytest.mark.parametrize("name", ROW_CLAIMS)
def test_rows_are_those_of_the_experiment(name: str):
    """Found runs of quick size, judged as if they were of smoke size: every row counts, in any order of cells."""
    experiment = Experiment.from_dict({**BOUNDARY.experiment("quick").as_dict(), "seeds": 2})
    straight = on(name, experiment, flips(experiment))
    reverse = with_cells(experiment, lambda values: values[::-1])
    turned = on(name, reverse, flips(reverse))
    assert values(straight) == pytest.approx(values(turned))
    [note, *_] = [part.measured.note for part in straight.parts if part.measured]
    if name == "jiang/thm.sharp_1overN":
        assert note == "N = 4, 8, 16, 32"
    if name == "jiang/thm.width":
        assert all(f"d = {dim}" in note for dim in (128, 1024, 8192))
    if name == "jiang/derived.boundary_Cp":
        assert set(bases(straight)) == {f"C_p = {strong}" for strong in (2, 5, 10, 20)}
        assert values(straight) == pytest.approx([2.5] * 4, rel=0.02)


@pytest.mark.parametrize("name", ROW_CLAIMS)
def test_a_row_that_is_missing_decides_nothing(name: str):
    one_row = with_cells(BOUNDARY.experiment("smoke"), lambda values: values[:5])
    verdict = on(name, one_row, flips(one_row))
    assert not verdict.error, verdict.error
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason
    assert not values(verdict)


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_row_with_a_diverged_cell_crosses_nothing(place: int):
    experiment = changed(BOUNDARY, seeds=2)
    result = flips(experiment)
    result["attention_on_signal"][{"cell": place, "seed": 0}] = np.nan
    verdict = on("jiang/derived.boundary_Cp", experiment, result)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not values(verdict)


# Cells of Wang's studies.


@pytest.mark.parametrize(
    ("study", "name"),
    [
        (BY_RADIUS, "wang/thm3.1.clean-same-as-GD"),
        (BY_RADIUS, "wang/sec4.trajectory-close"),
        (BY_RADIUS, "wang/fn1.perturb-at-zero"),
        (BY_PACE, "wang/derived.eta-invariance"),
        (FIRST, "wang/lem4.1.span-distance"),
        (FLOOR, "wang/derived.lower-bound-sharp"),
    ],
)
def test_cells_in_another_order_say_the_same(ran, tmp_path: Path, study: Study, name: str):
    experiment, result = ran(study)
    reverse = with_cells(experiment, lambda values: values[::-1])
    turned = on(name, reverse, reverse.run(tmp_path))
    straight = on(name, experiment, result)
    assert values(straight)
    assert values(turned) == pytest.approx(values(straight), rel=1e-6)


@pytest.mark.parametrize("places", [[0, 5, 6], [6], [0, 1]])
def test_radii_are_those_of_the_cells(places: list[int]):
    """Beyond |mu| every classifier errs on half of the points: planted so, and no errors below."""
    experiment = with_cells(FLOOR.experiment("smoke"), lambda all_: [all_[at] for at in places])
    errors = np.where(rhos(experiment) >= 1, 0.5, 0.0)[:, None] * np.ones((1, experiment.seeds))
    result = xr.Dataset({"robust_noisy_error": (("cell", "seed"), errors)})
    verdict = on("wang/thm3.2.alpha-ge-mu", experiment, result)
    assert values(verdict) == ([0.0] if 6 in places else [])
