"""The verifier: runs the studies of claims, each once, and judges the claims."""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from benign.claims.claim import Claim, Evidence
from benign.claims.family import families, family_text
from benign.claims.ladder import rungs_of
from benign.claims.measure import CONFIDENCE
from benign.claims.study import Reading, Study
from benign.claims.verdict import Verdict, cannot_run, judge_on
from benign.claims.verdict import judge as verdict_on
from benign.claims.verdict_text import TimedVerdict, claim_text, counts_text, verdict_text, write
from benign.experiment import Experiment, Folder
from benign.papers.frozen import Freezer, answered, cannot, readings_of, studies_of
from benign.papers.registry import matching
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.folders import current_experiment, current_result
from benign.sweep.results import RunsFailed
from benign.sweep.runner import Runner
from benign.sweep.store import Store
from benign.sweep.terminal import display_for
from benign.sweep.text import echo, shown
from benign.training.machine import FilesMissing

Run = Callable[[Experiment, Path, str], xr.Dataset]
"""runs an experiment in a folder, under a title"""


class NoRuns(ValueError):
    """There is nothing to judge by: no runs in the folder, or no files to make them with."""


class Verifier:
    """Judges claims at a scale; a study is run once for each reading, whichever claims need it.

    If it cannot run anything, it judges by the results in the folders, whatever their size.
    """

    def __init__(self, scale: str, folder: Path, run: Run | None, ladder: bool = False) -> None:
        """ladder: whether an inconclusive claim gets more seeds."""
        if ladder and run is None:
            raise ValueError("a ladder of seeds needs runs: leave out --no-run or --ladder")
        self.scale, self.run, self.freezer = scale, run, Freezer(scale, folder)
        self.ladder = ladder
        self._known: dict[tuple[Path, int], _Runs] = {}

    def judge(
        self, claim: Claim, which: str = "default", answers: Reading | None = None
    ) -> Iterable[TimedVerdict]:
        """The verdicts on a claim: one for each reading of what its studies leave open."""
        if reason := cannot(claim):
            yield TimedVerdict(cannot_run(claim, self.scale, reason), 0.0)
            return
        known = studies_of(claim)
        for reading in readings_of(known, which, answers):
            rules, frozen = self.freezer.of(claim, reading)
            own = [self.freezer.experiment(each, answered(each, reading)).seeds for each in known]
            rungs = rungs_of(claim, own) if self.ladder else ()
            try:
                if rungs:
                    verdict = judge_on(rungs, partial(self._judge, claim, reading))
                else:
                    verdict = self._judge(claim, reading)
            except NoRuns as error:
                yield TimedVerdict(cannot_run(claim, self.scale, str(error)), 0.0)
                continue
            if not verdict.error:
                self.freezer.judged(rules)
            if not rungs:
                frozen = replace(frozen, seeds=self._added(known, own, verdict))
            yield TimedVerdict(replace(verdict, frozen=frozen), self._seconds(known, verdict))

    def _judge(
        self, claim: Claim, reading: Reading, seeds: int = 0, confidence: float = CONFIDENCE
    ) -> Verdict:
        """Return the verdict on runs with at least these seeds."""
        runs = [self._run(study, reading, seeds) for study in studies_of(claim)]
        evidence = Evidence(
            self.scale,
            reading,
            tuple(each.result for each in runs),
            tuple(each.experiment for each in runs),
            tuple(word for each in runs for word in each.changes),
        )
        return verdict_on(claim, evidence, confidence)

    def _seconds(self, studies: Sequence[Study], verdict: Verdict) -> float:
        """Return the seconds that the runs of a verdict took, on all rungs."""
        reading, found = verdict.evidence.reading, verdict.evidence.experiments
        most = {
            self.freezer.runs(study, answered(study, reading)): experiment.seeds
            for study, experiment in zip(studies, found, strict=True)
        }
        return sum(
            runs.seconds
            for (folder, seeds), runs in self._known.items()
            if seeds <= most.get(folder, 0)
        )

    @staticmethod
    def _added(studies: Sequence[Study], own: Sequence[int], verdict: Verdict) -> tuple[str, ...]:
        """Return the studies that were judged on more seeds than they have, as found in their folders."""
        judged = zip(studies, own, verdict.evidence.experiments, strict=True)
        return tuple(
            f"{study.name} has {found.seeds} instead of {seeds}"
            for study, seeds, found in judged
            if found.seeds > seeds
        )

    def in_families(self, judged: Sequence[TimedVerdict]) -> list[TimedVerdict]:
        """Return verdicts with their places in the families of their papers."""
        verdicts = [each.verdict for each in judged]
        places = families(verdicts, self.freezer.sizes, self.freezer.whole)
        return [replace(each, family=place) for each, place in zip(judged, places, strict=True)]

    def _run(self, study: Study, reading: Reading, seeds: int) -> "_Runs":
        own = answered(study, reading)
        folder = self.freezer.runs(study, own)
        experiment = self.freezer.experiment(study, own)
        seeds = max(seeds, experiment.seeds)
        if (folder, seeds) not in self._known:
            if self.run is None:
                self._known[folder, seeds] = _found(study, folder)
            else:
                if seeds > experiment.seeds:
                    experiment = Experiment.from_dict({**experiment.as_dict(), "seeds": seeds})
                title = f"{study.name}, {self.scale} scale, reading {study.label(own)}"
                if self.ladder:
                    title += f", {seeds} seeds"
                began = time.perf_counter()
                try:
                    result = self.run(experiment, folder, title)
                except FilesMissing as error:
                    raise NoRuns(f"cannot run here: {error}") from error
                seconds = time.perf_counter() - began
                self._known[folder, seeds] = _Runs(experiment, result, (), seconds)
        return self._known[folder, seeds]


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


