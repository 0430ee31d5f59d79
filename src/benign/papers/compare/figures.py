"""Four networks on the same points: attention, its linear mode, a two-layer network and a CNN on tokens.

Jiang section 4 and Zhang section 4 compare their theorems with those on CNNs, linear models and two-layer networks,
which are about other data. Here all meet the same draws of signal-noise data, the same balls and the same loss. Beside
them stands the max-margin classifier of the mean token, which the linear mode converges to: the robust margin of l2
balls is the margin less tau |u|, so that its direction is the same under attack (papers/zhang.md S5 to S7).
"""

import math

import numpy as np
import torch
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading, Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, experiment_of
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.networks.network import Network
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.papers.attention_setting import LEVEL, RADIUS, pgd
from benign.papers.recipes import Recipe
from benign.papers.statistics import converged
from benign.papers.zhang.linear_mode import population_error, separator
from benign.plot.laws import Critical, exponents_panels
from benign.plot.style import Figure
from benign.spec.axes import logspace, zipped
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary, boundary
from benign.streams import RunId, Streams
from benign.sweep.dataset import ended
from benign.sweep.ends import masked_count
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

NAMES = ("attention", "linear mode", "two-layer", "CNN")
TRAININGS = ("clean", "adversarial")
MARGIN = "max margin"
ACCURACIES = {"clean accuracy": "test_accuracy", "robust accuracy": "robust_accuracy"}

DEGREE = Question(
    "q",
    "the CNN that Jiang compares with has the activation ReLU^q with q > 2, without a number",
    {"3": "the smallest whole one, and Li's", "4": "the next one"},
    "the smaller, the weaker the law N SNR^q = const that is claimed for it",
)


def _networks(hidden: int, degree: int) -> list[tuple[Network, float]]:
    """Each with a rate that is stable to the end of training for tokens of length 1 (noise) and up to 2 (signal)."""
    attention = {
        "value_dim": 1,
        "init": GaussianInit(score_std=0.1, value_std=1e-3),
        "output_norm": 1.0,
    }
    cnn = PatchCNN(width=10, outputs="difference", q=degree, threshold=1.0, init_std=0.05)
    return [
        (Attention(hidden=hidden, **attention), 4.0),
        (Attention(hidden=1, attend="uniform", **attention), 8.0),
        (TwoLayer(width=20, init_std=1e-3), 4.0),
        (cnn, 5.0),
    ]


ARCHITECTURES = Recipe(
    name="compare/architectures",
    title="Critical SNR over N of attention, its linear mode, a two-layer network and a CNN, clean and adversarial",
    shows="that a transformer needs fewer samples than a CNN with ReLU^q when SNR < 1 (Jiang: N SNR^2 and N SNR^q), "
    "and that benign overfitting under attack, known for linear models and two-layer networks, extends to attention "
    "with far fewer steps and without a large |mu| (Zhang)",
    questions=(DEGREE,),
    names={"model": [f"{name}, {training}" for training in TRAININGS for name in NAMES]},
)


@ARCHITECTURES.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, ratios, seeds, test, max_steps = Scaled(
        smoke=(16, 4, (2, 4, 6), 2, 1, 10, 5),
        quick=(64, 8, (8, 16, 32), 6, 2, 60, 1500),
        paper=(512, 32, (8, 16, 32, 64, 128), 12, 6, 400, 6000),
    )[scale]
    ball = Ball(radius=RADIUS, relative_to="signal")
    steps, restarts = Scaled(smoke=(2, 1), quick=(20, 1), paper=(50, 3))[scale]
    # A radius of 0 is clean training; the runs that there are were made with it.
    attacks = [
        PGD(ball=Ball(radius=0.0, relative_to="signal"), steps=1),
        pgd(RADIUS),
    ]
    models = [
        (net, rate, attack)
        for attack in attacks
        for net, rate in _networks(hidden, int(reading["q"]))
    ]
    return Experiment(
        data=SignalNoise(
            samples=list(samples),
            tokens=4,
            dim=dim,
            snr=logspace(0.06, 2.0, ratios),
            noise_std=1 / math.sqrt(dim),
            projected=True,
            balanced=True,
        ),
        network=zipped("model", [net for net, _, _ in models]),
        attack=zipped("model", [attack for _, _, attack in models]),
        training=GradientDescent(
            rate=zipped("model", [rate for _, rate, _ in models]),
            stop_loss=0.05,
            max_steps=max_steps,
            first_attacked_step=1,  # a two-layer network starts at f = 0
        ),
        evaluation=Evaluation(
            samples=test, attack=EnsembleAttack(ball=ball, steps=steps, restarts=restarts)
        ),
        pairing="common",
        seeds=seeds,
    )


