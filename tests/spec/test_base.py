"""Specifications: axes, zipped axes, components, messages, and the way to plain data and back."""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

import benign as bo
from benign.data.model import DataModel
from benign.networks.initial import Init
from benign.networks.network import Network
from benign.spec.axes import Axis, cells, dimensions, linspace, logspace, select, stack, zipped
from benign.spec.base import Spec, SpecError, canonical, descriptions, digest, snake_case
from tests.registry import forgetting
from tests.says import holds, says
from tests.tiny import FIELDS, tiny


def where(spec) -> list[dict]:
    return [coordinates for coordinates, _ in cells(spec)]


def test_a_list_is_an_axis_and_the_grid_is_their_product():
    spec = tiny("data.samples=[2, 4, 6]", "data.snr=[0.5, 2.0]")
    assert [(dim.name, dim.values) for dim in dimensions(spec)] == [
        ("samples", (2, 4, 6)),
        ("snr", (0.5, 2.0)),
    ]
    assert where(spec) == [{"samples": n, "snr": r} for n in (2, 4, 6) for r in (0.5, 2.0)]
    assert [(cell.data.samples, cell.data.snr) for _, cell in cells(spec)][:2] == [
        (2, 0.5),
        (2, 2.0),
    ]


@pytest.mark.parametrize("values", [[2, 4], (2, 4), range(2, 5, 2), np.array([2, 4])])
def test_every_kind_of_list_is_an_axis(values):
    fields = {"kind": "signal_noise", "tokens": 2, "dim": 4, "snr": 1.0, "noise_std": 1.0}
    samples = DataModel.from_dict({**fields, "samples": values}).samples
    assert samples == Axis((2, 4))
    assert all(type(value) is int for value in samples.values)


def test_without_axes_there_is_one_cell():
    spec = tiny("data.samples=2", "data.snr=1.0")
    assert where(spec) == [{}]
    assert next(cells(spec))[1] == spec


def test_axes_of_the_same_field_name_are_named_by_their_path():
    spec = tiny(
        "attack={kind: pgd, ball: {radius: [0.1, 0.2]}}",
        "evaluation.attack={kind: pgd, ball: {radius: 0.3}}",
        "network.init={kind: gaussian_init, score_std: [0.1, 0.2], value_std: 0.1}",
        "network.output_norm=[1.0, 2.0]",
    )
    assert [dim.name for dim in dimensions(spec)] == [
        "samples",
        "snr",
        "score_std",
        "output_norm",
        "radius",
    ]
    both = tiny(
        "attack={kind: pgd, ball: {radius: [0.1, 0.2]}}",
        "evaluation.attack={kind: pgd, ball: {radius: [0.3, 0.4]}}",
    )
    assert [dim.name for dim in dimensions(both)][2:] == [
        "attack.ball.radius",
        "evaluation.attack.ball.radius",
    ]


def test_zipped_axes_move_together():
    spec = tiny(
        "data.samples={zipped: size, values: [2, 4, 6]}",
        "data.dim={zipped: size, values: [8, 16, 32]}",
        "data.snr=[1.0, 2.0]",
    )
    assert [dim.name for dim in dimensions(spec)] == ["size", "snr"]
    pairs = [(cell.data.samples, cell.data.dim, cell.data.snr) for _, cell in cells(spec)]
    assert pairs == [(n, d, r) for n, d in ((2, 8), (4, 16), (6, 32)) for r in (1.0, 2.0)]
    assert where(spec)[0] == {"size": 0, "snr": 1.0}
    assert zipped("size", [2, 4, 6]) == spec.data.samples


def test_only_a_zipped_axis_may_repeat_a_value():
    spec = tiny(
        "data.samples={zipped: pair, values: [2, 2]}", "data.snr={zipped: pair, values: [1, 2]}"
    )
    assert len(where(spec)) == 2
    with pytest.raises(SpecError, match=says("data.samples: ", "axis", "2")):
        tiny("data.samples=[2, 2]")


