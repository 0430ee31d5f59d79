"""benign: a laboratory for the theory of benign overfitting and feature learning under attack.

Names are imported when first used, so `import benign` is quick and loads neither torch nor
matplotlib. What is needed to write parts of one's own is in `benign.parts`.
"""

from typing import TYPE_CHECKING

from benign.lazy import lazily

if TYPE_CHECKING:
    from benign import plot as plot
    from benign.attacks.apgd import APGD as APGD
    from benign.attacks.balls import Ball as Ball
    from benign.attacks.model_free import AllPatch as AllPatch
    from benign.attacks.model_free import CommonShift as CommonShift
    from benign.attacks.model_free import Coupling as Coupling
    from benign.attacks.model_free import FeatureOrthogonal as FeatureOrthogonal
    from benign.attacks.model_free import FeatureSwap as FeatureSwap
    from benign.attacks.multi_norm import MultiNorm as MultiNorm
    from benign.attacks.one_step import OneStep as OneStep
    from benign.attacks.pgd import PGD as PGD
    from benign.attacks.several import Balls as Balls
    from benign.attacks.strong import Strong as Strong
    from benign.axes import linspace as linspace
    from benign.axes import logspace as logspace
    from benign.axes import zipped as zipped
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
    from benign.kept import weights as weights
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
    from benign.opening import merge as merge
    from benign.opening import open_experiment as open_experiment
    from benign.opening import open_result as open_result
    from benign.opening import pack as pack
    from benign.outside import load as load
    from benign.pages.report import report as report
    from benign.papers.advice import advise as advise
    from benign.papers.inside import inside_theorem as inside_theorem
    from benign.papers.recipes import recipe as recipe
    from benign.spec import SpecError as SpecError
    from benign.sweep.export import to_dataframe as to_dataframe
    from benign.theory.boundary import boundary as boundary
    from benign.theory.constant import constant as constant
    from benign.theory.falsify import falsify as falsify
    from benign.theory.locate import locate_boundary as locate_boundary
    from benign.training.feature_tests import FeatureTests as FeatureTests
    from benign.training.methods import SGD as SGD
    from benign.training.methods import AdamW as AdamW
    from benign.training.methods import GradientDescent as GradientDescent
    from benign.training.probes import snapshot as snapshot
    from benign.training.probes import tally as tally
    from benign.training.setup import Evaluation as Evaluation
    from benign.verify import judge as judge

__version__ = "0.1.0"

_HOME = {
    "APGD": "attacks.apgd",
    "AdamW": "training.methods",
    "AllPatch": "attacks.model_free",
    "Attention": "networks.attention",
    "Ball": "attacks.balls",
    "Balls": "attacks.several",
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
    "GradientDescent": "training.methods",
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
    "SGD": "training.methods",
    "SignalNoise": "data.signal_noise",
    "SpecError": "spec",
    "Strong": "attacks.strong",
    "TorchDefault": "networks.initial",
    "TwoLayer": "networks.two_layer",
    "VisionTransformer": "networks.vision_transformer",
    "WideResNet": "networks.resnet",
    "advise": "papers.advice",
    "boundary": "theory.boundary",
    "constant": "theory.constant",
    "falsify": "theory.falsify",
    "inside_theorem": "papers.inside",
    "judge": "verify",
    "linspace": "axes",
    "load": "outside",
    "locate_boundary": "theory.locate",
    "logspace": "axes",
    "merge": "opening",
    "open_experiment": "opening",
    "open_result": "opening",
    "pack": "opening",
    "plot": "plot",
    "recipe": "papers.recipes",
    "report": "pages.report",
    "snapshot": "training.probes",
    "tally": "training.probes",
    "to_dataframe": "sweep.export",
    "weights": "kept",
    "zipped": "axes",
}

# pyright: reportUnsupportedDunderAll=false
__all__ = sorted(_HOME)
__getattr__, __dir__ = lazily(__name__, _HOME)
