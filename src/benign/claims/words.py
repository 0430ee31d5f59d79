"""The words of verdicts, and what each means. docs/claims.md has the same table, and a test compares them."""

WORDS = {
    "confirmed": "the runs agree, and could have contradicted it; no stronger attack could change that",
    "certified": "it holds by certificates: no attack in the ball can break it",
    "unbroken": "it holds under the attacks tried, which the verdict lists; a stronger attack could break it",
    "calibrated": "the runs agree, but an answer to an open question was chosen by this number: no evidence",
    "by construction": "it follows from how runs are made, stopped or evaluated: only a fault of the code breaks it",
    "identity": "algebra, or a bound proven for all points: only a fault of the code or of the algebra breaks it",
    "refuted": "the runs contradict it where it is meant to hold",
    "inconclusive": "the interval is too wide, an attack is masked, or the runs say nothing about it",
    "error": "the statistic could not be computed: a fault of this program, not of the paper",
}
"""words of verdicts on runs inside the conditions and of the paper's size"""

AWAY = {"confirmed": "holds", "refuted": "fails"}
"""words outside the conditions, or at a smaller size, where nothing can be confirmed or refuted; the others stay"""

LIMITS = {
    "outside its conditions": "the theorem promises nothing for these runs",
    "at a smaller size": "these runs are smaller than those of the paper's figure",
}
"""what follows the word then"""


def label(word: str, limit: str = "") -> str:
    """Return a word with its limit, one of LIMITS: `holds outside its conditions`, `unbroken at a smaller size`."""
    if word in ("inconclusive", "error") or not limit:
        return word
    return f"{AWAY.get(word, word)} {limit}"


def meaning(text: str) -> str:
    """Return what a label means; nothing for a word that is not in the table, as files of older versions have."""
    for limit, what in LIMITS.items():
        if text.endswith(limit):
            word = text.removesuffix(limit).strip()
            plain = {there: here for here, there in AWAY.items()}.get(word, word)
            return f"{WORDS.get(plain, word)}, but {what}"
    return WORDS.get(text, "")
