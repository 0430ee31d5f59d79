"""The claims about Wang et al.

    training      robust interpolation, the robust training loss and its rates, the first step
    lemmas        the lemmas of Section 4 and Appendix B along training
    errors        the test errors of Theorems 3.1 and 3.2
    figures       Figures 1 to 6
    identities    identities of Appendix B, on small runs in float64
    studies       the studies that these modules share
    extremes      their runs trained again: the quantities of the lemmas at each step, and their extremes

To add a claim, write a function of `Evidence` that returns `Measured` and decorate it with `CLAIMS.add`; its docstring
is the statement. Claims import from `benign.claims` and from the modules of this paper. They train no run of a study
again except by `evidence.replays`, and draw random numbers only by `benign.claims.identity`.
"""

from benign.papers.wang.claims import errors, figures, identities, lemmas, training

CLAIMS = [*training.CLAIMS, *lemmas.CLAIMS, *errors.CLAIMS, *figures.CLAIMS, *identities.CLAIMS]
