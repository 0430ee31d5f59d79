"""The kernels of a patch network compute what the expressions beside their calls compute."""

from typing import Any

import pytest
import torch

from benign.networks import patch_cnn_kernels as kernels
from benign.networks.patch_cnn import PatchCNN
from benign.streams import Streams
from tests.reference import run_ids

CASES: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "li/fig3": ((16, 100), {"width": 100}),
    "many classes": ((11, 70), {"width": 7, "classes": 5, "q": 4}),
    "difference": ((3, 20), {"width": 33, "outputs": "difference", "q": 2}),
    "wide": ((5, 12), {"width": 3000}),
}


def test_other_passes_say_why_no_kernel_takes_them():
    assert "Triton" in str(kernels.why_not(torch.zeros(1, 5, 4, 2, 6)))


@pytest.mark.gpu
def test_the_kernels_leave_autograd_and_very_wide_networks_alone():
    scaled = torch.zeros(1, 5, 4, 2, 6, device="cuda")
    assert kernels.why_not(scaled) is None
    assert "filters" in str(kernels.why_not(scaled.new_zeros(1, 1, 1, 1, kernels.NUMBERS + 1)))
    assert "autograd" in str(kernels.why_not(scaled.requires_grad_()))


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_passes_are_those_of_the_expressions(name, dtype, monkeypatch):
    (tokens, dim), fields = CASES[name]
    streams = Streams(run_ids(3), "cuda")
    network = PatchCNN(threshold=0.8, init_std=0.2, **fields)
    x = streams("x").normal(30, tokens, dim, dtype=dtype)
    weights = streams("w").normal(network.classes, network.width, dim, dtype=dtype) * 0.2
    weights[2, 0, 0, 0] = torch.nan  # a run that has diverged
    c = network.outputs_of(streams("c").normal(30, network.classes, dtype=dtype))

    def numbers() -> list[torch.Tensor]:
        here = network.run({"weights": weights}, x)
        return [here.outputs, here.params_gradient(c)["weights"], here.inputs_gradient(c)]

    found = numbers()
    monkeypatch.setattr(kernels, "why_not", lambda _: "switched off")
    for mine, plain in zip(found, numbers(), strict=True):
        assert plain[2].isnan().any()
        near = 1e-10 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(mine, plain, rtol=near, atol=near, equal_nan=True)
