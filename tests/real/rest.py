"""A small HTTP client for the APIs of the real servers. It is not the product's, so it can contradict the product."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

TIMEOUT = 60.0
JSON = "application/json"


class RestError(Exception):
    """The server answered, but not with what was asked for."""

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        super().__init__(f"{method} {path}: {status} {body[:2000].decode(errors='replace')}")
        self.status, self.body = status, body


@dataclass(frozen=True)
class Answer:
    """Status, headers and body; `json` is the body decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Rest:
    """A server by its address, with what proves to it who is asking. No proxy is ever used: the server is here."""

    address: str
    authority: str = ""
    """The certificates, in PEM, that the server's must be signed by."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: tuple[str, str] | None = field(default=None, repr=False)
    """A client certificate and its key, in PEM."""

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority or None)
        if self.identity:
            _identify(context, *self.identity)
        return context

    @cached_property
    def _idle(self) -> list[HTTPConnection]:
        """Connections that wait for the next request: a handshake costs more than most answers."""
        return []

    def __del__(self) -> None:
        for connection in self._idle:
            connection.close()

    @contextmanager
    def _open(
        self, method: str, path: str, body: Any, query: Mapping[str, Any], kind: str, timeout: float
    ) -> Iterator[HTTPResponse]:
        """Send a request, and yield the answer, which need not be read to its end."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        target = path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": JSON, **({"Content-Type": kind} if data is not None else {}), **self.headers}
        connection, response = self._send(timeout, method, target, data, headers)
        try:
            yield response
        finally:
            if response.isclosed() and not response.will_close:
                self._idle.append(connection)
            else:
                connection.close()

    def _send(self, timeout: float, *request: Any) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a request on an idle connection, if there is one that the server has not closed meanwhile."""
        while True:
            connection = self._idle.pop() if self._idle else self._connection(timeout)
            reused = connection.sock is not None
            try:
                if reused:
                    connection.sock.settimeout(timeout)
                connection.request(*request)
                return connection, connection.getresponse()
            except BaseException as error:
                connection.close()
                if not reused or not isinstance(error, (ConnectionError, ssl.SSLError)):
                    raise

    def _connection(self, timeout: float) -> HTTPConnection:
        scheme, _, place = self.address.partition("://")
        if scheme == "https":
            return HTTPSConnection(place, timeout=timeout, context=self._tls)
        return HTTPConnection(place, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        kind: str = JSON,
        timeout: float = TIMEOUT,
    ) -> Answer:
        """Return the answer, whatever its status."""
        with self._open(method, path, body, query or {}, kind, timeout) as response:
            return Answer(response.status, dict(response.headers), response.read())

    def call(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None, kind: str = JSON
    ) -> Answer:
        """Return the answer; a status that is not a success is an error."""
        answer = self.ask(method, path, body, query=query, kind=kind)
        if answer.status >= 300:
            raise RestError(method, path, answer.status, answer.body)
        return answer

    def answers(self, path: str) -> bool:
        """Tell whether the server is up and says 200."""
        try:
            return self.ask("GET", path, timeout=2).status == 200
        except OSError:
            return False

    @contextmanager
    def lines(self, path: str, query: Mapping[str, Any], timeout: float = TIMEOUT) -> Iterator[Iterator[Any]]:
        """Follow a stream of JSON lines. `timeout` is the longest silence."""
        with self._open("GET", path, None, query, JSON, timeout) as response:
            if response.status >= 300:
                raise RestError("GET", path, response.status, response.read())
            yield (json.loads(line) for line in response)


def _identify(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate. Python's TLS reads files only; these are gone at once."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "client.pem")
        file.touch(mode=0o600)
        file.write_text(f"{certificate}\n{key}")
        context.load_cert_chain(file)
