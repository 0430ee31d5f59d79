"""Every claim of every paper, by id."""

import fnmatch
import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from types import ModuleType

from benign.claims.claim import Claim
from benign.claims.study import Study, StudyError
from benign.papers.recipes import papers, recipes
from benign.spec import plugins as outside


def claims() -> dict[str, Claim]:
    """Each paper's room holds a module `claims`, or a room from outside its `figures`, with a list `CLAIMS`."""
    found: dict[str, Claim] = {}
    for name, room in papers().items():
        for claim in _claims_of(room):
            if claim.id.partition("/")[0] != name:
                raise StudyError(f"claim {claim.id!r} must be called `{name}/...`, as its room is")
            if claim.id in found:
                raise StudyError(f"there are two claims {claim.id!r}")
            found[claim.id] = claim
    return found


def matching(patterns: Sequence[str]) -> list[Claim]:
    """The claims that one of the patterns names: a paper, an id, or a glob such as `zhang/lem*`; none is all."""
    known = claims()
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in known):
            raise StudyError(
                f"no claim matches {pattern!r}: name a paper ({', '.join(papers())}), "
                f"an id such as {next(iter(known))} or a glob; `benign verify --list` shows all"
            )
    return [
        claim
        for name, claim in known.items()
        if not patterns or any(_matches(name, pattern) for pattern in patterns)
    ]


def study_of(need: Study | str) -> Study | None:
    """A study; of a recipe that is named, and None where there is none of that name yet."""
    return need if isinstance(need, Study) else recipes().get(need)


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(f"{pattern.rstrip('/')}/")


def _claims_of(room: ModuleType) -> Iterable[Claim]:
    home = f"{room.__name__}.claims"
    if hasattr(room, "__path__") and importlib.util.find_spec(home):
        return importlib.import_module(home).CLAIMS
    return getattr(outside.figures(room), "CLAIMS", ())
