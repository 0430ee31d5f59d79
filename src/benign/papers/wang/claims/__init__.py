"""The claims of Wang et al., chapter by chapter."""

from benign.papers.wang.claims import errors, figures, identities, lemmas, training

CLAIMS = [
    *training.CLAIMS,
    *lemmas.CLAIMS,
    *errors.CLAIMS,
    *figures.CLAIMS,
    *identities.CLAIMS,
]
