"""The studies that judge the claims about Zhang et al., inside Condition 1 where possible.

`ZhangCell` has the sizes and rates of Condition 1, in units in which a noise token has length 1. The last two studies
use the setting of the figures instead.
"""

import math
from dataclasses import dataclass
from typing import Any

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims.conditions import Conditions, radius_share, smallest_whole
from benign.claims.study import Reading, Scaled, Study
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.attention_setting import OUTPUT, changed, network, noisy_signals, pgd
from benign.papers.inside import attention_along, descent_along
from benign.papers.jiang.theory import (
    ALL_ONE,
    largest_rate,
    largest_value_std,
    needed_dim,
    needed_hidden,
    score_variances,
)
from benign.papers.zhang import theory
from benign.spec.axes import logspace, replace, zipped
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup


@dataclass(frozen=True, kw_only=True)
class ZhangCell:
    """The numbers of one cell: the smallest widths, the largest sigma_V and the largest rate that Condition 1
    allows."""

    samples: int
    tokens: int = 2
    snr: float
    loss: float
    """eps"""
    hidden: int | None = None
    """d_h; the smallest that Condition 1 allows if not given"""
    faster: float = 1.0
    """rate as a multiple of the largest in condition (4)"""
    loud: bool = False
    """whether |V(0)| is near d_h^(-1/4), the bound of Lemma 11, without the factor d^(-1/2) of (5) for attacks"""

    @property
    def width(self) -> int:
        least = needed_hidden(self.samples, self.snr, self.loss, ALL_ONE)
        return self.hidden or smallest_whole(least)

    @property
    def dim(self) -> int:
        return smallest_whole(needed_dim(self.samples, self.width, self.loss, ALL_ONE))

    @property
    def scale(self) -> float:
        """1 / m2, the larger of |mu|^2 and 1."""
        return max(1.0, self.snr**2)

    @property
    def rate(self) -> float:
        return self.faster * largest_rate(self.scale, self.width, ALL_ONE)

    @property
    def score_std(self) -> float:
        """sigma_h, the geometric middle of its window."""
        window = score_variances(self.scale, self.width, self.samples, self.tokens, ALL_ONE)
        return math.prod(window) ** 0.25

    @property
    def value_std(self) -> float:
        if self.loud:
            tail = math.sqrt(2 * math.log(4 * self.samples * self.tokens / ALL_ONE.failure))
            return largest_value_std(self.scale, self.width, 1.0, ALL_ONE) / tail
        return theory.largest_start(self.dim, self.scale, self.width, 1.0, ALL_ONE)

    def data(self) -> SignalNoise:
        return SignalNoise(
            samples=self.samples,
            tokens=self.tokens,
            dim=self.dim,
            snr=self.snr,
            noise_std=1 / math.sqrt(self.dim),
            projected=True,
            balanced=True,
        )

    def network(self) -> Attention:
        init = GaussianInit(score_std=self.score_std, value_std=self.value_std)
        return Attention(hidden=self.width, value_dim=1, init=init, output_norm=1.0)

    def experiment(
        self, *, steps: int, seeds: int, test: int = 50, radii: list[float] | None = None
    ) -> Experiment:
        """Return clean training, or training against balls of these radii, as shares of |mu|."""
        return Experiment(
            data=self.data(),
            network=self.network(),
            attack=None if radii is None else pgd(radii),
            training=GradientDescent(rate=self.rate, stop_loss=self.loss, max_steps=steps),
            evaluation=Evaluation(samples=test),
            precision="float64",
            coordinates="sampled",
            pairing="common" if radii else "independent",
            seeds=seeds,
        )


def case_1(cell: Setup) -> Conditions | None:
    """Return the conditions of Theorem 2, Case 1, at cells with a radius of this case."""
    return _of_case(cell, 1)


def case_2(cell: Setup) -> Conditions | None:
    """Return the conditions of Theorem 2, Case 2, at cells with a radius of this case."""
    return _of_case(cell, 2)


