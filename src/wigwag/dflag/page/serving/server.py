"""A server for the flags page that needs nothing but Python: `with PageServer(site, port=8181) as server: …`.

It listens on loopback unless told otherwise, and serves until it is stopped, or the program ends. In a child of a fork
it does not listen, for a change would then reach the parent or the child, whoever comes first; the child may start it
at another port.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

from wigwag.dflag import fork
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from wigwag.dflag.page.serving.listener import Listener
    from wigwag.dflag.page.site import Site

_GRACE = 2.0
"""Seconds for requests to end when the server is stopped."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what to call it, if somebody asks for that


class PageServer:
    """Serves a site over HTTP, from threads of its own.

    >>> from wigwag import dflag
    >>> from wigwag.dflag.page.site import Site
    >>> with PageServer(Site(dflag.FlagSet("example"))) as server:
    ...     server.url.startswith("http://127.0.0.1:"), server.running
    (True, True)
    """

    fork_order = 3

    def __init__(self, site: Site, host: str = "127.0.0.1", port: int = 0) -> None:
        """`port` 0 takes any that is free. On other hosts than loopback, have a token, and something that encrypts."""
        self.site, self.host, self._port = site, host, port
        self._guard = threading.RLock()
        self._listener: Listener | None = None
        self._ending: Listener | None = None
        fork.remember(self)

    def start(self) -> None:
        """Listen; `StartError` if that cannot be."""
        from wigwag.dflag.page.serving.listener import Listener  # brings the network, which few need

        fork.catch_up()
        with self._guard:
            if self._listener is not None:
                raise UsageError("the flags page is served already")
            self._listener = Listener(self.site, self.host, self._port)
            atexit.register(self.stop)

    def stop(self) -> None:
        """Listen no more. A second time does nothing but wait for the first; it can be started again."""
        fork.catch_up()
        with self._guard:
            listener, self._listener = self._listener or self._ending, None
            self._ending = listener
            atexit.unregister(self.stop)
        if listener is not None:
            listener.stop(_GRACE)

    @property
    def running(self) -> bool:
        """Whether it listens."""
        fork.catch_up()
        return self._listener is not None

    @property
    def port(self) -> int:
        """The port that it listens at."""
        fork.catch_up()
        listener = self._listener
        if listener is None:
            raise UsageError("the flags page is not served now, so it has no port: start() it")
        return listener.port

    @property
    def url(self) -> str:
        """Where it is."""
        host = _ANYWHERE.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def before_fork(self) -> None:
        self._guard.acquire()

    def after_fork_in_parent(self) -> None:
        self._guard.release()

    def after_fork_in_child(self) -> None:
        self._guard = threading.RLock()
        left = self._listener, self._ending
        self._listener = self._ending = None
        atexit.unregister(self.stop)
        for listener in left:
            if listener is not None:
                listener.abandon()

    def go_on_in_child(self) -> None:
        """There is nothing to go on with: the port is the parent's."""
