"""An experiment as YAML: written and read back exactly, and mistakes reported with their line."""

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import benign as bo
from benign.claims.study import SCALES
from benign.papers.registry import recipes
from benign.spec.registry import Component
from benign.spec.schema import experiment_schema
from benign.spec.yaml import FileError, parse_yaml, with_overrides, yaml_text
from tests.says import holds
from tests.tiny import FIELDS, tiny, tiny_file


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    found = experiment_schema()
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_is_written_and_read_back_exactly(name: str, schema):
    """And an editor finds nothing wrong with it."""
    for scale in SCALES:
        experiment = recipes()[name].experiment(scale)
        fields = parse_yaml(experiment.to_yaml())
        assert fields == {"benign": 1, **experiment.as_dict()}
        assert [error.message for error in schema.iter_errors(fields)] == []
        if scale == "smoke":
            assert bo.Experiment.from_yaml(experiment.to_yaml()) == experiment


def test_zipped_axes_and_no_axes_come_back():
    zipped = tiny("data.samples={zipped: size, values: [2, 4]}", "data.snr=1.0")
    for experiment in (zipped, tiny("data.samples=2", "data.snr=1.0", "attack=null")):
        assert bo.Experiment.from_yaml(experiment.to_yaml()) == experiment


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30)
words = st.text(max_size=6) | st.from_regex(r"[-+.0-9eE_:]{1,6}|no|on|null|~|true", fullmatch=True)


@settings(max_examples=80)
@given(st.dictionaries(st.from_regex("[a-z_]{1,6}", fullmatch=True), numbers | words))
def test_numbers_and_words_come_back_as_they_were(fields):
    again = parse_yaml(yaml_text(fields))
    assert again == fields
    assert [type(value) for value in again.values()] == [type(value) for value in fields.values()]


def test_a_path_is_written_and_read(tmp_path):
    path = tmp_path / "mine.yaml"
    text = tiny().to_yaml(path)
    assert path.read_text(encoding="utf-8") == text
    assert text.startswith("benign: 1\n")
    for source in (path, str(path), text):
        assert bo.Experiment.from_yaml(source) == tiny()


WRONG = """\
data:
  kind: signal_noise
  tokens: 3
  dim: -8
  snr: [0.5, x]
  samples: 4
network: {kind: attention, hiden: 4, hidden: 4, init: {kind: torch_default}}
training:
  rate: 0.5
seed: 3
"""


def test_mistakes_are_reported_with_field_value_and_line(tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG, encoding="utf-8")
    for source, name in ((path, str(path)), (WRONG, "the text")):
        with pytest.raises(bo.SpecError) as refused:
            bo.Experiment.from_yaml(source)
        lines = str(refused.value).splitlines()
        expected = [
            ("data.dim: ", "1", "-8", f"({name}, line 4)"),
            ("data.snr: ", "2", "axis", "number", "'x'", f"({name}, line 5)"),
            ("data.noise_std: ", "required", f"({name}, line 1)"),
            ("network.hiden: ", "field", "`hidden`", f"({name}, line 7)"),
            ("seed: ", "field", "`seeds`", f"({name}, line 10)"),
        ]
        for line, (field, *parts) in zip(lines, expected, strict=True):
            assert line.startswith(field)
            assert holds(line, *parts)


def test_a_field_that_the_command_line_sets_has_no_line_in_the_file(run, tmp_path):
    path = tiny_file(tmp_path, "data.dim=-4")
    _, _, err = run("show", path, "--set", "training.rate=-1", "--seeds", "0")
    dim, seeds, rate = sorted(map(str.strip, err.removeprefix("benign: ").splitlines()))
    assert holds(dim, "data.dim: ", "-4", f"({path}, line 2)")
    assert holds(seeds, "seeds: ", "1", "0")
    assert holds(rate, "training.rate: ", "0", "-1")
    assert "line" not in seeds + rate


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("data: [1, 2\n", ("the text", "YAML", "line ")),
        ("data: 1\ndata: 2\n", ("`data`", "twice", "line 2")),
        ("- a: 1\n", ("the text", "fields", "`data:`", "`network:`", "list")),
        ("a: " + "1" * 70_000, ("the text", "65,536")),
        ("nowhere.yaml", ("nowhere.yaml", "No such file")),
    ],
)
def test_texts_that_are_no_specifications_are_refused(text: str, parts: tuple[str, ...]):
    with pytest.raises(FileError) as refused:
        bo.Experiment.from_yaml(text)
    assert holds(str(refused.value), *parts)


@pytest.mark.parametrize(
    "change",
    [
        "data.snr={logspace: [0.1, 10, 6]}",
        "data.samples={linspace: [2, 6, 3]}",
        "data.samples={zipped: size, values: [2, 4]}",
        "network=[{kind: linear}, {kind: attention, hidden: 4, init: {kind: torch_default}}]",
        "attack={kind: pgd, ball: {radius: [0.1, 0.2]}}",
        "training={kind: sgd, rate: 0.1, batch: 2, epochs: 3}",
        "benign=1",
    ],
)
def test_the_schema_takes_what_a_file_may_hold(change: str, schema):
    fields = with_overrides(FIELDS, [change])
    assert bo.Experiment.from_dict(fields).units()
    schema.validate(fields)


@pytest.mark.parametrize(
    "change",
    [
        "data.size=3",
        "data.dim=four",
        "data.dim=-4",
        "data.dim=true",
        "data.snr=[]",
        "data.snr=[1.0, none]",
        "data.snr={logspace: [1, 2]}",
        "data.snr={zipped: a}",
        "data.kind=signal_nois",
        "data={samples: 4, dim: 3}",
        "data=signal_noise",
        "network.init.kind=pgd",
        "attack={kind: attention, hidden: 3}",
        "attack={kind: pgd, ball: {radius: 0.1, per: tokn}}",
        "training={kind: sgd, rate: 0.1, max_steps: 3}",
        "precision=float16",
        "seeds=0",
        "seeds=[1, 2]",
        "benign=2",
        "seed=1",
        "training=null",
    ],
)
def test_the_schema_refuses_mistakes_as_the_program_does(change: str, schema):
    fields = with_overrides(FIELDS, [change])
    with pytest.raises(bo.SpecError):
        bo.Experiment.from_dict(fields)
    with pytest.raises(jsonschema.ValidationError):
        schema.validate(fields)


def test_the_schema_explains_fields_and_knows_components_of_a_users_own(run):
    class Nearest(bo.ModuleNetwork):
        """The nearest training point decides."""

        neighbours: int = 1
        """points that vote"""

        def build(self, data):
            raise NotImplementedError

    try:
        code, out, _ = run("schema")
    finally:
        Nearest.choices().pop("nearest")
    # Other tests define components as well, which need not explain themselves.
    foreign = {
        kind.__name__
        for family in Component.families.values()
        for kind in family.values()
        if not kind.__module__.startswith("benign.")
    }
    found = json.loads(out)
    assert code == 0
    own = found["$defs"]["Nearest"]
    assert own["properties"]["kind"]["const"] == "nearest"
    assert own["properties"]["neighbours"]["description"] == "points that vote"
    choices = {each["allOf"][0]["$ref"] for each in found["$defs"]["Network"]["anyOf"]}
    assert {"#/$defs/Nearest", "#/$defs/Attention"} <= choices
    assert ">>>" not in out
    silent = [
        (name, field)
        for name, part in found["$defs"].items()
        if name not in foreign
        for field, schema in part.get("properties", {}).items()
        if not schema.get("description")
    ]
    assert silent == []
