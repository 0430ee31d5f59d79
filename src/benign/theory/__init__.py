"""Tools every paper uses: boundaries of phase transitions and intervals."""

from benign.theory.boundary import Boundary, boundary
from benign.theory.intervals import Estimate, clopper_pearson, mean_interval, wilson
from benign.theory.law import ExponentTest, Law, PowerLaw
from benign.theory.monotone import Monotone, monotone

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
