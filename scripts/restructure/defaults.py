"""Wrap the defaults of fields that may be axes: `snr: PerRun[Positive] = 1.0` becomes `= default(1.0)`."""

import ast
import re
import sys
from pathlib import Path

for name in sys.argv[1:]:
    path = Path(name)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    edits = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.AnnAssign) or node.value is None:
            continue
        if re.match(r"(PerRun|Shape|OneOf)\[", ast.unparse(node.annotation)):
            value = node.value
            edits.append((value.end_lineno - 1, value.end_col_offset, ")"))
            edits.append((value.lineno - 1, value.col_offset, "default("))
    if not edits:
        continue
    for row, column, new in sorted(edits, reverse=True):
        lines[row] = lines[row][:column] + new + lines[row][column:]
    text = "".join(lines)
    text = re.sub(r"(from benign\.spec\.axes import )", r"\1default, ", text, count=1)
    path.write_text(text, encoding="utf-8")
    print(path, len(edits) // 2)
