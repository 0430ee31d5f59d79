"""The claims about Li and Li.

    identities     assumptions, Propositions 3.1 and 3.2, lemmas that hold without noise: no study
    standard       Theorem 4.3: standard training
    adversarial    Theorem 4.4 and Lemma 5.2: adversarial training
    figures        Figure 3, Tables 1 and 2
    studies        the runs that these modules share, and the same runs trained again

To add a claim, write a function of `Evidence` that returns `Measured` and decorate it with `CLAIMS.add`; its docstring
is the statement. Claims import from `benign.claims` and from the modules of this paper. They train no run of a study
again except by `evidence.replays`, and draw random numbers only by `benign.claims.identity`.
"""

from benign.papers.li.claims import adversarial, figures, identities, standard

CLAIMS = [*identities.CLAIMS, *standard.CLAIMS, *adversarial.CLAIMS, *figures.CLAIMS]
