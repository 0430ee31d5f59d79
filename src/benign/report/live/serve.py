"""The server of the live page: where it listens, how it begins and ends."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benign.sweep.text import echo, shown


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
    from benign.report.live.monitor import SweepMonitor
    from benign.report.live.pages import lay_out  # it needs nicegui

    monitor = SweepMonitor(folder)

    lay_out(monitor)
    app.add_middleware(Guard, host=host)
    app.on_startup(monitor.start)
    app.on_startup(_announcing(announced(host, port, shown(folder))))
    app.on_shutdown(monitor.stop)
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


FIRST_PORT, LAST_PORT = 8080, 8099
"""tried one after another where none is asked for"""
EVERYWHERE = ("0.0.0.0", "::", "")
"""hosts that are no address to open but stand for all of this machine"""


def check(folder: Path, host: str, port: int | None, allow_remote: bool) -> None:
    """Refuse what cannot be served."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder with sweeps, such as runs")
    check_host(host, allow_remote)
    if port is not None:
        free_port(host, port)


def free_port(host: str, wanted: int | None) -> int:
    """The port that was asked for, or the first that is free."""
    if wanted is not None and not 0 < wanted < 65536:
        raise ValueError(f"`--port` must be between 1 and 65535, got {wanted}")
    why = ""
    tried = range(FIRST_PORT, LAST_PORT + 1) if wanted is None else [wanted]
    for port in tried:
        if why := _taken(host, port):
            continue
        return port
    if wanted is None:
        raise ValueError(f"no port from {FIRST_PORT} to {LAST_PORT} is free: choose one by --port")
    raise ValueError(f"`--port` must be free on {host}, got {wanted} ({why}): choose another")


def announced(host: str, port: int, folder: str) -> str:
    """What is said once the page is there: an address that can be opened, and who can open it."""
    name = socket.gethostname() if host in EVERYWHERE else host
    where = f"http://{f'[{name}]' if ':' in name else name}:{port}"
    told = f"{where} shows the sweeps in {folder} (ctrl-c ends it)"
    if is_loopback(host):
        return told
    return f"{told}\neverybody who reaches this machine can see them, without a password"


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


POLICY = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'none'"
"""what the page may load: nothing from elsewhere (nicegui needs scripts inside the page)"""


def is_loopback(host: str) -> bool:
    """Whether a name or an address is that of this machine for itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, allow_remote: bool) -> None:
    """Refuse to be reached from other machines unless that was asked for."""
    if not is_loopback(host) and not allow_remote:
        raise ValueError(
            f"`--host` must be of this machine alone (127.0.0.1, localhost), got {host!r}: whoever reaches it sees "
            "every sweep in the folder, without a password. Use `ssh -L 8080:localhost:8080 HERE` from elsewhere, or "
            "add --allow-remote"
        )


class Guard:
    """Lets requests through that mean this machine; an ASGI middleware."""

    def __init__(self, app: Any, host: str):
        self.app, self.host = app, host.lower()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif self.allows({name.lower(): value for name, value in scope["headers"]}):
            await self.app(scope, receive, _with_policy(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            refusal = b"benign serve answers to the names of its own machine only\n"
            await send({"type": "http.response.body", "body": refusal})

    def allows(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request was sent to a name of this machine, and not by the page of another."""
        asked = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        return self._is_here(f"//{asked}") and (not origin or urlsplit(origin).netloc == asked)

    def _is_here(self, address: str) -> bool:
        try:
            name = (urlsplit(address).hostname or "").lower()
        except ValueError:
            return False
        if is_loopback(name):
            return True
        # Asked for with --allow-remote: a stranger can rebind a name of his own, not an address.
        return not is_loopback(self.host) and (
            name in (self.host, socket.gethostname().lower()) or _is_address(name)
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_policy(send: Any) -> Any:
    async def sending(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            policy = (b"content-security-policy", POLICY.encode())
            message = {**message, "headers": [*message.get("headers", ()), policy]}
        await send(message)

    return sending
