"""The server of the live page: where it listens, how it begins and ends."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from benign.console import say, shown
from benign.live.guard import Guard, check_host
from benign.live.watch import Watch

FIRST_PORT, LAST_PORT = 8080, 8099
"""tried one after another where none is asked for"""


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    allow_remote: bool = False,
    open_browser: bool = False,
) -> None:
    """Show the sweeps below a folder until ctrl-c; nothing is written to it."""
    check_host(host, allow_remote)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder with sweeps, such as runs")
    ui, app = _nicegui()
    port = free_port(host, port)
    watch = Watch(folder)
    from benign.live.pages import lay_out

    lay_out(watch)
    app.add_middleware(Guard, host=host)
    app.on_startup(watch.start)
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    app.on_startup(_announcing(f"{where} shows the sweeps in {shown(folder)} (ctrl-c ends it)"))
    app.on_shutdown(watch.stop)
    logging.getLogger("nicegui").setLevel(logging.ERROR)  # a wrong address is no news
    with contextlib.suppress(KeyboardInterrupt):
        ui.run(
            host=host,
            port=port,
            title="benign",
            favicon="📈",
            dark=None,
            reload=False,
            show=open_browser,
            show_welcome_message=False,
            tailwind=False,
            binding_refresh_interval=None,
            uvicorn_logging_level="error",
        )
    say("ended: the sweeps go on without it")


def _announcing(line: str) -> Callable[[], Awaitable[None]]:
    """Say a line once the server listens: whoever reads it may ask at once."""
    from nicegui.server import Server

    async def announce() -> None:
        while not Server.instance.started:
            await asyncio.sleep(0.02)
        say(line)

    return announce


def free_port(host: str, wanted: int | None) -> int:
    """The port that was asked for, or the first that is free."""
    if wanted is not None and not 0 < wanted < 65536:
        raise ValueError(f"`--port` must be between 1 and 65535, got {wanted}")
    tried = range(FIRST_PORT, LAST_PORT + 1) if wanted is None else [wanted]
    for port in tried:
        if why := _taken(host, port):
            continue
        return port
    if wanted is None:
        raise ValueError(f"no port from {FIRST_PORT} to {LAST_PORT} is free: choose one by --port")
    raise ValueError(f"`--port` must be free on {host}, got {wanted} ({why}): choose another")


def _taken(host: str, port: int) -> str:
    """Why a port cannot be had; empty where it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return str(error)
    return ""


def _nicegui():
    """The library, imported when it is needed."""
    try:
        from nicegui import app, ui
    except ImportError as error:
        raise ValueError(
            f"`benign serve` needs nicegui ({error}): pip install 'benign[live]'"
        ) from error
    return ui, app
