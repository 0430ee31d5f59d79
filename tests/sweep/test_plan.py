"""Runs, their keys and draws, units, and how an experiment grows."""

import pytest

from benign.streams import RunId
from benign.sweep.plan import (
    RUNS_A_UNIT,
    differences,
    extend_history,
    is_superset,
    merge_history,
    runs_of,
    units_of,
)
from tests.says import holds, says
from tests.tiny import tiny


def keys(experiment) -> list[str]:
    return [run.key for run in runs_of(experiment)]


def test_every_cell_is_run_with_every_seed():
    runs = list(runs_of(tiny("seeds=3")))
    assert [run.where for run in runs] == [
        {"samples": n, "snr": r, "seed": s} for n in (2, 4) for r in (0.5, 2.0) for s in range(3)
    ]
    assert all(run.cell.data.samples == run.where["samples"] for run in runs)


def test_a_key_depends_on_the_computation_and_nothing_else():
    assert len(set(keys(tiny()))) == 8
    assert keys(tiny()) == keys(tiny())
    assert keys(tiny("seeds=1")) == keys(tiny())[::2]
    for change in ("training.rate=0.25", "root_seed=1", "precision=float64", "data.flip=0.1"):
        assert set(keys(tiny(change))).isdisjoint(keys(tiny()))


def test_a_key_does_not_depend_on_what_else_is_in_the_grid():
    alone = tiny("data.samples=4", "data.snr=2.0", "seeds=1")
    assert keys(alone)[0] in keys(tiny())


def test_draws_are_independent_between_cells_or_common_to_them():
    independent = [run.id for run in runs_of(tiny())]
    assert len(set(independent)) == len(independent)
    common = [run.id for run in runs_of(tiny("pairing=common"))]
    assert len(set(common)) == 2  # one a seed


def test_draws_depend_on_everything_that_may_be_an_axis_and_on_nothing_else():
    ids = {run.id for run in runs_of(tiny())}
    assert ids == {run.id for run in runs_of(tiny("evaluation.samples=50"))}
    assert ids == {run.id for run in runs_of(tiny("precision=float64"))}
    for change in (
        "training.rate=0.25",
        "training.max_steps=3",
        "attack={kind: pgd, ball: {radius: 0.1}}",
    ):
        assert ids.isdisjoint(run.id for run in runs_of(tiny(change)))


COMPONENTS = {
    "attack": "[null, {kind: pgd, ball: {radius: 0.1}, steps: 2}, {kind: pgd, ball: {radius: 0.1}, steps: 9}]",
    "network": "[{kind: linear}, {kind: two_layer, width: 4, init_std: 0.1},"
    " {kind: two_layer, width: 4, init_std: 0.1, activation: smoothed_leaky_relu, slope: 0.5, smoothness: 1.0}]",
    "training": "[{rate: 0.1, max_steps: 3}, {rate: 0.1, max_steps: 4}, {kind: sgd, rate: 0.1, epochs: 3}]",
    "data": "[{kind: signal_noise, samples: 2, tokens: 2, dim: 5, noise_std: 1.0, snr: 1.0},"
    " {kind: signal_noise, samples: 2, tokens: 2, dim: 5, noise_std: 1.0, snr: 1.0, balanced: true}]",
}


@pytest.mark.parametrize("field", COMPONENTS)
def test_components_on_an_axis_draw_as_cells_of_a_number_do(field):
    """Two attacks that differ in a whole number of steps shared all draws; two radii did not."""
    grid = tiny(f"{field}={COMPONENTS[field]}")
    ids = [run.id for run in runs_of(grid)]
    assert len(set(ids)) == len(ids)
    shared = [run.id for run in runs_of(grid.model_copy(update={"pairing": "common"}))]
    assert len(set(shared)) == 2  # one a seed


def test_draws_of_a_cell_do_not_depend_on_how_its_grid_is_written():
    def ids(attack: str) -> list[RunId]:
        return [
            run.id for run in runs_of(tiny(f"attack={attack}", "data.samples=2", "data.snr=1.0"))
        ]

    number = ids("{kind: pgd, ball: {radius: [0.1, 0.2]}}")
    assert number == ids("[{kind: pgd, ball: {radius: 0.1}}, {kind: pgd, ball: {radius: 0.2}}]")
    assert number[:2] == ids("{kind: pgd, ball: {radius: 0.1}}")


