"""The program `benign`: joins the commands, handles global options and errors.

Exit codes: 0 fine (a diverged run is an outcome), 1 some runs failed, 2 bad input, 130 interrupted.
Results go to stdout; progress, warnings and errors, those of failed runs included, go to stderr.
"""

import errno
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benign import __version__
from benign.cli import claims, data, experiments, pages, store
from benign.cli.options import BAD_INPUT, FAILED, INTERRUPTED, OK, examples, path, shortened
from benign.spec import plugins
from benign.sweep.text import echo, print_error

# typer carries a click of its own, older versions use the package: this finds the class of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="benign",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (experiments, claims, pages, store, data):
    app.add_typer(commands.app)


def _print_version(wanted: bool) -> bool:
    if wanted:
        echo(f"benign {__version__}")
        raise typer.Exit(OK)
    return wanted


@app.callback(
    epilog=examples(
        "benign papers                      list the papers and their recipes",
        "benign show jiang/fig1             show what would be run, and for how long",
        "benign run jiang/fig1              compute and draw the figure, in about a minute",
        "benign run my.yaml --seeds 20      run an experiment of your own",
        "benign run own/fig1 --plugin own   run a paper of your own, in the folder own",
    ),
)
def benign(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    sources: Annotated[
        list[Path] | None,
        typer.Option("--plugin", parser=path, metavar="PATH", help=plugins.OPTION_HELP),
    ] = None,
) -> None:
    """A laboratory for the theory of benign overfitting under attack."""
    plugins.load_all([*plugins.named(), *(sources or [])])


def _usage(error: Any) -> str:
    """Return the error in a command line, and where to read about it."""
    command = error.ctx.command_path if error.ctx else "benign"
    return f"{error.format_message().rstrip('.')}: see `{command} --help`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print_error(str(message))
            words = plugins.in_front(arguments) or ["--help"]
            return app(words, prog_name="benign", standalone_mode=False) or OK
    except (UsageError, ValueError, OSError) as error:
        if not {"-v", "--verbose"}.isdisjoint(arguments):
            traceback.print_exc()
        if isinstance(error, OSError):
            print_error(
                f"{shortened(error.filename or 'input or output')}: {error.strerror or error}"
            )
            return BAD_INPUT if error.errno == errno.ENAMETOOLONG else FAILED
        print_error(_usage(error) if isinstance(error, UsageError) else str(error))
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
