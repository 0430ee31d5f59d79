"""The claims of Li and Li, by what they need: nothing, points, or runs."""

from benign.papers.li.claims import (
    adversarial,
    assumptions,
    beyond,
    figure3,
    identities,
    standard,
    tables,
)

CLAIMS = [
    *assumptions.CLAIMS,
    *identities.CLAIMS,
    *standard.CLAIMS,
    *adversarial.CLAIMS,
    *beyond.CLAIMS,
    *figure3.CLAIMS,
    *tables.CLAIMS,
]