def test_a_list_of_components_is_an_axis_of_labels():
    attacks = [bo.PGD(ball=bo.Ball(radius=r), steps=2) for r in (0.1, 0.2)]
    fields = dict(FIELDS, attack=[each.as_dict() for each in attacks])
    spec = bo.Experiment.from_dict(fields)
    name, labels = [(dim.name, dim.values) for dim in dimensions(spec)][-1]
    assert name == "attack"
    assert labels == tuple(each.label() for each in attacks)
    assert len(set(labels)) == 2
    assert [cell.attack for _, cell in cells(spec)][:2] == attacks
    with pytest.raises(SpecError, match=says("attack", "list", "axes")):
        tiny("attack=[{kind: pgd, ball: {radius: [1, 2]}}]")


def test_stacking_gives_tensors_for_numbers_and_selecting_keeps_some():
    spec = tiny("data.samples=2", "data.snr=[0.5, 1.0, 2.0]")
    stacked = stack([cell for _, cell in cells(spec)], np.array)
    assert stacked.data.snr.tolist() == [0.5, 1.0, 2.0]
    assert stacked.training.rate.tolist() == [0.5] * 3
    assert stacked.data.samples == 2  # a shape
    assert stacked.data.signal is None
    assert select(stacked, [2, 0]).data.snr.tolist() == [2.0, 0.5]


