"""Trajectories: the runs of a study trained again, with what the proofs follow step by step, and fresh points."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import ArrayLike

from benign.claims import Evidence
from benign.claims.replays import Replays
from benign.networks.attention import Attention
from benign.papers.jiang.theory import JiangNumbers, log_factor
from benign.sweep.plan import Run
from benign.training.descent import Batch, Status, Step
from benign.training.metrics.attention import attention_network, attention_pass
from benign.training.metrics.scores import coefficients

DENSE = 1500
"""every step up to this one is recorded; later ones are 1 % apart"""
FRESH = 250
"""fresh points of a run"""
SIGNAL, STRONG = 0, 1
"""positions of the tokens in a point; weak noise follows"""


@dataclass(frozen=True)
class FreshPoints:
    """A trained run on fresh points."""

    attention: np.ndarray
    """[points, rows, keys]"""
    values: np.ndarray
    """x^T v, [points, tokens]"""
    margins: np.ndarray
    """y f, [points]"""


@dataclass(frozen=True)
class Trajectory:
    """One run: the recorded steps, and its end."""

    run: Run
    y: np.ndarray
    """[points]"""
    steps: np.ndarray
    """numbers of the recorded steps"""
    losses: np.ndarray
    """[steps]"""
    values: np.ndarray
    """z = X v, [steps, points, tokens]"""
    scores: np.ndarray
    """x_l^T W_Q W_K^T x_j, [steps, points, rows, keys]"""
    signs: np.ndarray
    """share of the coefficients alpha and beta that have the signs of F.4, [steps]"""
    key_drift: float
    """|W_K(T) - W_K(0)|_F"""
    fresh: FreshPoints
    converged: bool

    @cached_property
    def numbers(self) -> JiangNumbers:
        return JiangNumbers.of(self.run.cell)

    @property
    def signed(self) -> np.ndarray:
        """y_n V of every token, [steps, points, tokens]."""
        return self.y[:, None] * self.values

    @cached_property
    def attention(self) -> np.ndarray:
        """[steps, points, rows, keys]"""
        powers = np.exp(self.scores - self.scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def dominance(self, token: int) -> int | None:
        """Return the index of T1 in `steps`: a token of every point has 3M times the value of all others (D.5, E.3)."""
        others = np.abs(np.delete(self.values, token, axis=2)).max(2)
        dominates = (self.signed[:, :, token] >= 3 * self.values.shape[2] * others).all(1)
        return int(dominates.argmax()) if dominates.any() else None

    def stage_2(self, token: int) -> slice | None:
        """Return T1 to T2 as a slice of `steps`: from dominance to T2. None if it has fewer than 5 recorded steps."""
        begin, end = self.dominance(token), self._t2()
        if begin is None:
            return None
        end = len(self.steps) if end is None else end
        return slice(begin, end) if end - begin >= 5 else None

    def stage_3(self) -> slice:
        """Return T2 to T3 as a slice of `steps`; empty if training ends before T2."""
        begin = self._t2()
        return slice(0, 0) if begin is None else slice(begin, len(self.steps))

    def _t2(self) -> int | None:
        """Return the index of T2 in `steps`, where some |V| first exceeds 1 / L."""
        bound = 1 / log_factor(self.numbers.samples, self.numbers.tokens)
        late = np.abs(self.values).max((1, 2)) > bound
        return int(late.argmax()) if late.any() else None


def each_seed(
    runs: Sequence[Trajectory],
    numbers: ArrayLike,
    combine: Callable[[np.ndarray], float],
) -> np.ndarray:
    """Return one number for each seed, from one for each run: seeds are the replicates, not the cells of a seed."""
    seeds, values = np.array([run.run.seed for run in runs]), np.asarray(numbers)
    return np.array([combine(values[seeds == seed]) for seed in np.unique(seeds)])


def trajectories(evidence: Evidence) -> list[Trajectory]:
    """Train every run of the evidence again."""
    return _trajectories(evidence.replays())


@lru_cache(maxsize=3)
def _trajectories(replays: tuple[Replays, ...]) -> list[Trajectory]:
    """Cached: several claims need the same runs, and neighbours in the list of claims share two studies at most."""
    return [trajectory for replay in replays for trajectory in _of_unit(replay)]


def _of_unit(replay: Replays) -> list[Trajectory]:
    records: list[list[tuple]] = [[] for _ in replay.runs]
    start_keys = y = torch.zeros(0)
    finished: dict[int, Trajectory] = {}
    for step, status in replay.steps():
        if step.number == 0:
            start_keys, y = _keys(step.batch), step.batch.sample.y
        ending = status != Status.MISSING
        if ending.any() or _is_recorded(step.number):
            for index, record in zip(step.batch.index.tolist(), _records(step), strict=True):
                records[index].append(record)
        if ending.any():
            for index, end in _ends(step, status, start_keys):
                run, labels = replay.runs[index], y[index].numpy()
                finished[index] = _trajectory(run, labels, records[index], end)
    return [finished[index] for index in range(len(replay))]


def _is_recorded(number: int) -> bool:
    return number <= DENSE or number % max(1, number // 100) == 0


def _records(step: Step) -> Iterator[tuple]:
    """Yield number, loss, values, scores and share of right signs of a step, run by run."""
    output = attention_pass(step.clean_pass)
    scores, values, signs = output.scores[:, :, 0], output.values[:, :, 0], _signs(step)
    for index in range(len(step.batch)):
        yield (
            step.number,
            float(step.loss[index]),
            values[index].numpy().copy(),
            scores[index].numpy().copy(),
            float(signs[index]),
        )


def _signs(step: Step) -> torch.Tensor:
    """Return the share of coefficients with the signs of F.4, within points.

    Those towards the signal are not negative: alpha_{s,s}, beta_{s,s}, alpha_{n,i,s}, beta_{n,s,i}. Those towards
    noise are not positive: alpha_{n,s,i}, alpha_{n,i,n,j}, beta_{n,i,s}, beta_{n,i,n,j}.
    """
    alpha, beta = coefficients(step)
    own = (step.batch.sample.clean_y < 0).long()
    runs, points = (torch.arange(size) for size in own.shape)
    r, n = runs[:, None], points[None]

    def signal(part: torch.Tensor) -> torch.Tensor:
        """Return the row of the point's own signal, columns of the point: [runs, points, tokens]."""
        return part[r, own, 0, n]

    def noise(part: torch.Tensor) -> torch.Tensor:
        """Return the rows of the point's noise, columns of the point: [runs, points, noise tokens, tokens]."""
        return part[r, n, :, 0, n]

    right = [
        signal(alpha.signal)[..., :1] >= 0,
        signal(beta.signal) >= 0,
        noise(alpha.noise)[..., 0] >= 0,
        signal(alpha.signal)[..., 1:] <= 0,
        noise(alpha.noise)[..., 1:] <= 0,
        noise(beta.noise) <= 0,
    ]
    return torch.cat([part.flatten(1) for part in right], 1).double().mean(1)


