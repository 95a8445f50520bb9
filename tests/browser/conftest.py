"""A real headless Chromium, the system's own, driven by Playwright."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The page may ask the network for nothing, and the browser itself should not either.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Browser:
    """One page of a browser.

    Attributes:
        page: Playwright's page.
        requests: Addresses asked for, other than the page itself.
        complaints: What the page wrote to the console, and errors that nobody caught.
    """

    def __init__(self, page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page from disk and wait until it is drawn."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.goto("about:blank")
        self.requests.clear()
        self.complaints.clear()
        self.page.goto(path.as_uri())
        self.drawn()
        self.requests = [url for url in self.requests if url != path.as_uri() and not url.startswith("data:")]

    def drawn(self) -> None:
        """Wait until the page is drawn as it stands now."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, script: str) -> object:
        """Return what a script in the page comes to."""
        return self.page.evaluate(script)

    def click(self, selector: str) -> None:
        """Click the first element that fits, as a user would: the page stands still before, as scrolling hides tips."""
        element = self.page.locator(selector).first
        element.scroll_into_view_if_needed()
        self.drawn()
        element.click()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """A headless Chromium with a profile of its own; tests skip where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'ipj-edge[dev]'")
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser to look at the page with (looked for {', '.join(NAMES)}; apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        profile = tmp_path_factory.mktemp("profile")
        context = driver.chromium.launch_persistent_context(
            profile, executable_path=program, headless=True, args=[*FLAGS]
        )
        yield Browser(context.pages[0])
        context.close()
