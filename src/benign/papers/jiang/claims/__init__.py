"""The claims about Jiang et al.

    identities    identities of gradient descent (Appendix B and F), on small runs in float64
    stages        the lemmas and propositions of both proofs: start, Stages I to III, fresh points
    theorems      Theorems 4.1 and 4.2: training times, test loss, their constants
    figures       Figures 1 to 4, and the boundary between benign and harmful overfitting
    studies       the studies that these modules share
    trajectory    their runs trained again, step by step

To add a claim, write a function of `Evidence` that returns `Measured` and decorate it with `CLAIMS.add`; its docstring
is the statement. Claims import from `benign.claims` and from the modules of this paper. They train no run of a study
again except by `evidence.replays`, and draw random numbers only by `benign.claims.identity`.
"""

from benign.papers.jiang.claims import figures, identities, stages, theorems

CLAIMS = [*identities.CLAIMS, *stages.CLAIMS, *theorems.CLAIMS, *figures.CLAIMS]
