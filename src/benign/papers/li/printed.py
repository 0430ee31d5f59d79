"""The numbers that Li and Li print in Tables 1 and 2, in per cent: shown beside ours, never in their place."""

from typing import NamedTuple

TRAININGS = ("standard", "adversarial")
"""how networks are trained: without and with an attack"""


class Row(NamedTuple):
    """A row of Table 1."""

    accuracy: float
    robust_accuracy: float
    non_robust_feature_accuracy: float
    robust_feature_accuracy: float


TABLE_1 = {
    ("mnist", "standard"): Row(99.56, 0.04, 88.11, 44.61),
    ("mnist", "adversarial"): Row(99.41, 94.43, 39.49, 69.19),
    ("cifar", "standard"): Row(95.74, 0.00, 91.79, 61.26),
    ("cifar", "adversarial"): Row(86.28, 45.13, 10.88, 67.88),
    ("svhn", "standard"): Row(96.84, 0.16, 73.91, 65.38),
    ("svhn", "adversarial"): Row(91.99, 58.55, 35.50, 77.04),
}
"""Table 1 (ResNet-18 for MNIST, WRN-34-10 for CIFAR-10 and SVHN), by data set and training"""

TABLE_2 = {
    ("standard", "NRF-PGD"): (71.41, 80.36, 54.08, 76.74),
    ("standard", "RF-PGD"): (11.30, 9.58, 1.24, 2.63),
    ("adversarial", "NRF-PGD"): (9.60, 15.16, 0.34, 0.40),
    ("adversarial", "RF-PGD"): (19.38, 26.00, 2.64, 1.96),
}
"""Table 2: targeted success on CIFAR-10 by training and attack, for each of `PAIRS`"""
PAIRS = {"cat to dog": (3, 5), "dog to cat": (5, 3), "car to plane": (1, 0), "plane to car": (0, 1)}
"""the pairs of Table 2, as labels of CIFAR-10"""
PROSE = (9.60, 15.16, 0.34, 0.40)
"""what Appendix A.2 says of RF-PGD against the standard-trained network"""
