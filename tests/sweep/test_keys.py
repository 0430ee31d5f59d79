"""Keys of runs, as they were: a key that moves disowns the finished runs of everybody."""

import json
from pathlib import Path

import pytest

from benign.experiment import Experiment
from benign.sweep.plan import runs_of

# Specifications with every field they had, and the key of their run under numerics 3.
PINNED = json.loads(Path(__file__).with_name("keys.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("pinned", PINNED, ids=lambda pinned: pinned["name"])
def test_a_specification_written_in_full_keeps_its_key(pinned, monkeypatch):
    """A new field with a default keeps keys. If this fails, a default, a name or `identity` has changed:
    raise NUMERICS, say so in CHANGELOG.md, and write the keys anew."""
    monkeypatch.setattr("benign.sweep.plan.NUMERICS", 3)
    (run,) = runs_of(Experiment.from_dict(pinned["specification"]))
    assert run.key == pinned["key"]
