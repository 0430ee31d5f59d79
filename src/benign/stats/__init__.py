"""Tools every paper uses: boundaries of phase transitions and intervals."""

from benign.stats.boundary import Boundary, boundary
from benign.stats.intervals import Estimate, clopper_pearson, mean_interval, wilson
from benign.stats.law import ExponentTest, Law, PowerLaw
from benign.stats.monotone import Monotone, monotone

__all__ = [
    "Boundary",
    "Estimate",
    "ExponentTest",
    "Law",
    "Monotone",
    "PowerLaw",
    "boundary",
    "clopper_pearson",
    "mean_interval",
    "monotone",
    "wilson",
]
