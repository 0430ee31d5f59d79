"""Who may ask: the page is for people at this machine, not for other machines, nor for pages of strangers.

A server on loopback is not out of reach: a stranger's page, open in the same browser, may send requests to it, and
may give its own name the address 127.0.0.1 (DNS rebinding). So every request must name this machine as its host, and
one that tells where it comes from must come from here.
"""

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

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
