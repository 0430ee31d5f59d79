"""What the figures of Zhang et al. on real images show."""

from dataclasses import replace

from benign.claims import Claims, Evidence, Measured, at_least, at_most, mean
from benign.papers.zhang.claims.maps import concordant, shift_of_boundary
from benign.papers.zhang.fig8 import FIGURE_8
from benign.papers.zhang.image_maps import FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, source
from benign.papers.zhang.images import CUT_OFF

CLAIMS = Claims("zhang")


@CLAIMS.add(
    "fig4-6.monotone",
    "Figures 4 to 6",
    at_least(0.9),
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    robust=True,
)
def images_rise(evidence: Evidence) -> dict[str, Measured]:
    """On MNIST, CIFAR-10 and Tiny-ImageNet clean and robust accuracy rise with N and with SNR."""
    found = {}
    for name, experiment, result in zip(
        ("figure 4", "figure 5", "figure 6"), evidence.experiments, evidence.results, strict=True
    ):
        for kind in ("test_accuracy", "robust_accuracy"):
            found[f"{name}, {kind.replace('_', ' ')}"] = concordant(
                "share of pairs of cells that rise",
                result[kind],
                ("samples", "snr"),
                experiment.evaluation.samples,
            )
    return found


@CLAIMS.add("fig7.multinorm_lower", "Figure 7", at_most(0.0), FIGURE_4, FIGURE_7, robust=True)
def several_norms_are_harder(evidence: Evidence) -> Measured:
    """Against attacks in several norms at once robust accuracy is lower than against one norm."""
    single, several = (result.robust_accuracy for result in evidence.results)
    less = (several - single).mean([dim for dim in single.dims if dim != "seed"])
    return mean("robust accuracy, several norms less l2", less)


@CLAIMS.add("fig8.boundary_shift", "Figure 8", at_least(0.0), FIGURE_8, robust=True)
def robust_boundary_is_later(evidence: Evidence) -> Measured:
    """The boundary of robust accuracy lies at a larger N SNR^2 than that of clean accuracy."""
    # At the cut-off of the image set, where the paper draws its curves.
    shift = shift_of_boundary(evidence.result, CUT_OFF[source(evidence.result)])
    return replace(mean("log(c_robust / c_clean)", shift), basis=f"{shift.size} rows of the map")
