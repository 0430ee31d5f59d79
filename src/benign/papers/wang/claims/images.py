"""What figures 4 to 6 of Wang et al. show: two digits of MNIST, pictures scaled to norm r."""

from dataclasses import replace

from benign.claims import Claims, Evidence, Measured, Undecided, at_most, between, mean, worst
from benign.papers.wang.claims.figures import exponent
from benign.papers.wang.image_curves import CASES, FIG6, UNDERTRAINING, change
from benign.papers.wang.image_maps import FIG4, FIG5, edges, radius_edge
from benign.stats.boundary import Boundary

CLAIMS = Claims("wang")
STEPS, ZERO = 1000, 0.02
"""steps of figure 6; what counts as zero"""


@CLAIMS.add(
    "fig4.mnist-transition",
    "Figure 4",
    {"clean": between(1 / 4.5, 1 / 3.5), "robust": between(1 / 2.3, 1 / 1.7)},
    FIG4,
    robust=True,
)
def mnist_transition(evidence: Evidence) -> dict[str, Measured]:
    """On two digits of MNIST, images scaled to norm r, accuracies change at d ~ r^4 (clean) and d ~ r^2 (robust)."""
    # r* of every d: its power of d is 1/4 and 1/2, and may be 0, where d* would have no exponent.
    return {
        kind: _slope(edge, f"slope of log r* on log d, {kind}")
        for kind, edge in edges(evidence.result).items()
    }


def _slope(edge: Boundary, of: str) -> Measured:
    found = exponent(edge, of)
    return replace(found, basis=found.basis.replace("signals", "dimensions"))


@CLAIMS.add(
    "fig4.is-undertraining",
    "derived",
    {
        "clean, rescaled": between(-0.01, 0.01),
        "robust, rescaled": between(-0.01, 0.01),
        "robust, as it is": at_most(-0.01),
    },
    UNDERTRAINING,
    informational=("robust, as it is",),
)
def is_undertraining(evidence: Evidence) -> dict[str, Measured]:
    """The transition of Figure 4 is undertraining: the smallest r, with step size and start rescaled, has the accuracy
    of the largest."""
    _, plain, rescaled = CASES
    cases = {
        "clean, rescaled": ("test_accuracy", rescaled),
        "robust, rescaled": ("robust_accuracy", rescaled),
        "robust, as it is": ("robust_accuracy", plain),
    }
    return {
        part: mean(
            "accuracy at r = 0.1 less that at r = 2", change(evidence.result, *each).mean("dim")
        )
        for part, each in cases.items()
    }


@CLAIMS.add("fig5.tradeoff-mnist", "Figure 5", at_most(0.0), FIG5, robust=True)
def tradeoff_mnist(evidence: Evidence) -> Measured:
    """On two digits of MNIST, the larger the dimension, the smaller the radius up to which robust accuracy is at least
    80 %."""
    return _slope(radius_edge(evidence.result), "slope of log rho* on log d")


@CLAIMS.add("fig6.zero-zero", "Figure 6", at_most(ZERO), FIG6, robust=True)
def zero_zero(evidence: Evidence) -> dict[str, Measured]:
    """On two digits of MNIST robust training loss and robust test error go to 0 in every setting."""
    result, steps = evidence.result, evidence.experiment.training.most_steps()
    loss, error = float(result.train_loss.mean("seed").max()), 1 - result.robust_accuracy
    if loss > ZERO and steps < STEPS:
        raise Undecided(f"loss {loss:.3g} after {steps} steps, the figure has {STEPS}")
    largest = error.isel(setting=int(error.mean("seed").argmax("setting")))
    return {
        "loss": worst("final robust training loss", result.train_loss.mean("seed")),
        "error": mean("final robust test error of the setting where it is largest", largest),
    }
