"""Products of float32 matrices by three products of bfloat16 ones."""

import pytest
import torch

from benign.networks import split_products
from benign.networks.split_products import Factor, bmm, splitting
from benign.streams import Streams
from benign.training.engine import products
from tests.reference import run_ids


def factors(dtype: torch.dtype = torch.float32, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    streams = Streams(run_ids(3), device)
    left, right = (
        streams("left").normal(40, 300, dtype=dtype),
        streams("right").normal(300, 50, dtype=dtype),
    )
    right[1] *= 1e-12  # as small as vanishing gradients
    return left, right


def error(product: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest error of a number, in units of the sum of the sizes of its terms."""
    exact, sizes = left.double() @ right.double(), left.double().abs() @ right.double().abs()
    return float(((product.double() - exact) / sizes).abs().max())


def test_the_error_is_a_hundredth_of_that_of_tf32():
    left, right = factors()
    with splitting(True):
        product = bmm(left, right)
    assert product.dtype == torch.float32
    assert 1e-8 < error(product, left, right) < 2**-17  # tf32: 2^-11 a factor
    one_product = left.bfloat16().float() @ right.bfloat16().float()
    assert error(one_product, left, right) > 100 * error(product, left, right)


def test_a_factor_serves_several_products_and_writes_where_it_is_asked():
    left, right = factors()
    with splitting(True):
        factor = Factor(right)
    out = torch.empty(3, 2, 20, 50)
    assert factor.product(left, out=out.flatten(1, 2)) is not None
    assert torch.equal(out.flatten(1, 2), factor.product(left))
    assert torch.equal(factor.product(left[:, :7]), out.flatten(1, 2)[:, :7])


def test_without_the_switch_and_in_float64_products_are_plain():
    left, right = factors()
    assert torch.equal(bmm(left, right), torch.bmm(left, right))
    with splitting(True):
        assert torch.equal(
            bmm(left.double(), right.double()), torch.bmm(left.double(), right.double())
        )
    with products("bf16x3", "cpu"):
        assert torch.equal(bmm(left, right), torch.bmm(left, right))
    with products("bf16x3", "cpu"), splitting(True):
        assert not torch.equal(bmm(left, right), torch.bmm(left, right))
    assert not split_products._on


@pytest.mark.gpu
def test_a_gpu_has_the_same_error():
    left, right = factors(device="cuda")
    for precision, most in (("float32", 1e-6), ("bf16x3", 2**-17), ("tf32", 2**-10)):
        with products(precision, "cuda"):
            assert error(bmm(left, right), left, right) < most
    with products("bf16x3", "cuda"):
        assert not torch.equal(bmm(left, right), torch.bmm(left, right))
