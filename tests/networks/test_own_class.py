"""Points in groups of their own class: every sample has a place, and is found there."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from benign.networks.own_class import grouped, taken
from tests.reference import normals


@given(labels=st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=3))
def test_every_sample_stands_in_the_group_of_its_class(labels: list[list[int]]):
    y = torch.tensor(labels, dtype=torch.float64)
    samples, places = grouped(y, 3)
    size = max(run.count(label) for run in labels for label in range(3))
    assert samples.shape == (len(labels), 3 * size)
    assert torch.equal(places // size, y.long())
    assert torch.equal(samples.gather(1, places), torch.arange(5).expand_as(places))


def test_rows_are_taken_from_their_own_run_and_back():
    rows, y = normals(2, 5, 3, 4), torch.tensor([[0.0, 1, 0, 2, 0], [2.0, 2, 1, 0, 2]])
    samples, places = grouped(y, 3)
    there = taken(rows, samples)
    assert torch.equal(there[1, 2 * 3], rows[1, 0])
    back = torch.empty_like(rows)
    assert torch.equal(taken(there, places, out=back), rows)
    assert torch.equal(back, rows)
