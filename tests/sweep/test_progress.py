"""How far units are, how long a sweep will take, and notes of it for other processes."""

import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benign.sweep import lease
from benign.sweep import progress as along
from benign.sweep.lease import Notes, acquire, leases_in, note_of, release, write_note
from benign.sweep.progress import Pace, UnitPosition, UnitProgress, UnitsInProgress
from benign.sweep.runner import Runner
from benign.sweep.store import Store, sealed, unsealed
from benign.training.engine import TESTING
from tests.sweep.test_terminal import Clock
from tests.tiny import tiny

UNIT = tiny().units()[0]
KEY = UNIT.key
HALF = UnitPosition(10, 500, 1000, 8, False, 0.5, 0.5, 20.0, 0.0)
"""of ten runs, two of which have ended"""


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    for module in (along, lease):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store", create=True)
    assert acquire(store, KEY) is None
    return store


def names(store: Store) -> list[str]:
    return sorted(path.name for path in (store.folder / "taken").iterdir())


# How far a unit is


def test_a_unit_is_followed_through_its_batches(clock):
    way = UnitProgress(UNIT)  # 4 runs, at most 40 steps
    assert not way.now().begun
    way.update(0, 2)
    clock.now += 3
    way.update(20, 1)
    assert way.now() == UnitPosition(4, 20, 40, 1, False, 0.25, 0.25, 3.0, 0.0)
    way.update(TESTING, 2)
    assert (way.now().testing, way.now().share) == (True, 0.5)
    way.update(7, 0)  # a reference network is trained meanwhile
    assert (way.now().step, way.now().training, way.now().share) == (7, 0, 0.5)
    way.update(20, 2)
    assert (way.now().testing, way.now().share) == (False, 0.75)
    way = UnitProgress(UNIT)
    way.update(39, 2)
    way.update(10, 2)  # the test of the first two was too short to be noticed
    assert way.now().share == 0.5 + 0.5 * 10 / 40


def test_what_a_checkpoint_had_took_no_time(clock):
    way = UnitProgress(UNIT)
    way.update(20, 4)
    clock.now += 5
    way.update(30, 4)
    assert way.now().rest == 5.0


def test_tests_are_expected_to_take_as_long_as_before(clock):
    """Units of 45 s of training and two minutes of tests had an estimate of 45 s."""
    ways, (first, second) = UnitsInProgress(), tiny().units()
    ways.begin(first)
    ways.units[first.key].update(0, 4)
    clock.now += 10
    ways.units[first.key].update(TESTING, 4)
    clock.now += 30
    ways.end(first)
    ways.begin(second)
    way = ways.units[second.key]
    way.update(0, 4)
    clock.now += 10
    way.update(20, 4)
    assert (way.now().tests, way.now().rest) == (30.0, 40.0)
    assert Pace().plus(4, 40.0, capped=True).left([way.now()], 0) == 40.0
    way.update(TESTING, 4)
    clock.now += 20
    assert Pace().plus(4, 40.0, capped=True).left(ways.positions(), 0) == 10.0


# How long it will take


def test_before_a_unit_has_ended_its_steps_give_the_time_left():
    assert Pace().left([HALF], 0) == 20.0
    assert Pace().left([HALF], 20) == 20.0 + 20 * 4.0
    assert Pace().left([HALF, HALF], 20) == (40.0 + 20 * 4.0) / 2
    assert Pace().left([replace(HALF, share=0.0, done=0.0)], 20) is None
    assert Pace().left([], 20) is None


def test_a_unit_that_is_slower_than_those_before_counts_for_those_to_come():
    """The page said 54 s where 4 minutes were left: it took all runs to be like the first and smallest."""
    small = Pace().plus(10, 4.0, capped=True)
    assert small.left([HALF], 30) == 20.0 + 30 * 4.0


def test_units_go_to_their_last_step_as_often_as_those_before():
    early = replace(HALF, share=0.01, done=0.01, seconds=1.0)
    assert Pace().left([early], 0) == pytest.approx(99.0)
    assert Pace().plus(10, 3.0, capped=False).left([early], 0) == pytest.approx(2.0)
    assert Pace().plus(10, 3.0, capped=True).left([early], 0) == pytest.approx(99.0)
    both = Pace().plus(10, 3.0, capped=False).plus(10, 3.0, capped=True)
    assert both.left([early], 0) == pytest.approx((2.0 + 99.0) / 2)
    overdue = replace(early, seconds=8.0)
    assert Pace().plus(10, 3.0, capped=False).left([overdue], 0) == 2.0


def test_the_longest_unit_is_waited_for():
    nearly = replace(HALF, share=0.99, done=0.99, seconds=1.0)
    assert Pace().left([HALF, nearly], 0) == 20.0


