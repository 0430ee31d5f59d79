"""The claims of Li and Li, by what they need: no runs, runs of a study, runs of a figure."""

from benign.papers.li.claims import (
    adversarial,
    assumptions,
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
    *figure3.CLAIMS,
    *tables.CLAIMS,
]
