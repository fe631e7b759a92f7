"""Drives headless Chromium over its debugging pipe, with nothing but the standard library.

    with browser.Browser() as chromium:
        page = chromium.open(url, width=360)
        page.run("document.title")
"""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60


def executable():
    """Path of the browser; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A browser process. Commands and answers are JSON, each ended by a zero byte."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        from_us, to_us = os.pipe(), os.pipe()
        # The browser reads commands from descriptor 3 and writes to 4.
        script = f'exec "$0" "$@" 3<&{from_us[0]} 4>&{to_us[1]}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, executable(), "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(from_us[0], to_us[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(from_us[0])
        os.close(to_us[1])
        self.commands, self.answers = from_us[1], to_us[0]
        self.buffer = b""
        self.number = 0
        self.events = []
        return self

    def __exit__(self, *_):
        try:
            self.send("Browser.close")
            self.process.wait(timeout=10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            read = os.read(self.answers, 1 << 20)
            if not read:
                raise OSError("the browser has ended")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, session=None, **parameters):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            message = self.receive(deadline)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def open(self, url, **look):
        return Page(self, url, **look)


class Page:
    """A page that has been loaded."""

    def __init__(self, browser, url, width=1280, height=900, dark=False):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.send("Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.resize(width, height)
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")
        self.settle()

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def resize(self, width, height=900):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def run(self, expression):
        """The value of an expression of JavaScript; a promise is waited for."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait(self, condition):
        deadline = time.monotonic() + SECONDS
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def settle(self):
        """Until what was resized has been drawn: observers run before the second frame."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame("
                 "() => requestAnimationFrame(done))))")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def mine(self, method):
        return [event["params"] for event in self.browser.events
                if event["method"] == method and event.get("sessionId") == self.session]

    def complaints(self):
        """Exceptions, errors and warnings of the page so far."""
        self.run("0")
        said = [event["exceptionDetails"]["text"] for event in self.mine("Runtime.exceptionThrown")]
        said += [str(event["args"]) for event in self.mine("Runtime.consoleAPICalled")
                 if event["type"] in ("error", "warning", "assert")]
        said += [event["entry"]["text"] for event in self.mine("Log.entryAdded")
                 if event["entry"]["level"] in ("error", "warning")]
        return said

    def requests(self):
        """The addresses that the page asked for so far."""
        return [event["request"]["url"] for event in self.mine("Network.requestWillBeSent")]

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)
