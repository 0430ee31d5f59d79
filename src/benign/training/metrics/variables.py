"""Every variable a run yields, with its meaning and units: what the arrays of a record and of a result are called."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benign.training.descent import Status
from benign.training.metrics import audit, metrics_for, running_metrics_for
from benign.training.metrics import image_features as features
from benign.training.metrics.evaluation import MEANINGS, measured
from benign.training.setup import Setup


@dataclass(frozen=True)
class Variable:
    """A number of a run, or one along its snapshot steps, or an array of numbers with axes of its own."""

    meaning: str
    units: str
    along_steps: bool = False
    axes: Mapping[str, Sequence] = field(default_factory=dict)
    """of an array, by name, with their coordinates"""

    def tail(self, steps: Sequence[int]) -> dict[str, Sequence]:
        """What follows the axis of runs: dimensions by name, with their coordinates."""
        return {"step": steps} if self.along_steps else dict(self.axes)

    def blank(self, runs: int, steps: Sequence[int]) -> np.ndarray:
        """An array of these for so many runs, nothing measured; arrays of a run are float32."""
        shape = [runs, *map(len, self.tail(steps).values())]
        return np.full(shape, np.nan, np.float32 if self.axes else np.float64)


STATUS = Variable(
    "how the run ended: " + ", ".join(f"{s.value} {s.name.lower()}" for s in Status), "code"
)
STEPS = Variable("gradient descent steps taken when the run ended", "steps")


def variables(setup: Setup) -> dict[str, Variable]:
    """The variables of a setup by name: end values, tallies, test values, and curves (`..._curve`)."""
    found = {"status": STATUS, "steps": STEPS}
    for probe in metrics_for(setup):
        found[probe.name] = Variable(f"{probe.meaning}, at the end", probe.units)
        found[f"{probe.name}_curve"] = Variable(probe.meaning, probe.units, along_steps=True)
    for tally in running_metrics_for(setup):
        found[tally.name] = Variable(tally.meaning, tally.units)
    for name in measured(setup, setup.final_attack):
        found[name] = Variable(*MEANINGS[name])
    for name in audit.measured(setup):
        found[name] = Variable(*audit.MEANINGS[name])
    for name, told in features.measured_at_end(setup).items():
        found[name] = Variable(*told)
    if shown := features.picture_dims(setup):
        meaning = "test images, and what is drawn from their features in each reference network"
        found["inversions"] = Variable(meaning, "1", axes=shown)
    if setup.evaluation.at == "snapshots":
        for name in measured(setup, setup.attack):
            meaning, units = MEANINGS[name]
            found[f"{name}_curve"] = Variable(
                meaning.replace("evaluation attack", "training attack"), units, along_steps=True
            )
    return found
