"""Every command that takes a path refuses one that cannot be meant: one message, exit code 2, nothing begun."""

from pathlib import Path

import pytest

from tests.tiny import tiny, tiny_file

PATHS = {
    "absolute": "/no/such/place",
    "absolute YAML": "/no/such.yaml",
    "absolute glob": "/no*/[such",
    "relative": "no/such",
    "bracket": "no[such",
    "star": "*",
    "above": "..",
    "no user": "~missing",
    "empty": "",
    "very long": "x" * 5000,
    "very deep": "d/" * 2000 + "d",
    "zero byte": "a\0b",
    "a file": "plain.txt",
    "under a file": "plain.txt/x",
}
READ = {
    "run": ["run", "PATH"],
    "show": ["show", "PATH"],
    "show --yaml": ["show", "PATH", "--yaml"],
    "audit": ["audit", "PATH"],
    "advise": ["advise", "PATH"],
    "resume": ["resume", "PATH"],
    "status": ["status", "PATH"],
    "status --json": ["status", "PATH", "--json"],
    "store check": ["store", "check", "PATH"],
    "export": ["export", "PATH", "x.csv"],
    "pack": ["pack", "PATH", "x.pack"],
    "merge": ["merge", "PATH", "into"],
    "report": ["report", "PATH"],
    "report --verdicts": ["report", "store", "--verdicts", "PATH"],
    "verify": ["verify", "PATH", "--list"],
    "verify --only": ["verify", "--only", "PATH", "--list"],
    "--plugin": ["--plugin", "PATH", "papers"],
    "papers": ["papers", "PATH"],
    "data": ["data", "PATH"],
}
"""what there must be"""
WRITE = {
    "run --out": ["run", "tiny.yaml", "--out", "PATH"],
    "audit --out": ["audit", "tiny.yaml", "--out", "PATH"],
    "show --out": ["show", "tiny.yaml", "--out", "PATH"],
    "run --data": ["run", "tiny.yaml", "--data", "PATH"],
    "verify --out": ["verify", "jiang/thm*", "--no-run", "--out", "PATH"],
    "merge into": ["merge", "store", "PATH"],
    "serve": ["serve", "PATH"],
    "data --data": ["data", "--data", "PATH"],
}
"""folders that need not be there"""
FILES = {
    "export to": ["export", "store", "PATH"],
    "pack to": ["pack", "store", "PATH"],
    "report -o": ["report", "store", "-o", "PATH"],
}
"""files that need not be there"""
IMPOSSIBLE = ("no user", "empty", "very long", "very deep", "zero byte", "under a file")
FOUND = {("verify", "star"), ("verify --only", "star")}
FOUND |= {(command, "above") for command in ("status", "status --json", "store check", "report")}
"""what may be meant: every claim, and the results that lie below"""
CASES = [
    *((command, path) for command in READ for path in PATHS if (command, path) not in FOUND),
    *((command, path) for command in WRITE for path in [*IMPOSSIBLE, "a file"]),
    *((command, path) for command in FILES for path in IMPOSSIBLE),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file, an experiment and its results, in one that holds nothing else."""
    place = tmp_path_factory.mktemp("around") / "place"
    place.mkdir()
    (place / "plain.txt").write_text("plain")
    tiny_file(place)
    tiny().run(place / "store")
    return place


@pytest.mark.parametrize(("command", "path"), CASES, ids=[" of ".join(case) for case in CASES])
def test_a_path_that_cannot_be_meant_is_one_short_message(run, place, monkeypatch, command, path):
    monkeypatch.chdir(place)
    monkeypatch.delenv("BENIGN_DATA", raising=False)
    before = sorted(place.rglob("*"))
    words = {**READ, **WRITE, **FILES}[command]
    code, out, err = run(*(PATHS[path] if word == "PATH" else word for word in words))
    assert (code, out) == (2, "")
    assert err.startswith("benign: ")
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 3
    assert len(err) < 700
    assert sorted(place.rglob("*")) == before


def test_a_home_that_the_shell_left_is_found(run, place, monkeypatch):
    """As in --out=~/runs, where most shells leave it."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place))
    assert run("status", "~/store")[0] == 0


def test_a_recipe_of_a_file_that_was_not_loaded_is_found_wherever_it_is(run, place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "own.py").write_text("RECIPES = []")
    for target in ("own/fig1", f"{place}/own/fig1"):
        code, _, err = run("show", target)
        assert code == 2
        assert "--plugin" in err
