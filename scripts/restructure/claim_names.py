"""Rename the fields of claims: needs -> studies, beside -> informational, Verdict.word -> label."""

import io
import subprocess
import tokenize
from pathlib import Path

FIELDS = {"needs": "studies", "beside": "informational"}
SCOPE = (
    "src/benign/claims/claim.py",
    "src/benign/claims/verdict",
    "src/benign/papers/",
    "src/benign/report/claims.py",
    "tests/claims",
    "tests/papers",
    "tests/report",
    "examples",
    "scripts/showcase",
)
for name in subprocess.run(
    ["git", "ls-files", "*.py"], capture_output=True, text=True, check=True
).stdout.split():
    if not name.startswith(SCOPE):
        continue
    path = Path(name)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    edits, before, dotted = [], "", False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            if token.string in FIELDS and "conditions" not in name:
                edits.append((token.start, token.end, FIELDS[token.string]))
            if token.string == "word" and before in (".", "def"):
                edits.append((token.start, token.end, "label"))
        before = token.string
    for (row, begin), (_, end), new in reversed(edits):
        lines[row - 1] = lines[row - 1][:begin] + new + lines[row - 1][end:]
    path.write_text("".join(lines), encoding="utf-8")
