"""Notify hooks for the benchmark of watt: each tells when it was called, and those that fetch, when they had it all.

A command writes the URL into a FIFO, as the tiny program with which the original was measured. The others are URLs: a
server here fetches what such a hook asks for, and only then answers.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from bench.watch import Line

HookConfig: TypeAlias = dict[str, Any]
Asks: TypeAlias = Literal["id", "deltas", "projection", "document"]


class Call(NamedTuple):
    """A call of a hook."""

    time: float
    """When it had all that it asks for."""
    url: str
    size: int = 0
    """The bytes that it fetched."""


class HookCalls:
    """The calls so far, in order."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._news = threading.Condition()

    def add(self, call: Call) -> None:
        with self._news:
            self.calls.append(call)
            self._news.notify_all()

    def wait(self, count: int, seconds: float = 60.0) -> Call:
        """Wait until there have been so many calls, and return the last of these."""
        with self._news:
            if not self._news.wait_for(lambda: len(self.calls) >= count, seconds):
                raise TimeoutError(f"{len(self.calls)} calls instead of {count} after {seconds:g} s")
            return self.calls[count - 1]

    def settle(self, seconds: float) -> None:
        """Wait until there was no call for so long."""
        with self._news:
            while self._news.wait(seconds):
                pass


@contextmanager
def notify_hook(asks: Asks, folder: Path, names: list[str]) -> Iterator[tuple[HookCalls, HookConfig]]:
    """Yield the calls of a hook, and its config. `names` are the objects of a projection."""
    calls = HookCalls()
    if asks == "id":
        with _fifo(folder / "calls", calls) as command:
            yield calls, {"command": command}
        return
    with _server(asks, calls) as url:
        projection = {"projection": {"kinds": ["services"], "names": names}} if asks == "projection" else {}
        yield calls, {"url": url, **projection}


@contextmanager
def _fifo(path: Path, calls: HookCalls) -> Iterator[str]:
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)

    def read() -> None:
        while b"end" not in (text := os.read(descriptor, 1 << 16)):
            now = time.perf_counter()
            for url in text.decode().split():
                calls.add(Call(now, url))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield f"printf '%s\\n' > {path}"
    finally:
        os.write(descriptor, b"end\n")
        reader.join()
        os.close(descriptor)


@contextmanager
def _server(asks: Asks, calls: HookCalls) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            url = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["url"]
            size = fetch(url + ("?deltas=&format=v2" if asks == "deltas" else ""))
            calls.add(Call(time.perf_counter(), url, size))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetch(url: str) -> int:
    """Fetch a document and return its size. It is not kept: a reader that is slow would be measured, too."""
    where = urlsplit(url)
    line = Line(where.port or 80)
    line.send("GET", f"{where.path}?{where.query}", Host=where.netloc, Connection="close")
    return line.count()
