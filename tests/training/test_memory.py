"""The memory of a batch, compared with the estimate by which runs are batched."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from benign.attacks import gram
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.data.feature_patches import FeaturePatches
from benign.data.mixture import Mixture
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.spec import axes
from benign.training import engine
from benign.training.engine import batch_size, run_bytes, train_runs
from benign.training.optimisers import SGD, GradientDescent
from benign.training.setup import Evaluation, Setup
from tests.reference import run_ids, small_data, small_network, small_pgd, small_setup


class JointTestPoints(TorchDispatchMode):
    """Bytes of all tensors made inside that are still there, and the most of them at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        given = function(*args, **(kwargs or {}))
        for part in tree_iter(given):
            if isinstance(part, Tensor):
                self._note(part.untyped_storage())
        return given

    def _note(self, storage: torch.UntypedStorage) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if address in self._known or not size:
            return
        self._known.add(address)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, address, size)

    def _forget(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.now -= size


WIDE = small_data(samples=12, tokens=8, dim=256)
NETWORK = small_network(hidden=32)
PAIRED = TwoLayer(width=64, preset="hybrid")
SETUPS: dict[str, Setup] = {
    "clean": small_setup(WIDE, NETWORK),
    "attacked": small_setup(WIDE, NETWORK, small_pgd(0.5, steps=20)),
    "best of several": small_setup(WIDE, NETWORK, small_pgd(0.5, restarts=2, steps=20)),
    "wide network": small_setup(WIDE, small_network(hidden=120), small_pgd(0.5, steps=20)),
    "two layers": small_setup(
        Mixture(samples=40, dim=512, signal=3.0), PAIRED, small_pgd(0.5, steps=20)
    ),
    "mini-batches": axes.replace(
        small_setup(Mixture(samples=200, dim=512, signal=3.0), PAIRED, small_pgd(0.5, steps=20)),
        {("training",): SGD(rate=0.1, epochs=2, batch=20)},
    ),
    "patches": small_setup(
        FeaturePatches(samples=40, dim=64, classes=3, tokens=8, alpha=1.0, beta=0.3, noise_std=0.1),
        PatchCNN(width=20, classes=3, threshold=1.0, init_std=0.1),
        small_pgd(0.5, "sample", steps=3),
    ),
}


@pytest.mark.parametrize("name", SETUPS)
def test_a_batch_stays_within_its_estimate(name, monkeypatch):
    """Within a tenth, which is for small tensors; one that is four times too high would waste the device."""
    setup = SETUPS[name]
    judge = (
        EnsembleAttack(ball=setup.attack.ball, steps=4) if isinstance(setup.attack, PGD) else None
    )
    changes: dict[axes.Path, Any] = {("evaluation",): Evaluation(samples=60, attack=judge)}
    if isinstance(setup.training, GradientDescent):
        changes |= {("training", "max_steps"): 2}
    setup = axes.replace(setup, changes)
    monkeypatch.setattr(gram, "pays", lambda *sizes: True)
    monkeypatch.setattr(engine, "CPU_BUDGET", 4 * run_bytes(setup))
    assert batch_size(setup, "cpu") == 4
    with JointTestPoints() as held:
        train_runs([setup] * 4, run_ids(4))
    assert held.most < 1.1 * engine.CPU_BUDGET
    assert held.most > engine.CPU_BUDGET / 4
