"""A real headless browser, spoken to in its own protocol over a pipe: no driver, no package.

Chrome DevTools Protocol, `--remote-debugging-pipe`: commands on file descriptor 3, answers and events on 4, each a
JSON document ended by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell")


class Browser:
    """One page of a browser.

    Attributes:
        requests: Addresses asked for, other than the page itself.
        complaints: What the page wrote to the console, and errors that nobody caught.
    """

    def __init__(self, program: str, profile: Path) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        to_browser, self._commands = os.pipe()
        self._answers, from_browser = os.pipe()
        self._child = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', program, "--headless=new",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: object) -> dict:
        """Send a command and return its answer; events that come before it are taken down."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page from disk and wait until it is drawn."""
        self.requests.clear()
        self.complaints.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.send("Page.navigate", url=page.as_uri())
        while not self._loaded:
            self._note(self._read())
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.requests = [address for address in self.requests if address != page.as_uri()]

    def evaluate(self, script: str) -> object:
        """Return what a script in the page comes to."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click an element as a user would."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        x, y = self.evaluate(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.point_at(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point_at(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(picture))

    def close(self) -> None:
        """End the browser."""
        self._child.terminate()
        self._child.wait(timeout=20)
        os.close(self._commands)
        os.close(self._answers)

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 1 << 16)
            if not part:
                raise RuntimeError("the browser ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, message: dict) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            address = parameters["request"]["url"]
            if not address.startswith("data:"):
                self.requests.append(address)
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console: {parameters['args']}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {parameters['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"log: {parameters['entry']['text']}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """A headless Chromium; tests skip where there is none."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser to look at the page with (looked for {', '.join(NAMES)}; apt-get install chromium)")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
