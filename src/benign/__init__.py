"""benign: a laboratory for the theory of benign overfitting and feature learning under attack.

Names are imported when first used, so `import benign` is quick and loads neither torch nor
matplotlib. The names needed to write components of your own are in `benign.parts`.
"""

from typing import TYPE_CHECKING

from benign._lazy import lazily

if TYPE_CHECKING:
    from benign import plot as plot
    from benign.attacks.apgd import APGD as APGD
    from benign.attacks.balls import Ball as Ball
    from benign.attacks.balls import Balls as Balls
    from benign.attacks.ensemble import EnsembleAttack as EnsembleAttack
    from benign.attacks.model_free import AllPatch as AllPatch
    from benign.attacks.model_free import CommonShift as CommonShift
    from benign.attacks.model_free import Coupling as Coupling
    from benign.attacks.model_free import FeatureOrthogonal as FeatureOrthogonal
    from benign.attacks.model_free import FeatureSwap as FeatureSwap
    from benign.attacks.multi_norm import MultiNorm as MultiNorm
    from benign.attacks.one_step import OneStep as OneStep
    from benign.attacks.pgd import PGD as PGD
    from benign.claims.constant import constant as constant
    from benign.claims.falsify import falsify as falsify
    from benign.claims.locate import locate_boundary as locate_boundary
    from benign.data.constructions import FrameNoise as FrameNoise
    from benign.data.constructions import PixelNoise as PixelNoise
    from benign.data.constructions import Plain as Plain
    from benign.data.constructions import Rescaled as Rescaled
    from benign.data.feature_patches import FeaturePatches as FeaturePatches
    from benign.data.images import Images as Images
    from benign.data.mixture import Mixture as Mixture
    from benign.data.noisy_copies import NoisyCopies as NoisyCopies
    from benign.data.signal_noise import SignalNoise as SignalNoise
    from benign.experiment import Experiment as Experiment
    from benign.networks.attention import Attention as Attention
    from benign.networks.initial import GaussianInit as GaussianInit
    from benign.networks.initial import TorchDefault as TorchDefault
    from benign.networks.linear import Linear as Linear
    from benign.networks.module import ModuleNetwork as ModuleNetwork
    from benign.networks.patch_cnn import PatchCNN as PatchCNN
    from benign.networks.pretrained import PretrainedViT as PretrainedViT
    from benign.networks.resnet import ResNet as ResNet
    from benign.networks.resnet import WideResNet as WideResNet
    from benign.networks.two_layer import TwoLayer as TwoLayer
    from benign.networks.vision_transformer import VisionTransformer as VisionTransformer
    from benign.papers.advice import advise as advise
    from benign.papers.inside import inside_theorem as inside_theorem
    from benign.papers.published import published as published
    from benign.papers.registry import recipe as recipe
    from benign.papers.verify import judge as judge
    from benign.report.page import write_report as write_report
    from benign.spec.axes import linspace as linspace
    from benign.spec.axes import logspace as logspace
    from benign.spec.axes import zipped as zipped
    from benign.spec.base import SpecError as SpecError
    from benign.spec.plugins import load as load
    from benign.stats.audited import audited_boundary as audited_boundary
    from benign.stats.boundary import boundary as boundary
    from benign.sweep.export import to_dataframe as to_dataframe
    from benign.sweep.folders import merge as merge
    from benign.sweep.folders import open_experiment as open_experiment
    from benign.sweep.folders import open_result as open_result
    from benign.sweep.folders import pack as pack
    from benign.sweep.folders import weights as weights
    from benign.training.feature_tests import FeatureTests as FeatureTests
    from benign.training.metrics import metric as metric
    from benign.training.metrics import running_metric as running_metric
    from benign.training.optimisers import SGD as SGD
    from benign.training.optimisers import AdamW as AdamW
    from benign.training.optimisers import GradientDescent as GradientDescent
    from benign.training.setup import Evaluation as Evaluation

__version__ = "0.2.0"

_HOME = {
    "APGD": "attacks.apgd",
    "AdamW": "training.optimisers",
    "AllPatch": "attacks.model_free",
    "Attention": "networks.attention",
    "Ball": "attacks.balls",
    "Balls": "attacks.balls",
    "CommonShift": "attacks.model_free",
    "Coupling": "attacks.model_free",
    "Evaluation": "training.setup",
    "Experiment": "experiment",
    "FeatureOrthogonal": "attacks.model_free",
    "FeaturePatches": "data.feature_patches",
    "FeatureSwap": "attacks.model_free",
    "FeatureTests": "training.feature_tests",
    "FrameNoise": "data.constructions",
    "GaussianInit": "networks.initial",
    "GradientDescent": "training.optimisers",
    "Images": "data.images",
    "Linear": "networks.linear",
    "Mixture": "data.mixture",
    "ModuleNetwork": "networks.module",
    "MultiNorm": "attacks.multi_norm",
    "NoisyCopies": "data.noisy_copies",
    "OneStep": "attacks.one_step",
    "PGD": "attacks.pgd",
    "PatchCNN": "networks.patch_cnn",
    "PixelNoise": "data.constructions",
    "Plain": "data.constructions",
    "PretrainedViT": "networks.pretrained",
    "ResNet": "networks.resnet",
    "Rescaled": "data.constructions",
    "SGD": "training.optimisers",
    "SignalNoise": "data.signal_noise",
    "SpecError": "spec.base",
    "EnsembleAttack": "attacks.ensemble",
    "TorchDefault": "networks.initial",
    "TwoLayer": "networks.two_layer",
    "VisionTransformer": "networks.vision_transformer",
    "WideResNet": "networks.resnet",
    "advise": "papers.advice",
    "audited_boundary": "stats.audited",
    "boundary": "stats.boundary",
    "constant": "claims.constant",
    "falsify": "claims.falsify",
    "inside_theorem": "papers.inside",
    "judge": "papers.verify",
    "linspace": "spec.axes",
    "load": "spec.plugins",
    "locate_boundary": "claims.locate",
    "logspace": "spec.axes",
    "merge": "sweep.folders",
    "open_experiment": "sweep.folders",
    "open_result": "sweep.folders",
    "pack": "sweep.folders",
    "plot": "plot",
    "published": "papers.published",
    "recipe": "papers.registry",
    "metric": "training.metrics",
    "running_metric": "training.metrics",
    "to_dataframe": "sweep.export",
    "weights": "sweep.folders",
    "write_report": "report.page",
    "zipped": "spec.axes",
}

# pyright: reportUnsupportedDunderAll=false
__all__ = sorted(_HOME)
__getattr__, __dir__ = lazily(__name__, _HOME)
