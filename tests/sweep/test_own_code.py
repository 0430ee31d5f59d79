"""Digests of a user's own metrics: the computation counts, the text of a definition does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import benign as bo
from benign.sweep.own_code import _digest, changed, own_code
from benign.training.metrics import METRICS
from tests.reference import small_setup
from tests.registry import forgetting

FILE = """
import benign as bo

@bo.metric("mean margin", units="1")
def mean_margin(step):
    '''Its docstring.'''
    return step.margins.mean(1)

@bo.running_metric("steps taken", "steps", finish=lambda state: 1 * state)
def steps_taken(so_far, step):
    return step.loss * 0 if so_far is None else so_far + 1
"""
CHANGED_TEXT = FILE.replace("mean margin", "the mean of y f").replace("Its doc", "Another doc")
CHANGED_TEXT = CHANGED_TEXT.replace('"steps taken", "steps"', '"how many steps", units="steps"')


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with forgetting():
        yield


def digests(folder: Path, text: str) -> dict[str, str | None]:
    """Return the digests of the metrics of a file with this text."""
    for name in ("mean_margin", "steps_taken"):
        METRICS.pop(name, None)
    path = folder / f"mine_{len(list(folder.iterdir()))}.py"
    path.write_text(text)
    bo.load(path)
    return own_code([small_setup()])


def test_the_text_of_a_definition_is_not_part_of_the_digest(tmp_path):
    before = digests(tmp_path, FILE)
    assert before.keys() == {"metric mean_margin", "metric steps_taken"}
    assert None not in before.values()
    assert digests(tmp_path, CHANGED_TEXT) == before
    assert not changed(before)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("margins.mean(1)", "margins.sum(1)", "metric mean_margin"),
        ("so_far + 1", "so_far + 2", "metric steps_taken"),
        ("1 * state", "2 * state", "metric steps_taken"),
        ("@bo.metric", "@torch.no_grad()\n@bo.metric", "metric mean_margin"),
    ],
)
def test_what_is_computed_is_part_of_the_digest(old, new, name, tmp_path):
    before = digests(tmp_path, FILE)
    after = digests(
        tmp_path, FILE.replace(old, new).replace("import benign", "import torch, benign")
    )
    assert {each for each in before if before[each] != after[each]} == {name}
    assert changed(before) == {name}


def test_records_from_before_version_0_2_name_metrics_otherwise(tmp_path):
    digests(tmp_path, FILE)
    known = _digest((METRICS["mean_margin"].function,))
    assert known
    assert not changed({"probe mean_margin": known})
    digests(tmp_path, FILE.replace("mean(1)", "sum(1)"))
    assert changed({"probe mean_margin": known}) == {"probe mean_margin"}
