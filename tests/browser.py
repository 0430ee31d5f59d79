"""A headless chromium for tests of pages, with its complaints and screenshots."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

SCREENSHOTS = Path(__file__).resolve().parents[1] / "screenshots"
"""folder of the screenshots, for reviewers"""
PATIENCE = 30_000
"""milliseconds: the machine may be busy"""

expect.set_options(timeout=PATIENCE)


def chromium() -> str:
    """Return the path of a chromium. Without one tests are skipped; in CI that is a failure."""
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
    """A page in its own window, with its complaints and requests."""

    def __init__(self, browser: Browser, width: int = 1280, height: int = 900, **more: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, **more)
        self.context.set_default_timeout(PATIENCE)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def sideways(self) -> int:
        """Return how many pixels the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def keep(self, name: str, whole: bool = False) -> None:
        """Save a screenshot of the page."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)

    def close(self) -> None:
        self.context.close()
