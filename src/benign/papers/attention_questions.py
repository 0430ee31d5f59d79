"""What both attention papers leave open in the same way, and how large their first figure is drawn."""

from benign.claims.study import Question
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault

OUTPUT = Question(
    "w_O",
    "the weights are PyTorch's default divided by 16; does that include the fixed output vector w_O?",
    {
        "undivided": "no: |w_O|^2 is about 1/3",
        "divided": "yes: |w_O|^2 is about 1/768, and values learn 256 times slower",
        "unit": "w_O rescaled to norm 1, as the theorems have it",
    },
    "closest to the curve printed in Jiang's figure 1, so agreement there is a calibration, not evidence",
)
LABELS = Question(
    "labels",
    "are the classes of a small training set balanced?",
    {
        "balanced": "as many points of one class as of the other",
        "fair": "independent fair labels, as defined",
    },
    "with two independent labels half of the runs have one class only",
)
PROJECTION = Question(
    "projection",
    "is the noise projected off the two signals?",
    {"isotropic": "no, as the experiments say", "projected": "yes, as the definitions say"},
    "the section on experiments gives a full-rank covariance",
)


def network(hidden: int, output: str) -> Attention:
    """The attention network of the experiments under an answer to `w_O`."""
    init = TorchDefault(divide_by=16, divide_output=output == "divided")
    return Attention(hidden=hidden, init=init, output_norm=1.0 if output == "unit" else None)
