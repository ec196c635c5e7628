"""`graphveil serve`: each node's own prediction over HTTP, for whoever holds that node's token."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from graphveil.cli.options import RunPath
from graphveil.errors import GraphveilError, InvalidInput

_NEEDED = ("fastapi", "uvicorn", "httptools")


def serve(
    run: RunPath,
    host: Annotated[
        str, typer.Option(help="Address to listen on; anything but loopback needs TLS in front.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log requests, without tokens and names.")] = False,
) -> None:
    """Serve predictions over HTTP, each node's own, until Ctrl-C.

    Whoever asks needs a token of `graphveil tokens`.

    Example: graphveil serve runs/first --port 8080
    """
    if not 0 <= port <= 65535:
        raise InvalidInput("port", port, "must lie between 0 and 65535")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise GraphveilError(f"graphveil serve needs {', '.join(missing)}: pip install 'graphveil[serve]'")
    from graphveil.serve.server import address_of, app_of, bind, is_loopback, serve_until_told

    with bind(host, port) as bound:
        app = app_of(run)
        if not is_loopback(bound):
            typer.echo(f"warning: tokens travel in clear, and {host} is not loopback: put TLS in front", err=True)
        typer.echo(f"serving {run} on {address_of(bound)} until Ctrl-C")
        serve_until_told(app, bound, access_log=access_log)
