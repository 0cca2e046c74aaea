"""The built-in server of the flags page: `with PageServer(site, port=8181) as server: …`.

It listens on loopback by default, and serves until it is stopped or the program ends. A forked child does not listen: a
change would reach the parent or the child, whichever accepts first. The child may start the server at another port.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

from wigwag.dflag import fork
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from typing import Self

    from wigwag.dflag.page.listener import PageListener
    from wigwag.dflag.page.site import Site

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - how to reach it from here


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
        """`port` 0 takes any free port. On other hosts than loopback, use a token and a proxy with TLS."""
        self.site, self.host, self._port = site, host, port
        self._lock = threading.RLock()
        self._listener: PageListener | None = None
        self._stopping: PageListener | None = None
        fork.remember(self)

    def start(self) -> None:
        """Listen; `StartError` if that fails."""
        from wigwag.dflag.page.listener import PageListener  # imports the network stack

        fork.catch_up()
        with self._lock:
            if self._listener is not None:
                raise UsageError("the flags page is served already")
            self._listener = PageListener(self.site, self.host, self._port)
            atexit.register(self.stop)

    def stop(self) -> None:
        """Stop listening. A second call only waits for the first; the server can be started again."""
        fork.catch_up()
        with self._lock:
            listener, self._listener = self._listener or self._stopping, None
            self._stopping = listener
            atexit.unregister(self.stop)
        if listener is not None:
            listener.stop()

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
        """The address of the page."""
        host = _ANYWHERE.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        inherited = self._listener, self._stopping
        self._listener = self._stopping = None
        atexit.unregister(self.stop)
        for listener in inherited:
            if listener is not None:
                listener.abandon()

    def go_on_in_child(self) -> None:
        """Do nothing: the port is the parent's."""
