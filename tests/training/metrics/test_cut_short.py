"""Evaluations whose attack is cut short, and those that a certificate answers without an attack."""

from typing import Any

import pytest
import torch

from benign.attacks import certificates
from benign.attacks.attack import Target
from benign.attacks.balls import Ball, Balls
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.data.mixture import Mixture
from benign.losses import loss, margin
from benign.networks.linear import Linear
from benign.networks.network import Network
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.training.descent import Batch
from benign.training.metrics import METRICS, evaluation, fresh_points, point_metric
from benign.training.metrics.evaluation import measure
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup
from tests.reference import close, run_ids, small_data, small_network, small_pgd, start
from tests.registry import forgetting

POINTS = 600


def batch_of(
    network: Network,
    data: Any = None,
    radius: float = 0.5,
    points: int = POINTS,
    precision: Any = "float64",
) -> Batch:
    setup = Setup(
        data=data or small_data(flip=0.1),
        network=network,
        attack=small_pgd(radius, steps=4),
        training=GradientDescent(rate=0.1, max_steps=0),
        evaluation=Evaluation(samples=points),
        precision=precision,
    )
    return start([setup, setup], run_ids(2))


def measured(batch: Batch) -> dict[str, torch.Tensor]:
    known = {"train_robust_accuracy": torch.ones(2, dtype=torch.float64)}
    return measure(batch, batch.setup.final_attack, at_end=True, known=known)


NETWORKS: list[tuple[str, Network, Any]] = [
    ("attention", small_network(1.0, 1.0), None),
    ("two heads", small_network(1.0, 1.0, heads=2), None),
    ("float32", small_network(1.0, 1.0), None),
    (
        "two layers",
        TwoLayer(width=6, preset="torch_default"),
        Mixture(samples=4, dim=9, signal=1.0),
    ),
]


@pytest.mark.parametrize(("name", "network", "data"), NETWORKS)
def test_accuracies_are_those_of_attacks_in_full(name, network, data, monkeypatch):
    """Bit for bit, and so are the numbers that the audit computes."""
    batch = batch_of(network, data, precision="float32" if name == "float32" else "float64")
    cut = measured(batch)
    for module in (evaluation, fresh_points):
        monkeypatch.setattr(module, "cuts_short", lambda setup, attack: False)
    whole = measured(batch)
    assert 0 < float(whole["robust_accuracy"].mean()) < 1
    assert cut.keys() == whole.keys()
    different = {
        key
        for key, value in whole.items()
        if not torch.equal(value.nan_to_num(), cut[key].nan_to_num())
    }
    assert different <= {"robust_loss"}


def test_the_robust_loss_is_that_of_the_first_block():
    batch = batch_of(small_network(1.0, 1.0))
    target = batch.target(batch.test_points("test/0", 250), "attack/test/0")
    attack = batch.setup.final_attack
    assert attack is not None
    outputs = target.run(attack.perturb(target)).outputs
    close(measured(batch)["robust_loss"], loss(outputs, target.y).mean(1))


def test_a_metric_that_reads_more_than_signs_is_measured_on_the_first_block():
    batch = batch_of(small_network(1.0, 1.0))
    seen = []
    with forgetting():

        @point_metric("lowest margin", attacked=True)
        def lowest(block):
            seen.append(block.attacked_margins.shape[1])
            return block.attacked_margins

        measured(batch)
        assert seen == [250]

        @point_metric("lowest margin", attacked=True, signs_only=True)
        def lowest_everywhere(block):
            return block.attacked_outputs

        with pytest.raises(RuntimeError, match="signs_only"):
            measured(batch)
        del METRICS["lowest"], METRICS["lowest_everywhere"]


def test_an_attack_of_one_kind_is_made_on_all_points():
    batch = batch_of(small_network(1.0, 1.0))
    values = measure(batch, batch.setup.attack)
    margins, losses = [], []
    for number, count in enumerate((250, 250, 100)):
        target = batch.target(batch.test_points(f"test/{number}", count), f"attack/test/{number}")
        assert batch.setup.attack is not None
        outputs = target.run(batch.setup.attack.perturb(target)).outputs
        margins.append(margin(outputs, target.y))
        losses.append(loss(outputs, target.y))
    close(values["robust_accuracy"], (torch.cat(margins, 1) > 0).double().mean(1))
    close(values["robust_loss"], torch.cat(losses, 1).mean(1))


