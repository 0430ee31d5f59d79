"""Clean-like, collapsed and impossible radii on one axis (Zhang Theorems 2 and 3; papers/zhang.md section 4).

Theorem 2 lets attention focus up to |mu| / log d_h (Case 1) and stay uniform, but train and generalise, up to |mu|
(Case 2); from |mu| on no classifier is robust (Theorem 3). Derived: uniform attention cannot be trained from
|mu| / (sqrt2 M) on, no permutation-invariant classifier is robust from R_perm on, and none at all from |mu| / sqrt2 on.
The setting is that of figure 3, with M = 4 tokens and SNR = 4: |mu| = 25.6, about as many points.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr

from benign.claims.conditions import Conditions, radius_share
from benign.claims.study import Question, Reading, Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, experiment_of
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.attention_setting import network, pgd
from benign.papers.jiang.theory import ALL_ONE, score_variances
from benign.papers.recipes import Recipe
from benign.papers.statistics import reached_loss, steps_to_loss
from benign.papers.zhang import theory
from benign.papers.zhang.linear_mode import convergence_steps
from benign.papers.zhang.radii import proven_error
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.plot.variables import TRAINED_LOSS
from benign.spec.axes import Axis, logspace
from benign.stats.crossing import Crossing, first_crossing
from benign.streams import RunId, Streams
from benign.sweep.dataset import masked
from benign.sweep.ends import masked_text
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation, Setup

SNR = 4.0
SIGNAL = 25.6
"""|mu| of figure 3"""
SMALL = 2.0
"""eta |mu|^2 |w_O|^2 of small steps; the experiments have about 22, condition (4) 1 / sqrt(d_h): too long for here"""
ENDS = (0.005, 1.2)
"""smallest and largest r = tau / |mu|"""
SIDE_SHARE = 0.04
"""every threshold has a radius this share below and above it"""
BOUND_POINTS = 100
"""fresh points of a seed on which the error that cannot be avoided is counted"""
PLACES = {"learned": 0, "uniform": 1}
"""places of the two networks"""

TOKENS = Question(
    "tokens",
    "the theorems have M of order 1: how many tokens?",
    {"4": "between the other two", "2": "as in figure 3", "8": "half of figure 1's"},
    "with M = 2 and M = 4 the thresholds change their order",
)
STEPS = Question(
    "steps",
    "weights and steps as the theorems or as the experiments have them?",
    {
        "small": "w_O of norm 1, Gaussian weights inside Condition 1, eta = 2 / |mu|^2",
        "experiments": "PyTorch's weights divided by 16, w_O undivided, eta = 0.1: steps 11 times as long",
    },
    "radii are to be those of the theory; the longer steps overshoot where the loss does not fall",
)


@dataclass(frozen=True)
class Threshold:
    """A radius, as a share of |mu|, at which something is said to change."""

    word: str
    radius: float
    printed: bool
    """by the paper; otherwise derived"""


def thresholds(tokens: int, hidden: int, snr: float) -> dict[str, Threshold]:
    """The printed radii and the derived ones; R_perm for noise tokens of length sigma_p sqrt(d)."""
    universal = math.sqrt(0.5)
    meeting = min(universal, 0.5 * math.sqrt(1 + snr**-2))
    return {
        "focus": Threshold("1 / log d_h", theory.radii(hidden, 1, ALL_ONE)[1], True),
        "uniform": Threshold("1 / (√2 M)", universal / tokens, False),
        "permutation": Threshold("R_perm", meeting, False),
        "universal": Threshold("1 / √2", universal, False),
        "theorem 3": Threshold("1", 1.0, True),
    }


def radii_of(tokens: int, hidden: int, snr: float, count: int) -> list[float]:
    """Evenly spaced in the logarithm, and one on either side of every threshold."""
    known = [each.radius for each in thresholds(tokens, hidden, snr).values()]
    near = [known_one * (1 + side) for known_one in known for side in (-SIDE_SHARE, SIDE_SHARE)]
    inside = [float(f"{radius:.4g}") for radius in near if ENDS[0] < radius < ENDS[1]]
    return sorted({*logspace(*ENDS, count), *inside})


def _networks(dim: int, hidden: int, samples: int, tokens: int, answer: str) -> list[Attention]:
    """With learned attention, and the linear mode, whose d_h is of no account."""
    if answer == "experiments":
        learned = network(hidden, "undivided")
    else:
        window = score_variances(SIGNAL**2, hidden, samples, tokens, ALL_ONE)
        start = theory.largest_start(dim, SIGNAL**2, hidden, 1.0, ALL_ONE)
        init = GaussianInit(score_std=math.prod(window) ** 0.25, value_std=start)
        learned = Attention(hidden=hidden, value_dim=1, init=init, output_norm=1.0)
    fields = {name: value for name, value in learned if name != "kind"}
    width = learned.value_dim or learned.hidden
    uniform = Attention(**fields | {"attend": "uniform", "hidden": 1, "value_dim": width})
    return [learned, uniform]


def _conditions(cell: Setup) -> Conditions | None:
    """Those of the case that a radius belongs to; the linear mode is no network of the theorem."""
    if not isinstance(cell.network, Attention) or cell.network.attend != "learned":
        return None
    weak = radius_share(cell) <= theory.radii(cell.network.hidden, 1, ALL_ONE)[1]
    return theory.conditions(cell, 1 if weak else 2)


RADII = Recipe(
    name="zhang/radius",
    title="Theorems 2 and 3 over the radius: loss, attention and accuracy on one axis",
    shows="that attention focuses up to |mu| / log d_h, stays uniform but trains and generalises up to |mu|, and that "
    "no classifier is robust beyond",
    questions=(TOKENS, STEPS),
    names={"network": ["attention", "linear mode"]},
    conditions=_conditions,
)


@RADII.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, radii, seeds, test, max_steps = Scaled(
        smoke=(32, 4, 4, 3, 1, 4, 6),
        quick=(128, 16, 24, 6, 2, 60, 400),
        paper=(1024, 128, 24, 28, 10, 1000, 3000),
    )[scale]
    tokens, steps = int(reading["tokens"]), reading["steps"]
    return Experiment(
        data=SignalNoise(
            samples=samples,
            tokens=tokens,
            dim=dim,
            snr=SNR,
            noise_std=SIGNAL / (SNR * math.sqrt(dim)),
            projected=True,
            balanced=True,
        ),
        network=_networks(dim, hidden, samples, tokens, steps),
        attack=pgd(radii_of(tokens, hidden, SNR, radii)),
        training=GradientDescent(
            rate=0.1 if steps == "experiments" else SMALL / SIGNAL**2,
            stop_loss=0.05,
            max_steps=max_steps,
        ),
        evaluation=Evaluation(samples=test),
        coordinates="projected",
        pairing="common",
        seeds=seeds,
    )


@dataclass(frozen=True)
class Setting:
    """What the thresholds of a result depend on."""

    experiment: Experiment

    @classmethod
    def of(cls, result: xr.Dataset) -> "Setting":
        return cls(experiment_of(result))

    @property
    def data(self) -> SignalNoise:
        assert isinstance(self.experiment.data, SignalNoise)
        return self.experiment.data

    @property
    def learned(self) -> Attention:
        assert isinstance(self.experiment.network, Axis)
        return self.experiment.network.values[PLACES["learned"]]

    @property
    def loss(self) -> float:
        return self.experiment.training.stop_loss

    def thresholds(self) -> dict[str, Threshold]:
        snr = self.data.signal_norm() / (self.data.noise_std * math.sqrt(self.data.dim))
        return thresholds(self.data.tokens, self.learned.hidden, snr)

    def steps(self, radius: xr.DataArray, tokens: int) -> xr.DataArray:
        """S8: of uniform attention, or with one token of attention on the signal alone; NaN where there are none."""
        norm = self.learned.output_norm or math.sqrt(1 / 3)
        signal, rate = self.data.signal_norm(), self.experiment.training.rate
        lengths = torch.from_numpy(signal * radius.values)
        steps = convergence_steps(self.loss, rate, signal, tokens, lengths, norm).numpy()
        return xr.where(np.isfinite(steps), radius.copy(data=steps), np.nan).expand_dims("seed")

    def best_accuracy(self, radius: xr.DataArray) -> xr.DataArray:
        """The robust accuracy that no permutation-invariant classifier exceeds, on fresh points of every seed."""
        data, seeds = self.data, range(self.experiment.seeds)
        streams = Streams([RunId(self.experiment.root_seed, seed, "") for seed in seeds])
        count = min(BOUND_POINTS, self.experiment.evaluation.samples)
        fresh = data.sample(streams, "test/0", count, torch.float64)
        rows = [
            1 - proven_error(fresh.x, fresh.latent["signal"], float(r) * data.signal_norm()).numpy()
            for r in radius
        ]
        return xr.DataArray(
            np.array(rows).T, {"radius": radius, "seed": list(seeds)}, ("seed", "radius")
        )


def networks_of(result: xr.Dataset) -> dict[str, xr.Dataset]:
    """The result of either network, with whether runs reached the loss, of those that ended properly, and how soon."""
    result = result.assign(reached=reached_loss(result), steps_to_loss=steps_to_loss(result))
    return {name: result.isel(network=place) for name, place in PLACES.items()}


@RADII.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    setting, nets = Setting.of(result), networks_of(result)
    learned, radius = nets["learned"], result.radius
    changes = setting.thresholds().values()

    def panel(curves: list, label: str, named: bool = False, **how) -> Curves:
        marks = [(each.radius, each.word if named else "") for each in changes]
        return Curves(curves, label, "radius", "radius r = tau / |mu|", marks, **how)

    def both(name: str, label: str, *more: tuple[str, xr.DataArray], **how) -> Curves:
        curves = [(f"{each} attention", runs[name]) for each, runs in nets.items()]
        return panel([*curves, *more], label, **how)

    theory_steps = [
        ("theory: uniform", setting.steps(radius, setting.data.tokens)),
        ("theory: on the signal", setting.steps(radius, 1)),
    ]
    attention = [
        ("clean points", learned.attention_on_signal),
        ("attacked points", learned.attention_on_signal_attacked),
    ]
    rows = [
        [
            both("train_loss", f"{TRAINED_LOSS}, end", log=True,
                 level=math.log(2), level_name="log 2: no better than f = 0"),
            both("reached", f"share with loss < {setting.loss:g}", named=True),
            both("steps_to_loss", "steps to the loss", *theory_steps, log=True),
        ],
        [
            panel(attention, "attention on the signal", named=True,
                  level=1 / setting.data.tokens, level_name="uniform: 1 / M"),
            both("test_accuracy", "clean accuracy", level=0.5),
            both("robust_accuracy", "robust accuracy",
                 ("permutation invariant, at best", setting.best_accuracy(radius)), level=0.5),
        ],
    ]  # fmt: skip
    marks = ", ".join(f"{each.word} ({_by(each)}) {each.radius:.3g}" for each in changes)
    return curves_figure(
        rows,
        title="Clean-like, collapsed and impossible radii",
        caption=f"{caption} Vertical lines, as shares of |mu|: {marks}. {_endings(setting)}",
    )


def _by(threshold: Threshold) -> str:
    return "printed" if threshold.printed else "derived"


def _endings(setting: Setting) -> str:
    cap = setting.experiment.training.most_steps()
    return f"Runs that do not reach the loss end after {cap} steps."


def crossing(values: xr.DataArray, level: float, rising: bool) -> Crossing:
    """Where the mean over seeds first crosses a level along the radius."""
    mean = values.mean("seed").values
    return first_crossing(values.radius.values, mean, level, rising, "radius")


def crossed(values: xr.DataArray, level: float, rising: bool) -> str:
    """That radius and its range over seeds, or why there is none."""
    mean = crossing(values, level, rising)
    if mean.reason:
        return f"none ({mean.reason})"
    alone = [crossing(values.sel(seed=[seed]), level, rising).column for seed in values.seed]
    known = [each for each in alone if math.isfinite(each)]
    spread = f" [{min(known):.3g} to {max(known):.3g} over {len(known)} seeds]" if known else ""
    return f"{mean.column:.3g}{spread}"


@RADII.summarises
def _summarise(result: xr.Dataset) -> str:
    setting = Setting.of(result)
    lines = [f"M = {setting.data.tokens}, d_h = {setting.learned.hidden}; radii as shares of |mu|"]
    for name, runs in networks_of(result).items():
        lines.append(f"{name} attention:")
        if name == "learned":
            lines += _attention_text(runs, setting)
        lines += [*_training_text(runs, setting), _masked_text(runs)]
    return "\n".join([*lines, _regimes_text(networks_of(result)["learned"], setting)])


def _middle(attention: xr.DataArray, tokens: int) -> float:
    """Halfway between the attention at the smallest radius and uniform attention.

    Not halfway between 1 and 1 / M: at a high SNR queries of noise tokens are short and stay uniform, and with them
    the mean stays below (1 + (M - 1) / M) / M.
    """
    return (float(attention.isel(radius=0).mean()) + 1 / tokens) / 2


def _attention_text(runs: xr.Dataset, setting: Setting) -> list[str]:
    uniform, printed = 1 / setting.data.tokens, setting.thresholds()["focus"].radius
    lines = []
    for word, values in (
        ("clean points", runs.attention_on_signal),
        ("attacked points", runs.attention_on_signal_attacked),
    ):
        first, middle = float(values.isel(radius=0).mean()), _middle(values, setting.data.tokens)
        lines.append(
            f"  attention on the signal, {word}: {first:.2f} at the smallest radius (uniform {uniform:.2f}), halfway "
            f"between the two at {crossed(values, middle, False)} (printed: {printed:.3g}); "
            f"halfway between uniform and 1: {crossed(values, (1 + uniform) / 2, False)}"
        )
    return lines


def _training_text(runs: xr.Dataset, setting: Setting) -> list[str]:
    known = {name: f"{each.radius:.3g}" for name, each in setting.thresholds().items()}
    return [
        f"  half of the runs reach loss {setting.loss:g} until {crossed(runs.reached, 0.5, False)}; "
        f"no better than log 2 from {crossed(runs.train_loss, math.log(2), True)} "
        f"(printed: {known['theorem 3']}; derived, uniform attention: {known['uniform']})",
        f"  robust error 1/2 from {crossed(1 - runs.robust_accuracy, 0.5, True)} "
        f"(printed: {known['theorem 3']}; derived, uniform attention: {known['uniform']}, "
        f"permutation invariant: {known['permutation']}, any: {known['universal']})",
    ]


def _regimes_text(runs: xr.Dataset, setting: Setting) -> str:
    """The regimes of learned attention: collapsed radii are those with uniform attention that still train."""
    attention = runs.attention_on_signal
    focused = crossing(attention, _middle(attention, setting.data.tokens), False).column
    stalled = crossing(runs.train_loss, math.log(2), True).column
    if not (math.isfinite(focused) and math.isfinite(stalled)):
        return "regimes: none, as attention or loss does not cross its level"
    collapsed = (
        f"collapsed but trained up to {stalled:.3g}"
        if focused < stalled * (1 - 2 * SIDE_SHARE)
        else f"not trained from {stalled:.3g} on, so that none is collapsed and trained"
    )
    return f"regimes: clean-like up to {min(focused, stalled):.3g}, {collapsed}"


def _masked_text(runs: xr.Dataset) -> str:
    """How many runs are masked, and at which radii."""
    radii = runs.radius.values[masked(runs).any("seed").values]
    where = f" Radii {radii.min():.3g} to {radii.max():.3g}." if radii.size else ""
    return f"  {masked_text(runs) or 'No run is masked.'}{where}"
