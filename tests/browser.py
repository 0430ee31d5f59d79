"""A headless Chromium for tests of pages. Every page is watched: an error or a request to elsewhere fails its test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SHOTS = Path(__file__).resolve().parents[1] / "screenshots"
"""pictures of what tests saw; not kept in git"""


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser; where there is none tests are skipped, but not in CI."""
    path = os.environ.get("BENIGN_CHROMIUM") or shutil.which("chromium")
    if not path:
        reason = "no chromium: install Debian's package or name one by BENIGN_CHROMIUM"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
