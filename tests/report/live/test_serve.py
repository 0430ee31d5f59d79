"""Who may ask the live page, and where it listens."""

import re
import socket
import subprocess
import sys

import pytest

from benign.report.live.serve import Guard, announcement, check_host, free_port, is_loopback
from tests.says import holds, says


def guard(host: str = "127.0.0.1") -> Guard:
    return Guard(None, host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2", "LOCALHOST"])
def test_loopback_is_accepted(host):
    check_host(host, False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.4", "myhost", "localhost.evil.example"]
)
def test_other_hosts_need_to_be_asked_for(host, run):
    assert not is_loopback(host)
    check_host(host, True)
    code, _, err = run("serve", "--host", host)
    assert code == 2
    assert "--allow-remote" in err
    assert host in err


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:8080", "", True),
        ("localhost:9000", "http://localhost:9000", True),  # ssh -L 9000:localhost:8080
        ("[::1]:8080", "", True),
        ("", "", False),
        ("evil.example", "", False),
        ("evil.example:8080", "http://evil.example:8080", False),  # rebound to 127.0.0.1
        ("127.0.0.1.evil.example", "", False),
        ("127.0.0.1:8080", "http://evil.example", False),
        ("127.0.0.1:8080", "http://127.0.0.1:8081", False),
        ("127.0.0.1:8080", "null", False),
        ("192.168.1.4:8080", "", False),
        ("[::1", "", False),
    ],
)
def test_requests_must_mean_this_machine(host, origin, allowed):
    headers = {b"host": host.encode(), **({b"origin": origin.encode()} if origin else {})}
    assert guard().allows(headers) is allowed


def test_with_remote_allowed_addresses_and_own_names_are_accepted():
    for name, allowed in [
        ("192.168.1.4", True),
        (socket.gethostname(), True),
        ("evil.example", False),
    ]:
        assert guard("0.0.0.0").allows({b"host": f"{name}:8080".encode()}) is allowed


def test_the_next_free_port_is_used_and_a_given_one_must_be_free(monkeypatch):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(ValueError, match=says("`--port`", "127.0.0.1", str(port))):
            free_port("127.0.0.1", port)
        monkeypatch.setattr("benign.report.live.serve.FIRST_PORT", port)
        monkeypatch.setattr("benign.report.live.serve.LAST_PORT", port)
        with pytest.raises(ValueError, match=says(str(port), "--port")):
            free_port("127.0.0.1", None)
        monkeypatch.setattr("benign.report.live.serve.LAST_PORT", port + 20)
        assert port < free_port("127.0.0.1", None) <= port + 20
    assert free_port("127.0.0.1", port) == port
    with pytest.raises(ValueError, match=says("`--port`", "65535", "99999")):
        free_port("127.0.0.1", 99999)


@pytest.mark.parametrize("wrong", [["my.yaml"], ["--port", "99999"], ["--host", "0.0.0.0"]])
def test_what_is_refused_is_refused_at_once(tmp_path, wrong):
    """It took the seconds that torch and nicegui need."""
    (tmp_path / "my.yaml").touch()
    command = [sys.executable, "-X", "importtime", "-m", "benign", "serve", *wrong]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "benign: " in done.stderr
    for heavy in ("torch", "nicegui", "xarray"):
        assert not re.search(rf"\| +{heavy}$", done.stderr, re.MULTILINE)


def test_the_printed_address_can_be_opened():
    here = announcement("127.0.0.1", 8080, "runs")
    assert holds(here, "http://127.0.0.1:8080 ", " runs ", "ctrl-c")
    assert "password" not in here
    assert announcement("::1", 8080, "runs").startswith("http://[::1]:8080 ")
    for host in ("0.0.0.0", "::"):
        line = announcement(host, 8080, "runs")
        assert line.startswith(f"http://{socket.gethostname()}:8080 ")
        assert guard(host).allows({b"host": f"{socket.gethostname()}:8080".encode()})
        assert "password" in line


def test_a_file_is_refused(run, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = run("serve", tmp_path / "file")
    assert code == 2
    assert holds(err, str(tmp_path / "file"), " folder")


def test_without_nicegui_one_line_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nicegui", None)
    code, _, err = run("serve", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "pip install 'benign[live]'" in err
