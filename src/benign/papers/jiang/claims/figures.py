"""Figures and boundaries: where overfitting turns from harmful to benign, in the settings of the experiments."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy import stats

from benign.claims import (
    Claims,
    Evidence,
    Measured,
    Reading,
    Study,
    Undecided,
    at_least,
    at_most,
    between,
    exact,
    mean,
    share,
    slope_by_seed,
)
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.patch_cnn import PatchCNN
from benign.papers.jiang.claims.stages import MOST, SIGNAL, STRONG
from benign.papers.jiang.claims.studies import either
from benign.papers.jiang.claims.walk import Walk, walks
from benign.papers.jiang.dynamics import FIG3, FIG4
from benign.papers.jiang.fig2 import FIG2
from benign.papers.jiang.figures import CUT
from benign.papers.jiang.theory import Numbers
from benign.spec.axes import Axis, cells, dimensions, logspace, zipped
from benign.stats.boundary import Boundary, boundary
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

# Studies.


STRONG_LENGTH = 2048.0
"""C_p^2 sigma_p^2 d of figures 3 and 4"""


@dataclass(frozen=True)
class Row:
    """A row of a boundary map: all that is fixed while N SNR^2 / C_p^2 goes up."""

    strong: float = 20.0
    samples: int = 16
    dim: int = 1024


ROWS = {
    "smoke": (Row(), Row(strong=5.0), Row(samples=4), Row(dim=128)),
    "quick": (
        *(Row(strong=strong) for strong in (2.0, 5.0, 10.0, 20.0)),
        *(Row(samples=samples) for samples in (4, 8, 32)),
        *(Row(dim=dim) for dim in (128, 8192)),
    ),
}
ROWS["paper"] = (*ROWS["quick"], Row(samples=64), Row(dim=65536))


def _boundary(scale: str, reading: Reading) -> Experiment:
    """Weights as in the experiments, Gaussian; lengths of tokens, and d_h / d, the same for every d."""
    races = logspace(1.2, 4.8, {"smoke": 5, "quick": 10, "paper": 25}[scale])
    grid = [(row, race) for row in ROWS[scale] for race in races]
    std = [1 / (16 * math.sqrt(3 * row.dim)) for row, _ in grid]
    strong = [math.sqrt(STRONG_LENGTH / row.dim) for row, _ in grid]

    def along(values: list) -> Axis:
        return zipped("cell", values)

    return Experiment(
        data=SignalNoise(
            tokens=4,
            samples=along([row.samples for row, _ in grid]),
            dim=along([row.dim for row, _ in grid]),
            snr=along([row.strong * math.sqrt(race / row.samples) for row, race in grid]),
            noise_std=along([s / row.strong for s, (row, _) in zip(strong, grid, strict=True)]),
            strong_noise_std=along(strong),
            projected=True,
            balanced=True,
        ),
        network=Attention(
            hidden=along([row.dim // 2 for row, _ in grid]),
            value_dim=1,
            init=GaussianInit(score_std=along(std), value_std=along(std)),
            output_norm=math.sqrt(1 / 3),
        ),
        training=GradientDescent(rate=0.1, stop_loss=0.05, max_steps=2000),
        evaluation=Evaluation(samples=100),
        precision="float64",
        coordinates="sampled",
        seeds={"smoke": 1, "quick": 4, "paper": 10}[scale],
    )


def _cnn(scale: str, reading: Reading) -> Experiment:
    """One attention head and a CNN with the cubed ReLU on the same data, all noise tokens alike, SNR below 1.

    Both start small, and both take steps of a size that is stable at the end of training.
    """
    attention = Attention(
        hidden=64, value_dim=1, init=GaussianInit(score_std=0.1, value_std=1e-3), output_norm=1.0
    )
    cnn = PatchCNN(width=10, outputs="difference", q=3, threshold=1.0, init_std=0.05)
    most = {"smoke": 5, "quick": 7, "paper": 9}[scale]
    dim = {"smoke": 200, "quick": 400, "paper": 4000}[scale]
    return Experiment(
        data=SignalNoise(
            samples=[2**power for power in range(1, most)],
            tokens=4,
            dim=dim,
            snr=0.5,
            noise_std=1 / math.sqrt(dim),
            projected=True,
            balanced=True,
        ),
        network=zipped("model", [attention, cnn]),
        training=GradientDescent(rate=zipped("model", [2.0, 5.0]), stop_loss=0.05, max_steps=5000),
        evaluation=Evaluation(samples=500),
        seeds={"smoke": 1, "quick": 5, "paper": 10}[scale],
        pairing="common",
    )


BOUNDARY = Study(name="jiang/boundary", build=_boundary)
CNN = Study(name="jiang/cnn", build=_cnn)


CLAIMS = Claims("jiang")
LOW_ERROR = 0.05


# Figures 1 and 2.


@CLAIMS.add("fig1.monotone", "Figure 1", at_most(-0.8), "jiang/fig1")
def figure_1_monotone(evidence: Evidence) -> dict[str, Measured]:
    """The test loss falls when there are more samples, and when the signal is stronger."""
    return _monotone(evidence.result.test_loss)


@CLAIMS.add("fig2.mnist", "Figure 2", at_most(-0.8), FIG2)
def figure_2_monotone(evidence: Evidence) -> dict[str, Measured]:
    """On MNIST with a noisy frame too, more samples and a stronger signal lower the test loss."""
    return _monotone(evidence.result.test_loss)


def _monotone(losses: xr.DataArray) -> dict[str, Measured]:
    """Kendall's tau-b along every row and column whose range is above the noise between seeds, pooled."""
    map_ = losses.mean("seed")
    noise = float(losses.std("seed", ddof=1).mean()) if losses.sizes["seed"] > 1 else 0.0
    found = {}
    for name in ("samples", "snr"):
        lines = map_.transpose(name, ...).values.reshape(map_.sizes[name], -1).T
        kept = [line for line in lines if np.isfinite(line).all() and np.ptp(line) > 3 * noise]
        if len(kept) < 2:
            raise Undecided(f"only {len(kept)} lines along {name} vary by more than the noise")
        taus = [_tau(map_[name].values, line) for line in kept]
        told = mean(f"tau-b of test loss with {name}", taus).within(-1, 1)
        found[f"along {name}"] = replace(told, basis=f"{len(kept)} lines of the map")
    return found