def max_margin_accuracy(result: xr.Dataset, radius: float) -> xr.DataArray:
    """Exact accuracy of the max-margin classifier of the mean token, trained on the same points (S6, S7).

    All cells of a seed share their draws, so one draw for every N is all that is needed: SNR scales its first token.
    """
    experiment = experiment_of(result)
    streams = Streams([RunId(experiment.root_seed, seed, "") for seed in range(experiment.seeds)])
    fixed = {name: value for name, value in experiment.data if name not in ("kind", "snr")}
    accuracy = xr.full_like(result.test_accuracy.isel(model=0, drop=True), np.nan)
    for samples in result.samples.values:
        data = SignalNoise(**fixed | {"samples": int(samples), "snr": 1.0})
        drawn = data.sample(streams, "train", data.samples, torch.float64)
        for snr in result.snr.values:
            x = drawn.x.clone()
            x[:, :, 0] *= float(snr)
            signal = snr * data.signal_norm()
            error = population_error(
                separator(x, drawn.y), snr * drawn.latent["signal"], data.noise_std, data.tokens, radius * signal
            )  # fmt: skip
            accuracy.loc[{"samples": samples, "snr": snr}] = 1 - error.numpy()
    return accuracy


def boundaries(result: xr.Dataset) -> dict[str, dict[str, dict[str, Boundary]]]:
    """Critical SNR over N by training, accuracy and network, the max-margin classifier being the last one."""
    margins = {
        accuracy: boundary(max_margin_accuracy(result, radius), LEVEL)
        for accuracy, radius in zip(ACCURACIES, (0.0, RADIUS), strict=True)
    }
    edges = {}
    for number, training in enumerate(TRAININGS):
        places = {name: number * len(NAMES) + place for place, name in enumerate(NAMES)}
        edges[training] = {
            accuracy: {
                **{
                    name: audited_boundary(result.isel(model=place, drop=True), variable, LEVEL)
                    for name, place in places.items()
                },
                MARGIN: margins[accuracy],
            }
            for accuracy, variable in ACCURACIES.items()
        }
    return edges


@ARCHITECTURES.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    panels = {
        f"{training} training, {accuracy}": [Critical(name, edge) for name, edge in edges.items()]
        for training, by_accuracy in boundaries(result).items()
        for accuracy, edges in by_accuracy.items()
    }
    note = (
        "Adversarial training: 20-step PGD in the ball of the test. "
        "Max margin: of the mean token, trained on the same points, exact. "
        "Only the two-layer network sees the order of tokens."
    )
    figure = exponents_panels(
        panels,
        x="training points N",
        y="SNR at accuracy 0.75",
        title="Four networks on the same signal-noise data",
        caption=f"{caption} {note}",
    )
    return figure


@ARCHITECTURES.summarises
def _summarise(result: xr.Dataset) -> str:
    lines, by_training = [], boundaries(result)
    for number, training in enumerate(TRAININGS):
        lines.append(f"{training} training: SNR* at accuracy {LEVEL:g} grows as N to the ...")
        for place, name in enumerate((*NAMES, MARGIN)):
            laws = [
                f"{each}: {_law_text(edges[name])}" for each, edges in by_training[training].items()
            ]
            runs = result.isel(model=number * len(NAMES) + place) if name in NAMES else None
            parts = laws if runs is None else [*laws, _runs_text(runs)]
            lines.append(f"  {name}: {'; '.join(parts)}")
    return "\n".join(lines)


def _law_text(edge: Boundary) -> str:
    fit = edge.fit
    if fit is None:
        return edge.reason
    slope = fit.growth
    # The middle of the rows, where the line is known best.
    middle = float(np.exp(np.log(edge.critical.samples.values.astype(float)).mean()))
    return f"{slope}, {float(fit.curve(np.array([middle]))[0]):.3g} at N = {middle:.3g}"


def _runs_text(runs: xr.Dataset) -> str:
    """Steps, how many reached the loss, and how many runs are masked."""
    done = ended(runs)
    if not done.any():
        return "no run has ended"
    reached = converged(runs).where(done).mean().item()
    steps = runs.steps.where(done).median().item()
    text = f"median steps {steps:.3g}, reach the loss {reached:.2f}"
    return f"{text}, masked {count}" if (count := masked_count(runs)) else text


RECIPES = [ARCHITECTURES]
