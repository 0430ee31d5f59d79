"""The claims of Zhang et al., by what they need: nothing but draws, or runs."""

from itertools import chain

from benign.papers.zhang.claims import (
    bounds,
    cases,
    dynamics,
    figures,
    guide,
    identities,
    images,
    impossible,
    starts,
    texts,
    weak,
)

CLAIMS = [
    *chain(identities.CLAIMS, starts.CLAIMS, bounds.CLAIMS, impossible.CLAIMS, weak.CLAIMS),
    *chain(
        dynamics.CLAIMS, cases.CLAIMS, figures.CLAIMS, images.CLAIMS, texts.CLAIMS, guide.CLAIMS
    ),
]
