"""The command line: its list of commands, and the place that turns errors into one line and exit code 2."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from graphveil import __version__
from graphveil.cli.experiments import bench, report
from graphveil.cli.graphs import datasets, init, shard
from graphveil.cli.guarantee import audit, ledger, plan, verify
from graphveil.cli.options import AsJson
from graphveil.cli.predictions import predict, serve, tokens
from graphveil.cli.train import train
from graphveil.errors import GraphveilError, InvalidInput


def docs(
    page: Annotated[str | None, typer.Argument(help="A page, such as theory; without it, the list of pages.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a page of the documentation, or the list of pages.

    Certificates cite docs/theory.md: its text comes with every installation.

    Example: graphveil docs theory
    """
    pages = {file.stem: file for file in sorted(_pages_folder().glob("*.md"))}
    if page is None:
        titles = {name: _title(file) for name, file in pages.items()}
        lines = (f"{name:12} {title}" for name, title in titles.items())
        typer.echo(json.dumps(titles, indent=2) if as_json else "\n".join(lines))
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise InvalidInput("page", page, f"must be one of {', '.join(pages)}")
    text = pages[name].read_text(encoding="utf-8")
    typer.echo(json.dumps({"page": name, "text": text}, indent=2) if as_json else text, nl=as_json)


def _pages_folder() -> Path:
    """The pages in an installed package, or those of the source tree that it runs from."""
    package = Path(__file__).parents[1]
    for place in (package / "docs", package.parents[1] / "docs"):
        if (place / "theory.md").is_file():
            return place
    raise InvalidInput("docs", str(package / "docs"), "the pages are missing; install graphveil again")


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("# ").strip()


app = typer.Typer(
    name="graphveil",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (train, init, shard, predict, serve, tokens, plan, ledger, audit, verify, bench, report, datasets, docs):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphveil {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train node classifiers on private graphs, with a certificate of what was spent."""


def main() -> None:
    """Entry point of the `graphveil` command: bad input is one line on stderr and exit code 2."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="graphveil", standalone_mode=False)
        sys.stdout.flush()  # so that a full disk is reported below, in one line
        sys.exit(code)
    except InvalidInput as error:
        in_a_file = error.field.startswith("graph.json")
        _fail(str(error) if in_a_file else str(error).removesuffix(error.why) + _by_options(error.why))
    except GraphveilError as error:
        _fail(str(error))
    except typer.Abort:
        _end(130)
    except BrokenPipeError:  # the reader of a pipe, as in `| head`, has ended
        _end(1)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    except MemoryError as error:
        _fail(f"not enough memory: {error or 'the numbers asked for are too large for this machine'}")
    except Exception as error:
        # Errors of the option parser have a message for users. Any other exception is a bug and keeps its traceback.
        if not hasattr(error, "format_message"):
            raise
        _fail(error.format_message() + _given(error))


def _given(error: Exception) -> str:
    """The value that the option parser could not read, which its message leaves out."""
    options = getattr(getattr(error, "param", None), "opts", [])
    for option, value in pairwise(sys.argv):
        if option in options:
            return f" (given: {value!r})"
    return ""


def _by_options(advice: str) -> str:
    """Advice that names arguments, such as cap_degrees=True, with the options of the command that was given."""
    command = getattr(typer.main.get_command(app), "commands", {}).get(sys.argv[1] if len(sys.argv) > 1 else "")
    for given in getattr(command, "params", ()):
        if given.opts[0].startswith("--") and "_" in given.name:
            argument = rf"\b{given.name}(?:=True)?(?: \({given.opts[0]}( [^)]*)?\))?(?![\w=])"
            advice = re.sub(argument, rf"{given.opts[0]}\1", advice)
    return advice


def _fail(message: str) -> None:
    with suppress(OSError):
        print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    _end(2)


def _end(code: int) -> NoReturn:
    """End without Python's own message about output that cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
