"""Every variable a run yields, with its meaning and units: what the arrays of a record and of a result are called."""

from dataclasses import dataclass

from benign.training import audit
from benign.training.descent import Status
from benign.training.evaluation import MEANINGS, measured
from benign.training.probes import snapshots_for, tallies_for
from benign.training.setup import Setup


@dataclass(frozen=True)
class Variable:
    """A number of a run, or one along its snapshot steps."""

    meaning: str
    units: str
    along_steps: bool = False


STATUS = Variable(
    "how the run ended: " + ", ".join(f"{s.value} {s.name.lower()}" for s in Status), "code"
)
STEPS = Variable("gradient descent steps taken when the run ended", "steps")


def variables(setup: Setup) -> dict[str, Variable]:
    """The variables of a setup by name: end values, tallies, test values, and curves (`..._curve`)."""
    found = {"status": STATUS, "steps": STEPS}
    for probe in snapshots_for(setup):
        found[probe.name] = Variable(f"{probe.meaning}, at the end", probe.units)
        found[f"{probe.name}_curve"] = Variable(probe.meaning, probe.units, along_steps=True)
    for tally in tallies_for(setup):
        found[tally.name] = Variable(tally.meaning, tally.units)
    for name in measured(setup, setup.final_attack):
        found[name] = Variable(*MEANINGS[name])
    for name in audit.measured(setup):
        found[name] = Variable(*audit.MEANINGS[name])
    if setup.evaluation.at == "snapshots":
        for name in measured(setup, setup.attack):
            meaning, units = MEANINGS[name]
            found[f"{name}_curve"] = Variable(
                meaning.replace("evaluation attack", "training attack"), units, along_steps=True
            )
    return found
