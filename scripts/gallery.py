"""The gallery's pictures and pages.

python scripts/gallery.py add FOLDER [--name NAME] [--seconds S] [--host TEXT]: add the picture of a folder of results
python scripts/gallery.py verdicts FILE...: add verdicts that `benign verify` wrote
python scripts/gallery.py index: write README.md, the gallery and pages of docs/ again; `make gallery`

Pages take measured numbers from stored files by placeholders: showcase/values.py lists them.
"""

from pathlib import Path
from typing import Annotated

import typer
from showcase import made, pages, verdicts

GALLERY = Path(__file__).parents[1] / "gallery"
app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def add(
    folders: Annotated[list[Path], typer.Argument(help="folders of results, made by benign run")],
    name: Annotated[str, typer.Option(help="of the picture; figure and reading if not given")] = "",
    seconds: Annotated[float | None, typer.Option(help="that the whole command took")] = None,
    host: Annotated[str, typer.Option(help="the machine, in words")] = "",
) -> None:
    """Draw folders of results again and add their pictures, numbers and origin."""
    for folder in folders:
        typer.echo(f"gallery/{made.add(GALLERY, folder, name, seconds, host)}.png")
    _write()


@app.command("verdicts")
def add_verdicts(files: Annotated[list[Path], typer.Argument(help="verdicts.json, each")]) -> None:
    """Add verdicts; for a claim and reading the one of the larger scale is kept."""
    added, ignored = verdicts.merge(GALLERY, files)
    typer.echo(f"{added} verdicts added, {ignored} ignored")
    _write()


@app.command()
def index() -> None:
    """Write README.md, pages of docs/ with numbers, the gallery's pages and badges again."""
    _write()


def _write() -> None:
    """Write all pages; exit with 1 if a placeholder has no number, after everything else is written."""
    if problems := pages.write(GALLERY):
        typer.echo("no number for these placeholders:\n  " + "\n  ".join(problems), err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
