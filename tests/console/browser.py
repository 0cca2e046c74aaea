"""A real Chromium, driven over the DevTools protocol through a pipe: no driver, no socket, nothing downloaded.

The protocol is JSON messages that end with a zero byte, on file descriptors 3 and 4. Every exception, console error and
violation of the content security policy of a page is collected; `Page.problems` has them.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE = 60.0
_KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "End": (35, ""),
    "Home": (36, ""),
    "Tab": (9, ""),
    "/": (191, "/"),
}

_CENTRE = """(selector) => {
  const element = document.querySelector(selector);
  element?.scrollIntoView({ block: "center" });
  const box = element?.getBoundingClientRect();
  return box?.width ? [box.x + box.width / 2, box.y + box.height / 2] : null;
}"""


def chromium() -> str | None:
    """Return the program, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """A browser process."""

    def __init__(self, profile: Path) -> None:
        program = chromium()
        assert program is not None
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        command = [
            program,
            "--headless=new",
            "--no-sandbox",  # tests may run as root, and load nothing but our own page
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
            "about:blank",
        ]

        def connect() -> None:
            os.dup2(theirs_in, 1003)
            os.dup2(theirs_out, 1004)
            os.dup2(1003, 3)
            os.dup2(1004, 4)

        self._process = subprocess.Popen(
            command,
            close_fds=False,
            preexec_fn=connect,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._number = 0
        self._pending = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self.pages: dict[str, Page] = {}

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Call a method, and return its result; events that come meanwhile go to their pages."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while number not in self._answers:
            assert self.receive(end - time.monotonic()), f"{method} takes too long"
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer)
        return answer.get("result", {})  # type: ignore[no-any-return]

    def receive(self, seconds: float) -> bool:
        """Take what has come, or comes in some seconds."""
        if not select.select([self._in], [], [], max(0.0, seconds))[0]:
            return False
        piece = os.read(self._in, 1 << 20)
        assert piece, "the browser has ended"
        *messages, self._pending = (self._pending + piece).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            elif (page := self.pages.get(message.get("sessionId", ""))) is not None:
                page.event(message["method"], message["params"])
        return True

    def open(self, url: str, width: int = 1280, height: int = 800) -> Page:
        """Open a page in a new tab."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Audits", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        page.go(url)
        return page

    def close(self) -> None:
        """End the browser and all of its processes."""
        os.close(self._out)
        os.close(self._in)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait(PATIENCE)


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.problems: list[str] = []
        """Exceptions, console errors and violations of the content security policy."""
        self.received = 0
        """Bytes that were transferred."""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of this page."""
        return self._browser.send(method, self._session, **parameters)

    def event(self, method: str, details: dict[str, Any]) -> None:
        """Note what a page says by itself."""
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(details["exceptionDetails"].get("exception", details)))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "assert"):
            self.problems.append(str(details["args"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] == "error":
            if "ERR_ABORTED" in details["entry"]["text"]:
                return  # a request that was under way when the test went to another page
            self.problems.append(f"{details['entry']['text']} {details['entry'].get('url', '')}")
        elif method == "Audits.issueAdded":
            self.problems.append(json.dumps(details["issue"]))
        elif method == "Network.loadingFinished":
            self.received += int(details["encodedDataLength"])

    def go(self, url: str) -> None:
        """Load a page."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        """Give the page a size."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Prefer `light` or `dark`."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script: str) -> Any:
        """Return what an expression gives, awaited."""
        result = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = PATIENCE) -> Any:
        """Wait until an expression is true; return what it gives."""
        end = time.monotonic() + seconds
        while (value := self.run(script)) in (None, False, 0, ""):  # an element is {}
            assert time.monotonic() < end, (script, self.text()[:3000], self.problems)
            self._browser.receive(0.02)
        return value

    def text(self, selector: str = "body") -> str:
        """Return the text that is shown."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def see(self, text: str, selector: str = "body") -> None:
        """Wait until a text is shown."""
        self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")

    def click(self, selector: str) -> None:
        """Click on an element as a mouse does."""
        box = self.wait(f"({_CENTRE})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def key(self, name: str) -> None:
        """Press and release a key."""
        code, text = _KEYS.get(name, (0, name))
        more: dict[str, Any] = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=name, windowsVirtualKeyCode=code, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)

    def fill(self, selector: str, text: str) -> None:
        """Replace what is in a field."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
        self.type(text)

    def screenshot(self, path: Path) -> None:
        """Write what is shown to a file."""
        image = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(image))

    def close(self) -> None:
        """Close the tab."""
        self._browser.pages.pop(self._session, None)
        self._browser.send("Target.closeTarget", targetId=self._target)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Run a browser until the end of the block."""
    running = Browser(profile)
    try:
        yield running
    finally:
        running.close()