def clean_case_1(cell: Setup) -> Conditions | None:
    """Return the conditions of Case 1 at clean cells, which decide; d_h of attacked ones is too small."""
    return None if cell.attack is not None else theory.conditions(cell, 1)


def clean_loud(cell: Setup) -> Conditions | None:
    """Return the same without (5) on sigma_V: Lemma 18 uses only |V(0)| <= d_h^(-1/4), which loud cells satisfy."""
    conditions = clean_case_1(cell)
    return None if conditions is None else conditions.without("(5) V")


def _of_case(cell: Setup, case: theory.Case) -> Conditions | None:
    weak = radius_share(cell) <= weak_radius(cell)
    return theory.conditions(cell, case) if weak == (case == 1) else None


def weak_radius(setup: Setup) -> float:
    """Return 1 / log d_h, the largest radius of Case 1 as a share of |mu|."""
    assert isinstance(setup.network, Attention)
    return theory.radii(setup.network.hidden, 1, ALL_ONE)[1]


def either_case(cell: Setup) -> Conditions | None:
    """Return the conditions of the case to which the radius of a cell belongs."""
    return case_1(cell) or case_2(cell)


def _start(scale: str, reading: Reading) -> Experiment:
    """N SNR^2 = 120 M^2 and large initial values, so that Stage I takes many steps."""
    faster = Scaled(50.0, 10.0, 1.0)[scale]
    cell = ZhangCell(samples=8, snr=math.sqrt(60), loss=0.5, faster=faster, loud=True)
    return cell.experiment(
        steps=Scaled(200, 1500, 15_000)[scale], seeds=Scaled(3, 29, 29)[scale], test=2
    )


def _start_attacked(scale: str, reading: Reading) -> Experiment:
    """The same under attack: exact coordinates need 2 d_h dimensions, so d_h is far too small."""
    cell = ZhangCell(samples=8, snr=math.sqrt(60), loss=0.5, hidden=16, faster=0.2, loud=True)
    return cell.experiment(
        steps=Scaled(10, 100, 400)[scale],
        seeds=Scaled(1, 14, 29)[scale],
        test=2,
        radii=[0.001, 0.005],
    )


def _stages(scale: str, reading: Reading) -> Experiment:
    """Clean training with N SNR^2 = 60 M^2, as in the proof; inside Condition 1 except for the rate at small scales."""
    faster = Scaled(300.0, 100.0, 1.0)[scale]
    cell = ZhangCell(
        samples=8, snr=math.sqrt(30), loss=Scaled(0.2, 0.05, 0.05)[scale], faster=faster
    )
    return cell.experiment(steps=Scaled(300, 6000, 600_000)[scale], seeds=Scaled(2, 14, 14)[scale])


def _stages_attacked(scale: str, reading: Reading) -> Experiment:
    cell = ZhangCell(samples=8, snr=math.sqrt(30), loss=0.05, hidden=16, faster=1.2)
    return cell.experiment(
        steps=Scaled(20, 1000, 4000)[scale],
        seeds=Scaled(1, 5, 5)[scale],
        test=10,
        radii=[0.005, 0.02],
    )


def _convergence(scale: str, reading: Reading) -> Experiment:
    """Cells that differ in eps, in the rate and in |mu|, one at a time from the first; d_h is enough for all."""
    f = Scaled(800.0, 100.0, 1.0)[scale]
    numbers = [(0.04, f, 2.0), (0.02, f, 2.0), (0.01, f, 2.0)]
    numbers += [(0.04, f / 2, 2.0), (0.04, f / 4, 2.0), (0.04, f, 1.0), (0.04, f, 4.0)]
    cells = [
        ZhangCell(samples=8, loss=loss, faster=faster, snr=snr, hidden=3200**2)
        for loss, faster, snr in numbers
    ]
    built = [cell.experiment(steps=1, seeds=1) for cell in cells]
    return Experiment(
        data=_zipped_data("cell", cells),
        network=attention_along("cell", built),
        training=descent_along("cell", built, Scaled(400, 15_000, 1_500_000)[scale]),
        evaluation=Evaluation(samples=Scaled(10, 100, 250)[scale]),
        precision="float64",
        coordinates="sampled",
        seeds=Scaled(2, 14, 14)[scale],
    )


