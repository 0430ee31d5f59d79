"""What a shell offers when Tab is pressed: names of recipes, readings, claims and image sets, folders of results.

It must answer at once, so nothing here imports torch. The names of the package are kept in `completion.json`, which
`python scripts/completion_names.py` writes; a test says when it is out of date. Recipes of a user's own are not in it.
"""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import typer

from benign.data.folder import data_folder

NAMES = Path(__file__).with_name("completion.json")
PATIENCE = 0.1
"""seconds to look for folders of results"""


def words(*known: str) -> Callable[[str], list[str]]:
    """Offers a few words."""
    return lambda incomplete: [word for word in known if word.startswith(incomplete)]


def scales(incomplete: str) -> list[str]:
    return words(*_names()["scales"])(incomplete)


def image_sets(incomplete: str) -> list[str]:
    """Known sets, and files of one's own in the folder of data."""
    own = sorted(file.stem for file in data_folder().glob("[!.]*.npz"))
    return words(*dict.fromkeys([*_names()["image_sets"], *own]))(incomplete)


def recipes(incomplete: str) -> list[tuple[str, str]]:
    """Recipes with their titles, which some shells show beside."""
    known = _names()["recipes"].items()
    return [(name, told["title"]) for name, told in known if name.startswith(incomplete)]


def papers(incomplete: str) -> list[tuple[str, str]]:
    """Papers and recipes."""
    papers = {name.partition("/")[0] for name in _names()["recipes"]}
    return [(room, "a paper") for room in sorted(papers) if room.startswith(incomplete)] + recipes(
        incomplete
    )


def claims(incomplete: str) -> list[str]:
    """Papers and claims."""
    known = _names()["claims"]
    papers = sorted({name.partition("/")[0] for name in known})
    return words(*papers, *known)(incomplete)


def targets(incomplete: str) -> list[tuple[str, str]]:
    """Whatever can be run: recipes, files and folders of results."""
    here = Path(os.path.dirname(incomplete) or os.curdir)
    files = [str(file) for kind in ("yaml", "yml") for file in sorted(here.glob(f"*.{kind}"))]
    found = [(file, "an experiment") for file in words(*files)(incomplete)]
    stores = [(folder, "results") for folder in folders(incomplete)]
    return recipes(incomplete) + found + stores


def readings(ctx: typer.Context, incomplete: str) -> list[str]:
    """`question=answer`, of the recipe or the paper that is named before."""
    told = [ctx.params.get("target"), ctx.params.get("pattern"), *ctx.args]  # args: not yet sorted
    named = next(filter(None, told), "")
    answers = {
        f"{question}={answer}": None
        for name, told in _names()["recipes"].items()
        if name == named or named in ("", name.partition("/")[0])
        for question, known in told["questions"].items()
        for answer in known
    }
    return words(*answers)(incomplete)


def folders(incomplete: str) -> list[str]:
    """Folders of results whose path begins so."""
    begin = os.path.dirname(incomplete)
    return [path for path in _stores(begin) if path.startswith(incomplete)]


def _stores(begin: str) -> Iterator[str]:
    """Those below a folder, near ones first, as far as a moment suffices."""
    deadline, waiting = time.monotonic() + PATIENCE, deque([begin])
    while waiting and time.monotonic() < deadline:
        folder = waiting.popleft()
        if folder != begin and os.path.isfile(os.path.join(folder, "experiment.json")):
            yield folder
            continue
        with suppress(OSError), os.scandir(folder or os.curdir) as entries:
            below = [
                each.name for each in entries if each.is_dir() and not each.name.startswith(".")
            ]
            waiting += [os.path.join(folder, name) for name in sorted(below)]


@cache
def _names() -> dict[str, Any]:
    return json.loads(NAMES.read_text(encoding="utf-8"))


def asked_by_bash() -> bool:
    return os.environ.get("_BENIGN_COMPLETE") == "complete_bash"


def answer_bash(answer: Callable[[], Any]) -> int:
    """Answer a question of bash, which takes `w_O=div` for three words and wants the last one completed."""
    typed, place = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    before, joined = typed[:place], "".join(typed[place : place + 1])
    while before and (joined.startswith("=") or before[-1] == "="):
        joined = before.pop() + joined
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = (
        "\n".join([*before, joined]),
        str(len(before)),
    )
    told = StringIO()
    with suppress(SystemExit), redirect_stdout(told):
        answer()
    kept = joined.rpartition("=")[0] + "=" if "=" in joined else ""
    print("\n".join(line.removeprefix(kept) for line in told.getvalue().splitlines()))
    return 0
