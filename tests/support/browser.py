"""A headless Chromium that tests steer by WebDriver, which is JSON over HTTP."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


class Browser:
    """A browser session."""

    def __init__(self, place: str, downloads: Path) -> None:
        self._place = place
        options = {
            "args": _ARGUMENTS,
            "prefs": {"download.default_directory": str(downloads)},
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self._post("/session", {"capabilities": {"alwaysMatch": wanted}})
        self._place += f"/session/{session['sessionId']}"

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 1000, dark: bool = False
    ) -> None:
        """Load a file or a URL in a window of a size and a colour scheme, without a network."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", size)
        self.command("Emulation.setEmulatedMedia", {"features": scheme})
        url = page if isinstance(page, str) else page.resolve().as_uri()
        self._post("/url", {"url": url})

    def command(self, name: str, parameters: dict[str, Any]) -> Any:
        """Run a command of Chrome's DevTools."""
        return self._post("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def run(self, script: str) -> Any:
        """Run a script in the page; return what it returns, awaited if it is a promise."""
        ends = "then(arguments[0], (error) => arguments[0](`${error}`))"
        code = f"(async () => {{ {script} }})().{ends};"
        return self._post("/execute/async", {"script": code, "args": []})

    def move(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.command("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    def errors(self) -> list[str]:
        """Return what the browser's console has shown since the last call."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def close(self) -> None:
        """End the session."""
        request = urllib.request.Request(self._place, method="DELETE")
        urllib.request.urlopen(request, timeout=30).close()

    def _post(self, path: str, body: object) -> Any:
        data = json.dumps(body).encode()
        with urllib.request.urlopen(f"{self._place}{path}", data, timeout=60) as answer:
            return json.load(answer)["value"]


@contextlib.contextmanager
def open_browser(downloads: Path) -> Iterator[Browser]:
    """Start a browser and its driver; skips the test where they are not installed."""
    driver = shutil.which("chromedriver")
    if driver is None:
        pytest.skip("needs a browser: apt-get install chromium chromium-driver")
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = next(line for line in process.stdout if "successfully on port" in line).split()[-1]
        browser = Browser(f"http://127.0.0.1:{port.rstrip('.')}", downloads)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