def _tau(x: np.ndarray, y: np.ndarray) -> float:
    tau, _ = map(float, stats.kendalltau(x, y))
    return tau


@CLAIMS.add(
    "fig1.boundary_1000",
    "Figure 1, red curve",
    {"smallest": at_least(500.0), "largest": at_most(2000.0)},
    "jiang/fig1",
)
def figure_1_curve(evidence: Evidence) -> dict[str, Measured]:
    """The test loss passes .2 along N SNR^2 = 1000, for every N of 4 or more within a factor of 2."""
    critical = boundary(evidence.result.test_loss, CUT).critical
    races = (critical.samples * critical**2).where(critical.samples >= 4, drop=True)
    crossed = races.dropna("samples")
    if crossed.size < 0.5 * races.size or not crossed.size:
        raise Undecided(f"the loss passes {CUT} in {crossed.size} of {races.size} rows only")
    note = f"{crossed.size} of {races.size} rows cross"
    return {
        "smallest": exact("smallest N SNR^2 at the cut", float(crossed.min()), note),
        "largest": exact("largest N SNR^2 at the cut", float(crossed.max()), note),
    }


@CLAIMS.add("fig1.boundary_exponent", "Figure 1", between(-0.6, -0.4), "jiang/fig1")
def figure_1_exponent(evidence: Evidence) -> Measured:
    """The boundary at a test loss of .2 is N SNR^2 = const: log SNR falls with slope -1/2 in log N."""
    return _slope(boundary(evidence.result.test_loss, CUT))


@CLAIMS.add(
    "fig1.boundary_exponent_error", "Figure 1, for errors", between(-0.6, -0.4), "jiang/fig1"
)
def figure_1_exponent_of_errors(evidence: Evidence) -> Measured:
    """The boundary of the test error at 5 % is N SNR^2 = const as well."""
    return _slope(boundary((1 - evidence.result.test_accuracy).rename("test error"), LOW_ERROR))


def _slope(edge: Boundary) -> Measured:
    if edge.fit is None:
        raise Undecided(edge.reason)
    estimate = edge.fit.growth
    return Measured("slope of log SNR* on log N", estimate, f"{edge.fit.rows} rows")


# Boundaries.


@dataclass(frozen=True)
class Line:
    """A row of the boundary map that runs make up, N SNR^2 / C_p^2 going up."""

    row: Row
    races: np.ndarray
    """N SNR^2 / C_p^2"""
    values: np.ndarray
    """a variable there, [seeds, races]"""

    def critical(self, level: float) -> list[float]:
        """Where the variable passes a level, of every seed."""
        return [_crossing(self.races, curve, level) for curve in self.values]

    def widths(self) -> list[float]:
        """Over which part of log N SNR^2 it moves from 10 to 90 % of its way, of every seed."""
        found = []
        for curve in self.values:
            low, high = curve.min(), curve.max()
            ends = [_crossing(self.races, curve, low + part * (high - low)) for part in (0.1, 0.9)]
            found.append(float(np.log(ends[1] / ends[0])))
        return found


def _lines(evidence: Evidence, along: str, variable: xr.DataArray) -> list[Line]:
    """The rows of the evidence that differ in one field of `Row` only, the most that there are, in its order."""
    alike: dict[tuple, dict[Row, dict[float, int]]] = {}
    for place, (_, cell) in enumerate(cells(evidence.experiment)):
        n = Numbers.of(cell)
        strong = n.strong_noise_std / n.noise_std
        row = Row(float(f"{strong:.6g}"), n.samples, n.dim)
        others = tuple(getattr(row, name) for name in ("strong", "samples", "dim") if name != along)
        places = alike.setdefault(others, {}).setdefault(row, {})
        if places.setdefault(n.race / strong**2, place) != place:
            raise Undecided(f"several cells of the row {row} have one N SNR^2")
    rows = max(alike.values(), key=len)
    if len(rows) < 2:
        raise Undecided(f"no two rows of the runs differ in `{along}` only")
    dims = [dim.name for dim in dimensions(evidence.experiment)]
    values = variable.transpose("seed", *dims).values.reshape(variable.sizes["seed"], -1)
    return [
        Line(row, np.array(sorted(places)), values[:, [places[race] for race in sorted(places)]])
        for row, places in sorted(rows.items(), key=lambda each: getattr(each[0], along))
    ]


