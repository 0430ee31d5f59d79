"""What all pages share: the line at the top, light and dark, texts.

Texts reach the browser as text, never as markup: no page uses `ui.html` or `ui.markdown`.
"""

from nicegui import ui

WAIT = 10.0
"""seconds for a browser to connect; a program that only fetches the page never does"""
IS_DARK = """
(localStorage.getItem("benign-dark") ?? String(matchMedia("(prefers-color-scheme: dark)").matches)) === "true"
"""


class Scheme:
    """Light or dark: as the browser prefers, or as somebody chose on any of these pages."""

    LIGHT, DARK = ("#1c1c22", "#ffffff"), ("#ececf1", "#212127")

    def __init__(self) -> None:
        self.mode = ui.dark_mode(None)

    @property
    def colours(self) -> tuple[str, str]:
        """Those of text and of the ground."""
        return self.DARK if self.mode.value else self.LIGHT

    def switch(self) -> None:
        self.mode.value = not self.mode.value
        choice = "true" if self.mode.value else "false"
        ui.run_javascript(f'localStorage.setItem("benign-dark", "{choice}")')


async def framed(title: str, home: bool = False) -> Scheme:
    """Begin a page: its top, and its colours once the browser has told them."""
    scheme = Scheme()
    heading(title, home, scheme)
    await ui.context.client.connected(timeout=WAIT)
    scheme.mode.value = bool(await ui.run_javascript(IS_DARK, timeout=WAIT))
    return scheme


def heading(title: str, home: bool = False, scheme: Scheme | None = None) -> None:
    """The line at the top of a page."""
    with ui.element("header").classes("top"):
        if home:
            ui.link("← all sweeps", "/")
        with ui.element("h1"):
            ui.label(title)
        if scheme:
            ui.button("light / dark", on_click=scheme.switch, color=None).props(
                "flat dense no-caps"
            )


def told(text: str, classes: str = "") -> ui.label:
    """A line of text."""
    return ui.label(text).classes(classes)
