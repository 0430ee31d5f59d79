"""The claims of Wang et al., chapter by chapter."""

from benign.papers.wang.claims import errors, figures, identities, images, lemmas, training

CLAIMS = [
    *training.CLAIMS,
    *lemmas.CLAIMS,
    *errors.CLAIMS,
    *figures.CLAIMS,
    *images.CLAIMS,
    *identities.CLAIMS,
]