RADII = [0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.9]


def _cases(scale: str, reading: Reading) -> Experiment:
    """Attacked training inside Condition 1: eps = 0.5 is what d_h = 64 reaches."""
    cell = Scaled(
        smoke=ZhangCell(samples=2, snr=1.0, loss=0.5, hidden=32, faster=4.0),
        quick=ZhangCell(samples=4, snr=1.0, loss=0.5),
        paper=ZhangCell(samples=10, tokens=2, snr=1.0, loss=0.4),
    )[scale]
    radii = Scaled(smoke=[0.1, 0.5], quick=RADII, paper=RADII)[scale]
    steps, seeds = Scaled(15, 300, 1500)[scale], Scaled(1, 5, 14)[scale]
    return cell.experiment(steps=steps, seeds=seeds, test=Scaled(4, 40, 100)[scale], radii=radii)


def _values_alone(attend: Any) -> Attention:
    """Return attention whose queries and keys stay at 0, with values that start near 0."""
    init = GaussianInit(score_std=0.0, value_std=1e-6)
    return Attention(hidden=1, value_dim=1, init=init, output_norm=1.0, attend=attend)


def _slowdown(scale: str, reading: Reading) -> Experiment:
    """Uniform attention and attention on the signal alone, clean, almost without noise."""
    return Experiment(
        data=SignalNoise(
            samples=4,
            tokens=Scaled(smoke=[2, 4], quick=[2, 4, 6], paper=[2, 4, 8, 16])[scale],
            dim=10_000,
            snr=16.0,
            noise_std=0.01,
            projected=True,
            balanced=True,
        ),
        network=_values_alone(["uniform", "signal"]),
        training=GradientDescent(
            rate=2 / 256, stop_loss=Scaled(0.05, 0.02, 0.002)[scale], max_steps=Scaled(2000, 10_000, 300_000)[scale]
        ),
        evaluation=Evaluation(samples=2),
        precision="float64",
        coordinates="sampled",
        seeds=Scaled(2, 5, 8)[scale],
    )  # fmt: skip


def _needed_ratio(scale: str, reading: Reading) -> Experiment:
    """Uniform attention under attack, where one full step along the gradient is the exact maximum (S5)."""
    return Experiment(
        data=SignalNoise(
            samples=10,
            tokens=2,
            dim=1000,
            snr=logspace(0.03, 1.0, Scaled(4, 8, 16)[scale]),
            noise_std=1 / math.sqrt(1000),
            projected=True,
            balanced=True,
        ),
        network=_values_alone("uniform"),
        attack=PGD(ball=Ball(radius=0.2, relative_to="signal"), steps=1, step=1.0),
        training=GradientDescent(
            rate=8.0, stop_loss=[0.2, 0.05, 0.0125], max_steps=Scaled(300, 4000, 40_000)[scale]
        ),
        evaluation=Evaluation(samples=Scaled(20, 200, 1000)[scale], attack=pgd(0.2, 1, 1.0)),
        precision="float64",
        coordinates="sampled",
        seeds=Scaled(2, 5, 10)[scale],
    )


