"""Specifications changed at random: a clear refusal that names the field, or an experiment, within a second."""

import copy
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import benign as bo
from benign.spec.base import SpecError
from tests.tiny import FIELDS

RECIPES = ("zhang/fig1", "jiang/fig1", "wang/fig1", "li/fig3")
SECONDS = 1.0

EXTREME = [0, -1, 10**9, 10**30, 10**400, -(10**400), 2**63, 1e308, -1e308, 1e-320, 0.5, -0.0]
EXTREME += [float("nan"), float("inf"), float("-inf")]
STRANGE = [
    None,
    True,
    False,
    "",
    "x",
    "../../etc/passwd",
    "a/b",
    "\0",
    "1e9",
    "é" * 100,
    "x" * 10_000,
]
STRANGE += [[], {}, [[]], [None], [1, "a"], [[[1]]], {"a": {}}, {"kind": []}, {"kind": {}}]
STRANGE += [
    {"zipped": "a", "values": [1, 2]},
    {"zipped": 1, "values": 2},
    {"zipped": "seed", "values": [1]},
]
STRANGE += [{"logspace": [1, 2, 10**9]}, {"linspace": "abc"}, {"logspace": [0, 1, 3]}, {1: 2}]
STRANGE += [list(range(1, 8)), [1] * 1000]
NAMES = [
    "kind",
    "",
    "a/b",
    "..",
    "__class__",
    "model_config",
    "values",
    "zipped",
    "x" * 1000,
    "é",
    "seeds",
    3,
    None,
]

Path = tuple[Any, ...]


def places(fields: Any, path: Path = ()) -> list[Path]:
    """The path of every value inside plain fields."""
    if isinstance(fields, dict):
        inner = list(fields.items())
    else:
        inner = list(enumerate(fields)) if isinstance(fields, list) else []
    return [path, *(deeper for key, value in inner for deeper in places(value, (*path, key)))]


def changed(fields: Any, path: Path, how: str, value: Any, name: Any) -> Any:
    """The fields with the value at a path dropped, renamed, replaced, nested, doubled or joined by another."""
    holder = {"all": copy.deepcopy(fields)}
    *before, last = ("all", *path)
    inside: Any = holder
    for key in before:
        inside = inside[key]
    old = inside[last]
    if how == "drop" and path:
        del inside[last]
    elif how == "rename" and isinstance(inside, dict) and path:
        inside[name] = inside.pop(last)
    elif how == "add" and isinstance(old, dict):
        old[name] = value
    elif how == "nest":
        inside[last] = {name: old}
    elif how == "list":
        inside[last] = [old, value]
    else:
        inside[last] = value
    return holder["all"]


VALID = [FIELDS, *(bo.recipe(name).experiment("smoke").as_dict() for name in RECIPES)]
values = st.sampled_from([*EXTREME, *STRANGE]) | st.floats() | st.integers() | st.text(max_size=5)
ways = st.sampled_from(["drop", "rename", "retype", "add", "nest", "list", "retype", "retype"])


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    fields = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(fields)))
        fields = changed(fields, path, draw(ways), draw(values), draw(st.sampled_from(NAMES)))
    return fields


def has_words(fields: Any) -> bool:
    """Whether these are fields at all: a file that holds none is refused before."""
    return isinstance(fields, dict) and all(isinstance(name, str) for name in fields)


def words(fields: Any) -> set[str]:
    """Every name of a field that a message may contain."""
    named = {str(key) for path in places(fields) for key in path}
    return named | {
        "data",
        "network",
        "training",
        "kind",
        "attack",
        "evaluation",
        "field",
    }


def outcome(fields: Any) -> str:
    """Return the message for fields that are refused; empty for an experiment. Takes less than a second."""
    begin = time.process_time()
    try:
        bo.Experiment.from_dict(fields)
        message = ""
    except SpecError as error:
        message = str(error)
        assert message.strip()
    assert time.process_time() - begin < SECONDS
    return message


def check(fields: Any) -> bool:
    """Whether changed fields are an experiment."""
    message = outcome(fields)
    for line in message.splitlines():
        assert any(word in line for word in words(fields) if word), line
    return not message


@settings(max_examples=60)
@given(mutated().filter(has_words))
def test_changed_specifications_are_refused_by_field_or_run(fields):
    check(fields)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_changed_specifications():
    counts = {True: 0, False: 0}

    @settings(max_examples=2000)
    @given(mutated().filter(has_words))
    def many(fields: Any) -> None:
        counts[check(fields)] += 1

    many()
    print(f"\n{counts[False]} changed specifications refused by field, {counts[True]} still sound")


@pytest.mark.parametrize("value", [*EXTREME, *STRANGE], ids=lambda value: repr(value)[:20])
def test_every_field_with_a_strange_value(value):
    for path in places(FIELDS)[1:]:
        check(changed(FIELDS, path, "retype", value, ""))


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:20])
@pytest.mark.parametrize("how", ["rename", "add", "nest"])
def test_every_part_with_a_strange_name(how, name):
    for path in places(FIELDS)[1:]:
        check(changed(FIELDS, path, how, 1, name))
