"""The phase diagram that Theorem 3.2 of Kou et al. predicts, as a recipe and as two claims; its sizes are ours."""

import numpy as np

import benign as bo
from benign.claims import Claims, at_least, contains, share, slope
from benign.parts import Recipe

from .relu_cnn import ReluCNN
from .two_patches import TwoPatches

SIZES = {  # signals, dimensions, seeds, test points; the theorem asks for d well above n^2 = 400
    "smoke": (5, (500, 1000, 2000), 1, 200),
    "quick": (13, (500, 800, 1300, 2000, 3200, 5000, 8000), 4, 400),
    "paper": (25, (500, 800, 1300, 2000, 3200, 5000, 8000, 13000, 20000), 20, 2000),
}


def build(scale, reading):
    signals, dims, seeds, test = SIZES[scale]
    return bo.Experiment(
        data=TwoPatches(samples=20, dim=dims, signal=bo.logspace(1, 8, signals), flip=0.1),
        network=ReluCNN(width=10),
        training=bo.GradientDescent(rate=0.02, stop_loss=0.05, max_steps=5000),
        evaluation=bo.Evaluation(samples=test),
        seeds=seeds,
    )


def edge(result):  # where test accuracy is halfway between chance and 1
    return bo.boundary(result.test_accuracy.rename("test accuracy"), 0.75, law="dim * signal**p")


def draw(result, folder, caption):
    found = {"limits": (0.5, 1), "boundary": edge(result)}
    panel = bo.plot.Panel(result.test_accuracy, "dim", "signal", "test accuracy", **found)
    caption += " n = 20, sigma_p = 1, one training label in ten flipped. The theorem: p = -4."
    title = "Benign and harmful overfitting of a ReLU CNN"
    figure = bo.plot.phase_figure([panel], title=title, caption=caption)
    return bo.plot.save(figure, folder / "fig1")


def summarise(result):
    return f"{edge(result)}\n  the theorem: n |mu|^4 / (sigma_p^4 d) decides, that is p = -4"


RECIPES = [
    Recipe(
        name="kou/fig1",
        title="Test accuracy over signal strength and dimension, one training label in ten flipped",
        shows="overfitting is benign if n |mu|^4 is large compared with sigma_p^4 d, harmful if it is small",
        build=build,
        draw=draw,
        summarise=summarise,
    )
]

CLAIMS = Claims("kou")


@CLAIMS.add("thm3.2.exponent", "Theorem 3.2", contains(0.25, but_not=(0, 0.5)), "kou/fig1")
def critical_signal(evidence):
    """The smallest signal at which overfitting is benign grows like d^(1/4): n |mu|^4 / (sigma_p^4 d) decides."""
    critical = np.log(edge(evidence.result).critical)
    return slope("slope of log |mu|* on log d", np.log(critical["dim"]), critical)


@CLAIMS.add("thm3.2.benign", "Theorem 3.2", at_least(0.8), "kou/fig1")
def flipped_labels_do_no_harm(evidence):
    """If the signal is strong, training fits every flipped label, and test accuracy is still near 1."""
    runs = evidence.result.isel(signal=-1)
    both = (runs.flipped_fitted == 1) & (runs.test_accuracy >= 0.95)
    return share("runs with both", both.values[runs.flipped_fitted.notnull()], "run")
