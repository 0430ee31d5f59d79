"""Everything that is measured, in one registry: a metric is one decorated function.

    metric            the registry, the decorators, the variables of a result
    fresh_points      what metrics on fresh test points read
    evaluation        metrics of every run, and the evaluation on fresh points
    audit             can robust accuracy be trusted?
    attention, scores, values                       one-layer attention (Zhang, Jiang)
    two_layer                                       two-layer networks (Wang)
    features, attacked_patches, image_features      learned features (Li)

Every module is loaded, so that a new file needs no other edit. Imports the modules of training and what is above it.
Public: `bo.metric`, `bo.running_metric`.
"""

import sys

from benign.spec.registry import load_components
from benign.training.metrics.metric import METRICS as METRICS
from benign.training.metrics.metric import Declared as Declared
from benign.training.metrics.metric import EvaluationMetric as EvaluationMetric
from benign.training.metrics.metric import Metric as Metric
from benign.training.metrics.metric import PointMetric as PointMetric
from benign.training.metrics.metric import RunningMetric as RunningMetric
from benign.training.metrics.metric import Variable as Variable
from benign.training.metrics.metric import evaluation_metric as evaluation_metric
from benign.training.metrics.metric import functions_for as functions_for
from benign.training.metrics.metric import metric as metric
from benign.training.metrics.metric import metrics_for as metrics_for
from benign.training.metrics.metric import point_metric as point_metric
from benign.training.metrics.metric import running_metric as running_metric
from benign.training.metrics.metric import running_metrics_for as running_metrics_for
from benign.training.metrics.metric import variables as variables

load_components(sys.modules[__name__])