EXACT: list[tuple[str, Network, dict[str, Any]]] = [
    ("linear", Linear(init_std=1.0), {}),
    ("uniform", small_network(1.0, 1.0, attend="uniform"), {}),
    ("signal", small_network(1.0, 1.0, attend="signal"), {}),
    ("values", small_network(1.0, 1.0, exposed="values"), {}),
]


@pytest.mark.parametrize(("name", "network", "fields"), EXACT)
@pytest.mark.parametrize("per", ["token", "sample"])
def test_exact_certificates_are_the_answer(name, network, fields, per, monkeypatch):
    """Equal to the attack to 1e-10, and nothing is attacked."""
    batch = batch_of(network, points=300)
    balls = Ball(radius=0.5, per=per)
    attack, judge = EnsembleAttack(ball=balls, steps=10), batch.setup.final_attack
    assert judge is not None
    target = batch.target(batch.test_points("test/0", 250), "attack/test/0")
    worst = attack.worst([target]).margins
    close(certificates.certified_margins(target, attack), worst)
    assert certificates.is_exact(network, attack)
    monkeypatch.setattr(EnsembleAttack, "worst", None)
    values = measured(batch)
    assert values["robust_exactly"].tolist() == [1, 1]
    assert torch.equal(values["robust_accuracy"], values["robust_accuracy_certified"])
    close(values["train_robust_loss"], values["train_robust_loss_certified"])
    outside = batch.target(batch.test_points("test/1", 50), "attack/test/1")
    both = torch.cat(
        [certificates.certified_margins(each, judge) for each in (target, outside)],
        1,
    )
    assert torch.equal(values["robust_accuracy"], (both > 0).double().mean(1))
    close(values["robust_loss"], loss(both, torch.ones_like(both)).mean(1))


def test_errors_against_flipped_labels_are_exact_too():
    """An adversary raises a flipped point above 0: the certificate of the other label says whether he can."""
    batch = batch_of(
        Linear(init_std=1.0), Mixture(samples=4, dim=9, signal=1.0, flip=0.2), points=300
    )
    exact = measured(batch)["robust_noisy_error"]
    attack = EnsembleAttack(ball=Ball(radius=0.5), steps=10)
    error = torch.zeros(2, dtype=torch.float64)
    for number, count in enumerate((250, 50)):
        target = batch.target(batch.test_points(f"test/{number}", count), "attack")
        lowest = attack.worst([target]).margins
        highest = -attack.worst([target.relabelled(-target.y)]).margins
        error += (0.8 * (lowest <= 0).double() + 0.2 * (highest >= 0).double()).sum(1)
    close(exact, error / 300)


@pytest.mark.parametrize(
    ("network", "attack"),
    [
        (small_network(), EnsembleAttack(ball=Ball(radius=0.3))),
        (
            PatchCNN(width=4, classes=3, threshold=1.0, init_std=0.1),
            EnsembleAttack(ball=Ball(radius=0.3)),
        ),
        (Linear(), PGD(ball=Ball(radius=0.3))),
        (Linear(), EnsembleAttack(ball=Ball(radius=0.3, box=(0.0, 1.0)))),
        (Linear(), None),
    ],
)
def test_bounds_and_other_attacks_are_no_exact_answer(network, attack):
    assert not certificates.is_exact(network, attack)


def test_balls_of_several_norms_are_answered_by_the_worst():
    batch = batch_of(Linear(init_std=1.0), points=50)
    attack = EnsembleAttack(ball=Balls(radius=0.3), steps=10)
    target: Target = batch.target(batch.test_points("test/0", 50), "attack")
    assert certificates.is_exact(batch.setup.network, attack)
    close(certificates.certified_margins(target, attack), attack.worst([target]).margins, 1e-9)