def _keys(batch: Batch) -> torch.Tensor:
    network = batch.setup.network
    assert isinstance(network, Attention)
    return network.keys(batch.params).clone()


def _ends(
    step: Step, status: torch.Tensor, start_keys: torch.Tensor
) -> Iterator[tuple[int, tuple[float, FreshPoints, bool]]]:
    """Yield index, drift of the keys, fresh points and convergence of every run that ends at this step."""
    ending = status != Status.MISSING
    batch = step.batch.select(ending)
    test = batch.test_points("test/0", FRESH)
    output = attention_pass(batch.run(test))
    keys = attention_network(step).keys(batch.params)
    for place, index in enumerate(batch.index.tolist()):
        drift = float((keys[place] - start_keys[index]).norm())
        fresh = FreshPoints(
            output.attention[place, :, 0].numpy(),
            output.values[place, :, 0].numpy(),
            (test.y * output.outputs)[place].numpy(),
        )
        yield index, (drift, fresh, bool(status[ending][place] == Status.CONVERGED))


def _trajectory(
    run: Run, y: np.ndarray, records: list[tuple], end: tuple[float, FreshPoints, bool]
) -> Trajectory:
    steps, losses, values, scores, signs = (np.array(part) for part in zip(*records, strict=True))
    return Trajectory(run, y, steps, losses, values, scores, signs, *end)
