"""Figures 1c, 1d and 4 to 8 of Zhang et al. as recipes: pictures under noise (papers/zhang.md 5, C.2 to C.4)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from benign.attacks.apgd import APGD
from benign.attacks.attack import Attack
from benign.attacks.balls import Ball, Balls
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading, Scaled
from benign.data.constructions import PixelNoise
from benign.data.images import Images
from benign.experiment import Experiment, specification
from benign.networks.network import Network
from benign.networks.pretrained import BASE_16, PretrainedViT
from benign.papers.images import (
    CLASSES,
    OPTIMISER,
    TRANSFORMER,
    ImageSize,
    count_tests,
    describe_images,
    images,
    ratios,
    sample_pictures,
    source_of,
    training,
    transformer,
    which_images,
)
from benign.papers.recipes import Draw, Maps, Recipe, Summarise
from benign.papers.statistics import converged
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.sweep.dataset import ended
from benign.sweep.ends import masked_cells
from benign.training.setup import Evaluation

# Attacks and experiments.


BALL = Question(
    "ball",
    "the radius is tau = r |mu|: of every token, or of the picture?",
    {
        "image": "of the picture, all its tokens together",
        "token": "of every token, as in the definitions: a picture of M tokens moves by up to sqrt(M) tau",
        "token_sqrt": "of every token, divided by sqrt(M)",
    },
    "with tau of every token training on MNIST stayed at the class prior in our trials",
)
WEAKER = Question(
    "radius",
    "the radius on Tiny-ImageNet is printed as 0.10 |mu|, twice that on MNIST, and called weaker",
    {"printed": "0.10 |mu|", "weaker": "0.01 |mu|, as on CIFAR-10"},
    "as printed; with it training stayed at the class prior in our trials",
)
PATCH = {
    "digits": 2,
    "mnist": 7,
    "cifar10": 4,
    "cifar10_12k": 4,
    "tiny_imagenet": 8,
    "tinyimagenet20": 8,
}
"""pixels of a side of a patch: 16 tokens, 64 of the colour pictures"""
RADII = {
    "mnist": 0.05,
    "cifar10": 0.01,
    "cifar10_12k": 0.01,
    "tiny_imagenet": 0.1,
    "tinyimagenet20": 0.1,
}
"""tau / |mu| (C.2)"""
CUT_OFF = {"digits": 0.93, "mnist": 0.93} | dict.fromkeys(("cifar10", "cifar10_12k"), 0.65)
CUT_OFF |= dict.fromkeys(("tiny_imagenet", "tinyimagenet20"), 0.70)
"""accuracy that the panels of two colours are cut at (C.2)"""

Attacker = Callable[[ImageSize, Reading, Images, float], Attack]
"""the training attack of a figure, with tau / |mu|"""


@dataclass(frozen=True, kw_only=True)
class ImageFigure:
    """A figure on images: its image set, attack and sizes."""

    paper: str
    """its image set"""
    attack: Attacker
    sizes: Scaled[ImageSize]

    def build(self, scale: str, reading: Reading) -> Experiment:
        size, source = self.sizes[scale], source_of(scale, reading, self.paper)
        data = images(size, reading, source, PATCH[source], PixelNoise(snr=ratios(size)))
        radius = RADII[self.paper if source == "digits" else source]
        if reading.get("radius") == "weaker":
            radius /= 10
        attack = self.attack(size, reading, data, radius)
        return trained(size, reading, data, transformer(size, reading, data.label_count()), attack)


def trained(
    size: ImageSize, reading: Reading, data: Images, network: Network, attack: Attack
) -> Experiment:
    """The experiment of a figure. Test points are judged by the worst of short ascents and of the training attack."""
    threat, source = attack.threat(), str(data.source)
    assert threat is not None
    judge = EnsembleAttack(ball=threat, steps=size.judge, restarts=1, also=attack)
    return Experiment(
        data=data,
        network=network,
        attack=attack,
        training=training(size, reading),
        evaluation=Evaluation(samples=count_tests(size, reading, source), attack=judge),
        pairing="common",
        seeds=size.seeds,
    )


def pgd(size: ImageSize, reading: Reading, data: Images, radius: float) -> PGD:
    """20 steps of 0.2 tau (section 6); fewer are longer."""
    ball = Ball(**_where(reading, data, radius))
    return PGD(ball=ball, steps=size.ascend, step=_step(size), loss="cross_entropy")


def apgd(size: ImageSize, reading: Reading, data: Images, radius: float) -> APGD:
    """APGD on the training loss from the clean point (C.2 gives neither its loss nor its steps)."""
    return APGD(ball=Ball(**_where(reading, data, radius)), steps=size.ascend, loss="cross_entropy")


def multi_norm(size: ImageSize, reading: Reading, data: Images, radius: float) -> MultiNorm:
    """For every point the worst of PGD in l1, l2 and linf balls of radii 20, 1 and 1/30 times tau (C.3)."""
    where = _where(reading, data, radius)
    numbers = data.dim * (data.tokens if where["per"] == "sample" else 1)
    # A step in the l1 ball moves a twentieth of the numbers: one at a time is far from the worst in 20 steps.
    balls = Balls(**where, coordinates=max(1, numbers // 20))
    return MultiNorm(balls=balls, steps=size.ascend, step=_step(size), loss="cross_entropy")


def _step(size: ImageSize) -> float:
    return max(0.2, 2 / size.ascend)


def _where(reading: Reading, data: Images, radius: float) -> dict[str, Any]:
    """Fields of a ball, or of several, under an answer to `ball`."""
    answer = reading["ball"]
    return {
        "radius": radius / math.sqrt(data.tokens) if answer == "token_sqrt" else radius,
        "relative_to": "signal",
        "per": "sample" if answer == "image" else "token",
    }


# Figures 1c, 1d and 4 to 7: accuracy of small vision transformers over sample size and SNR.


ACCURACIES = {"clean": "test_accuracy", "robust": "robust_accuracy"}
Printed = Mapping[str, Mapping[str, float]]
"""c of N SNR^2 = c as a figure prints it, by image set and kind of accuracy, where it is legible"""
_TINY = {"clean": 30_000.0, "robust": 60_000.0}
TINY = {"tiny_imagenet": _TINY, "tinyimagenet20": _TINY}

SMOKE = ImageSize(
    samples=(20, 60, 2),
    ratios=(0.4, 2.0, 2),
    hidden=8,
    epochs=1,
    batch=16,
    ascend=2,
    judge=1,
    test=12,
)
QUICK = ImageSize(
    samples=(250, 1000, 3),
    ratios=(0.4, 2.0, 4),
    hidden=32,
    epochs=30,
    batch=16,
    ascend=3,
    judge=8,
    test=300,
)
MNIST = Scaled(
    smoke=SMOKE,
    quick=QUICK,
    paper=ImageSize(samples=(1000, 6000, 6), ratios=(0.4, 2.0, 9), epochs=100, test=2000, seeds=3),
)
COLOURS = Scaled(
    smoke=SMOKE,
    quick=replace(QUICK, ratios=(0.4, 10.0, 3), epochs=10),
    paper=ImageSize(samples=(1000, 10_000, 10), ratios=(0.4, 10.0, 9), epochs=100, test=2000),
)
FEW = Scaled(
    smoke=SMOKE,
    quick=replace(COLOURS.quick, samples=(100, 500, 3)),
    paper=ImageSize(samples=(100, 1000, 10), ratios=(0.4, 10.0, 9), epochs=100, test=1000),
)


def source(result: xr.Dataset) -> str:
    return specification(result)["data"]["source"]


def edges(result: xr.Dataset) -> dict[str, Boundary]:
    """Where clean and robust accuracy cross the cut-off of the image set."""
    level = CUT_OFF[source(result)]
    return {kind: _edge(result, kind, level) for kind in ACCURACIES}


def _edge(result: xr.Dataset, kind: str, level: float) -> Boundary:
    name = f"{kind} accuracy"
    return audited_boundary(result, lambda of: of[ACCURACIES[kind]].rename(name), level)


def panelling(printed: Printed) -> Maps:
    """Maps of clean and robust accuracy, then both cut in two colours."""

    def panels(result: xr.Dataset) -> list[Panel]:
        known, edge_of = printed.get(source(result), {}), edges(result)
        return [
            _panel(result, kind, edge_of[kind], cut, known.get(kind))
            for cut in (None, CUT_OFF[source(result)])
            for kind in ACCURACIES
        ]

    return panels


def drawing(name: str, printed: Printed) -> Draw:
    """Return the drawing of the maps, and of sample pictures in a second figure."""

    def draw(result: xr.Dataset, caption: str) -> dict[str, Figure]:
        panels = panelling(printed)(result)
        caption = f"{caption} {describe_images(result)}"
        title = "Benign overfitting of a vision transformer under adversarial training"
        figure = phase_figure(panels, title=title, caption=caption, columns=2)
        return {name: figure, **sample_pictures(result, f"{name}_samples", caption)}

    return draw


def _panel(
    result: xr.Dataset, kind: str, edge: Boundary, cut: float | None, constant: float | None
) -> Panel:
    """With the printed law, or the printed exponent and a constant fitted here where none is legible."""
    by = "paper"
    if constant is None and edge.fit is not None:
        constant, by = edge.constant_for(2.0).value, "paper's exponent, fitted"
    return Panel(
        result[ACCURACIES[kind]],
        "samples",
        "snr",
        f"{kind} test accuracy",
        cut=cut,
        limits=(0.0, 1.0),
        boundary=edge,
        printed=None if constant is None else f"samples * snr**2 = {constant:.4g}",
        printed_by=by,
        masked=masked_cells(result, ACCURACIES[kind]),
    )


def summarising(printed: Printed) -> Summarise:
    """Return the ends of the maps, their boundaries next to the printed ones, and how far training came."""

    def summarise(result: xr.Dataset) -> str:
        lines = []
        for kind, edge in edges(result).items():
            means = result[ACCURACIES[kind]].mean("seed").sortby(["samples", "snr"])
            low, high = (float(means.isel(samples=k, snr=k)) for k in (0, -1))
            text = (
                f"{kind} accuracy: {low:.3g} at the smallest N and SNR, {high:.3g} at the largest"
            )
            constant = printed.get(source(result), {}).get(kind)
            text += f"; the paper prints N SNR^2 = {constant:g}" if constant else ""
            lines += [text, f"  {edge}".replace("\n", "\n  ")]
            if edge.fit is not None:
                c = edge.constant_for(2.0)
                lines.append(
                    f"  at exponent 2: N SNR^2 = {c.value:.4g} [{c.low:.4g}, {c.high:.4g}]"
                )
        return "\n".join([*lines, fitted(result)])

    return summarise


def fitted(result: xr.Dataset) -> str:
    """How many runs reached the loss, and how far the others are from it."""
    runs, there = ended(result), converged(result)
    loss = result.train_loss.where(runs & ~there)
    rest = f"; the others end at {float(loss.min()):.3g} to {float(loss.max()):.3g}"
    far = rest if loss.notnull().any() else ""
    return f"{int(there.sum())} of {int(runs.sum())} runs reach the loss under the training attack{far}"


def _recipe(
    name: str,
    title: str,
    shows: str,
    figure: ImageFigure,
    *others: str,
    printed: Printed | None = None,
    questions: tuple[Question, ...] = (),
) -> Recipe:
    known = printed or {}
    return Recipe(
        name=f"zhang/{name}",
        title=title,
        shows=shows,
        build=figure.build,
        figure=drawing(name, known),
        summarise=summarising(known),
        panels=panelling(known),
        questions=(BALL, *questions, which_images(figure.paper, *others), *TRANSFORMER),
    )


_TITLE = "clean and robust accuracy over sample size and SNR"
FIGURE_1CD = _recipe(
    "fig1cd",
    f"Figure 1c, d: {_TITLE}, MNIST, PGD",
    "a boundary of the form N SNR^2 = constant on real images",
    ImageFigure(paper="mnist", attack=pgd, sizes=MNIST),
)
FIGURE_4 = _recipe(
    "fig4",
    f"Figure 4: {_TITLE}, MNIST, APGD",
    "the same under a stronger attack, cut at 0.93",
    ImageFigure(paper="mnist", attack=apgd, sizes=MNIST),
)
FIGURE_5 = _recipe(
    "fig5",
    f"Figure 5: {_TITLE}, CIFAR-10, APGD",
    "the same on CIFAR-10, cut at 0.65",
    ImageFigure(paper="cifar10", attack=apgd, sizes=COLOURS),
)
FIGURE_6 = _recipe(
    "fig6",
    f"Figure 6: {_TITLE}, Tiny-ImageNet, APGD",
    "the same on Tiny-ImageNet, cut at 0.70, drawn at N SNR^2 = 30000 and 60000",
    ImageFigure(paper="tiny_imagenet", attack=apgd, sizes=FEW),
    printed=TINY,
    questions=(WEAKER,),
)
FIGURE_7 = _recipe(
    "fig7",
    f"Figure 7: {_TITLE}, MNIST, PGD in l1, l2 and linf balls",
    "against several norms at once robust accuracy is lower, and the transition persists",
    ImageFigure(
        paper="mnist",
        attack=multi_norm,
        sizes=MNIST,
    ),
    "cifar10",
    "cifar10_12k",
)


# Figure 8: a pretrained ViT of which the last layer's attention is trained (C.4).


FIG8_RADIUS = 1 / 20
"""tau / |mu|"""
HEAD = Question(
    "head",
    "all is frozen but queries, keys and values of the last layer: the head, too?",
    {"trained": "no, it is trained", "frozen": "yes, a random one stays as it is"},
    "a random head that stays has to be met by one layer",
)
WEIGHTS = Question(
    "weights",
    "which pretrained network?",
    {
        "paper": "ViT-B/16 of ImageNet-21k, which timm downloads; at smoke scale a tiny one of random weights, shipped",
        "dinov2_small": "ViT-S/14 of DINOv2: dinov2_small_hf_fp16.safetensors in the folder of data",
    },
    "the paper's",
)
SCALING = Question(
    "scaling",
    "what is |mu|, the norm of a picture? Radius and noise are multiples of it",
    {
        "natural": "the mean norm in the set, so that pixels are about between 0 and 1",
        "five": "5, as for the small transformers",
    },
    "a frozen network expects pixels between 0 and 1",
)
PICTURE_NORMS = {"digits": 3.86, "mnist": 9.2, "cifar10": 28.8, "cifar10_12k": 28.8}
PICTURE_NORMS |= dict.fromkeys(("tiny_imagenet", "tinyimagenet20"), 55.0)
"""mean norm of the training pictures, pixels between 0 and 1"""
_CIFAR = {"clean": 20_000.0, "robust": 80_000.0}
FIG8_PRINTED = {
    "mnist": {"clean": 500.0, "robust": 800.0},
    "cifar10": _CIFAR,
    "cifar10_12k": _CIFAR,
    **TINY,
}
"""c of N SNR^2 = c in the legends; the 500 is garbled in print ("?00")"""
_DINO_COLOURS = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

_SMOKE = ImageSize(
    samples=(10, 20, 2), ratios=(0.4, 2.0, 2), epochs=1, batch=10, ascend=1, judge=1, test=10
)
_QUICK = replace(_SMOKE, samples=(40, 80, 2), epochs=3, judge=2, test=40)
_PAPER = ImageSize(
    samples=(500, 5000, 10), ratios=(0.4, 2.2, 10), epochs=20, ascend=5, test=1000, seeds=1
)
_GRIDS: dict[str, tuple[tuple[int, int, int], tuple[float, float, int]]] = {
    "mnist": (_PAPER.samples, _PAPER.ratios),
    "digits": (_PAPER.samples, _PAPER.ratios),
    "cifar10": ((1000, 10_000, 10), (0.4, 10.0, 9)),
    "cifar10_12k": ((1000, 10_000, 10), (0.4, 10.0, 9)),
    "tiny_imagenet": ((100, 1000, 10), (0.4, 10.0, 9)),
    "tinyimagenet20": ((100, 1000, 10), (0.4, 10.0, 9)),
}
"""numbers of samples and ratios as printed, by image set"""


def _size(scale: str, source: str) -> ImageSize:
    samples, snr = _GRIDS[source]
    return Scaled(smoke=_SMOKE, quick=_QUICK, paper=replace(_PAPER, samples=samples, ratios=snr))[
        scale
    ]


def _network(scale: str, reading: Reading, source: str, classes: int | None) -> PretrainedViT:
    """The pixels it sees: as few as keep patches apart at quick scale, 224 as printed."""
    grey = source in ("digits", "mnist")
    fields: dict[str, Any] = {
        "classes": classes,
        "head": reading["head"],
        "channels": 1 if grey else 3,
    }
    if reading["weights"] == "dinov2_small":
        side = Scaled(28, 56, 224)[scale]
        return PretrainedViT(
            weights="dinov2_small_hf_fp16.safetensors", image_side=side, **_DINO_COLOURS, **fields
        )
    if scale == "smoke":
        return PretrainedViT(weights="tiny_vit.safetensors", heads=2, image_side=8, **fields)
    return PretrainedViT(weights=BASE_16, image_side=Scaled(8, 64, 224)[scale], **fields)


FIGURE_8 = Recipe(
    name="zhang/fig8",
    title="Figure 8: clean and robust accuracy over sample size and SNR, a pretrained ViT",
    shows="boundaries of the form N SNR^2 = constant, that of robust accuracy later",
    figure=drawing("fig8", FIG8_PRINTED),
    summarise=summarising(FIG8_PRINTED),
    panels=panelling(FIG8_PRINTED),
    questions=(
        HEAD,
        WEIGHTS,
        BALL,
        SCALING,
        which_images("mnist", "cifar10", "cifar10_12k", "tiny_imagenet", "tinyimagenet20"),
        OPTIMISER,
        CLASSES,
    ),
)


@FIGURE_8.builds
def _build(scale: str, reading: Reading) -> Experiment:
    source = source_of(scale, reading, "mnist")
    size = _size(scale, source)
    norm = PICTURE_NORMS[source] if reading["scaling"] == "natural" else 5.0
    noise = PixelNoise(norm=norm, snr=ratios(size))
    data = images(size, reading, source, PATCH[source], noise)
    network = _network(scale, reading, source, data.label_count())
    return trained(size, reading, data, network, pgd(size, reading, data, FIG8_RADIUS))
