"""The verifier: runs the studies of claims, each once, and judges the claims."""

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from benign.claims.claim import Claim, Evidence
from benign.claims.frozen import Frozen, FrozenFile, Key, Rules, rules_of
from benign.claims.study import Reading, Study
from benign.claims.verdict import cannot_run
from benign.claims.verdict import judge as verdict_on
from benign.claims.verdict_text import TimedVerdict, claim_text, counts_text, verdict_text, write
from benign.experiment import Experiment, Folder
from benign.papers.registry import claims as all_claims
from benign.papers.registry import matching, study_of
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.folders import current_experiment, current_result
from benign.sweep.results import RunsFailed
from benign.sweep.runner import Runner
from benign.sweep.store import Store
from benign.sweep.terminal import display_for
from benign.sweep.text import echo, shown

Run = Callable[[Experiment, Path, str], xr.Dataset]
"""runs an experiment in a folder, under a title"""


class NoRuns(ValueError):
    """A folder that has nothing to judge by."""


class Verifier:
    """Judges claims at a scale; a study is run once for each reading, whichever claims need it.

    If it cannot run anything, it judges by the results in the folders, whatever their size.
    """

    def __init__(self, scale: str, folder: Path, run: Run | None) -> None:
        self.scale, self.folder, self.run = scale, folder, run
        self._known: dict[tuple[str, str], _Runs] = {}
        self._experiments: dict[tuple[str, str], Experiment] = {}
        self._rules = FrozenFile(folder / "verdicts" / "frozen.jsonl")
        self._frozen: dict[Key, Frozen] = {}

    def freeze(
        self, claims: Iterable[Claim], which: str = "default", answers: Reading | None = None
    ) -> None:
        """Record the rules of claims before their runs are made.

        The other claims of their papers are recorded too: they may share these runs.
        """
        chosen = list(claims)
        self._freeze(rules for each in chosen for rules in self._all_rules(each, which, answers))
        others: list[tuple[Rules, bool]] = []
        for claim in siblings(chosen):
            with contextlib.suppress(Exception):  # of a study that nobody asked for
                others += self._all_rules(claim, which, answers)
        self._freeze(others)

    def _freeze(self, rules: Iterable[tuple[Rules, bool]]) -> None:
        if new := [(each, runs) for each, runs in rules if each.key not in self._frozen]:
            self._frozen |= self._rules.freeze(new)

    def _all_rules(
        self, claim: Claim, which: str, answers: Reading | None
    ) -> list[tuple[Rules, bool]]:
        """Return the rules of a claim for each reading, and whether there are runs; none if it cannot run here."""
        studies = [] if cannot(claim) else _studies(claim)
        readings = [] if cannot(claim) else readings_of(studies, which, answers)
        return [(self._rules_of(claim, each), self._has_runs(studies, each)) for each in readings]

    def judge(
        self, claim: Claim, which: str = "default", answers: Reading | None = None
    ) -> Iterable[TimedVerdict]:
        """The verdicts on a claim: one for each reading of what its studies leave open."""
        if reason := cannot(claim):
            yield TimedVerdict(cannot_run(claim, self.scale, reason), 0.0)
            return
        known = _studies(claim)
        self._freeze(self._all_rules(claim, which, answers))
        for reading in readings_of(known, which, answers):
            try:
                runs = [self._run(study, reading) for study in known]
            except NoRuns as error:
                yield TimedVerdict(cannot_run(claim, self.scale, str(error)), 0.0)
                continue
            evidence = Evidence(
                self.scale,
                reading,
                tuple(each.result for each in runs),
                tuple(each.experiment for each in runs),
                tuple(word for each in runs for word in each.changes),
            )
            rules = self._rules_of(claim, reading)
            verdict = replace(verdict_on(claim, evidence), frozen=self._frozen[rules.key])
            if not verdict.error:
                self._rules.judged(rules)
            yield TimedVerdict(verdict, sum(each.seconds for each in runs))

    def _rules_of(self, claim: Claim, reading: Reading) -> Rules:
        experiments = {
            study.name: self._experiment(study, answered(study, reading))
            for study in _studies(claim)
        }
        return rules_of(claim, self.scale, reading, experiments)

    def _has_runs(self, studies: Iterable[Study], reading: Reading) -> bool:
        """Whether some study of a claim has a run in its folder."""
        folders = [self._folder(study, answered(study, reading)) for study in studies]
        return any(any((folder / "records").glob("*.npz")) for folder in folders)

    def _folder(self, study: Study, own: Reading) -> Path:
        return self.folder / study.name / self.scale / study.label(own)

    def _experiment(self, study: Study, own: Reading) -> Experiment:
        key = (study.name, study.label(own))
        if key not in self._experiments:
            self._experiments[key] = study.experiment(self.scale, own)
        return self._experiments[key]

    def _run(self, study: Study, reading: Reading) -> "_Runs":
        own = answered(study, reading)
        label = study.label(own)
        if (study.name, label) not in self._known:
            folder = self._folder(study, own)
            if self.run is None:
                self._known[study.name, label] = _found(study, folder)
            else:
                began = time.perf_counter()
                experiment = self._experiment(study, own)
                title = f"{study.name}, {self.scale} scale, reading {label}"
                result = self.run(experiment, folder, title)
                seconds = time.perf_counter() - began
                self._known[study.name, label] = _Runs(experiment, result, (), seconds)
        return self._known[study.name, label]


