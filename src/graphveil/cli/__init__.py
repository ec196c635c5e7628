"""The command line: one file per command, one place that turns errors into one line and exit code 2."""

from __future__ import annotations

import sys
from itertools import pairwise

import typer

from graphveil.cli.audit import audit
from graphveil.cli.bench import bench
from graphveil.cli.datasets import datasets
from graphveil.cli.plan import plan
from graphveil.cli.predict import predict
from graphveil.cli.report import report
from graphveil.cli.serve import serve
from graphveil.cli.shard import shard
from graphveil.cli.tokens import tokens
from graphveil.cli.train import train
from graphveil.cli.verify import verify
from graphveil.errors import GraphveilError

app = typer.Typer(
    name="graphveil",
    help="Train node classifiers on private graphs, with a certificate of what was spent.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (train, shard, predict, serve, tokens, plan, audit, verify, bench, report, datasets):
    app.command()(command)


@app.callback()
def root() -> None:
    """Train node classifiers on private graphs, with a certificate of what was spent."""


def main() -> None:
    """Entry point of the `graphveil` command: bad input is one line on stderr and exit code 2."""
    try:
        sys.exit(app(standalone_mode=False))
    except GraphveilError as error:
        _fail(str(error))
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        # The option parser's own errors; anything without a user's message is a bug and keeps its traceback.
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


def _fail(message: str) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
