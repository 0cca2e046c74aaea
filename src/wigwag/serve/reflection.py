"""gRPC server reflection, v1 and v1alpha: lets grpcurl and the like list the services of a port and call them.

    ServerReflectionRequest   3 file_by_filename | 4 file_containing_symbol | 5, 6 extensions | 7 list_services
    ServerReflectionResponse  1 valid_host, 2 original_request, 4 files | 5 extension numbers | 6 services | 7 error

The descriptors are those of `proto/`, compiled by protoc into one FileDescriptorSet. A file is sent together with the
files that it imports, so that a client need not ask again. It says nothing but what the schemas say, which are public,
so it is served to everybody who reaches the port.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from wigwag.wire.rpc import Code, Method
from wigwag.wire.rpcs.protobuf import BYTES, blob, fields, integer, read_text, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from wigwag.wire.rpc import Call

SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_METHOD = "ServerReflectionInfo"


class File(Struct, frozen=True):
    """One file of schemas."""

    content: bytes
    """The encoded FileDescriptorProto."""
    imports: tuple[str, ...]


class Schemas(Struct, frozen=True):
    """The schemas of everything we serve."""

    files: dict[str, File]
    symbols: dict[str, str]
    """The name of the file that defines a service, method, message, field or enum, by its full name."""

    def with_imports(self, name: str) -> list[bytes]:
        """Return a file and all that it needs; none if there is no such file."""
        names = [name] if name in self.files else []
        for each in names:  # it grows while it is walked
            names += [other for other in self.files[each].imports if other not in names]
        return [self.files[each].content for each in names]


@cache
def schemas() -> Schemas:
    """Read the descriptors, once, with the first request."""
    from importlib.resources import files

    descriptors = (files("wigwag.proto") / "descriptors.binpb").read_bytes()
    by_name: dict[str, File] = {}
    symbols: dict[str, str] = {}
    for content in _parts(descriptors, 1):
        name, package = _names(content, 1)[0], "".join(_names(content, 2))
        by_name[name] = File(content, tuple(_names(content, 3)))
        symbols |= dict.fromkeys(_symbols(content, package), name)
    return Schemas(by_name, symbols)


def _symbols(file: bytes, package: str) -> Iterator[str]:
    for message in _parts(file, 4):
        yield from _message_symbols(message, package)
    for enum in _parts(file, 5):
        yield f"{package}.{_names(enum, 1)[0]}"
    for service in _parts(file, 6):
        name = f"{package}.{_names(service, 1)[0]}"
        yield name
        yield from (f"{name}.{_names(method, 1)[0]}" for method in _parts(service, 2))


def _message_symbols(message: bytes, scope: str) -> Iterator[str]:
    name = f"{scope}.{_names(message, 1)[0]}"
    yield name
    yield from (f"{name}.{_names(member, 1)[0]}" for number in (2, 4) for member in _parts(message, number))
    for nested in _parts(message, 3):
        yield from _message_symbols(nested, name)


def _parts(message: bytes, number: int) -> list[bytes]:
    return [value for at, kind, value in fields(message) if at == number and kind == BYTES]  # type: ignore[misc]


def _names(message: bytes, number: int) -> list[str]:
    return [read_text(part) for part in _parts(message, number)]


class Reflection:
    """The reflection services of one port."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = sorted(services)

    def methods(self) -> dict[bytes, Method]:
        """Return the methods of both versions."""
        return {f"/{service}/{_METHOD}".encode(): Method(bidi=self._answers) for service in SERVICES}

    async def _answers(self, call: Call, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            yield self.answer(request)

    def answer(self, request: bytes) -> bytes:
        """Return the response to one request."""
        asked = {number: value for number, kind, value in fields(request) if kind == BYTES and number in _ANSWERS}
        host = read_text(next(iter(_parts(request, 1)), b""))
        number, value = next(reversed(asked.items()), (0, b""))  # of a oneof, the last one counts
        response = _ANSWERS[number](self, value) if number else _error(Code.INVALID_ARGUMENT, "nothing is asked for")  # type: ignore[arg-type]
        return text(1, host) + blob(2, request) + response

    def _file_by_name(self, value: bytes) -> bytes:
        return _files(schemas().with_imports(read_text(value)), f"there is no file {read_text(value)!r}")

    def _file_by_symbol(self, value: bytes) -> bytes:
        symbol = read_text(value).removeprefix(".")
        return _files(schemas().with_imports(schemas().symbols.get(symbol, "")), f"there is no {symbol!r}")

    def _extension(self, _value: bytes) -> bytes:
        return _error(Code.NOT_FOUND, "there are no extensions")

    def _extension_numbers(self, value: bytes) -> bytes:
        if read_text(value) not in schemas().symbols:
            return _error(Code.NOT_FOUND, f"there is no {read_text(value)!r}")
        return blob(5, text(1, read_text(value)))

    def _list(self, _value: bytes) -> bytes:
        return blob(6, b"".join(blob(1, text(1, name)) for name in self._services))


_ANSWERS = {
    3: Reflection._file_by_name,
    4: Reflection._file_by_symbol,
    5: Reflection._extension,
    6: Reflection._extension_numbers,
    7: Reflection._list,
}


def _files(contents: list[bytes], missing: str) -> bytes:
    if not contents:
        return _error(Code.NOT_FOUND, missing)
    return blob(4, b"".join(blob(1, content) for content in contents))


def _error(code: Code, message: str) -> bytes:
    return blob(7, integer(1, code) + text(2, message))


def reflecting(methods: Mapping[bytes, Method]) -> dict[bytes, Method]:
    """Return the methods of a port together with the reflection services that describe them."""
    services = {path.decode().split("/")[1] for path in methods}
    return {**methods, **Reflection({*services, *SERVICES}).methods()}
