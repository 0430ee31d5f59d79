"""The claims of Zhang et al., by what they need: nothing but draws, or runs."""

from benign.papers.zhang.claims import bounds, guide, identities, impossible, starts, weak

CLAIMS = [
    *identities.CLAIMS,
    *starts.CLAIMS,
    *bounds.CLAIMS,
    *impossible.CLAIMS,
    *weak.CLAIMS,
    *guide.CLAIMS,
]
