"""A headless chromium for tests of pages: what it shows, what it complains of, and pictures of what it saw."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

SCREENSHOTS = Path(__file__).resolve().parents[1] / "screenshots"
"""where pictures of pages are kept, to be looked at"""
PATIENCE = 30_000
"""milliseconds: the machine may be busy"""

expect.set_options(timeout=PATIENCE)


def chromium() -> str:
    """The path of a chromium. Tests are skipped where there is none; in CI that is a failure."""
    named = os.environ.get("BENIGN_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if not found:
        why = (
            "no chromium here: install it (apt-get install chromium) or name one in BENIGN_CHROMIUM"
        )
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a module."""
    path = chromium()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


class Visit:
    """A page in a window of its own, and what went wrong with it."""

    def __init__(self, browser: Browser, width: int = 1280, height: int = 900, **more: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, **more)
        self.context.set_default_timeout(PATIENCE)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._told)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _told(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def sideways(self) -> int:
        """How many pixels the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def keep(self, name: str, whole: bool = False) -> None:
        """Keep a picture of the page."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)

    def close(self) -> None:
        self.context.close()