def _threshold(scale: str, reading: Reading) -> Experiment:
    """Radii and widths, with sigma_h and the rate of Condition 1 for every width."""
    widths = Scaled(smoke=[4, 8], quick=[16, 32, 64], paper=[16, 64, 256, 1024, 4096])[scale]
    faster = Scaled(4.0, 3.0, 1.0)[scale]
    cells = [
        ZhangCell(samples=4, snr=2.0, loss=0.1, hidden=width, faster=faster) for width in widths
    ]
    built = [cell.experiment(steps=1, seeds=1) for cell in cells]
    radii = Scaled(
        smoke=[0.0, 0.2],
        quick=[0.0, 0.1, 0.15, 0.2, 0.3, 0.4],
        paper=[0.0, *logspace(0.02, 0.7, 9)],
    )[scale]
    return Experiment(
        data=_zipped_data("width", cells),
        network=attention_along("width", built),
        attack=pgd(radii),
        training=descent_along("width", built, Scaled(10, 250, 5000)[scale]),
        evaluation=Evaluation(samples=2, attack=pgd(0.1, 1)),
        precision="float64",
        coordinates="sampled",
        pairing="common",
        seeds=Scaled(1, 4, 5)[scale],
    )  # fmt: skip


def _error_law(scale: str, reading: Reading) -> Experiment:
    """d and SNR on a grid, inside Condition 1 for the largest SNR and every d (except for the rate at small scales)."""
    cell = ZhangCell(samples=8, snr=2.0, loss=0.1, faster=Scaled(100.0, 40.0, 1.0)[scale])
    factors = Scaled(smoke=[1, 16], quick=[1, 8, 64], paper=[1, 4, 16, 64, 256])[scale]
    dims = [cell.dim * factor for factor in factors]
    whole = cell.experiment(
        steps=Scaled(200, 6000, 150_000)[scale], seeds=Scaled(2, 5, 8)[scale], test=Scaled(20, 250, 1000)[scale]
    )  # fmt: skip
    data = SignalNoise(
        samples=8,
        tokens=2,
        dim=zipped("d", dims),
        noise_std=zipped("d", [1 / math.sqrt(dim) for dim in dims]),
        snr=[1.0, math.sqrt(2.0), 2.0],
        projected=True,
        balanced=True,
    )
    init = GaussianInit(
        score_std=cell.score_std, value_std=cell.value_std / math.sqrt(max(factors))
    )
    return replace(whole, {("data",): data, ("network", "init"): init})


def _output_norms(scale: str, reading: Reading) -> Experiment:
    cell = ZhangCell(samples=8, snr=2.0, loss=0.1, faster=Scaled(100.0, 20.0, 1.0)[scale])
    norms = [0.5, 1.0, 2.0, 4.0]
    whole = cell.experiment(steps=Scaled(300, 8000, 200_000)[scale], seeds=Scaled(2, 14, 14)[scale])
    changes = {
        ("network", "output_norm"): zipped("w_O", norms),
        ("network", "init", "value_std"): zipped("w_O", [cell.value_std / norm for norm in norms]),
    }
    return Experiment.from_dict(replace(whole, changes).as_dict())


def _many_tokens(scale: str, reading: Reading) -> Experiment:
    """N SNR^2 = 64 and more and more tokens."""
    tokens = Scaled(smoke=[2, 3], quick=[2, 4, 8], paper=[2, 4, 8, 16, 32, 64])[scale]
    cell = ZhangCell(samples=4, snr=4.0, loss=0.2, faster=Scaled(60.0, 60.0, 1.0)[scale])
    whole = cell.experiment(
        steps=Scaled(300, 6000, 2_000_000)[scale],
        seeds=Scaled(2, 14, 14)[scale],
        test=Scaled(5, 50, 200)[scale],
    )
    data = replace(cell.data(), {("tokens",): tokens})
    return Experiment.from_dict(replace(whole, {("data",): data}).as_dict())


