"""The specification of one run: data, network, attack, training, evaluation."""

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch

from benign.attacks.attack import Attack
from benign.attacks.ensemble import evaluation_attack
from benign.data.model import DataModel
from benign.networks.network import Network
from benign.reduction.modes import Space, Tests, Wanted, choose
from benign.spec import axes
from benign.spec.axes import OneOf, default
from benign.spec.base import Count, Spec, Whole, canonical
from benign.spec.registry import has_guarantee
from benign.training.feature_tests import FeatureTests
from benign.training.optimisers import Training

SNAPSHOTS_PER_OCTAVE = 4


class Evaluation(Spec):
    """Fresh test points, how they are attacked, and when. Accuracy is measured against clean labels.

    >>> import benign as bo
    >>> bo.Evaluation(samples=500, at="snapshots").label()
    'evaluation(samples=500, at=snapshots)'
    """

    samples: Count = 1000
    """number of test points of each run"""
    attack: Attack | None = None
    """attack on test points at the end; if not given, `EnsembleAttack` in the ball of the training attack"""
    at: Literal["end", "snapshots"] = "end"
    """test at the end only, or along the curve as well (there with the training attack)"""
    together: bool = False
    """where coordinates leave out a part of the weights (docs/coordinates.md): one draw of that part for all
    test points, instead of one for each; at most 250 points"""
    features: FeatureTests | None = None
    """on images: which features were learned, tested with two reference networks that are trained for each run"""


class Setup(Spec):
    """Everything that decides one run, its draws included, except the index of its seed."""

    data: OneOf[DataModel]
    """the distribution of points"""
    network: OneOf[Network]
    """the network that is trained"""
    attack: OneOf[Attack | None] = default(None)
    """attack on training points; none is clean training"""
    training: OneOf[Training]
    """how it is trained, and when it stops"""
    evaluation: Evaluation = Evaluation()
    """how it is tested on fresh points"""
    precision: Literal["float32", "float64", "tf32", "bf16x3", "mixed"] = "float32"
    """of all numbers; tf32 is float32 whose products may round their factors to 10 binary digits: a GPU does; bf16x3 is
    float32, but a GPU computes the products of an ascent in the coordinates of the weights by three of bfloat16, with
    errors of 5e-6; mixed is float32 but for the products inside networks, which are of bfloat16 (7 binary digits),
    where a network allows it"""
    coordinates: Wanted = "ambient"
    """coordinates of the computation: R^dim (ambient), or the span that the run stays in, drawn in R^dim (projected:
    the same runs) or drawn there (sampled: the same law, for any `dim`); auto takes the smallest that is exact;
    approximate is for attacks on attention networks too wide for that"""
    root_seed: Whole = 0
    """changes every draw of the experiment"""
    pairing: Literal["independent", "common"] = "independent"
    """cells of the grid draw independently, or share their draws (paired tests, smooth contours)"""

    def check(self) -> None:
        labels, outputs = self.data.label_count(), self.network.output_count()
        if labels != outputs:
            raise ValueError(
                f"`network` ({self.network.kind}) gives {_counted(outputs)}, "
                f"but `data` ({self.data.kind}) has {_counted(labels)}: choose them to match"
            )
        self.network.check_against(self.data)
        self._check_precision()
        self._check_tests()
        for attack in (self.attack, self.evaluation.attack):
            if attack is not None:
                attack.check_against(self.data)
        if self.attack is not None:
            self.network.check_first_attack(self.training.first_attacked_step)
        if self.evaluation.features is not None:
            self._check_features(self.evaluation.features)
        _ = self.space  # raises ValueError if the coordinates would not be exact

    def _check_precision(self) -> None:
        if self.precision == "mixed" and not self.network.mixed:
            raise ValueError(
                f"`precision` is mixed, which `network` ({self.network.kind}) does not allow: use float32 or tf32"
            )

    def _check_tests(self) -> None:
        most = self.data.most_tests()
        if most is not None and self.evaluation.samples > most:
            raise ValueError(
                f"`evaluation.samples` must be at most {most:,}, the test points that `data` ({self.data.kind}) has, "
                f"got {self.evaluation.samples:,}"
            )

    def _check_features(self, features: FeatureTests) -> None:
        features.check_against(self.data)
        if self.coordinates != "ambient":
            raise ValueError(
                f"`coordinates` must be ambient with `evaluation.features`, got {self.coordinates!r}"
            )

    def flipping(self) -> torch.Tensor:
        """Return whether training labels are flipped: one value, or one for each run."""
        return torch.as_tensor(self.data.flip_rate()).gt(0)

    def flips_labels(self) -> bool:
        """Return whether training labels are flipped in some run."""
        return bool(self.flipping().any())

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def final_attack(self) -> Attack | None:
        """The attack on test points at the end."""
        return self.evaluation.attack or evaluation_attack(self.attack)

    @cached_property
    def space(self) -> Space:
        """The coordinates of the computation, and the reason. Raises ValueError if `coordinates` would not be exact.

        Cached, because it is read many times: choosing was a quarter of the time of `benign show wang/exponents`.
        """
        evaluation, wanted = self.evaluation, self.coordinates
        if wanted != "ambient" and not has_guarantee(self.training, "plain_update"):
            if wanted != "auto":
                raise ValueError(
                    f"`coordinates` is {wanted}, but `training` is {self.training.kind}, which is not known to stay in "
                    "the span: use `coordinates: ambient`"
                )
            wanted = "ambient"
        tests = Tests(evaluation.samples, self.final_attack, evaluation.together)
        return choose(wanted, self.data, self.network, self.attack, tests)

    @cached_property
    def fingerprint(self) -> str:
        """The text that identifies the runs of this setup; cached, since all seeds of a cell share it."""
        return canonical(
            {name: value for name, value in self.identity().items() if name != "seeds"}
        )

    if not TYPE_CHECKING:

        def model_copy(self, **how):
            """A copy computes `space` and `fingerprint` again, since its fields may differ."""
            copied = super().model_copy(**how)
            for cached in ("space", "fingerprint"):
                copied.__dict__.pop(cached, None)
            return copied

    def within(self, data: DataModel, network: Network) -> "Setup":
        """Return the same run with data and network in the coordinates of its space."""
        parts = {("data",): data, ("network",): network, ("coordinates",): "ambient"}
        return axes.replace(self, parts)

    def reduced(self) -> "Setup":
        """Return the run in the coordinates of its space, to estimate its cost."""
        data, network = self.space.reduced(self.data, self.network)
        return self if data is self.data else self.within(data, network)

    def snapshot_steps(self) -> list[int]:
        """Return step 0, then steps evenly spaced in the logarithm, up to the step cap."""
        cap = self.training.most_steps()
        steps, k = {0, cap}, 0
        while (step := round(2 ** (k / SNAPSHOTS_PER_OCTAVE))) <= cap:
            steps.add(step)
            k += 1
        return sorted(steps)


def stack(cells: list[Setup], device: str) -> Setup:
    """Return the setup of many runs of one shape: numbers that differ by run become float64 tensors [runs]."""
    return axes.stack(
        cells, lambda numbers: torch.tensor(numbers, dtype=torch.float64, device=device)
    )


def _counted(classes: int | None) -> str:
    return "one signed number a point" if classes is None else f"{classes} classes"
