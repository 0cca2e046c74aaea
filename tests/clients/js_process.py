"""A provider in a node process of its own, driven through the line protocol of `js/lines.mjs`."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE = 90.0
"""Seconds to wait for anything at all; two cores may run many other tests."""
OURS = ("FLAGD_", "OFREP_", "NODE_")
Line = dict[str, Any]


class JsProvider:
    """`with JsProvider(folder, "flagd.mjs", {"port": 8013}) as provider:`; the folder holds drivers and packages."""

    def __init__(self, folder: Path, driver: str, options: dict[str, Any], **environment: str) -> None:
        self._command = ["node", "--experimental-eventsource", "--no-warnings", driver, json.dumps(options)]
        self._folder, self._environment = folder, clean_environment() | environment
        self._lines: list[Line] = []
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                told = {"noise": line.rstrip()}
            self._hear(told)
        self._hear({"ended": True})

    def _hear(self, line: Line) -> None:
        with self._news:
            self._lines.append(line)
            self._news.notify_all()

    def _wait(self, wanted: Callable[[Line], bool], what: str) -> Line:
        """Return the first line that is wanted, and forget it."""

        def came() -> Line | None:
            return next((line for line in self._lines if wanted(line) or "ended" in line), None)

        with self._news:
            line = self._news.wait_for(came, PATIENCE)
            assert line, f"{what} never came; these did: {self._lines}"
            assert "ended" not in line, f"node ended before {what} came; it said: {self._lines}"
            self._lines.remove(line)
            return line

    def wait_for(self, event: str, flag: str | None = None) -> None:
        """Wait for an event of the provider, of a flag if it is named."""
        name = f"PROVIDER_{event}"
        self._wait(lambda line: line.get("event") == name and (flag is None or flag in line["flags"]), name)

    def wait_to_see(self, sight: str, detail: str = "") -> None:
        """Wait for something that is to be seen from outside of the provider, with this in its detail."""
        self._wait(lambda line: line.get("sight") == sight and detail in line["detail"], f"{sight} {detail}")

    def forget(self) -> None:
        """Forget what has been heard and not been asked for."""
        with self._news:
            self._lines.clear()

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._wait(lambda line: "answer" in line, f"the answer to {request}")["answer"]

    def evaluate(self, key: str, default: Any, context: dict[str, Any] | None = None) -> tuple[Any, ...]:
        """Return (value, variant, reason, error code)."""
        types = {bool: "boolean", str: "string", int: "number", float: "number", dict: "object"}
        return tuple(self.ask(do="evaluate", key=key, type=types[type(default)], default=default, context=context))

    def set_context(self, context: dict[str, Any]) -> None:
        """Set the context of a web provider."""
        self.ask(do="context", context=context)


def clean_environment() -> dict[str, str]:
    """Without what would configure the providers, node, or a proxy between the two ends of the loopback."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(OURS) and not name.lower().endswith("_proxy")
    }