@pytest.mark.parametrize("pairing", ["independent", "common"])
def test_cells_of_two_attacks_start_alike_only_if_their_draws_are_common(pairing, tmp_path):
    result = tiny(
        f"attack={COMPONENTS['attack']}", f"pairing={pairing}", "evaluation.at=snapshots", "seeds=1"
    ).run(tmp_path)
    first = result.test_loss_curve.isel(step=0, samples=0, snr=0, seed=0).values
    assert len(set(first)) == (1 if pairing == "common" else 3)


def test_a_unit_holds_runs_of_one_shape():
    units = units_of([tiny("data.tokens=[2, 3]")])
    assert len(units) == 4
    for unit in units:
        assert len({(run.cell.data.samples, run.cell.data.tokens) for run in unit.runs}) == 1
        assert len({run.shape for run in unit.runs}) == 1
        assert len(unit.runs) == 4


def test_units_are_cut_and_cover_every_run_once():
    experiment = tiny(f"seeds={RUNS_A_UNIT}", "data.samples=2")
    units = units_of([experiment])
    assert [len(unit.runs) for unit in units] == [RUNS_A_UNIT, RUNS_A_UNIT]
    assert sorted(run.key for unit in units for run in unit.runs) == sorted(keys(experiment))
    assert len({unit.key for unit in units}) == len(units)


def test_units_of_a_grown_experiment_keep_the_old_ones_in_front():
    old, more_seeds = tiny(), tiny("seeds=3")
    longer = tiny("seeds=3", "data.snr=[0.25, 0.5, 1.0, 2.0]")
    before = [unit.key for unit in units_of([old])]
    after = units_of([old, more_seeds, longer])
    assert [unit.key for unit in after][: len(before)] == before
    found = [run.key for unit in after for run in unit.runs]
    assert sorted(found) == sorted(keys(longer))
    assert units_of([old, old]) == units_of([old])


@pytest.mark.parametrize(
    "change",
    ["seeds=5", "data.samples=[2, 4, 6]", "data.snr=[0.1, 0.5, 1.0, 2.0]", "data.samples=[4, 2]"],
)
def test_an_experiment_may_grow(change):
    old, new = tiny(), tiny(change)
    assert is_superset(new, old)
    assert extend_history([old], new) == [old, new]


def test_a_scalar_may_become_an_axis_that_holds_it():
    old, new = tiny(), tiny("training.rate=[0.5, 1.0]")
    assert extend_history([old], new) == [old, new]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("training.rate=0.25", ["training.rate: ", "0.5", "0.25"]),
        ("data.samples=[2, 6]", ["data.samples: ", "[2, 4]", "[2, 6]"]),
        ("data.snr=3.0", ["data.snr: ", "[0.5, 2.0]", "3.0"]),
        ("precision=float64", ["precision: ", "float32", "float64"]),
        (
            "attack={kind: pgd, ball: {radius: 0.1}}",
            ["attack: ", "None", "{'kind': 'pgd'"],
        ),
    ],
)
def test_any_other_change_is_refused_with_the_difference(change, parts):
    with pytest.raises(ValueError, match=says("runs/mine", "--out FOLDER")) as refused:
        extend_history([tiny()], tiny(change), "runs/mine")
    remedy, *lines = str(refused.value).splitlines()
    assert any(each.startswith(f"  {parts[0]}") and holds(each, *parts) for each in lines)
    assert holds(remedy, "runs/mine", "experiment", "folder", "--out")


@pytest.mark.parametrize("change", ["seeds=1", "data.snr=2.0", "data.samples=[4]"])
def test_a_part_of_what_is_there_leaves_the_history_alone(change):
    assert extend_history([tiny("seeds=1"), tiny()], tiny(change)) == [tiny("seeds=1"), tiny()]


def test_the_same_experiment_leaves_the_history_alone():
    assert extend_history([tiny()], tiny()) == [tiny()]
    assert extend_history([], tiny()) == [tiny()]


def test_two_stores_agree_if_one_extends_the_other():
    small, large = tiny(), tiny("seeds=4")
    assert merge_history([small], [large]) == [small, large]
    assert merge_history([large], [small]) == [large]
    with pytest.raises(ValueError, match=says("training.rate: ", "0.5", "0.25")):
        merge_history([small], [tiny("training.rate=0.25")])


def test_differences_name_every_leaf_that_differs():
    old, new = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": 4}
    expected = [("a.c: ", "2", "5"), ("d: ", "3", "None"), ("e: ", "None", "4")]
    for line, (name, there, here) in zip(differences(old, new), expected, strict=True):
        assert line.startswith(name)
        assert line.index(there) < line.index(here)
    assert differences(old, old) == []
