"""Counts and lists of verdicts. Statements of the papers and those derived in this project are counted apart."""

from collections import Counter
from collections.abc import Sequence

from benign.claims.claim import Claim
from benign.papers.registry import OWN, claims, papers
from showcase import badges, verdicts
from showcase.badges import NOT_JUDGED, OLDER
from showcase.verdicts import MISSING, Entry, Verdicts


def statements(paper: str = "", derived: bool = False) -> list[Claim]:
    """Return the statements of a paper (of all papers of this package if empty), or those derived from it."""
    return [
        claim
        for name, claim in claims().items()
        if claim.derived is derived and name.partition("/")[0] in ([paper] if paper else OWN)
    ]


def word(entry: Entry) -> str:
    """Return the words by which a verdict is counted: verdicts of older machinery have none of today's words."""
    if not entry:
        return NOT_JUDGED
    return OLDER if verdicts.is_older(entry) else entry["verdict"]


def counts(known: Verdicts, paper: str = "", derived: bool = False) -> Counter[str]:
    """Return the number of statements by verdict under the default reading."""
    return Counter(word(verdicts.counted(known, claim.id)) for claim in statements(paper, derived))


def rows(known: Verdicts) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of counts; words that no verdict has get no column."""
    groups = [
        (paper, derived)
        for derived in (False, True)
        for paper in [*papers(), ""]
        if statements(paper, derived)
    ]
    there = {word for group in groups for word in counts(known, *group)}
    words = [word for word in badges.COLOURS if word in there]
    head = ["", "statements", *words, MISSING, "scale of the runs"]
    return head, [_row(known, words, *group) for group in groups]


def _row(known: Verdicts, words: Sequence[str], paper: str, derived: bool) -> list[str]:
    number = counts(known, paper, derived)
    judged = [verdicts.counted(known, claim.id) for claim in statements(paper, derived)]
    scales = Counter(each["scale"] for each in judged if each and not verdicts.is_older(each))
    cannot = sum(MISSING in each.get("reason", "") for each in judged)
    name = f"[{paper}](verdicts/{paper}.md)" if paper else "**all**"
    return [
        f"{name}, derived by us" if derived else name,
        str(number.total()),
        *(str(number[word] or "") for word in words),
        str(cannot or ""),
        ", ".join(f"{scale} {count}" for scale, count in sorted(scales.items())),
    ]


def refuted(known: Verdicts, paper: str, gallery: str) -> str:
    """Return the statements of a paper that are refuted, those derived in this project apart, as a line of Markdown."""
    parts = []
    for derived, name in ((False, "of the paper"), (True, "of our own")):
        for older in (False, True):
            names = [
                f"`{claim.id.partition('/')[2]}`{_alone(entry)}"
                for claim in statements(paper, derived)
                if (entry := verdicts.counted(known, claim.id))
                and entry["verdict"] == "refuted"
                and verdicts.is_older(entry) is older
            ]
            by = f"{name}, {OLDER}" if older else name
            if names:
                parts.append(f"{by}: {', '.join(names)}")
            elif not older and not derived:
                parts.append(f"{by}: none so far")
    return f"[{paper.capitalize()}]({gallery}verdicts/{paper}.md), " + "; ".join(parts) + "."


def _alone(entry: Entry) -> str:
    """Return a remark on a refutation that is one by itself, but not among all claims of the paper (Holm)."""
    family = entry.get("family") or {}
    return " (alone, not among all claims)" if family.get("holds up") is False else ""
