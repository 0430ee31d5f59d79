"""The registry of papers, with the recipes and claims of each.

Every paper comes in through `register`: those of this package (`OWN`), installed packages that have an entry point of
the group `benign.papers`, and files and folders of a user's own (`benign.spec.plugins` loads both). Modules are
imported when something of them is needed: names of papers import no figures, recipes import no claims.
"""

import fnmatch
import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from benign.claims.claim import Claim
from benign.claims.study import Study, StudyError
from benign.papers.recipes import Recipe
from benign.spec import plugins

OWN = ("compare", "jiang", "li", "wang", "zhang")
"""the papers of this package: a fixed list, so that they are found when only `src` is on Python's path"""

T = TypeVar("T")


@dataclass(frozen=True)
class Paper:
    """A paper: its name, its title, and the modules that hold its recipes and claims."""

    name: str
    """recipes are called `name/figure`, claims `name/statement.aspect`"""
    title: str
    """authors, title and year in a line"""
    figures: str
    """the module with the list `RECIPES`"""
    claims: str
    """the module with the list `CLAIMS`, if there is one"""
    plugin: Path | str | None = None
    """the file or folder of the user's, or the module of the installed package, that the paper comes from"""

    @classmethod
    def of(cls, module: ModuleType, plugin: Path | str | None = None) -> "Paper":
        """Return the paper that a package or a file holds; the first line of its docstring is the title.

        `RECIPES` is in the file or in the package's `figures`, `CLAIMS` in the package's `claims` or next to `RECIPES`.
        """
        name = module.__name__
        short = name.rpartition(".")[2]
        title = (module.__doc__ or short).strip().partition("\n")[0]
        figures = name if hasattr(module, "RECIPES") else f"{name}.figures"
        claims = f"{name}.claims"
        if not hasattr(module, "__path__") or importlib.util.find_spec(claims) is None:
            claims = figures
        return cls(short, title, figures, claims, plugin)

    @property
    def origin(self) -> str:
        """Where the paper comes from, for messages."""
        return self.figures if self.plugin is None else plugins.origin(self.plugin)

    def read_recipes(self) -> list[Recipe]:
        """Import the figures and return the recipes; raise if one lacks a part or is not called after the paper."""
        recipes = importlib.import_module(self.figures).RECIPES
        for recipe in recipes:
            recipe.check()
        return [self._own("recipe", recipe.name, recipe) for recipe in recipes]

    def read_claims(self) -> list[Claim]:
        """Import the claims and return them; raise if one is not called after the paper, or if two have one id."""
        claims = list(getattr(importlib.import_module(self.claims), "CLAIMS", ()))
        ids = [claim.id for claim in claims]
        if twice := {name for name in ids if ids.count(name) > 1}:
            raise StudyError(f"there are two claims {min(twice)!r}")
        return [self._own("claim", claim.id, claim) for claim in claims]

    def _own(self, kind: str, name: str, value: T) -> T:
        if name.partition("/")[0] != self.name:
            raise StudyError(f"{kind} {name!r} must be called `{self.name}/...`, as its paper is")
        return value


_papers: dict[str, Paper] = {}


def register(paper: Paper) -> None:
    """Add a paper to the registry; raise if another paper has its name."""
    known = _papers.setdefault(paper.name, paper)
    if known.figures != paper.figures:
        raise StudyError(
            f"{paper.origin}: rename it, there is a paper {paper.name!r} already, in {known.origin}"
        )


for _name in OWN:
    register(Paper.of(importlib.import_module(f"benign.papers.{_name}")))


def papers() -> dict[str, Paper]:
    """Return every paper by name: those of this package, then plugins."""
    plugins.load_installed()
    for plugin, module in plugins.papers().items():
        paper = Paper.of(module, plugin)
        _unless_broken(paper, lambda paper=paper: [register(paper)])
    return dict(_papers)


def recipes() -> dict[str, Recipe]:
    """Return every recipe by name."""
    return {
        recipe.name: recipe
        for paper in papers().values()
        for recipe in _unless_broken(paper, paper.read_recipes)
    }


def recipe(name: str) -> Recipe:
    """Return a recipe by its name, such as `jiang/fig1`.

    >>> import benign as bo
    >>> chosen = bo.recipe("jiang/fig1")
    >>> chosen.label(chosen.reading({"w_O": "divided"}))
    'w_O=divided'
    >>> chosen.experiment("smoke").network.hidden
    16
    """
    known = recipes()
    if name not in known:
        raise StudyError(f"no recipe {name!r}: choose one of {', '.join(sorted(known))}")
    return known[name]


def claims() -> dict[str, Claim]:
    """Return every claim by id."""
    return {
        claim.id: claim
        for paper in papers().values()
        for claim in _unless_broken(paper, paper.read_claims)
    }


def _unless_broken(paper: Paper, read: Callable[[], list[T]]) -> list[T]:
    """Return what is read; of an installed package that fails, nothing: a warning names the package and the remedy."""
    try:
        return read()
    except Exception as error:
        if paper.plugin is None or (
            isinstance(error, StudyError) and isinstance(paper.plugin, Path)
        ):
            raise
        if isinstance(paper.plugin, Path):
            raise StudyError(f"{paper.origin}: {type(error).__name__}: {error}") from error
        plugins.warn_of(paper.plugin, error)
        if _papers.get(paper.name) == paper:
            del _papers[paper.name]
        return []


def matching(patterns: Sequence[str]) -> list[Claim]:
    """Return the claims that one of the patterns names: a paper, an id, or a glob such as `zhang/lem*`.

    Without patterns, return all claims.
    """
    known = claims()
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in known):
            hint = plugins.loading_hint(pattern.rstrip("/"))
            hint = hint or plugins.loading_hint(os.path.dirname(pattern))
            raise StudyError(
                f"no claim matches {pattern!r}: name a paper ({', '.join(papers())}), "
                f"an id such as {next(iter(known))} or a glob; `benign verify --list` shows all{hint}"
            )
    return [
        claim
        for name, claim in known.items()
        if not patterns or any(_matches(name, pattern) for pattern in patterns)
    ]


def study_of(need: Study | str) -> Study | None:
    """Return a study; for a name the recipe of that name, or None if there is no such recipe."""
    return need if isinstance(need, Study) else recipes().get(need)


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(f"{pattern.rstrip('/')}/")
