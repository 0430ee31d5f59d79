"""Figure 2 of Jiang et al. as a recipe: test loss on MNIST with a noisy frame (papers/jiang.md 4.2)."""

import xarray as xr

from benign.claims.study import Question, Reading
from benign.data.constructions import FrameNoise
from benign.experiment import Experiment
from benign.papers.image_questions import TRANSFORMER, describe_images, source_of, which_images
from benign.papers.image_samples import sample_pictures
from benign.papers.recipes import Recipe, Scaled
from benign.papers.vision import Size, count_tests, images, ratios, training, transformer
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.sweep.dataset import ended
from benign.training.descent import Status
from benign.training.setup import Evaluation

NOISE = Question(
    "noise",
    "how strong is the noise on the frame before it is multiplied by 1 - a? Pixels are between 0 and 1",
    {"1": "standard deviation 1", "0.3": "standard deviation 0.3, about that of the pixels"},
    "a standard Gaussian, where nothing is said",
)
_LAYOUT = {"digits": (2, 1), "mnist": (4, 4)}
"""pixels of a patch's side and of the frame: in MNIST the frame is the outer ring of patches"""
_SIZES = Scaled(
    smoke=Size(samples=(40, 120, 2), ratios=(0.2, 2.0, 2), hidden=8, epochs=1, batch=16, test=50),
    quick=Size(
        samples=(300, 1500, 3), ratios=(0.2, 2.0, 4), hidden=32, epochs=30, batch=16, test=500
    ),
    paper=Size(
        samples=(3000, 8400, 10), ratios=(0.2, 2.0, 10), hidden=64, epochs=100, test=10_000, seeds=2
    ),
)


FIG2 = Recipe(
    name="jiang/fig2",
    title="Figure 2: test loss over sample size and SNR, MNIST with a noisy frame",
    shows="more samples and a stronger signal lower the test loss, with a visible transition",
    questions=(NOISE, which_images("mnist"), *TRANSFORMER),
)


@FIG2.builds
def _build(scale: str, reading: Reading) -> Experiment:
    size, source = _SIZES[scale], source_of(scale, reading, "mnist")
    patch, width = _LAYOUT[source]
    noise = FrameNoise(snr=ratios(size), width=width, noise_std=float(reading["noise"]))
    data = images(size, reading, source, patch, noise)
    return Experiment(
        data=data,
        network=transformer(size, reading, data.label_count()),
        training=training(size, reading),
        evaluation=Evaluation(samples=count_tests(size, reading, source)),
        pairing="common",
        seeds=size.seeds,
    )


@FIG2.maps
def _panels(result: xr.Dataset) -> list[Panel]:
    return [
        Panel(result.test_loss, "samples", "snr", "test loss"),
        Panel(1 - result.test_accuracy, "samples", "snr", "test error"),
    ]


@FIG2.draws
def _draw(result: xr.Dataset, caption: str) -> dict[str, Figure]:
    told = f"{caption} {describe_images(result)}"
    title = "A vision transformer on pictures with a noisy frame"
    figure = phase_figure(_panels(result), title=title, caption=told)
    return {"fig2": figure, **sample_pictures(result, "fig2_samples", told)}


@FIG2.summarises
def _summarise(result: xr.Dataset) -> str:
    loss, error = result.test_loss.mean("seed"), 1 - result.test_accuracy.mean("seed")
    lines = []
    for name, row in (("test loss", loss), ("test error", error)):
        row = row.sortby(["samples", "snr"])
        ends = [float(row.isel(samples=k, snr=k)) for k in (0, -1)]
        lines.append(
            f"{name}: {ends[0]:.3g} at the smallest N and SNR, {ends[1]:.3g} at the largest"
        )
    runs, there = ended(result), result.status == Status.CONVERGED
    lines.append(
        f"{int(there.sum())} of {int(runs.sum())} runs reach the training loss, the largest loss at "
        f"the end is {float(result.train_loss.max()):.3g}"
    )
    return "\n".join(lines)
