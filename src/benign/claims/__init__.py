"""Claims as code: the statement of a paper, the runs it is judged on, a statistic, a rule, and the verdict.

    study       runs at three scales, for each reading of a paper's open questions
    claim       a claim, and the evidence its statistic is computed from
    measure     what a statistic returns: numbers with intervals
    rule        from an interval to holds, fails or inconclusive
    frozen      rules recorded before runs, with a hash
    ladder      more seeds for inconclusive claims
    family      refutations among all claims of a paper
    conditions  the conditions of a theorem as numbers
    ends        robust numbers by attacks and by certificates
    verdict     the verdict on a claim; verdict_text writes it, words lists its words
    replays     runs of the evidence, trained again; identity makes small runs without evidence
    locate, constant, falsify    tools for a lemma of your own (`benign.locate_boundary`, ...)

It imports stats, sweep and everything above them, never a paper. The names below are public; papers also use
`conditions`, `replays` and `identity`.
"""

from benign.claims.claim import Claim, Claims, Direction, Evidence, Kind
from benign.claims.measure import (
    Measured,
    Undecided,
    exact,
    largest_mean,
    mean,
    share,
    slope,
    slope_by_seed,
    smallest_mean,
    worst,
    worst_of_runs,
)
from benign.claims.rule import Rule, at_least, at_most, between, contains, exponent
from benign.claims.study import SCALES, Question, Reading, Study
from benign.claims.verdict import Outcome, Verdict, judge

__all__ = [
    "SCALES",
    "Claim",
    "Claims",
    "Direction",
    "Evidence",
    "Kind",
    "Measured",
    "Outcome",
    "Question",
    "Reading",
    "Rule",
    "Study",
    "Undecided",
    "Verdict",
    "at_least",
    "at_most",
    "between",
    "contains",
    "exact",
    "exponent",
    "judge",
    "largest_mean",
    "mean",
    "share",
    "slope",
    "slope_by_seed",
    "smallest_mean",
    "worst",
    "worst_of_runs",
]