def _crossing(x: np.ndarray, y: np.ndarray, level: float) -> float:
    """Where a curve first passes a level, interpolated in log x; NaN where it does not, or some run has no number."""
    if not np.isfinite(y).all():
        return np.nan
    beyond = (y >= level) == (y[-1] >= y[0])
    if beyond[0] or not beyond.any():
        return np.nan
    after = int(beyond.argmax())
    part = (level - y[after - 1]) / (y[after] - y[after - 1])
    return float(x[after - 1] * (x[after] / x[after - 1]) ** part)


def _lead(result: xr.Dataset) -> xr.DataArray:
    """Attention on the signal less that on the strong token."""
    return result.attention_on_signal - result.attention_on_strong_noise


@CLAIMS.add("derived.boundary_Cp", "derived", between(2.0, 3.0), BOUNDARY)
def boundary_in_strong_noise(evidence: Evidence) -> dict[str, Measured]:
    """Attention flips from the strong noise token to the signal at N SNR^2 = 2 to 3 times C_p^2, whatever C_p."""
    lines = _lines(evidence, "strong", _lead(evidence.result))
    return {
        f"C_p = {line.row.strong:g}": mean("N SNR^2 / C_p^2 at the flip", line.critical(0.0))
        for line in lines
    }


@CLAIMS.add("thm.sharp_1overN", "Theorems 4.1 and 4.2", at_most(2.0), BOUNDARY, conditions=either)
def boundary_in_samples(evidence: Evidence) -> Measured:
    """The boundary between benign and harmful overfitting is N SNR^2 = const: where the test loss passes .2, this
    product differs by no more than a factor of 2 over N."""
    lines = _lines(evidence, "samples", evidence.result.test_loss)
    found = np.array([line.critical(CUT) for line in lines])
    return mean("largest / smallest N SNR^2 over N", found.max(0) / found.min(0)).noting(
        f"N = {', '.join(str(line.row.samples) for line in lines)}"
    )


@CLAIMS.add("thm.width", "Theorems 4.1 and 4.2", at_most(0.0), BOUNDARY, conditions=either)
def width_of_the_transition(evidence: Evidence) -> Measured:
    """The transition is sharp: the width in log N SNR^2 over which attention moves from 10 to 90 % of the way between
    the strong token and the signal falls with d."""
    lines = _lines(evidence, "dim", _lead(evidence.result))
    widths = np.array([line.widths() for line in lines]).T
    dims = np.log([line.row.dim for line in lines])
    found = slope_by_seed("slope of the width on log d", dims, widths)
    return found.noting(
        ", ".join(
            f"{width:.3f} at d = {line.row.dim}"
            for width, line in zip(np.nanmean(widths, 0), lines, strict=True)
        )
    )


@CLAIMS.add("text.vs_cnn", "Section 4, remarks", at_least(1.0, fails_below=1.0), CNN)
def fewer_samples_than_a_cnn(evidence: Evidence) -> Measured:
    """At an SNR below 1 attention needs fewer samples than a CNN with a power of the ReLU to generalise on the same
    data: here to reach a test error of 10 %."""
    errors = (1 - evidence.result.test_accuracy).transpose("model", "seed", "samples")
    counts = evidence.result.samples.values
    needed = np.array([[_fewest(counts, line) for line in model] for model in errors.values])
    return mean("samples of the CNN / of attention", needed[1] / needed[0])


def _fewest(counts: np.ndarray, errors: np.ndarray) -> float:
    """The smallest of the counts from which on the error is at most 10 %; twice the largest where it is not yet."""
    above = np.flatnonzero(errors > 0.1)
    place = 0 if above.size == 0 else above[-1] + 1
    return float(counts[place]) if place < len(counts) else 2.0 * float(counts[-1])


# Figures 3 and 4.


@CLAIMS.add("fig3.benign", "Figure 3", MOST, FIG3)
def figure_3(evidence: Evidence) -> Measured:
    """In benign training scores, attention and values of the signal end above those of the strong noise token."""
    return _orderings(walks(evidence), SIGNAL, STRONG)


@CLAIMS.add("fig4.harmful", "Figure 4", MOST, FIG4)
def figure_4(evidence: Evidence) -> Measured:
    """In harmful training scores, attention and values of the strong noise token end above those of the signal."""
    return _orderings(walks(evidence), STRONG, SIGNAL)


def _orderings(found: Sequence[Walk], above: int, below: int) -> Measured:
    """Means over points and rows at the end; all three must hold."""
    held = []
    for walk in found:
        parts = walk.scores[-1], walk.attention[-1], walk.signed[-1]
        held.append(all(part[..., above].mean() > part[..., below].mean() for part in parts))
    return share("share of seeds with all three orderings", held)