def test_spaced_values_are_round_and_end_at_the_given_ends():
    assert linspace(0, 1, 5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert logspace(0.01, 100, 5) == [0.01, 0.1, 1.0, 10.0, 100.0]
    assert linspace(0, 1, 4) == [0.0, 0.333333, 0.666667, 1.0]


def test_a_file_may_write_spaced_values():
    assert tiny("data.snr={logspace: [0.1, 10, 6]}") == tiny(f"data.snr={logspace(0.1, 10, 6)}")
    assert tiny("data.samples={linspace: [2, 8, 4]}") == tiny("data.samples=[2, 4, 6, 8]")


# Every entry: changes of a sound experiment, the field complained about, parts of the message.
REFUSED: list[tuple[list[str], str, tuple[str, ...]]] = [
    (["data.dim=-4"], "data.dim", ("1", "-4")),
    (["data.dim=0"], "data.dim", ("1", "0")),
    (["data.dim=2.5"], "data.dim", ("integer", "2.5")),
    (["data.dim=true"], "data.dim", ("number", "True")),
    (["data.dim=many"], "data.dim", ("integer", "'many'")),
    (["data.dim=1"], "data", ("`dim`", "2", "1")),
    (
        ["data.dim=[8, -8]"],
        "data.dim",
        ("2", "axis", "1", "-8"),
    ),
    (["data.signal=1.0"], "data", ("`snr`", "`signal`", "snr=0.5, signal=1.0")),
    (["data.snr=null"], "data", ("`snr`", "`signal`", "snr=None, signal=None")),
    (
        ["data.balanced=true", "data.samples=[2, 3]"],
        "data",
        ("`samples`", "`balanced: true`", "3", "4"),
    ),
    (["data.samples=[]"], "data.samples", ("axis", "[]")),
    (["data.samples=[2, null]"], "data.samples", ("axis", "null", "[2, None]")),
    (["data.samples=[2, [4]]"], "data.samples", ("2", "axis", "[4]")),
    (["data.samples=4,8"], "data.samples", ("[4,8]", "'4,8'")),
    *(
        (
            [f"data.snr={{logspace: {wrong}}}"],
            "data.snr",
            ("{logspace: [0.1, 10, 6]}", "2", "1000", "{'logspace': "),
        )
        for wrong in ("5", "[1, 2]", "[0, 1, 3]", "[1, 2, 1]", "[1, 2, 3.5]", "[1, 2, 100000000]")
    ),
    (
        ["data.snr={linspace: [1, 1" + "0" * 400 + ", 3]}"],
        "data.snr",
        ("{linspace: [0.1, 10, 6]}", "2", "1000"),
    ),
    (
        ["data.samples={linspace: [2, 3, 3]}"],
        "data.samples",
        ("2", "axis", "integer", "2.5"),
    ),
    (["attack={logspace: [1, 2, 3]}"], "attack", ("`kind`", "apgd", "pgd")),
    (["data.sample=2"], "data.sample", ("`samples`",)),
    (["data.colour=2"], "data.colour", ("samples", "tokens", "directions")),
    (["sedes=2"], "sedes", ("`seeds`",)),
    (["data.kind=mixture_of_all"], "data", ("`kind`", "signal_noise", "'mixture_of_all'")),
    (["data=3"], "data", ("DataModel", "3")),
    (["training=null"], "training", ("Training", "None")),
    (["training.rate=0"], "training.rate", ("0", "got 0")),
    (["training.rate=1e999"], "training.rate", ("finite", "inf")),
    (["training.rate=.nan"], "training.rate", ("'.nan'",)),
    (
        ["training.stop_on=[attacked]"],
        "training.stop_on",
        ("axis", "['attacked']", "rate, stop_loss"),
    ),
    (
        ["precision=[float32, float64]"],
        "precision",
        ("axis", "['float32', 'float64']", "data, network"),
    ),
    (
        ["seeds=[1, 2]"],
        "seeds",
        ("axis", "[1, 2]", "data, network, attack, training"),
    ),
    (
        ["training.max_steps=[10, 20]"],
        "training.max_steps",
        ("axis", "[10, 20]", "rate, stop_loss", "kind: gradient_descent"),
    ),
    (
        ["attack={kind: pgd, ball: {radius: 1}, steps: [5, 10]}"],
        "attack.steps",
        ("axis", "[5, 10]", "[{kind: pgd, ...}, {kind: pgd, ...}]"),
    ),
    (["attack=pgd"], "attack", ("{kind: pgd, ...}", "'pgd'")),
    (["training.rate=.nan"], "training.rate", ("number", "'.nan'")),
    (["attack={kind: pgd, ball: {radius: -1}}"], "attack.ball.radius", ("0", "-1")),
    (["attack={kind: pgd}"], "attack.ball", ("required",)),
    (["data.directions=[[1, 0], [0, 1]]"], "data", ("`directions`", "dim=8", "2 and 2")),
    (["seeds=0"], "seeds", ("1", "0")),
    (["seeds=1000000"], "", ("4,000,000", "1,000,000", "`seeds`")),
    (["data.dim=1" + "0" * 400], "data.dim", ("1" + "0" * 30, "...")),
    (["training.max_steps=1" + "0" * 400], "training.max_steps", ("1" + "0" * 30, "...")),
    (
        ["network={kind: patch_cnn, width: 2, threshold: 0.1, init_std: 0.1}"],
        "",
        ("`network` (patch_cnn)", "2 classes", "`data` (signal_noise)", "signed"),
    ),
    (
        ["data.samples={zipped: a, values: 3}"],
        "data.samples",
        ("{zipped: name, values: [1, 2]}", "{'zipped': "),
    ),
    (
        ["data.samples={zipped: '', values: [2, 4]}"],
        "data.samples",
        ("{zipped: name, values: [1, 2]}", "{'zipped': "),
    ),
    (["data.samples={zipped: snr, values: [2, 4]}"], "data", ("group", "`snr`", "name")),
    (["data.samples={zipped: seed, values: [2, 4]}"], "", ("group", "`seed`", "name")),
    (["data.samples={zipped: test_loss, values: [2, 4]}"], "", ("group", "`test_loss`", "name")),
    (
        ["data.samples={zipped: a, values: [2, 4]}", "data.snr={zipped: a, values: [1, 2, 3]}"],
        "data",
        ("group", "`a`", "2 and 3", "`snr`"),
    ),
]


@pytest.mark.parametrize(("changes", "field", "parts"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_bad_field_is_refused_by_name(changes, field, parts):
    with pytest.raises(SpecError) as refused:
        tiny(*changes)
    [(path, message)] = refused.value.problems
    assert path == field
    assert holds(message, *parts)
    assert len(message) < 400  # kinds of other tests among them


def test_all_problems_are_reported_at_once():
    with pytest.raises(SpecError) as refused:
        tiny("data.dim=-1", "training.rate=-1", "seeds=0")
    assert [path for path, _ in refused.value.problems] == ["data.dim", "training.rate", "seeds"]
    assert str(refused.value).count("\n") == 2


def test_fields_are_given_by_name():
    with pytest.raises(SpecError, match=says("field", "Ball(p=..., radius=")):
        bo.Ball(0.1)  # pyright: ignore[reportCallIssue]


def test_a_rule_across_fields_names_the_cell_that_breaks_it():
    with pytest.raises(SpecError, match=says("`samples`", "3", "4", "(at samples=3, snr=0.5)")):
        tiny("data.samples=[2, 3]", "data.balanced=true")


def test_classes_and_files_give_the_same_errors():
    with pytest.raises(SpecError) as direct:
        bo.SignalNoise(samples=2, tokens=2, dim=-4, snr=1.0, noise_std=1.0)
    assert holds(str(direct.value), "dim: ", "1", "-4")
    assert "data" not in str(direct.value)
    assert isinstance(direct.value, ValueError)


def test_a_specification_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        tiny().seeds = 3


def test_defining_a_component_registers_it_under_its_name():
    with forgetting():

        class TwoMoons(DataModel):
            """A data model of a user."""

            gap: float = 1.0

            def sample(self, streams, split, count, dtype):
                raise NotImplementedError

        assert TwoMoons.kind == "two_moons"
        assert DataModel.choices()["two_moons"] is TwoMoons
        assert "two_moons" not in Init.choices()
        fields = {"kind": "two_moons", "samples": 2, "tokens": 1, "dim": 2}
        assert DataModel.from_dict(fields) == TwoMoons(samples=2, tokens=1, dim=2)
        assert DataModel.from_dict(fields).as_dict() == {**fields, "gap": 1.0}


def test_a_kind_in_use_is_refused_with_both_places():
    message = says("`mixture`", "benign.data.mixture.Mixture", "test_base")
    with pytest.raises(ValueError, match=message):

        class Mixture(DataModel):
            def sample(self, streams, split, count, dtype):
                raise NotImplementedError

    assert DataModel.choices()["mixture"].__module__ == "benign.data.mixture"


def test_the_message_for_an_unfinished_class_names_the_missing_methods():
    with forgetting():

        class NoSample(DataModel):
            """Somebody forgot `sample`."""

        with pytest.raises(SpecError, match=says("data: ", ".NoSample`", "`sample`")):
            tiny("data.kind=no_sample")
        with pytest.raises(SpecError, match=says("network: `kind`", "attention", "'no_sample'")):
            tiny("network.kind=no_sample")


@pytest.mark.parametrize("kind", [object, Any, Callable, torch.Tensor, list[Any]])
def test_a_field_that_no_file_can_hold_is_refused_by_name(kind):
    value = torch.zeros(2) if kind is torch.Tensor else torch.relu
    with forgetting():

        class StrangeField(Network):
            act: kind = [value] if kind == list[Any] else value  # pyright: ignore[reportInvalidTypeForm]

            def initial_params(self, data, streams, dtype):
                raise NotImplementedError

            def forward(self, params, x):
                raise NotImplementedError

        with pytest.raises(SpecError, match=says("act: ", "number", "word", "list")) as refused:
            StrangeField()
        assert str(refused.value).startswith("act: ")
        with pytest.raises(
            SpecError, match=says("network.act: ", "number", "word", "list")
        ) as refused:
            tiny("network={kind: strange_field}")
        assert str(refused.value).count("\n") == 0
        if kind in (Callable, torch.Tensor):
            with pytest.raises(SpecError, match=says("network.act: ", "type")):
                tiny("network={kind: strange_field, act: relu}")


def test_a_notebook_cell_that_is_run_again_replaces_its_component():
    def cell() -> type:
        class Spiral(DataModel):
            def sample(self, streams, split, count, dtype):
                raise NotImplementedError

        return Spiral

    with forgetting():
        first, second = cell(), cell()
        assert first is not second
        assert DataModel.choices()["spiral"] is second
    assert "spiral" not in DataModel.choices()


def test_a_component_of_another_family_is_refused():
    with pytest.raises(SpecError, match=says("`kind`", "signal_noise", "'attention'")):
        tiny("data.kind=attention")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SignalNoise", "signal_noise"),
        ("PGD", "pgd"),
        ("PatchCNN", "patch_cnn"),
        ("TwoLayer", "two_layer"),
    ],
)
def test_kinds_are_snake_case(name, kind):
    assert snake_case(name) == kind


def test_a_digest_knows_values_and_not_their_order():
    assert digest({"a": 1, "b": [1.5]}) == digest({"b": [1.5], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert len(digest({})) == 32
    with pytest.raises(ValueError, match="JSON"):
        canonical({"a": float("nan")})


positive = st.floats(1e-6, 1e6, allow_nan=False)


def axis(one, group=None):
    """One value, a list of different ones, or with a group a zipped axis of two."""
    lists = st.lists(one, min_size=1, max_size=3, unique=True)
    if group is None:
        return one | lists
    pairs = st.lists(one, min_size=2, max_size=2, unique=True)
    return one | lists | pairs.map(lambda values: {"zipped": group, "values": values})


balls = st.fixed_dictionaries(
    {"radius": axis(positive, "a")},
    optional={"per": st.sampled_from(["token", "sample"]), "relative_to": st.just("signal")},
)
attacks = st.fixed_dictionaries(
    {"kind": st.just("pgd"), "ball": balls},
    optional={"steps": st.integers(1, 50), "keep": st.sampled_from(["last", "best"])},
)
inits = st.fixed_dictionaries(
    {"kind": st.just("torch_default")}, optional={"divide_by": axis(positive)}
) | st.fixed_dictionaries(
    {"kind": st.just("gaussian_init"), "score_std": positive, "value_std": axis(positive)}
)
experiments = st.fixed_dictionaries(
    {
        "data": st.fixed_dictionaries(
            {
                "kind": st.just("signal_noise"),
                "samples": axis(st.integers(1, 9), "a"),
                "tokens": st.integers(2, 4),
                "dim": axis(st.integers(2, 9)),
                "snr": axis(positive, "b"),
                "noise_std": positive,
            },
            optional={"flip": st.sampled_from([0, 0.25]), "projected": st.booleans()},
        ),
        "network": st.fixed_dictionaries(
            {"kind": st.just("attention"), "hidden": st.integers(1, 9), "init": inits}
        ),
        "training": st.fixed_dictionaries({"rate": axis(positive, "b")}),
    },
    optional={"attack": attacks, "seeds": st.integers(1, 3), "root_seed": st.integers(0, 10**15)},
)


@settings(max_examples=40)
@given(experiments)
def test_plain_data_and_specification_are_the_same_thing(fields):
    spec = bo.Experiment.from_dict(fields)
    plain = spec.as_dict()
    again = bo.Experiment.from_dict(plain)
    assert again == spec
    assert again.as_dict() == plain
    assert canonical(plain) == canonical(again.as_dict())
    assert [digest(cell.as_dict()) for _, cell in cells(again)] == [
        digest(cell.as_dict()) for _, cell in cells(spec)
    ]


class Described(Spec):
    first: int = 1
    """what the first
    one is"""
    second: int = 2
    third: Annotated[int, Field(description="given")] = 3
    """not this one"""


class DescribedAgain(Described):
    second: int = 4
    """what the second one is"""


def test_descriptions_of_fields_are_their_docstrings_also_inherited_ones():
    assert descriptions(Described) == {"first": "what the first\none is", "third": "given"}
    assert descriptions(DescribedAgain) == {
        "first": "what the first\none is",
        "second": "what the second one is",
        "third": "given",
    }


def test_a_class_without_a_source_has_no_descriptions():
    assert descriptions(type("Typed", (Spec,), {"__module__": "nowhere"})) == {}
