"""Several norms at once: the worst, all, and the steepest step."""

import math
from typing import Any

import pytest
import torch

from benign.attacks.balls import Ball, Balls
from benign.attacks.ensemble import EnsembleAttack, evaluation_attack
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.pgd import PGD
from benign.losses import loss, margin
from benign.networks.linear import Linear
from benign.spec.base import SpecError
from benign.training.descent import attacked_step
from benign.training.metrics.evaluation import measure
from tests.reference import attacked, close, small_data, small_network, small_setup, start
from tests.says import says

BALLS = Balls(radius=0.4, l1=2.0, l2=1.0, linf=0.35)


def curved():
    """A network whose outputs are not linear, with its points."""
    batch = start([small_setup(small_data(samples=6), small_network(0.8, 0.8, heads=2))] * 2)
    return batch, batch.setup.network, batch.params, batch.sample


def margins(batch, points):
    y = batch.sample.y.repeat(1, points.shape[1] // batch.sample.y.shape[1])
    return margin(batch.setup.network.run(batch.params, points).outputs, y)


def test_the_balls_are_multiples_of_one_radius():
    """Zhang C.3: (20, 1, 1/30) eps |mu|."""
    data = small_data(signal=5.0)
    sizes = [float(ball.size(data)) for ball in Balls(radius=0.1, relative_to="signal").each()]
    assert sizes == pytest.approx([10.0, 0.5, 0.5 / 30])
    assert [ball.p for ball in Balls(radius=0.1, l2=None).each()] == [1, "inf"]


@pytest.mark.parametrize("combine", ["worst", "steepest"])
@pytest.mark.parametrize("widest", ["l1", "l2", "linf"])
def test_on_a_linear_network_it_finds_the_worst_ball(combine, widest):
    network, data = Linear(init_std=1.0), small_data(dim=20, tokens=4, samples=6)
    batch = start([small_setup(data, network)] * 2)
    x, y, u = batch.sample.x, batch.sample.y, batch.params["u"]
    multiples: dict[str, Any] = {"l1": 1.0, "l2": 0.3, "linf": 0.05} | {widest: 6.0}
    attack = MultiNorm(balls=Balls(radius=0.7, **multiples), combine=combine)
    points = attacked(attack, network, batch.params, data, x, y)
    duals = {"l1": math.inf, "l2": 2, "linf": 1}
    worst = torch.stack([0.7 * m * u.norm(duals[n], dim=1) for n, m in multiples.items()]).amax(0)
    found = y * (network.forward(batch.params, x) - network.forward(batch.params, points))
    assert (found / worst[:, None] - 1).abs().max() < 1e-3


def test_the_worst_is_the_worst_of_each_alone():
    batch, network, params, sample = curved()
    each = [
        margins(batch, attacked(PGD(ball=ball, keep="best"), network, params, batch.setup.data, sample.x, sample.y))
        for ball in BALLS.each()
    ]  # fmt: skip
    points = attacked(MultiNorm(balls=BALLS), network, params, batch.setup.data, sample.x, sample.y)
    close(margins(batch, points), torch.stack(each).amin(0))


def test_every_step_of_the_steepest_takes_the_best_ball():
    """One step: the highest loss of the three balls' steps, tried by hand."""
    batch, network, params, sample = curved()
    attack = MultiNorm(balls=BALLS, combine="steepest", steps=1, step=0.5, loss="cross_entropy")
    points = attacked(attack, network, params, batch.setup.data, sample.x, sample.y)
    tried = []
    for ball in BALLS.each():
        one = PGD(ball=ball, steps=1, step=0.5, loss="cross_entropy")
        moved = attacked(one, network, params, batch.setup.data, sample.x, sample.y)
        tried.append(loss(network.run(params, moved).outputs, sample.y))
    close(loss(network.run(params, points).outputs, sample.y), torch.stack(tried).amax(0))
    assert len({int(i) for i in torch.stack(tried).argmax(0).flatten()}) > 1


def test_the_average_trains_and_tests_on_all_norms():
    attack = MultiNorm(balls=BALLS, combine="average", steps=5)
    batch = start([small_setup(small_data(samples=6), attack=attack, test_samples=20)] * 2)
    step, sample = attacked_step(batch, 0), batch.sample
    assert step.attacked.shape[1] == step.margins.shape[1] == 18
    by_norm = []
    for ball in BALLS.each():
        points = attacked(PGD(ball=ball, steps=5), batch.setup.network, batch.params,
                          batch.setup.data, sample.x, sample.y)  # fmt: skip
        outputs = batch.setup.network.run(batch.params, points).outputs
        by_norm.append(loss(outputs, sample.y).mean(1))
    close(step.loss, torch.stack(by_norm).mean(0))
    whole = step.gradient()["weights"]
    assert whole.isfinite().all()
    accuracy = measure(batch, attack)["robust_accuracy"]
    single = [measure(batch, PGD(ball=ball, steps=5))["robust_accuracy"] for ball in BALLS.each()]
    close(accuracy, torch.stack(single).mean(0))


def test_each_run_has_its_own_radius():
    cells = [
        small_setup(attack=MultiNorm(balls=Balls(radius=radius, l1=2.0, linf=0.2), steps=4))
        for radius in (0.1, 0.5)
    ]
    together = attacked_step(start(cells), 0)
    for run, cell in enumerate(cells):
        alone = attacked_step(start([cell], [together.batch.streams.runs[run]]), 0)
        close(together.attacked[run], alone.attacked[0])


def test_one_norm_is_refused():
    with pytest.raises(SpecError, match=says("l1", "l2", "linf", "two", "1", "`pgd`")):
        Balls(radius=0.1, l1=None, l2=None)


# The default evaluation attack.


def test_the_evaluation_attack_stays_in_the_ball_and_is_not_weaker_than_the_training_attack():
    batch, network, params, sample = curved()
    trained = PGD(ball=Ball(radius=0.5), steps=3, step=1.0)
    evaluation = evaluation_attack(trained)
    assert isinstance(evaluation, EnsembleAttack)
    assert evaluation.also == trained
    points, weak = (
        attacked(attack, network, params, batch.setup.data, sample.x, sample.y)
        for attack in (evaluation, trained)
    )
    assert (evaluation.ball.each()[0].norm(points - sample.x) <= 0.5 * (1 + 1e-10)).all()
    assert (margins(batch, points) <= margins(batch, weak)).all()
    assert (margins(batch, points) < margins(batch, weak) - 1e-6).any()


def test_every_attack_has_its_evaluation_attack():
    """The evaluation attack of an l0 ball is the attack itself; several balls have one evaluation attack."""
    counting = PGD(ball=Ball(p=0, radius=2.0))
    assert evaluation_attack(counting) is counting
    assert evaluation_attack(None) is None
    several = evaluation_attack(MultiNorm(balls=BALLS))
    assert isinstance(several, EnsembleAttack)
    assert several.ball == BALLS
    assert small_setup(attack=counting).evaluation.attack == counting
