"""What is measured while a run trains. A probe is one small function of a step.

A *snapshot* is measured at common log-spaced steps and at the end. A *tally* sees every step and
keeps one number a run. Each module of this folder holds the probes of one kind of run; a new file
is found without any other edit.
"""

import sys

from benign.spec.registry import load_components
from benign.training.metrics.metric import SNAPSHOTS as SNAPSHOTS
from benign.training.metrics.metric import TALLIES as TALLIES
from benign.training.metrics.metric import Snapshot as Snapshot
from benign.training.metrics.metric import Tally as Tally
from benign.training.metrics.metric import functions_for as functions_for
from benign.training.metrics.metric import snapshot as snapshot
from benign.training.metrics.metric import snapshots_for as snapshots_for
from benign.training.metrics.metric import tallies_for as tallies_for
from benign.training.metrics.metric import tally as tally

load_components(sys.modules[__name__])