def _widths(scale: str, reading: Reading) -> Experiment:
    """Clean training with wider and wider queries and keys."""
    widths = Scaled(
        smoke=[10**4], quick=[10**4, 10**5, 10**6], paper=[10**4, 10**6, 10**8, 10**10]
    )[scale]
    faster = Scaled(100.0, 10.0, 10.0)[scale]
    cells = [ZhangCell(samples=4, snr=1.0, loss=0.05, hidden=w, faster=faster) for w in widths]
    built = [cell.experiment(steps=1, seeds=1) for cell in cells]
    return Experiment(
        data=_zipped_data("width", cells),
        network=attention_along("width", built),
        training=descent_along("width", built, Scaled(200, 10_000, 2_000_000)[scale]),
        evaluation=Evaluation(samples=2),
        precision="float64",
        coordinates="sampled",
        seeds=Scaled(2, 5, 5)[scale],
    )


def _zipped_data(axis: str, cells: list[ZhangCell]) -> SignalNoise:
    """Return the data of cells along an axis, all with the same number of points and tokens."""
    return SignalNoise(
        samples=cells[0].samples,
        tokens=cells[0].tokens,
        dim=zipped(axis, [cell.dim for cell in cells]),
        snr=zipped(axis, [cell.snr for cell in cells]),
        noise_std=zipped(axis, [1 / math.sqrt(cell.dim) for cell in cells]),
        projected=True,
        balanced=True,
    )


START = Study(name="zhang/start", build=_start)
START_ATTACKED = Study(name="zhang/start_attacked", build=_start_attacked)
STAGES = Study(name="zhang/stages", build=_stages)
STAGES_ATTACKED = Study(name="zhang/stages_attacked", build=_stages_attacked)
CONVERGENCE = Study(name="zhang/convergence", build=_convergence)
CASES = Study(name="zhang/cases", build=_cases)
SLOWDOWN = Study(name="zhang/slowdown", build=_slowdown)
NEEDED_RATIO = Study(name="zhang/needed_ratio", build=_needed_ratio)
THRESHOLD = Study(name="zhang/threshold", build=_threshold)
ERROR_LAW = Study(name="zhang/error_law", build=_error_law)
OUTPUT_NORMS = Study(name="zhang/output_norms", build=_output_norms)
MANY_TOKENS = Study(name="zhang/many_tokens", build=_many_tokens)
WIDTHS = Study(name="zhang/widths", build=_widths)


def _sparse(scale: str, reading: Reading) -> Experiment:
    """One signal among 16 tokens, with learned and with uniform attention; clean, so that no attack can be too weak."""
    dim, hidden = Scaled(smoke=(32, 4), quick=(128, 16), paper=(1024, 128))[scale]
    return Experiment(
        data=noisy_signals(dim, samples=10, snr=logspace(0.2, 8.0, Scaled(3, 8, 16)[scale])),
        network=changed(network(hidden, reading["w_O"]), attend=["learned", "uniform"]),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=Scaled(30, 400, 5000)[scale]),
        evaluation=Evaluation(samples=Scaled(10, 200, 1000)[scale]),
        pairing="common",
        seeds=Scaled(2, 5, 10)[scale],
    )


def _output_scales(scale: str, reading: Reading) -> Experiment:
    """w_O as drawn, and divided by 16. Clean below paper scale, because 5000 attacked steps take minutes."""
    dim, hidden = Scaled(smoke=(32, 4), quick=(64, 8), paper=(1024, 128))[scale]
    ratios = [1.0, 4.0, 8.0]
    snr = Scaled(smoke=[1.0, 8.0], quick=ratios, paper=[*ratios, 16.0])[scale]
    return Experiment(
        data=noisy_signals(dim, samples=6, snr=snr),
        network=[network(hidden, "undivided"), network(hidden, "divided")],
        attack=Scaled(smoke=None, quick=None, paper=pgd(0.05))[scale],
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=Scaled(100, 5000, 5000)[scale]),
        evaluation=Evaluation(samples=Scaled(5, 50, 1000)[scale]),
        seeds=Scaled(2, 5, 8)[scale],
    )  # fmt: skip


SPARSE = Study(name="zhang/sparse", build=_sparse, questions=(OUTPUT,))
OUTPUT_SCALES = Study(name="zhang/output_scales", build=_output_scales)
