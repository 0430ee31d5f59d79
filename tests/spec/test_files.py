"""Specifications as files: what is read, what is refused, and how fast."""

import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from benign.spec.yaml import DEEPEST, LARGEST_FILE, FileError, parse_yaml, read_yaml, with_overrides
from tests.says import holds, says


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-12", -12),
        ("+3", 3),
        ("0", 0),
        ("1.0", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e9", 1e9),
        ("-2.5E-3", -2.5e-3),
        ("1e-3", 1e-3),
        ("010", 10.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("[1, 2.5, a]", [1, 2.5, "a"]),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("2020-01-01", "2020-01-01"),
        ("'1'", "1"),
        (".", "."),
        ("e5", "e5"),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text, value):
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


numbers = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(plain)
def test_written_values_are_read_back(value):
    assert parse_yaml(yaml.safe_dump(value)) == value


HOSTILE: dict[str, tuple[str, ...]] = {
    "python tag": (
        "a: !!python/object/apply:os.system ['true']",
        "python/object/apply:os.system",
        "line 1",
    ),
    "unknown tag": ("a: !mine 3", "!mine", "line 1"),
    "alias": ("a: &x [1, 2]\nb: *x\n", "aliases", "line 2"),
    "billion laughs": ("a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n", "aliases"),
    "merge key": ("a: &a {x: 1}\nb:\n  <<: *a\n", "aliases"),
    "deep list": ("a: " + "[" * 30_000, "nested", f"{DEEPEST}"),
    "deep fields": ("{a: " * 10_000, "nested", f"{DEEPEST}"),
    "deep indentation": ("- " * 1000 + "1", "nested", f"{DEEPEST}"),
    "field twice": ("a: 1\nb: 2\na: 3\n", "`a`", "twice", "line 3"),
    "number as field": ("1: 2", "field 1", "word", "line 1"),
    "list as field": ("? [a, b]\n: 1\n", "field", "word", "line 1"),
    "two documents": ("a: 1\n---\nb: 2\n", "single document", "line 2"),
    "unbalanced": ("a: [1, 2", "line 1"),
    "tab": ("a:\n\t- 1\n", "line 2"),
    "control character": ("a: \x01", "#x0001", "characters"),
    "long number": ("a: " + "9" * 5000, "digits"),
    "no fields": ("- 1\n- 2\n", "fields", "`data:`", "`network:`", "list"),
    "one word": ("hello", "fields", "`data:`", "`network:`", "str"),
    "nothing": ("", "fields", "`data:`", "`network:`", "None"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_malformed_or_hostile_file_is_refused_in_one_line(tmp_path, case):
    text, *parts = HOSTILE[case]
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError) as refused:
        read_yaml(path)
    message = str(refused.value)
    assert message.startswith(str(path))
    assert holds(message, *parts)
    assert "\n" not in message


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff\xfe")
    with pytest.raises(FileError, match=says(str(path), "text", "UTF-8")):
        read_yaml(path)


def test_a_large_file_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "a.yaml"
    with open(path, "wb") as file:
        file.truncate(2**40)  # a hole: a terabyte that takes no space
    with pytest.raises(FileError, match=says(str(path), f"{LARGEST_FILE:,}")):
        read_yaml(path)


def test_the_largest_file_is_read_in_seconds():
    text = "[" + "1," * (LARGEST_FILE // 2 - 2) + "1]"
    begin = time.process_time()
    assert len(parse_yaml(text)) == LARGEST_FILE // 2 - 1
    assert time.process_time() - begin < 15  # takes 2


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileError, match=says("nowhere.yaml", "No such file")):
        read_yaml(tmp_path / "nowhere.yaml")
    with pytest.raises(FileError, match=says(str(tmp_path), "Is a directory")):
        read_yaml(tmp_path)


FIELDS = {"data": {"dim": 4, "snr": 1.0}, "seeds": 1}


def test_overrides_change_a_copy():
    changed = with_overrides(FIELDS, ["data.dim=8", "seeds=3", "data.snr=[0.5, 1e1]"])
    assert changed == {"data": {"dim": 8, "snr": [0.5, 10.0]}, "seeds": 3}
    assert FIELDS == {"data": {"dim": 4, "snr": 1.0}, "seeds": 1}


def test_overrides_may_add_a_field_and_set_a_whole_part():
    changed = with_overrides(FIELDS, ["data.tokens=2", "attack={kind: pgd, ball: {radius: 1}}"])
    assert changed["data"] == {"dim": 4, "snr": 1.0, "tokens": 2}
    assert changed["attack"] == {"kind": "pgd", "ball": {"radius": 1}}


def test_a_value_may_hold_an_equals_sign():
    assert with_overrides({}, ["a=b=c"]) == {"a": "b=c"}


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("data.dim", ("field=value", "training.rate=0.05")),
        ("=3", ("field=value", "training.rate=0.05")),
        ("", ("field=value", "training.rate=0.05")),
        ("dat.dim=3", ("`dat`", "data, seeds")),
        ("seeds.x=3", ("`x`", "fields")),
        ("seeds=[1,", ("value", "YAML", "line 1")),
        ("seeds=!!python/name:os.system", ("value", "YAML", "python/name:os.system")),
        ("seeds=&a [*a]", ("value", "YAML", "aliases")),
    ],
)
def test_an_override_that_cannot_be_read_is_quoted(override, parts):
    with pytest.raises(FileError) as refused:
        with_overrides(FIELDS, [override])
    message = str(refused.value)
    assert message.startswith(f"--set {override!r}: ")
    assert holds(message, *parts)
    assert "\n" not in message
