"""Slow, obvious re-implementations to compare with, and small setups to compare on."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benign.attacks.attack import Attack, Target
from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.data.model import DataModel, Sample
from benign.data.signal_noise import SignalNoise
from benign.losses import margin
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.network import Network, Params
from benign.spec import axes
from benign.streams import RunId, Stream, Streams
from benign.training.descent import Batch, Step, descend
from benign.training.optimisers import GradientDescent, Training
from benign.training.setup import Evaluation, Setup, stack
from tests.reference.attention import Attack as SlowAttack
from tests.reference.attention import Weights

Fields = dict[str, Any]


def small_data(**fields: Any) -> SignalNoise:
    """Return data of four points of three tokens in eight dimensions; `snr` may replace `signal`."""
    signal: Fields = {} if "snr" in fields else {"signal": 2.0}
    sizes: Fields = {"samples": 4, "tokens": 3, "dim": 8, "noise_std": 0.5}
    return SignalNoise(**(sizes | signal | fields))


def small_network(score_std: Any = 0.3, value_std: Any = 0.3, **fields: Any) -> Attention:
    init = GaussianInit(score_std=score_std, value_std=value_std)
    sizes: Fields = {"hidden": 5, "value_dim": 4, "init": init}
    return Attention(**(sizes | fields))


def small_pgd(radius: Any = 0.3, per: Any = "token", relative_to: Any = None, **fields: Any) -> PGD:
    ball = Ball(radius=radius, per=per, relative_to=relative_to)
    return PGD(**({"ball": ball, "steps": 4, "step": 0.4} | fields))


def small_setup(
    data: DataModel | None = None,
    network: Network | None = None,
    attack: Attack | None = None,
    rate: float = 0.5,
    stop_loss: float = 0.0,
    max_steps: int = 12,
    stop_on: Any = "attacked",
    test_samples: int = 6,
    test_attack: Attack | None = None,
    test_at: Any = "end",
    precision: Any = "float64",
    **training: Any,
) -> Setup:
    """Return a run of twelve steps in float64 that takes well under a second, tested with the training attack."""
    return Setup(
        data=data or small_data(),
        network=network or small_network(),
        attack=attack,
        training=GradientDescent(
            rate=rate, stop_loss=stop_loss, max_steps=max_steps, stop_on=stop_on, **training
        ),
        evaluation=Evaluation(samples=test_samples, attack=test_attack or attack, at=test_at),
        precision=precision,
    )


def with_most_steps(training: Training, steps: int) -> Training:
    """Return the training with this step cap, whatever its class calls the field."""
    for name in type(training).in_steps:
        changed = axes.replace(training, {(name,): steps})
        if changed.most_steps() == steps:
            return changed
    raise AssertionError(f"`in_steps` of {training.kind} names no field that sets `most_steps`")


def slow_attack(pgd: Any, data: DataModel) -> SlowAttack:
    """Return the same attack for the reference."""
    size = float(pgd.ball.size(data))
    return SlowAttack(size, pgd.steps, pgd.step, pgd.ball.per, pgd.loss, pgd.keep)


def attacked(
    attack: Attack,
    network: Network,
    params: Params,
    data: DataModel,
    x: Tensor,
    y: Tensor,
    latent: dict[str, Tensor] | None = None,
) -> Tensor:
    """Return the attacked points, with one stream a run."""
    sample = Sample(x, y, y, latent or {})
    streams = Streams(run_ids(len(x)))
    return attack.perturb(Target(network, params, data, sample, streams))


def margins(target: Target, points: Tensor) -> Tensor:
    """Return the outputs of the network on these points in place of the target's."""
    return margin(target.run(points).outputs, target.y)


def normal_cdf(z: float) -> float:
    """Return Phi(z), precise in the lower tail."""
    return math.erfc(-z / math.sqrt(2)) / 2


def run_ids(count: int, seed: int = 0) -> list[RunId]:
    """Return runs that differ in their draws."""
    return [RunId(seed, index, "") for index in range(count)]


class NotedStreams(Streams):
    """Streams that record the purposes for which they are used."""

    def __init__(self, runs: Sequence[RunId]):
        super().__init__(runs)
        self.purposes: list[str] = []

    def __call__(self, purpose: str) -> Stream:
        self.purposes.append(purpose)
        return super().__call__(purpose)


def start(cells: Sequence[Setup], ids: Sequence[RunId] | None = None) -> Batch:
    """Return a new batch of these runs."""
    ids = run_ids(len(cells)) if ids is None else ids
    return Batch.start(stack(list(cells), "cpu"), Streams(ids))


class Frame:
    """A copy of the numbers of one step: the engine changes the weights in place."""

    def __init__(self, step: Step, status: Tensor):
        self.step, self.number, self.batch = step, step.number, step.batch
        self.status = status.clone()
        self.runs = step.batch.index.clone()
        self.params: Params = {name: part.clone() for name, part in step.batch.params.items()}
        self.x, self.y = step.batch.sample.x, step.batch.sample.y
        self.attacked = step.attacked.clone()
        self.outputs = step.attacked_pass.outputs.clone()
        self.loss = step.loss.clone()
        self.network: Any = step.batch.setup.network
        self.streams = step.batch.streams

    @property
    def full(self) -> list[Weights]:
        """Return the full matrices of every run at this step."""
        return full_weights(self.network, self.params, self.batch.setup.data, self.streams)


def film(batch: Batch) -> list[Frame]:
    """Return every step of a batch."""
    return [Frame(step, status) for step, status in descend(batch)]


def by_head(network: Attention, columns: Tensor) -> Tensor:
    """Return query or key columns [runs, dim, heads * hidden] as [runs, heads, dim, hidden]."""
    return columns.unflatten(2, (network.heads, network.hidden)).transpose(1, 2)


def full_weights(
    network: Attention, params: Params, data: DataModel, streams: Streams
) -> list[Weights]:
    """Return the matrices of every run, W_V in full."""
    queries = by_head(network, network.queries(params))
    keys = by_head(network, network.keys(params))
    values = [network.value_matrix(params, data, streams, head) for head in range(network.heads)]
    return [
        Weights(list(queries[run]), list(keys[run]), [each[run] for each in values], output)
        for run, output in enumerate(params["output"])
    ]


def normals(*shape: int, seed: int = 0) -> Tensor:
    """Return standard normal numbers in float64, from a generator of their own."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def doubles(*numbers: float) -> Tensor:
    """Return these numbers in float64; `torch.tensor` would round them to float32 first."""
    return torch.tensor(numbers, dtype=torch.float64)


def close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Assert equality relative to the largest number expected, which must not be zero."""
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    assert actual.shape == expected.shape, f"{actual.shape} is not {expected.shape}"
    scale = float(expected.abs().max())
    assert scale > 0, "nothing to compare: everything expected is zero"
    error = float((actual - expected).abs().max()) / scale
    assert error <= tolerance, f"relative error {error:.3g}, allowed {tolerance:.3g}"
