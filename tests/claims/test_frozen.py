"""Frozen rules: what changes their hash, and a file that survives kills, other processes and damage."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import benign as bo
from benign.claims import Claims, Direction, Kind, at_least, contains
from benign.claims.frozen import FrozenError, FrozenFile, differences, rules_of
from benign.sweep.store import sealed
from tests.says import says

SOURCE = '''
@CLAIMS.add("thm1", "Theorem 1", rule, levels={"accuracy": 0.75})
def accuracy(evidence):
    """Accuracy is high."""
    return 1
'''


def _experiment(signal=(4.0, 8.0), seeds=3):
    return bo.Experiment(
        data=bo.Mixture(samples=4, dim=5, signal=list(signal)),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.1, max_steps=3),
        seeds=seeds,
    )


def _claim(rule=None, source=SOURCE, **more):
    claims = Claims("me")
    names = {"CLAIMS": claims, "rule": rule or at_least(0.9)}
    exec(source.replace("rule,", "rule, **more,") if more else source, names | {"more": more})
    (claim,) = claims
    return claim


def _rules(claim=None, experiment=None, scale="quick", reading=None):
    return rules_of(
        claim or _claim(), scale, reading or {}, {"me/runs": experiment or _experiment()}
    )


def test_source_text_changes_no_hash():
    renamed = SOURCE.replace("def accuracy", "def other").replace("is high", "is high indeed")
    moved = f"import math\n\n\n{renamed.replace('return 1', 'return math.sqrt(1)')}"
    assert _rules(_claim(source=moved)).hash == _rules().hash


def test_one_number_has_one_hash():
    assert _rules(_claim(at_least(1))).hash == _rules(_claim(at_least(1.0))).hash
    first, second = at_least(0.12345678901), at_least(0.12345678902)
    assert str(first) == str(second)
    assert _rules(_claim(first)).hash != _rules(_claim(second)).hash


LEVEL = SOURCE.replace("0.75", "0.8")


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (_rules(_claim(at_least(0.95))), ["rule low from 0.9 to 0.95"]),
        (_rules(_claim(contains(0.9))), ["rule kind from range to contains"]),
        (_rules(_claim(source=LEVEL)), ["levels accuracy from 0.75 to 0.8"]),
        (_rules(_claim(version=2)), ["version from 1 to 2"]),
        (_rules(_claim(kind=Kind.IDENTITY)), ["kind from measured to identity"]),
        (_rules(_claim(robust=Direction.RISES)), ["direction is new: rises"]),
        (_rules(_claim(informational=("a",))), ["does not decide from [] to"]),
        (
            _rules(experiment=_experiment((4.0, 9.0))),
            ["grid me/runs data signal", "[4.0, 8.0]", "[4.0, 9.0]"],
        ),
        (_rules(experiment=_experiment(seeds=4)), ["seeds me/runs from 3 to 4"]),
    ],
)
def test_what_decides_changes_the_hash_and_is_named(now, words):
    before = _rules()
    assert now.hash != before.hash
    text = "; ".join(differences(before.data, now.data))
    assert all(word in text for word in words), text


def test_long_values_that_differ_at_their_end_are_distinguished():
    """Two long axes look the same when they are cut."""
    axes = [[float(each) for each in range(1, 40)] + [last] for last in (50.0, 60.0)]
    first, second = (_rules(experiment=_experiment(axis)) for axis in axes)
    text = "; ".join(differences(first.data, second.data))
    assert text.count("sha256") == 2


def test_rules_count_from_the_last_before_there_are_runs(tmp_path: Path):
    low, middle, high = (_rules(_claim(at_least(bound))) for bound in (0.7, 0.8, 0.9))

    def status(rules, runs):
        return FrozenFile(tmp_path / "verdicts" / "frozen.jsonl").freeze([(rules, runs)])[rules.key]

    assert status(low, False).text() == ""
    assert status(middle, False).text() == ""  # changed, before there was a run
    assert status(middle, True).text() == ""
    later = status(high, True)
    assert later.text() == (
        "the rule changed after runs existed: rule fails_below from 0.8 to 0.9; rule low from 0.8 to 0.9"
    )
    assert later.as_dict()["hash"] == high.hash
    assert status(high, False).changed  # to delete the runs does not help
    assert status(middle, True).text() == ""


def test_a_verdict_counts_as_runs(tmp_path: Path):
    """A claim without a study draws by itself: no folder shows that it has been judged."""
    file, before, now = FrozenFile(tmp_path / "frozen.jsonl"), _rules(), _rules(_claim(version=2))
    file.freeze([(before, False)])
    file.judged(before)
    size = (tmp_path / "frozen.jsonl").stat().st_size
    FrozenFile(tmp_path / "frozen.jsonl").judged(before)
    assert (tmp_path / "frozen.jsonl").stat().st_size == size
    assert "version from 1 to 2" in file.freeze([(now, False)])[now.key].text()


def test_runs_before_any_rule_are_named(tmp_path: Path):
    status = FrozenFile(tmp_path / "frozen.jsonl").freeze([(_rules(), True)])[_rules().key]
    assert status.text() == "runs existed before the rule was recorded"
    assert status.as_dict()["runs existed before"] is True


def test_scales_and_readings_have_rules_of_their_own(tmp_path: Path):
    file = FrozenFile(tmp_path / "frozen.jsonl")
    many = [_rules(scale=scale, reading={"w": w}) for scale in ("quick", "paper") for w in "ab"]
    assert len(file.freeze([(each, False) for each in many])) == 4
    assert len((tmp_path / "frozen.jsonl").read_text().splitlines()) == 4


def test_a_torn_last_line_is_ignored(tmp_path: Path):
    """A process killed while it writes leaves any number of bytes of its line."""
    path, first, second = tmp_path / "frozen.jsonl", _rules(), _rules(_claim(at_least(0.95)))
    FrozenFile(path).freeze([(first, True)])
    start = path.stat().st_size
    FrozenFile(path).freeze([(second, True)])
    whole = path.read_bytes()
    for end in range(start, len(whole), 97):
        path.write_bytes(whole[:end])
        status = FrozenFile(path).freeze([(second, True)])[second.key]
        assert status.changed, end
        assert len(path.read_bytes().splitlines()) == 2, end
        assert FrozenFile(path).freeze([(second, True)])[second.key].changed, end


def test_processes_add_lines_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each thread has a file of its own open, as each process would; between reading and writing it waits."""
    read = FrozenFile._read

    def slowly(file):
        events = read(file)
        time.sleep(0.003)
        return events

    monkeypatch.setattr(FrozenFile, "_read", slowly)
    path = tmp_path / "frozen.jsonl"
    many = [_rules(reading={"draw": str(number)}) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        twice = [each for each in many for _ in range(2)]
        list(pool.map(lambda each: FrozenFile(path).freeze([(each, False)]), twice))
    readings = [json.loads(line)["reading"]["draw"] for line in path.read_text().splitlines()]
    assert sorted(readings, key=int) == [str(number) for number in range(24)]


def _edited(line: bytes) -> bytes:
    return line.replace(b"0.9", b"0.1", 1)


HOSTILE = {
    "edited": (_edited, "checksum"),
    "a list": (lambda _: b"[]", "damaged"),
    "not text": (lambda _: b"\xff\xfe\x00", "damaged"),
    "deep": (lambda _: b"[" * 100_000, "damaged"),
    "empty": (lambda _: b"", "damaged"),
    "of a newer version": (lambda line: _sealed(line, event="later"), "update benign"),
    "without a field": (lambda line: _sealed(line, scale=None), "scale"),
    "another hash": (lambda line: _sealed(line, hash="0" * 64), "another hash"),
}


def _sealed(line: bytes, **changes) -> bytes:
    event = json.loads(line) | changes
    event.pop("sha256")
    return sealed(event)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_line_is_an_error_with_a_remedy(tmp_path: Path, name: str):
    path = tmp_path / "frozen.jsonl"
    FrozenFile(path).freeze([(_rules(), False), (_rules(scale="paper"), False)])
    first, second = path.read_bytes().splitlines()
    edit, problem = HOSTILE[name]
    path.write_bytes(edit(first) + b"\n" + second + b"\n")
    with pytest.raises(FrozenError, match=says(str(path), "line 1", problem, "move it away")):
        FrozenFile(path).freeze([(_rules(), True)])


def test_a_link_or_a_pipe_is_refused(tmp_path: Path):
    target = tmp_path / "else"
    target.write_bytes(b"mine")
    for name, make in (
        ("link", lambda path: path.symlink_to(target)),
        ("folder", Path.mkdir),
        ("pipe", os.mkfifo),
    ):
        path = tmp_path / name
        make(path)
        with pytest.raises(FrozenError, match=says(str(path), "move it away")):
            FrozenFile(path).freeze([(_rules(), False)])
    assert target.read_bytes() == b"mine"
