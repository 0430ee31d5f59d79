"""The browser that tests of pages share."""

from tests.browser import browser

__all__ = ["browser"]
