"""Wrong types and shapes are refused in tests, by the lighter checks of tests/checked.py."""

from dataclasses import dataclass

import pytest
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import Float
from torch import Tensor

from benign import losses
from benign.stats.intervals import Estimate, wilson
from benign.stats.law import Law
from tests.checked import jaxtyped

check = jaxtyped(typechecker=beartype(conf=BeartypeConf(violation_type=TypeError)))
refused = pytest.raises(TypeError, match="violates type hint")


@check
def halves(x: Float[Tensor, "runs samples"], wrong: bool = False) -> Float[Tensor, " runs"]:
    return x.sum(0 if wrong else 1) / 2


@check
@dataclass
class Half:
    of: Float[Tensor, " runs"]
    and_of: Float[Tensor, " runs"]


def test_an_axis_has_one_size_in_a_call_and_another_in_the_next():
    for runs in (2, 5):
        assert halves(torch.ones(runs, 3)).shape == (runs,)
        assert Half(torch.ones(runs), torch.ones(runs))
    with refused:
        halves(torch.ones(2, 3), wrong=True)
    with refused:
        Half(torch.ones(2), torch.ones(3))


def test_the_package_is_checked():
    assert losses.margin(torch.ones(2, 3), torch.ones(2, 3)).shape == (2, 3)
    with refused:
        losses.margin(torch.ones(2, 3), torch.ones(2, 4))  # shapes that do not match
    with refused:
        wilson(hits="9", trials=10)  # pyright: ignore[reportArgumentType]
    with refused:
        Law(row=3, column="snr")  # pyright: ignore[reportArgumentType]
    assert isinstance(wilson(hits=9, trials=10), Estimate)
