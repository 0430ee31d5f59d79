"""Tools every paper uses: boundaries of phase transitions and intervals."""

from benign.theory.boundary import Boundary, Law, PowerLaw, boundary
from benign.theory.intervals import Estimate, mean_interval

__all__ = ["Boundary", "Estimate", "Law", "PowerLaw", "boundary", "mean_interval"]
