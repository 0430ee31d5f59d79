"""The rules of claims and of the families of papers, recorded before runs; the readings and studies of a claim."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benign.claims.claim import Claim
from benign.claims.family import belongs
from benign.claims.frozen import Frozen, FrozenFile, Key, Rules, rules_of
from benign.claims.study import Reading, Study
from benign.experiment import Experiment
from benign.papers.registry import claims as all_claims
from benign.papers.registry import study_of

MOST_CHANGES = 3
"""of a family that are listed"""


class Freezer:
    """Records the rules of claims at a scale in a folder of runs, and remembers what is known of them."""

    def __init__(self, scale: str, folder: Path) -> None:
        self.scale, self.folder = scale, folder
        self.sizes: dict[str, int] = {}
        """the number of claims of each paper's family, each reading for itself"""
        self.whole: set[str] = set()
        """papers of which the whole family is judged"""
        self._file = FrozenFile(folder / "verdicts" / "frozen.jsonl")
        self._known: dict[Key, Frozen] = {}
        self._experiments: dict[Path, Experiment] = {}
        self._families: list[Rules] = []

    def freeze(self, chosen: Sequence[Claim], which: str, answers: Reading | None) -> None:
        """Record the rules of claims before their runs are made.

        The other claims of their papers are recorded too, since they may share these runs, and so are the families.
        """
        others = _siblings(chosen)
        rules = {claim.id: list(self._all(claim, which, answers)) for claim in chosen}
        for claim in others:
            rules[claim.id] = []
            with contextlib.suppress(Exception):  # of a study that nobody asked for
                rules[claim.id] = list(self._all(claim, which, answers))
        asked = {"readings": which, **(answers or {})}
        members = [claim for claim in [*chosen, *others] if belongs(claim)]
        for paper in dict.fromkeys(map(paper_of, members)):
            own = [claim for claim in members if paper_of(claim) == paper]
            self._families.append(self._family(paper, own, rules, asked))
        self.whole = set(self.sizes) - {paper_of(claim) for claim in others if belongs(claim)}
        with_runs = {
            paper_of(each.claim) for known in rules.values() for each, runs in known if runs
        }
        self._record([pair for known in rules.values() for pair in known])
        self._record([(family, family.claim in with_runs) for family in self._families])

    def of(self, claim: Claim, reading: Reading) -> tuple[Rules, Frozen]:
        """Return the rules of a claim and what is known of them; they are recorded if they are not yet."""
        rules = self._rules(claim, reading)
        self._record([(rules, self._has_runs(claim, reading))])
        return rules, self._known[rules.key]

    def judged(self, rules: Rules) -> None:
        """Record that rules have given a verdict."""
        self._file.judged(rules)

    def experiment(self, study: Study, own: Reading) -> Experiment:
        """Return the experiment of a study under its own reading; it is built once."""
        folder = self.runs(study, own)
        if folder not in self._experiments:
            self._experiments[folder] = study.experiment(self.scale, own)
        return self._experiments[folder]

    def runs(self, study: Study, own: Reading) -> Path:
        """Return the folder of the runs of a study."""
        return self.folder / study.name / self.scale / study.label(own)

    def remarks(self) -> list[str]:
        """Return what is to be said of families that changed after runs existed, or were recorded after them."""
        texts = []
        for family in self._families:
            known = self._known[family.key]
            if known.late:
                texts.append(f"runs of {family.claim} existed before its family was recorded")
            if known.changed:
                more = len(known.changed) - MOST_CHANGES
                changes = [*known.changed[:MOST_CHANGES], *([f"{more} more"] if more > 0 else [])]
                texts.append(
                    f"the family of {family.claim} changed after runs existed: {'; '.join(changes)}"
                )
        return texts

    def _family(
        self,
        paper: str,
        members: Iterable[Claim],
        rules: dict[str, list[tuple[Rules, bool]]],
        asked: Reading,
    ) -> Rules:
        """Return the claims of a family with their hashes; one that cannot run here stays in, without a hash."""
        hashes: dict[str, str] = {}
        for claim in members:
            own = {_name(each): each.hash[:16] for each, _ in rules[claim.id]}
            hashes |= own or {claim.id: ""}
        self.sizes[paper] = len(hashes)
        return Rules(
            paper, self.scale, asked, {"paper": paper, "scale": self.scale, "claim": hashes}
        )

    def _record(self, rules: Sequence[tuple[Rules, bool]]) -> None:
        if new := [(each, runs) for each, runs in rules if each.key not in self._known]:
            self._known |= self._file.freeze(new)

    def _all(
        self, claim: Claim, which: str, answers: Reading | None
    ) -> Iterator[tuple[Rules, bool]]:
        """Yield the rules of a claim for each reading, and whether there are runs; none if it cannot run here."""
        if not cannot(claim):
            for reading in readings_of(studies_of(claim), which, answers):
                yield self._rules(claim, reading), self._has_runs(claim, reading)

    def _rules(self, claim: Claim, reading: Reading) -> Rules:
        experiments = {
            study.name: self.experiment(study, answered(study, reading))
            for study in studies_of(claim)
        }
        return rules_of(claim, self.scale, reading, experiments)

    def _has_runs(self, claim: Claim, reading: Reading) -> bool:
        """Whether some study of a claim has a run in its folder."""
        folders = [self.runs(study, answered(study, reading)) for study in studies_of(claim)]
        return any(any((folder / "records").glob("*.npz")) for folder in folders)


def paper_of(claim: Claim | str) -> str:
    """Return the name of the paper of a claim, or of its id."""
    return (claim if isinstance(claim, str) else claim.id).partition("/")[0]


def studies_of(claim: Claim) -> list[Study]:
    """Return the studies of a claim that exist here."""
    return [study for need in claim.studies if (study := study_of(need))]


def answered(study: Study, reading: Reading) -> Reading:
    """A reading of several studies for one of them: its own questions, by default where it knows no such answer."""
    return {
        q.name: reading[q.name] if reading[q.name] in q.answers else q.default
        for q in study.questions
    }


def cannot(claim: Claim) -> str:
    """Why a claim cannot be run here; empty where it can."""
    missing = [str(need) for need in claim.studies if study_of(need) is None]
    return f"cannot run here: there is no recipe {', '.join(missing)} yet" if missing else ""


def readings_of(
    studies: Sequence[Study], which: str, answers: Reading | None = None
) -> list[Reading]:
    """The readings of several studies together: an answer to a question is the answer in all that know it."""
    readings: list[Reading] = []
    default = {name: answer for s in studies for name, answer in s.reading().items()}
    for study in studies:
        for reading in study.readings(which):
            whole = default | reading | (answers or {})
            if whole not in readings:
                readings.append(whole)
    return readings or [{}]


def _siblings(chosen: Sequence[Claim]) -> list[Claim]:
    """Return the other claims of the papers of some claims."""
    names, papers = {claim.id for claim in chosen}, {paper_of(claim) for claim in chosen}
    known = all_claims().items()
    return [claim for name, claim in known if name not in names and paper_of(name) in papers]


def _name(rules: Rules) -> str:
    answers = ", ".join(f"{name}={answer}" for name, answer in rules.reading.items())
    return f"{rules.claim} ({answers})" if answers else rules.claim
