"""Where the live page listens; all that can be refused is refused here, before anything heavy is imported."""

import socket
from pathlib import Path

from benign.report.live.guard import check_host, is_loopback

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
