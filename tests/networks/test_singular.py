"""Largest singular values: near those of an eigenvalue solver, and a bound that is above them."""

import pytest
import torch

from benign.networks.singular import largest_singular_value, spectral_bound


def test_the_bound_on_the_spectral_norm_is_above_and_near():
    draw = torch.Generator().manual_seed(3)
    matrices = torch.randn(5, 40, 70, dtype=torch.float64, generator=draw)
    matrices[1] = matrices[1, :, :1] @ matrices[1, :1]  # rank 1: exact
    matrices[2] = torch.eye(40, 70, dtype=torch.float64)  # all singular values alike: the loosest
    matrices[3] *= 1e-200
    matrices[4] = 0
    exact = torch.linalg.svdvals(matrices)[:, 0]
    found = spectral_bound(matrices)
    assert (found >= exact * (1 - 1e-12)).all()
    assert (found <= exact * 40 ** (1 / 8192) * (1 + 1e-12)).all()
    assert found[1] == pytest.approx(float(exact[1]), rel=1e-12)
    assert spectral_bound(torch.full((2, 3), torch.nan)).isnan()
    assert largest_singular_value(torch.full((2, 3), torch.nan)).isnan()


@pytest.mark.parametrize(("rows", "columns"), [(40, 70), (70, 40)])
def test_a_well_separated_largest_singular_value_is_exact(rows, columns):
    draw = torch.Generator().manual_seed(4)
    matrices = torch.randn(3, rows, columns, dtype=torch.float64, generator=draw)
    matrices[2] = 0
    exact = torch.linalg.svdvals(matrices)[:, 0]
    torch.testing.assert_close(largest_singular_value(matrices), exact, rtol=1e-10, atol=0)


def test_two_nearly_equal_values_give_a_small_error():
    worst = 0.0
    for gap in (0.0, 1e-5, 1e-4, 3e-4, 1e-3):
        values = torch.tensor([1.0, 1.0 - gap, 0.5], dtype=torch.float64)
        basis = torch.linalg.qr(
            torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        ).Q
        found = float(largest_singular_value(basis @ values.diag()))
        worst = max(worst, 1 - found)
    assert worst <= 5e-5