def judge(
    *patterns: str,
    folder: Folder = "runs",
    scale: str = "quick",
    readings: str = "default",
    device: str = "cpu",
    workers: int = 1,
    ladder: bool = False,
) -> list[TimedVerdict]:
    """The verdicts on claims: a paper, an id or a glob each, as for `benign verify`.

    Runs that are missing in the folder are computed first. With `ladder` an inconclusive claim gets more seeds.
    Printing a verdict shows it as text.

    >>> import tempfile
    >>> import benign as bo
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [judged] = bo.judge("jiang/D1.loss_derivative", folder=folder, scale="smoke")
    >>> judged.verdict.label
    'identity'
    >>> judged.verdict.claim.source
    'Lemma D.1'
    """

    def run(experiment: Experiment, place: Path, title: str) -> xr.Dataset:
        return experiment.run(place, device, workers)

    verifier, chosen = Verifier(scale, Path(folder), run, ladder), matching(patterns)
    verifier.freezer.freeze(chosen, readings, None)
    judged = [each for claim in chosen for each in verifier.judge(claim, readings)]
    return verifier.in_families(judged)


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
    ladder: bool = False,
) -> bool:
    """Judge claims one after another, print each verdict at once and write all. Return whether none was an error."""
    config = ExecutionConfig(device=device, workers=workers)

    def run(experiment: Experiment, place: Path, title: str) -> xr.Dataset:
        if verbose:
            echo(title)
        with display_for(sys.stderr) as watcher, warnings.catch_warnings():
            warnings.simplefilter("ignore", RunsFailed)  # a statistic counts what it has
            return Runner(experiment, place, config).run(watcher)

    verifier, judged, files = Verifier(scale, folder, None if no_run else run, ladder), [], []
    verifier.freezer.freeze(claims, which, answers)
    for number, claim in enumerate(claims, 1):
        for each in verifier.judge(claim, which, answers):
            judged.append(each)
            files = write(
                judged, scale, folder / "verdicts"
            )  # at once: the next claim may take an hour
            echo(f"{number:{len(str(len(claims)))}}/{len(claims)} {verdict_text(each)}")
    judged = verifier.in_families(judged)
    files = write(judged, scale, folder / "verdicts")
    echo(counts_text(judged))
    lines = family_text((each.verdict, each.family) for each in judged)
    for line in [*lines, *verifier.freezer.remarks()]:
        echo(line)
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
