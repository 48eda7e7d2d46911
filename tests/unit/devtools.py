"""A headless Chromium over its debugging pipe: commands and events as JSON, nothing but the standard library."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 120.0
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-color-profile=srgb", "about:blank",
)  # fmt: skip

# Chromium reads commands from descriptor 3 and writes answers to 4, wherever the pipes were opened.
EXEC = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable() -> str | None:
    """Path of a Chromium, None where none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One process; ``page`` opens a tab."""

    def __init__(self, profile: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        path = executable()
        assert path is not None
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # which Chromium refuses to run as root
        command = [path, f"--user-data-dir={profile}", *sandbox, *FLAGS]
        self._process = subprocess.Popen(
            [sys.executable, "-c", EXEC, str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._rest, self._last, self.events = b"", 0, list[dict[str, Any]]()

    def close(self) -> None:
        """End the process and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come in between are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def wait(self, session: str, method: str) -> None:
        """Wait for an event of a tab that has not come yet."""
        while not any(event.get("sessionId") == session and event["method"] == method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"Chromium said nothing for {PATIENCE_S:.0f} s"
            part = os.read(self._read, 1 << 16)
            assert part, "Chromium ended"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        return json.loads(line)

    @contextlib.contextmanager
    def page(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Page]:
        """A tab of that size with that address, fully loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        page.call("Page.navigate", url=url)
        self.wait(session, "Page.loadEventFired")
        yield page
        self.call("Target.closeTarget", targetId=target)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to this tab."""
        return self.browser.call(method, self.session, **params)

    def run(self, expression: str) -> Any:
        """The value of an expression in the page, awaited when it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def settle(self) -> None:
        """Let pending events and two frames pass."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")

    def click(self, selector: str) -> None:
        """A click in the middle of the first element that matches."""
        where = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center', "
            "behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            position = {"x": where[0], "y": where[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **position)
        self.settle()

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key on whatever has the focus."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)
        self.settle()

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened, less what its own policy stopped."""
        failures = [event["params"] for event in self._events("Network.loadingFailed")]
        stopped = {failure["requestId"] for failure in failures if failure.get("blockedReason") == "csp"}
        asked = [event["params"] for event in self._events("Network.requestWillBeSent")]
        return [one["request"]["url"] for one in asked if one["requestId"] not in stopped]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, uncaught exceptions and breaches of the page's policy."""
        self.settle()
        found = [json.dumps(event["params"]) for event in self._events("Runtime.exceptionThrown")]
        found += [
            json.dumps(event["params"]["args"])
            for event in self._events("Runtime.consoleAPICalled")
            if event["params"]["type"] in ("error", "warning", "assert")
        ]
        entries = [event["params"]["entry"] for event in self._events("Log.entryAdded")]
        return found + [entry["text"] for entry in entries if entry["level"] in ("error", "warning")]

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write a PNG of the page, or of the part in view."""
        import base64

        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _events(self, method: str) -> list[dict[str, Any]]:
        own = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [event for event in own if event["method"] == method]
