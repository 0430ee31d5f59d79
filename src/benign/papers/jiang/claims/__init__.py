"""The claims about Jiang et al.

    identities    identities of gradient descent (Appendix B and F), on small runs in float64
    concentration the lemmas about the start, which are textbook bounds
    stages        the lemmas and propositions of both proofs: Stages I and II
    stage_3       the same: Stage III and fresh points
    theorems      Theorems 4.1 and 4.2: training times, test loss, their constants
    figures       Figures 1 to 4, and the boundary between benign and harmful overfitting
    studies       the studies that these modules share
    trajectory    their runs trained again, step by step

To add a claim, write a function of `Evidence` that returns `Measured` and decorate it with `CLAIMS.add`; its docstring
is the statement. Claims import from `benign.claims` and from the modules of this paper. They train no run of a study
again except by `evidence.replays`, and draw random numbers only by `benign.claims.identity`.
"""

from benign.papers.jiang.claims import concentration, figures, identities, stage_3, stages, theorems

CLAIMS = [
    *identities.CLAIMS,
    *concentration.CLAIMS,
    *stages.CLAIMS,
    *stage_3.CLAIMS,
    *theorems.CLAIMS,
    *figures.CLAIMS,
]
