"""Figure 8 of Zhang et al. as a recipe: a pretrained ViT of which the last layer's attention is trained (C.4)."""

from dataclasses import replace
from typing import Any

from benign.claims.study import Question, Reading, at
from benign.data.constructions import PixelNoise
from benign.experiment import Experiment
from benign.networks.pretrained import BASE_16, PretrainedViT
from benign.papers.image_questions import CLASSES, OPTIMISER, source_of, which_images
from benign.papers.recipes import Recipe
from benign.papers.vision import Size, images, ratios
from benign.papers.zhang.image_maps import TINY, drawing, panelling, summarising
from benign.papers.zhang.images import BALL, PATCH, pgd, trained

RADIUS = 1 / 20
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
NORMS = {"digits": 3.86, "mnist": 9.2, "cifar10": 28.8, "cifar10_12k": 28.8}
NORMS |= dict.fromkeys(("tiny_imagenet", "tinyimagenet20"), 55.0)
"""mean norm of the training pictures, pixels between 0 and 1"""
_CIFAR = {"clean": 20_000.0, "robust": 80_000.0}
PRINTED = {
    "mnist": {"clean": 500.0, "robust": 800.0},
    "cifar10": _CIFAR,
    "cifar10_12k": _CIFAR,
    **TINY,
}
"""c of N SNR^2 = c in the legends; the 500 is garbled in print ("?00")"""
_DINO_COLOURS = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

_SMOKE = Size(
    samples=(10, 20, 2), ratios=(0.4, 2.0, 2), epochs=1, batch=10, ascend=1, judge=1, test=10
)
_QUICK = replace(_SMOKE, samples=(40, 80, 2), epochs=3, judge=2, test=40)
_PAPER = Size(
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


def _size(scale: str, source: str) -> Size:
    samples, snr = _GRIDS[source]
    return at(scale, _SMOKE, _QUICK, replace(_PAPER, samples=samples, ratios=snr))


def _network(scale: str, reading: Reading, source: str, classes: int | None) -> PretrainedViT:
    """The pixels it sees: as few as keep patches apart at quick scale, 224 as printed."""
    grey = source in ("digits", "mnist")
    fields: dict[str, Any] = {
        "classes": classes,
        "head": reading["head"],
        "channels": 1 if grey else 3,
    }
    if reading["weights"] == "dinov2_small":
        side = at(scale, 28, 56, 224)
        return PretrainedViT(
            weights="dinov2_small_hf_fp16.safetensors", image_side=side, **_DINO_COLOURS, **fields
        )
    if scale == "smoke":
        return PretrainedViT(weights="tiny_vit.safetensors", heads=2, image_side=8, **fields)
    return PretrainedViT(weights=BASE_16, image_side=at(scale, 8, 64, 224), **fields)


FIGURE_8 = Recipe(
    name="zhang/fig8",
    title="Figure 8: clean and robust accuracy over sample size and SNR, a pretrained ViT",
    shows="boundaries of the form N SNR^2 = constant, that of robust accuracy later",
    figure=drawing("fig8", PRINTED),
    summarise=summarising(PRINTED),
    panels=panelling(PRINTED),
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
    norm = NORMS[source] if reading["scaling"] == "natural" else 5.0
    noise = PixelNoise(norm=norm, snr=ratios(size))
    data = images(size, reading, source, PATCH[source], noise)
    network = _network(scale, reading, source, data.label_count())
    return trained(size, reading, data, network, pgd(size, reading, data, RADIUS))