class _Runs(NamedTuple):
    """The runs of a study under one reading."""

    experiment: Experiment
    result: xr.Dataset
    changes: tuple[str, ...]
    """how they differ from those of the study"""
    seconds: float
    """that running took"""


def _found(study: Study, folder: Path) -> _Runs:
    if not folder.is_dir():
        raise NoRuns(f"there are no runs of {study.name} in {shown(folder)}")
    store = Store.open(folder, writing=False)
    result = current_result(store)
    changes = changes_of(study, store.about.made, result)
    return _Runs(current_experiment(store), result, changes, 0.0)


def changes_of(study: Study, made: Mapping[str, Any], result: xr.Dataset) -> tuple[str, ...]:
    """Return how the runs in a folder differ from those of their study."""
    changes: list[str] = list(made.get("changes") or ())
    if missing := result.attrs["runs_missing"]:
        changes.append(f"{missing} of {result.attrs['runs']} runs are missing")
    return tuple(f"{study.name}: {change}" for change in changes)


def siblings(chosen: Sequence[Claim]) -> list[Claim]:
    """Return the other claims of the papers of some claims."""
    names = {claim.id for claim in chosen}
    of_papers = {name.partition("/")[0] for name in names}
    return [
        claim
        for name, claim in all_claims().items()
        if name not in names and name.partition("/")[0] in of_papers
    ]


def _studies(claim: Claim) -> list[Study]:
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


def judge(
    *patterns: str,
    folder: Folder = "runs",
    scale: str = "quick",
    readings: str = "default",
    device: str = "cpu",
    workers: int = 1,
) -> list[TimedVerdict]:
    """The verdicts on claims: a paper, an id or a glob each, as for `benign verify`.

    Runs that are missing in the folder are computed first. Printing a verdict shows it as text.

    >>> import tempfile
    >>> import benign as bo
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [judged] = bo.judge("jiang/D1.loss_derivative", folder=folder, scale="smoke")
    >>> judged.verdict.label
    'confirmed'
    >>> judged.verdict.claim.source
    'Lemma D.1'
    """

    def run(experiment: Experiment, place: Path, title: str) -> xr.Dataset:
        return experiment.run(place, device, workers)

    verifier, chosen = Verifier(scale, Path(folder), run), matching(patterns)
    verifier.freeze(chosen, readings)
    return [each for claim in chosen for each in verifier.judge(claim, readings)]


def verify(
    claims: Sequence[Claim],
    scale: str,
    which: str,
    device: str,
    workers: int | None,
    folder: Path,
    verbose: bool,
    no_run: bool = False,
    answers: Reading | None = None,
) -> bool:
    """Judge claims one after another, print each verdict at once and write all. Return whether none was an error."""
    config = ExecutionConfig(device=device, workers=workers)

    def run(experiment: Experiment, place: Path, title: str) -> xr.Dataset:
        if verbose:
            echo(title)
        with display_for(sys.stderr) as watcher, warnings.catch_warnings():
            warnings.simplefilter("ignore", RunsFailed)  # a statistic counts what it has
            return Runner(experiment, place, config).run(watcher)

    verifier, judged, files = Verifier(scale, folder, None if no_run else run), [], []
    verifier.freeze(claims, which, answers)
    for number, claim in enumerate(claims, 1):
        for each in verifier.judge(claim, which, answers):
            judged.append(each)
            files = write(
                judged, scale, folder / "verdicts"
            )  # at once: the next claim may take an hour
            echo(f"{number:{len(str(len(claims)))}}/{len(claims)} {verdict_text(each)}")
    echo(counts_text(judged))
    echo(f"verdicts: {', '.join(shown(file) for file in files)}")
    return not any(each.verdict.error for each in judged)


def claims_text(claims: Sequence[Claim]) -> str:
    """Return the claims, each with its statement and studies, and the number of those that cannot run here."""
    impossible = [claim for claim in claims if cannot(claim)]
    texts = [claim_text(claim, cannot(claim)) for claim in claims]
    count = f"{len(claims)} claims" + (
        f", {len(impossible)} of them cannot run here" if impossible else ""
    )
    return "\n".join([*texts, count])
