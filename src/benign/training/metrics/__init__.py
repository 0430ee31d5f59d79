"""What is measured while a run trains. A probe is one small function of a step.

A *snapshot* is measured at common log-spaced steps and at the end. A *tally* sees every step and
keeps one number a run. Each module of this folder holds the probes of one kind of run; a new file
is found without any other edit.
"""

import sys

from benign.spec.registry import load_components
from benign.training.metrics.metric import METRICS as METRICS
from benign.training.metrics.metric import RUNNING_METRICS as RUNNING_METRICS
from benign.training.metrics.metric import Metric as Metric
from benign.training.metrics.metric import RunningMetric as RunningMetric
from benign.training.metrics.metric import functions_for as functions_for
from benign.training.metrics.metric import metric as metric
from benign.training.metrics.metric import metrics_for as metrics_for
from benign.training.metrics.metric import running_metric as running_metric
from benign.training.metrics.metric import running_metrics_for as running_metrics_for

load_components(sys.modules[__name__])
