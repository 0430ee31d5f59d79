"""Studies: an experiment at three scales, for each reading of what a paper leaves open."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benign.experiment import Experiment

SCALES = ("smoke", "quick", "paper")
"""seconds; about a minute on two cores; the size of the paper"""

Reading = dict[str, str]
"""an answer for every question of a study"""


def at(scale: str, smoke: Any, quick: Any, paper: Any) -> Any:
    """The one that belongs to the scale."""
    return {"smoke": smoke, "quick": quick, "paper": paper}[scale]


class StudyError(ValueError):
    """A study, scale or reading that is not there; the message lists what is."""


@dataclass(frozen=True)
class Question:
    """Something a paper leaves open, with its possible answers."""

    name: str
    """as in `--reading name=answer` and in `reading["name"]`"""
    asks: str
    """the question in words"""
    answers: dict[str, str]
    """what each answer means; the first one is the default"""
    reason: str
    """why the first one is the default"""

    @property
    def default(self) -> str:
        return next(iter(self.answers))


@dataclass(frozen=True, kw_only=True)
class Study:
    """Runs that claims are judged on: how to build their experiment."""

    name: str
    """`paper/name`, which is also where results go: runs/paper/name/scale/reading"""
    build: Callable[[str, Reading], Experiment]
    """makes the experiment of a scale and a reading: `build("quick", {"w_O": "divided"})`"""
    questions: tuple[Question, ...] = ()
    """what the paper leaves open; `build` gets an answer to each"""

    def reading(self, answers: Mapping[str, str] | None = None) -> Reading:
        """The default reading with some answers replaced."""
        chosen = {question.name: question.default for question in self.questions}
        for name, answer in (answers or {}).items():
            question = next((each for each in self.questions if each.name == name), None)
            if question is None:
                asked = ", ".join(chosen) or "nothing"
                raise StudyError(f"reading `{name}`: {self.name} asks {asked}")
            if answer not in question.answers:
                known = ", ".join(question.answers)
                raise StudyError(f"reading `{name}` must be one of {known}, got {answer!r}")
            chosen[name] = answer
        return chosen

    def readings(self, which: str) -> list[Reading]:
        """`default`, `all` (the default, then each other answer alone) or `product` (every combination)."""
        alone = [
            {q.name: answer} for q in self.questions for answer in q.answers if answer != q.default
        ]
        if which == "default":
            return [self.reading()]
        if which == "all":
            return [self.reading(answers) for answers in [{}, *alone]]
        if which == "product":
            names = [q.name for q in self.questions]
            return [
                dict(zip(names, mix, strict=True))
                for mix in itertools.product(*(q.answers for q in self.questions))
            ]
        raise StudyError(f"`readings` must be one of default, all, product, got {which!r}")

    def label(self, reading: Reading) -> str:
        """The answers that differ from the default, as a folder name: `default`, `w_O=divided`, ..."""
        told = [
            f"{q.name}={reading[q.name]}" for q in self.questions if reading[q.name] != q.default
        ]
        return ",".join(told) or "default"

    def experiment(self, scale: str, reading: Reading | None = None) -> Experiment:
        if scale not in SCALES:
            raise StudyError(f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}")
        return self.build(scale, reading or self.reading())
