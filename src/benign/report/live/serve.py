"""The server of the live page: where it listens, how it begins and ends."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from benign.report.live.address import announced, check, free_port
from benign.report.live.guard import Guard
from benign.report.live.watch import Watch
from benign.sweep.console import echo, shown


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    allow_remote: bool = False,
    open_browser: bool = False,
) -> None:
    """Show the sweeps below a folder until ctrl-c; nothing is written to it."""
    check(folder, host, port, allow_remote)
    ui, app = _nicegui()
    port = free_port(host, port)
    watch = Watch(folder)
    from benign.report.live.pages import lay_out

    lay_out(watch)
    app.add_middleware(Guard, host=host)
    app.on_startup(watch.start)
    app.on_startup(_announcing(announced(host, port, shown(folder))))
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
    echo("ended: the sweeps go on without it")


def _announcing(line: str) -> Callable[[], Awaitable[None]]:
    """Say a line once the server listens: whoever reads it may ask at once."""
    from nicegui.server import Server

    async def announce() -> None:
        while not Server.instance.started:
            await asyncio.sleep(0.02)
        echo(line)

    return announce


def _nicegui():
    """The library, imported when it is needed."""
    try:
        from nicegui import app, ui
    except ImportError as error:
        raise ValueError(
            f"`benign serve` needs nicegui ({error}): pip install 'benign[live]'"
        ) from error
    return ui, app
