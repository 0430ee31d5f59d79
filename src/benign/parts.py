"""The names needed to write a data model, a network, an attack, a training method, a metric or a paper of your own.

    from benign.parts import DataModel, PerRun, Sample

The components of `benign` itself are written with these names; docs/adding.md and docs/papers.md have examples.
"""

from typing import TYPE_CHECKING

from benign._lazy import lazily

if TYPE_CHECKING:
    from benign.attacks.attack import Attack as Attack
    from benign.attacks.attack import Points as Points
    from benign.attacks.attack import Target as Target
    from benign.attacks.certificates import certificate as certificate
    from benign.claims.claim import Claims as Claims
    from benign.claims.claim import Evidence as Evidence
    from benign.claims.study import Question as Question
    from benign.claims.study import Scaled as Scaled
    from benign.claims.study import Study as Study
    from benign.claims.study import StudyError as StudyError
    from benign.data.model import DataModel as DataModel
    from benign.data.model import Sample as Sample
    from benign.data.model import column as column
    from benign.data.model import signed_labels as signed_labels
    from benign.networks.initial import Init as Init
    from benign.networks.network import Cost as Cost
    from benign.networks.network import Network as Network
    from benign.networks.network import Params as Params
    from benign.networks.network import Pass as Pass
    from benign.papers.recipes import Recipe as Recipe
    from benign.spec.axes import OneOf as OneOf
    from benign.spec.axes import PerRun as PerRun
    from benign.spec.axes import Shape as Shape
    from benign.spec.axes import default as default
    from benign.spec.base import Count as Count
    from benign.spec.base import FlipRate as FlipRate
    from benign.spec.base import NonNegative as NonNegative
    from benign.spec.base import Positive as Positive
    from benign.spec.base import Spec as Spec
    from benign.spec.base import Whole as Whole
    from benign.spec.registry import guarantees as guarantees
    from benign.streams import Streams as Streams
    from benign.sweep.store import StoreError as StoreError
    from benign.training.descent import Status as Status
    from benign.training.descent import Step as Step
    from benign.training.optimisers import Training as Training
    from benign.training.setup import Setup as Setup

_HOME = {
    "Attack": "attacks.attack",
    "Claims": "claims.claim",
    "Cost": "networks.network",
    "Count": "spec.base",
    "DataModel": "data.model",
    "Evidence": "claims.claim",
    "FlipRate": "spec.base",
    "Init": "networks.initial",
    "Network": "networks.network",
    "NonNegative": "spec.base",
    "OneOf": "spec.axes",
    "Params": "networks.network",
    "Pass": "networks.network",
    "PerRun": "spec.axes",
    "Points": "attacks.attack",
    "Positive": "spec.base",
    "Question": "claims.study",
    "Recipe": "papers.recipes",
    "Scaled": "claims.study",
    "Sample": "data.model",
    "Setup": "training.setup",
    "Shape": "spec.axes",
    "Spec": "spec.base",
    "Status": "training.descent",
    "Step": "training.descent",
    "StoreError": "sweep.store",
    "Streams": "streams",
    "Study": "claims.study",
    "StudyError": "claims.study",
    "Target": "attacks.attack",
    "Training": "training.optimisers",
    "Whole": "spec.base",
    "certificate": "attacks.certificates",
    "default": "spec.axes",
    "guarantees": "spec.registry",
    "column": "data.model",
    "signed_labels": "data.model",
}

# pyright: reportUnsupportedDunderAll=false
__all__ = sorted(_HOME)
__getattr__, __dir__ = lazily(__name__, _HOME)
