"""Studies: an experiment at three scales, for each reading of a paper's open questions."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from benign.experiment import Experiment

T = TypeVar("T")

SCALES = ("smoke", "quick", "paper")
"""seconds; about a minute on two cores; the size of the paper"""

Reading = dict[str, str]
"""an answer to each question of a study"""


@dataclass(frozen=True)
class Scaled(Generic[T]):
    """One value for each scale: by keyword for tuples and objects, in order for single numbers.

    >>> Scaled(smoke=32, quick=256, paper=1024)["quick"]
    256
    """

    smoke: T
    """for seconds"""
    quick: T
    """for about a minute on two cores"""
    paper: T
    """the size of the paper"""

    def __getitem__(self, scale: str) -> T:
        return {"smoke": self.smoke, "quick": self.quick, "paper": self.paper}[scale]


class StudyError(ValueError):
    """An unknown study, scale or reading; the message lists the known ones."""


@dataclass(frozen=True)
class Question:
    """A question that a paper leaves open, with the possible answers."""

    name: str
    """used in `--reading name=answer` and `reading["name"]`"""
    asks: str
    """the question in words"""
    answers: dict[str, str]
    """what each answer means; the first one is the default"""
    reason: str
    """why the first one is the default"""

    @property
    def default(self) -> str:
        return next(iter(self.answers))


@dataclass(kw_only=True, eq=False)
class Study:
    """The runs on which claims are judged: how to build their experiment."""

    name: str
    """`paper/name`; results go to the folder runs/paper/name/scale/reading"""
    build: Callable[[str, Reading], Experiment]
    """returns the experiment of a scale and a reading: `build("quick", {"w_O": "divided"})`"""
    questions: tuple[Question, ...] = ()
    """open questions of the paper; `build` gets an answer to each"""

    def reading(self, answers: Mapping[str, str] | None = None) -> Reading:
        """Return the default reading with some answers replaced."""
        questions = {question.name: question for question in self.questions}
        chosen = {name: question.default for name, question in questions.items()}
        for name, answer in (answers or {}).items():
            question = questions.get(name)
            if question is None:
                known = ", ".join(questions) or "no question"
                raise StudyError(f"reading `{name}`: {self.name} has {known}")
            if answer not in question.answers:
                known = ", ".join(question.answers)
                raise StudyError(f"reading `{name}` must be one of {known}, got {answer!r}")
            chosen[name] = answer
        return chosen

    def readings(self, which: str) -> list[Reading]:
        """Return several readings.

        which: `default`; `all`, the default and then each other answer alone; or `product`, every combination.
        """
        single_changes = [
            {q.name: answer} for q in self.questions for answer in q.answers if answer != q.default
        ]
        if which == "default":
            return [self.reading()]
        if which == "all":
            return [self.reading(answers) for answers in [{}, *single_changes]]
        if which == "product":
            names = [q.name for q in self.questions]
            return [
                dict(zip(names, answers, strict=True))
                for answers in itertools.product(*(q.answers for q in self.questions))
            ]
        raise StudyError(f"`readings` must be one of default, all, product, got {which!r}")

    def label(self, reading: Reading) -> str:
        """Return the answers that differ from the default, as the name of a folder: `default`, `w_O=divided`, ..."""
        changed = [
            f"{q.name}={reading[q.name]}" for q in self.questions if reading[q.name] != q.default
        ]
        return ",".join(changed) or "default"

    def experiment(self, scale: str, reading: Reading | None = None) -> Experiment:
        if scale not in SCALES:
            raise StudyError(f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}")
        return self.build(scale, reading or self.reading())