def test_a_unit_that_has_just_ended_makes_way_for_the_next():
    """The terminal showed 3 minutes in place of 74 s until the next was submitted."""
    assert Pace().left([HALF], 20, at_a_time=2) == (20.0 + 20 * 4.0) / 2
    assert Pace().left([HALF], 0, at_a_time=2) == 20.0
    assert Pace().plus(10, 40.0, True).left([], 20, at_a_time=2) == 40.0


def test_a_test_has_no_known_end():
    assert Pace().left([replace(HALF, testing=True, share=1.0)], 0) == 0.0
    assert Pace().plus(10, 30.0, True).left([replace(HALF, testing=True)], 0) == 10.0


# Notes


def test_notes_are_seldom_and_go_with_the_unit(store, clock):
    writer = Notes(store)
    writer.unit_begins(UNIT)
    written = []
    for number in range(1, 1001):  # 10 ms each
        clock.now += 0.01
        writer.step(KEY, number, 3)
        if (note := note_of(store, KEY)) and note.at.step not in written:
            written.append(note.at.step)
    assert written == pytest.approx([200, 400, 600, 800, 1000], abs=2)
    clock.now += 0.3
    writer.step(KEY, TESTING, 4)  # at once: nothing more is reported before it ends
    note = note_of(store, KEY)
    assert note is not None
    assert (note.at.testing, note.at.training) == (True, 4)
    assert abs(note.written - time.time()) < 60
    release(store, KEY)
    assert names(store) == [".lock"]


def test_short_units_write_none(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "write_note", lambda *_: pytest.fail("a note of milliseconds"))
    monkeypatch.setattr(lease, "NOTE_SOON", 60.0)
    tiny().run(tmp_path / "run")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_notes_how_far_it_is_and_leaves_nothing(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(lease, "NOTE_EVERY", 0.0)
    notes, write = [], write_note

    def written(store: Store, key: str, at: UnitPosition) -> None:
        write(store, key, at)
        notes.append((key, note_of(store, key)))

    monkeypatch.setattr(lease, "write_note", written)
    many = tiny("training.max_steps=1500", "training.stop_loss=0")
    many.run(tmp_path / "run", workers=workers)
    assert {key for key, _ in notes} == {unit.key for unit in many.units()}
    assert any(note and 0 < note.at.step < 1500 == note.at.most for _, note in notes)
    assert any(note and note.at.training == 4 for _, note in notes)
    assert names(Store.open(tmp_path / "run")) == [".lock"]


def test_a_note_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "NOTE_EVERY", 0.0)
    Runner(tiny(), tmp_path / "run")
    for unit in tiny().units():
        (tmp_path / "run" / "taken" / f"steps-{unit.key}" / "in the way").mkdir(parents=True)
    result = tiny().run(tmp_path / "run")
    assert result.attrs["runs_missing"] == 0
    assert not leases_in(Store.open(tmp_path / "run"))


def test_notes_are_no_claims_and_the_next_who_takes_a_unit_begins_without_one(store):
    write_note(store, KEY, HALF)
    assert list(leases_in(store)) == [KEY]
    claim = store.folder / "taken" / f"{KEY}.json"
    claim.write_bytes(sealed(unsealed(claim.read_bytes()) | {"started": "0"}))
    assert acquire(store, KEY) is None
    assert note_of(store, KEY) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\0", b"[" * 4000, sealed(asdict(HALF) | {"runs": "10"})]
    + [sealed(asdict(HALF) | more) for more in ({"runs": 0}, {"step": -2}, {"step": 10**400})]
    + [sealed(asdict(HALF)).replace(b"500", b"501"), b'{"seconds": 1e999}'],
)
def test_what_no_process_wrote_is_no_note(store, content):
    write_note(store, KEY, HALF)
    path = store.folder / "taken" / f"steps-{KEY}"
    path.write_bytes(content)
    assert note_of(store, KEY) is None
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert note_of(store, KEY) is None
    write_note(store, KEY, HALF)
    note = note_of(store, KEY)
    assert note is not None
    assert note.at == HALF


def test_a_killed_process_leaves_a_note_that_nobody_believes(tmp_path):
    """`benign.report.live` asks for notes of living processes only; others are deleted with the next lease."""
    many = tiny("training.max_steps=1000000", "training.stop_loss=0", "data.samples=4")
    script = (
        "from benign.sweep import lease; lease.NOTE_EVERY = 0.05\n"
        "from benign.experiment import Experiment\n"
        f"Experiment.from_dict({many.as_dict()!r}).run({str(tmp_path / 'run')!r})"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        (key,) = (unit.key for unit in many.units())
        store, begun = Store(tmp_path / "run"), time.monotonic()
        while note_of(store, key) is None:
            assert time.monotonic() - begun < 60
            time.sleep(0.02)
        process.kill()
    assert note_of(store, key)
    assert leases_in(store)[key].alive() is False
    assert acquire(store, key) is None
    assert note_of(store, key) is None
