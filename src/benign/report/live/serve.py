"""The server of the live page: its address, who may connect, start and end."""

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
    """Serve the sweeps below a folder until ctrl-c; nothing is written to the folder."""
    check(folder, host, port, allow_remote)
    ui, app = _nicegui()
    port = free_port(host, port)
    from benign.report.live.monitor import SweepMonitor
    from benign.report.live.pages import lay_out  # needs nicegui

    monitor = SweepMonitor(folder)

    lay_out(monitor)
    app.add_middleware(Guard, host=host)
    app.on_startup(monitor.start)
    app.on_startup(_announce(announcement(host, port, shown(folder))))
    app.on_shutdown(monitor.stop)
    logging.getLogger("nicegui").setLevel(logging.ERROR)  # wrong addresses are not reported
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
    echo("stopped; the sweeps go on")


def _announce(line: str) -> Callable[[], Awaitable[None]]:
    """Return a function that prints a line once the server listens."""
    from nicegui.server import Server

    async def print_line() -> None:
        while not Server.instance.started:
            await asyncio.sleep(0.02)
        echo(line)

    return print_line


def _nicegui():
    """Import nicegui when it is needed."""
    try:
        from nicegui import app, ui
    except ImportError as error:
        raise ValueError(
            f"`benign serve` needs nicegui ({error}): pip install 'benign[live]'"
        ) from error
    return ui, app


FIRST_PORT, LAST_PORT = 8080, 8099
"""ports that are tried in order if none is given"""
EVERYWHERE = ("0.0.0.0", "::", "")
"""hosts that stand for all addresses of this machine, and cannot be opened themselves"""


def check(folder: Path, host: str, port: int | None, allow_remote: bool) -> None:
    """Raise ValueError if the folder cannot be served at this address."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder with sweeps, such as runs")
    check_host(host, allow_remote)
    if port is not None:
        free_port(host, port)


def free_port(host: str, wanted: int | None) -> int:
    """Return the wanted port if it is free, or the first free one if none is wanted."""
    if wanted is not None and not 0 < wanted < 65536:
        raise ValueError(f"`--port` must be between 1 and 65535, got {wanted}")
    problem = ""
    ports = range(FIRST_PORT, LAST_PORT + 1) if wanted is None else [wanted]
    for port in ports:
        if not (problem := _port_problem(host, port)):
            return port
    if wanted is None:
        raise ValueError(f"no port from {FIRST_PORT} to {LAST_PORT} is free: choose one by --port")
    raise ValueError(f"`--port` must be free on {host}, got {wanted} ({problem}): choose another")


def announcement(host: str, port: int, folder: str) -> str:
    """Return the line printed once the page is there: an address that can be opened, and who can open it."""
    name = socket.gethostname() if host in EVERYWHERE else host
    address = f"http://{f'[{name}]' if ':' in name else name}:{port}"
    line = f"{address} shows the sweeps in {folder} (stop with ctrl-c)"
    if is_loopback(host):
        return line
    return f"{line}\neverybody who reaches this machine can see them, without a password"


def _port_problem(host: str, port: int) -> str:
    """Return why a port cannot be used; empty if it can."""
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
"""nothing is loaded from elsewhere; nicegui needs scripts inside the page"""


def is_loopback(host: str) -> bool:
    """Return whether a name or address means this machine and cannot be reached from others."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, allow_remote: bool) -> None:
    """Raise ValueError if other machines could reach the page, unless that is allowed."""
    if not is_loopback(host) and not allow_remote:
        raise ValueError(
            f"`--host` must be a local address (127.0.0.1, localhost), got {host!r}: everybody who reaches it sees "
            "every sweep in the folder, without a password. Use `ssh -L 8080:localhost:8080 HERE` from elsewhere, or "
            "add --allow-remote"
        )


class Guard:
    """ASGI middleware that refuses requests for other names than those of this machine."""

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
        """Return whether a request was sent to a name of this machine, and not by a page from elsewhere."""
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        return self._is_local(f"//{host}") and (not origin or urlsplit(origin).netloc == host)

    def _is_local(self, address: str) -> bool:
        try:
            name = (urlsplit(address).hostname or "").lower()
        except ValueError:
            return False
        if is_loopback(name):
            return True
        # With --allow-remote: an attacker can point a name of his own to this machine, but not an address.
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
