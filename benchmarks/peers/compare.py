"""All contestants on the same problems, in turn."""

import statistics
from typing import Any

import torch

from benchmarks.peers.machine import uses_own_time
from benchmarks.peers.problems import FIGURES, Problem
from benchmarks.peers.report import Row, compared
from benchmarks.peers.workers import Failed, Team

ROUNDS, STEPS = 4, 5
"""rounds in which the contestants take turns, and training steps of each: 20 in all"""
SIZES = ("small", "middle", "full")
DOUBLED = ("runs", "samples", "dim", "width")
FEW = 4
"""runs of the small problems on which agreement is checked"""
TOLERANCE = 1e-3
"""relative difference of losses in float32; the tests compare float64 more closely"""

Answers = dict[str, list[dict[str, Any]]]
"""the answers of the processes of each contestant"""


class Bench:
    """Run every problem of a figure with every team."""

    def __init__(self, teams: list[Team], device: str, cores: int, peak: float):
        self.teams, self.device, self.peak = teams, device, peak
        self.clock = "own_seconds" if uses_own_time(device, cores) else "seconds"

    def figure(self, name: str, sizes: list[str]) -> list[Row]:
        """Return rows of the sample sizes; for the small size also rows with one number doubled."""
        samples: dict[str, int] = dict(zip(SIZES, FIGURES[name].samples, strict=True))
        teams = self._check(name)
        problems = [Problem.of(name, samples[size]) for size in sizes]
        batches = {key: self._batch(team, problems[0]) for key, team in teams.items()}
        found = [self._compare(problem, teams, batches, ROUNDS) for problem in problems]
        if "small" in sizes:
            small = sizes.index("small")
            found += self._grown(problems[small], teams, batches, found[small])
        return [row for rows in found for row in rows]

    def quickly(self, name: str) -> list[Row]:
        """Return rows of a few runs of a small network: a check that everything works, not of its speed."""
        teams = self._check(name)
        return self._compare(Problem.of(name, 6, "smoke"), teams, dict.fromkeys(teams, FEW), 1)

    def _check(self, name: str) -> dict[str, Team]:
        """Return the participating contestants by name, after a check that they compute the same."""
        ambient = [team for team in self.teams if team.contestant.coordinates == "ambient"]
        chosen = self.teams if FIGURES[name].exact else ambient
        teams = {team.contestant.name: team for team in chosen}
        agree(Problem.of(name, 6, "smoke"), teams)
        return teams

    def _grown(
        self, problem: Problem, teams: dict[str, Team], batches: dict[str, int], rows: list[Row]
    ) -> list[list[Row]]:
        """Return rows of a problem with one number doubled, with their times divided by those of the problem itself."""
        before, found = {row.name: row.seconds_a_run_step for row in rows}, []
        for doubled in DOUBLED:
            more = {key: batch * (1 + (doubled == "runs")) for key, batch in batches.items()}
            extend_history = self._compare(problem.twice(doubled), teams, more, 1)
            for row in extend_history:
                row.growth = row.seconds_a_run_step / before[row.name]
            found.append(extend_history)
        return found

    def _batch(self, team: Team, problem: Problem) -> int:
        """Return how many runs a contestant trains at once: one in a loop; the fastest number for vmap and JAX."""
        figure, runner = FIGURES[problem.figure], team.contestant.runner
        if runner == "loop":
            return 1
        if runner == "benign":
            return figure.runs[self.device]
        tried = figure.peer_runs[self.device]
        if len(tried) == 1:
            return tried[0]
        return min(tried, key=lambda runs: self._trial(team, problem, runs))

    def _trial(self, team: Team, problem: Problem, runs: int) -> float:
        team.prepare(problem, runs)
        return team.advance(STEPS)[0][self.clock] / runs

    def _compare(
        self,
        problem: Problem,
        teams: dict[str, Team],
        batches: dict[str, int],
        batches_per_epoch: int,
    ) -> list[Row]:
        started: Answers = {}
        for name, team in teams.items():
            try:
                started[name] = team.prepare(problem, batches[name])
            except Failed as error:
                print(f"{problem.figure}: no row for {name}.\n{error}")
        times: dict[str, list[float]] = {name: [] for name in started}
        for _ in range(batches_per_epoch):
            for name, seconds in times.items():
                slowest = max(answer[self.clock] for answer in teams[name].advance(STEPS))
                seconds.append(slowest / STEPS / batches[name])
        rows = [self._row(problem, name, batches[name], started, times[name]) for name in started]
        for row in compared(rows):
            print(row.figure, row.shape, row.name, f"{row.seconds_a_run_step:.3g} s", flush=True)
        return rows

    def _row(
        self, problem: Problem, name: str, batch: int, started: Answers, times: list[float]
    ) -> Row:
        parts, best = started[name], min(times)
        counted = parts if name.startswith("benign") else started["loop"]
        operations = counted[0]["operations"]
        memory = [part["memory"] for part in parts]
        return Row(
            figure=problem.figure,
            name=name,
            shape=shape(problem),
            batch=batch,
            seconds_a_run_step=best,
            median_seconds=statistics.median(times),
            run_steps_a_second=1 / best,
            operations=operations,
            fraction_of_peak=operations / best / self.peak,
            peak_memory=None if None in memory else sum(memory),
            start_seconds=max(part["start_seconds"] for part in parts),
            first_step_seconds=max(part["first_step_seconds"] for part in parts),
            doubled=problem.doubled,
        )


def shape(problem: Problem) -> dict[str, int]:
    data, network = problem.cell.data, problem.cell.network
    width = getattr(network, FIGURES[problem.figure].width)
    return {"samples": data.samples, "tokens": data.tokens, "dim": data.dim, "width": width}


def agree(problem: Problem, teams: dict[str, Team]) -> None:
    """Raise if the contestants differ in the losses of a few runs after some steps."""
    found = {}
    for name, team in teams.items():
        team.prepare(problem, FEW)
        answers = team.advance(STEPS)
        found[name] = torch.tensor([loss for answer in answers for loss in answer["losses"]])
    for name, losses in found.items():
        if not torch.allclose(losses, found["loop"], rtol=TOLERANCE):
            raise SystemExit(
                f"{problem.figure}: {name} and the loop compute different things: {found}"
            )
