"""Runs of a study again, step by step: what the stages of the proofs look at, and fresh points at the end."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch

from benign.claims import Evidence
from benign.claims.replays import Replays
from benign.networks.attention import Attention
from benign.papers.jiang.theory import Numbers, log_factor
from benign.sweep.plan import Run
from benign.training.descent import Batch, Status, Step
from benign.training.metrics.attention import attention_network, attention_pass
from benign.training.metrics.scores import coefficients

DENSE = 1500
"""every step up to here is kept; later ones 1 % apart"""
FRESH = 250
"""fresh points of a run"""


@dataclass(frozen=True)
class Fresh:
    """Points that a run has not seen, at its end."""

    attention: np.ndarray
    """[points, rows, keys]"""
    values: np.ndarray
    """[points, tokens]: x^T v"""
    margins: np.ndarray
    """y f"""


@dataclass(frozen=True)
class Walk:
    """One run: steps that are kept, [steps, ...], and its end."""

    run: Run
    y: np.ndarray
    steps: np.ndarray
    losses: np.ndarray
    values: np.ndarray
    """z = X v, [steps, points, tokens]"""
    scores: np.ndarray
    """x_l^T W_Q W_K^T x_j, [steps, points, rows, keys]"""
    signs: np.ndarray
    """share of the coefficients alpha and beta that have the signs of F.4, [steps]"""
    key_drift: float
    """|W_K(T) - W_K(0)|_F"""
    fresh: Fresh
    converged: bool

    @cached_property
    def numbers(self) -> Numbers:
        return Numbers.of(self.run.cell)

    @property
    def signed(self) -> np.ndarray:
        """y_n V of every token."""
        return self.y[:, None] * self.values

    @cached_property
    def attention(self) -> np.ndarray:
        powers = np.exp(self.scores - self.scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def leads_from(self, token: int) -> int | None:
        """Where in `steps` a token of every point first has 3M times the value of all others (D.5, E.3)."""
        others = np.abs(np.delete(self.values, token, axis=2)).max(2)
        leads = (self.signed[:, :, token] >= 3 * self.values.shape[2] * others).all(1)
        return int(leads.argmax()) if leads.any() else None

    def stage_2(self, token: int) -> slice | None:
        """T1 to T2 in places of `steps`: from dominance until some |V| exceeds 1 / L; None where it is not there."""
        begin = self.leads_from(token)
        n = self.numbers
        late = np.abs(self.values).max((1, 2)) > 1 / log_factor(n.samples, n.tokens)
        end = int(late.argmax()) if late.any() else len(self.steps)
        return slice(begin, end) if begin is not None and end - begin >= 5 else None

    def stage_3(self) -> slice:
        """T2 to T3."""
        n = self.numbers
        late = np.abs(self.values).max((1, 2)) > 1 / log_factor(n.samples, n.tokens)
        return slice(int(late.argmax()), len(self.steps)) if late.any() else slice(0, 0)


def walks(evidence: Evidence) -> list[Walk]:
    """Every run of the evidence, trained again."""
    return _walks(evidence.replays())


@lru_cache(maxsize=3)
def _walks(replays: tuple[Replays, ...]) -> list[Walk]:
    """Kept, as several claims ask for the same: neighbours in the list of claims share two studies at most."""
    return [walk for replay in replays for walk in _walked(replay)]


def _walked(replay: Replays) -> list[Walk]:
    kept: list[list[tuple]] = [[] for _ in replay.runs]
    keys = y = torch.zeros(0)
    done: dict[int, Walk] = {}
    for step, status in replay.steps():
        if step.number == 0:
            keys, y = _keys(step.batch), step.batch.sample.y
        ending = status != Status.MISSING
        if ending.any() or _keeps(step.number):
            for place, row in zip(step.batch.index.tolist(), _rows(step), strict=True):
                kept[place].append(row)
        if ending.any():
            for place, end in _ends(step, status, keys):
                done[place] = _assembled(replay.runs[place], kept[place], y[place], end)
    return [done[place] for place in range(len(replay))]


def _keeps(number: int) -> bool:
    return number <= DENSE or number % max(1, number // 100) == 0


def _rows(step: Step) -> Iterator[tuple]:
    """What is kept of a step, run by run."""
    seen = attention_pass(step.clean_pass)
    scores, values, signs = seen.scores[:, :, 0], seen.values[:, :, 0], _signs(step)
    for place in range(len(step.batch)):
        yield (
            step.number,
            float(step.loss[place]),
            values[place].numpy().copy(),
            scores[place].numpy().copy(),
            float(signs[place]),
        )


def _signs(step: Step) -> torch.Tensor:
    """Share of right signs (F.4): what leads to the signal is not negative, what leads to noise not positive.

    alpha_{s,s}, beta_{s,s}, alpha_{n,i,s}, beta_{n,s,i} >= 0 and alpha_{n,s,i}, alpha_{n,i,n,j}, beta_{n,i,s},
    beta_{n,i,n,j} <= 0, within points.
    """
    alpha, beta = coefficients(step)
    own = (step.batch.sample.clean_y < 0).long()
    runs, points = (torch.arange(size) for size in own.shape)
    r, n = runs[:, None], points[None]

    def signal(part: torch.Tensor) -> torch.Tensor:
        """Row of the point's own signal, columns of the point: [runs, points, tokens]."""
        return part[r, own, 0, n]

    def noise(part: torch.Tensor) -> torch.Tensor:
        """Rows of the point's noise, columns of the point: [runs, points, noise tokens, tokens]."""
        return part[r, n, :, 0, n]

    right = [
        signal(alpha.signal)[..., :1] >= 0,
        signal(beta.signal) >= 0,
        noise(alpha.noise)[..., 0] >= 0,
        signal(alpha.signal)[..., 1:] <= 0,
        noise(alpha.noise)[..., 1:] <= 0,
        noise(beta.noise) <= 0,
    ]
    return torch.cat([each.flatten(1) for each in right], 1).double().mean(1)


def _keys(batch: Batch) -> torch.Tensor:
    network = batch.setup.network
    assert isinstance(network, Attention)
    return network.keys(batch.params).clone()


def _ends(
    step: Step, status: torch.Tensor, keys: torch.Tensor
) -> Iterator[tuple[int, tuple[float, Fresh, bool]]]:
    """Place, drift of the keys, fresh points and whether the loss was reached, of every run that ends here."""
    ending = status != Status.MISSING
    batch = step.batch.select(ending)
    test = batch.test_points("test/0", FRESH)
    seen = attention_pass(batch.run(test))
    now = attention_network(step).keys(batch.params)
    for at, place in enumerate(batch.index.tolist()):
        drift = float((now[at] - keys[place]).norm())
        fresh = Fresh(
            seen.attention[at, :, 0].numpy(),
            seen.values[at, :, 0].numpy(),
            (test.y * seen.outputs)[at].numpy(),
        )
        yield place, (drift, fresh, bool(status[ending][at] == Status.CONVERGED))


def _assembled(
    run: Run, kept: list[tuple], y: torch.Tensor, end: tuple[float, Fresh, bool]
) -> Walk:
    steps, losses, values, scores, signs = (np.array(part) for part in zip(*kept, strict=True))
    drift, fresh, converged = end
    return Walk(run, y.numpy(), steps, losses, values, scores, signs, drift, fresh, converged)
