"""The claims about Zhang et al.

    identities    identities of Algorithm 1, on small runs in float64
    draws         Lemmas 10 to 13 and the bounds on norms: draws without training
    stages        the three stages of the proof of Theorem 2, Case 1
    weak          Lemmas 4 and 6: the effect of a weak attack
    theorem2      both cases of Theorem 2
    theorem3      Theorem 3, its corrections, the stall radius
    figures       Figures 1 to 8
    text          remarks in the text, practical guideline 2
    studies       the studies that these modules share

To add a claim, write a function of `Evidence` that returns `Measured` and decorate it with `CLAIMS.add`; its docstring
is the statement. Claims import from `benign.claims`, from the modules of this paper and from those of Jiang. They train
no run of a study again except by `evidence.replays`, and draw random numbers only by `benign.claims.identity`.
"""

from benign.papers.zhang.claims import (
    draws,
    figures,
    identities,
    stages,
    text,
    theorem2,
    theorem3,
    weak,
)

CLAIMS = [
    *identities.CLAIMS,
    *draws.CLAIMS,
    *theorem3.CLAIMS,
    *weak.CLAIMS,
    *stages.CLAIMS,
    *theorem2.CLAIMS,
    *figures.CLAIMS,
    *text.CLAIMS,
]
