"""A real browser for tests: headless Chromium driven through chromedriver, over plain HTTP."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

# Pixels by which a page is wider than its window.
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# How addresses start that leave the page's own file.
NETWORK = ("http:", "https:", "ws:", "wss:", "//")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def programs():
    """Paths of browser and driver; the test is skipped where they are not installed."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    return browser, driver


class Browser:
    """One session. `open` loads a page from disk, `visit` from anywhere; both return when it is complete."""

    def __init__(self, profile):
        browser, driver = programs()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._root = f"http://127.0.0.1:{port}"
        # Debian's launcher prints shell warnings that are no concern of a test.
        self._driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
        )
        options = {"binary": browser, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self._session = ""
        self._wait()
        session = self._ask("/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{session['sessionId']}"

    def open(self, path, **look):
        self.visit(f"file://{path}", **look)

    def visit(self, url, *, width=1200, height=900, dark=False, script=True):
        self._command("Emulation.setScriptExecutionDisabled", value=not script)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._command("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[scheme])
        self._ask(f"{self._session}/url", {"url": url})

    def run(self, script):
        """The value of a JavaScript expression on the page."""
        return self._ask(f"{self._session}/execute/sync", {"script": f"return {script};", "args": []})

    def console(self):
        return [entry["message"] for entry in self._log("browser")]

    def requests(self):
        """Addresses that the page asked for since the last call."""
        events = (json.loads(entry["message"])["message"] for entry in self._log("performance"))
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def close(self):
        try:
            self._ask(self._session, method="DELETE")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=10)

    def _command(self, name, **parameters):
        self._ask(f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _log(self, kind):
        return self._ask(f"{self._session}/se/log", {"type": kind})

    def _wait(self):
        for _ in range(100):
            try:
                self._ask("/status")
                return
            except urllib.error.URLError:
                time.sleep(0.1)
        raise TimeoutError("chromedriver did not start")

    def _ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)
        # Never through a proxy: the driver is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()[:500]) from None
