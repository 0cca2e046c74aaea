"""Stores of blobs to test against: moto's S3, Azure's Azurite, fake-gcs-server, and one that fails as it is told to.

Each is a real server of its protocol on a free loopback port, with an empty bucket `flags`, and knows how to `put`.
"""

from __future__ import annotations

import base64
import hmac
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.real.processes import claim_port

AWS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_REGION": "us-east-1"}
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The well-known key of the well-known account of every Azurite."""
FAKE_GCS = os.environ.get("FAKE_GCS_SERVER") or shutil.which("fake-gcs-server") or ""


@dataclass
class Store:
    """A running store."""

    url: str
    """The URL of a blob, without its name."""
    environment: dict[str, str]
    put: Callable[[str, bytes, str], None]
    query: str = ""
    requests: list[str] = field(default_factory=list)

    def blob(self, name: str) -> str:
        return f"{self.url}/{name}{self.query}"


def send(url: str, method: str, body: bytes = b"", **headers: str) -> None:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    with urlopen(Request(url, body, fields, method=method), timeout=20) as answer:
        answer.read()


@contextmanager
def s3() -> Iterator[Store]:
    from moto.server import ThreadedMotoServer
    from obstore.store import S3Store

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        send(f"{address}/flags", "PUT")
        config = {"endpoint": address, "access_key_id": "me", "secret_access_key": "hush-hush"}
        bucket = S3Store("flags", config=config, client_options={"allow_http": True})  # type: ignore[arg-type]

        def put(name: str, body: bytes, media: str) -> None:
            bucket.put(name, body, attributes={"Content-Type": media})

        yield Store("s3://flags", AWS, put, f"?endpoint={address}&use_path_style=true&region=us-east-1")
    finally:
        server.stop()


@contextmanager
def gcs() -> Iterator[Store]:
    if not FAKE_GCS:
        pytest.skip("NO GOOGLE CLOUD STORAGE WAS TESTED: there is no fake-gcs-server; run scripts/tools")
    port = claim_port()
    command = [FAKE_GCS, "-scheme=http", "-host=127.0.0.1", f"-port={port}", "-backend=memory"]
    with process([*command, f"-public-host=127.0.0.1:{port}"], "server started", error=True):
        address = f"http://127.0.0.1:{port}"
        send(f"{address}/storage/v1/b?project=test", "POST", b'{"name": "flags"}', content_type="application/json")

        def put(name: str, body: bytes, media: str) -> None:
            upload = f"{address}/upload/storage/v1/b/flags/o?uploadType=media&name={quote(name, '')}"
            send(upload, "POST", body, content_type=media)

        yield Store("gs://flags", {"STORAGE_EMULATOR_HOST": f"127.0.0.1:{port}"}, put)


@contextmanager
def azure(packages: Path) -> Iterator[Store]:
    main = str(packages / "azurite/dist/src/blob/main.js")
    flags = ["--blobHost=127.0.0.1", "--blobPort=0", "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    with process(["node", main, *flags, "--skipApiVersionCheck"], "successfully listens") as line:
        address = line.split()[-1]
        account = f"{address}/devstoreaccount1"
        send_signed(f"{account}/flags", "restype:container", "PUT", query="?restype=container")

        def put(name: str, body: bytes, media: str) -> None:
            send_signed(f"{account}/flags/{quote(name)}", "", "PUT", body, media)

        environment = {
            "AZURE_STORAGE_ACCOUNT": "devstoreaccount1",
            "AZURE_STORAGE_KEY": AZURITE_KEY,
            "AZURE_STORAGE_DOMAIN": address.removeprefix("http://"),
            "AZURE_STORAGE_PROTOCOL": "http",
            "AZURE_STORAGE_IS_LOCAL_EMULATOR": "true",
        }
        yield Store("azblob://flags", environment, put)


def send_signed(url: str, parameters: str, method: str, body: bytes = b"", media: str = "", query: str = "") -> None:
    """Send a request that is signed with Azure's shared key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    if media:
        headers["x-ms-blob-type"] = "BlockBlob"
    named = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    path = url.partition("://")[2].partition("/")[2]
    resource = f"/devstoreaccount1/{path}" + (f"\n{parameters}" if parameters else "")
    media = media or "application/x-www-form-urlencoded"
    text = "\n".join((method, "", "", str(len(body) or ""), "", media, "", "", "", "", "", "", named + resource))
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURITE_KEY), text.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey devstoreaccount1:{signature}"}
    headers |= {"Content-Type": media}
    with urlopen(Request(url + query, body, headers, method=method), timeout=20) as answer:
        answer.read()


@contextmanager
def process(command: list[str], ready: str, *, error: bool = False) -> Iterator[str]:
    """Run a server until the end of the block; yields the line that says that it is ready."""
    streams = {"stderr": subprocess.PIPE} if error else {"stdout": subprocess.PIPE}
    running = subprocess.Popen(command, text=True, **streams)  # type: ignore[call-overload]
    try:
        lines = running.stderr if error else running.stdout
        line = next((line for line in lines if ready in line), None)
        assert line is not None, f"{command[0]} did not start"
        yield line
    finally:
        running.kill()
        running.wait()
        lines.close()


class Scripted:
    """Speaks as much of S3 as reading one object takes, and fails as it is told to."""

    def __init__(self) -> None:
        self.content: bytes = b"{}"
        self.fault: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.requests: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=False)
        self._server.daemon_threads = False
        self._server.server_bind()  # but nobody listens yet: whoever comes is refused
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def start(self) -> None:
        self._server.server_activate()
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    @property
    def query(self) -> str:
        return f"?endpoint=http://127.0.0.1:{self._server.server_port}&region=us-east-1"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scripted.requests.append(dict(self.headers.items()))
                scripted.paths.append(self.path)
                if scripted.fault:
                    scripted.fault(self)
                    return
                tag = f'"{md5(scripted.content, usedforsecurity=False).hexdigest()}"'
                if self.headers["if-none-match"] == tag:
                    answer(self, 304, b"", ETag=tag)
                else:
                    answer(self, 200, scripted.content, ETag=tag)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes, length: int | None = None, **fields: str) -> None:
    handler.send_response(status)
    fields = {"Last-Modified": formatdate(usegmt=True)} | fields
    for name, value in fields.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(body)
