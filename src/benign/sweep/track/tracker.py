"""What every tracker can do: tell which runs it has, and take one more."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from benign.sweep.track.log import RunLog


class Tracker(ABC):
    """A place where runs are logged, for one experiment."""

    needs: ClassVar[tuple[str, ...]]
    """packages that it imports"""
    form: ClassVar[str]
    """how its place is written"""

    def __init__(self, place: str, experiment: str) -> None:
        """`experiment` is the name under which people find the runs."""
        self.place, self.experiment = place, experiment

    @classmethod
    @abstractmethod
    def check(cls, place: str) -> None:
        """Refuse a place that cannot be one, before any work."""

    @abstractmethod
    def look(self) -> str:
        """The command that shows what is there."""

    @abstractmethod
    def known(self) -> dict[str, str]:
        """The content of every run that is there whole, by its key."""

    @abstractmethod
    def write(self, run: RunLog) -> None:
        """Log a run, in place of what there is of it."""

    def sync(self, runs: Iterable[RunLog]) -> int:
        """Log the runs that are not there as they are; returns their number."""
        there = self.known()
        new = [run for run in runs if there.get(run.key) != run.content]
        for run in new:
            self.write(run)
        return len(new)

    @classmethod
    def check_packages(cls, name: str) -> None:
        """Refuse to begin where a package is missing."""
        if lacking := [package for package in cls.needs if find_spec(package) is None]:
            raise ValueError(
                f"tracking by {name} needs {' and '.join(lacking)}: pip install 'benign[track]'"
            )


def check_folder(folder: str) -> None:
    """Refuse what is there and is no folder."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"{folder} is a file: name a folder")
