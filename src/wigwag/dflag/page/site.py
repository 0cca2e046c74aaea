"""The flags page as a function from a request to a response. It knows no connections; the servers are beside it.

    request ─▶ host allowed? ─▶ route ─▶ read: state ─▶ JSON or HTML
                                  └────▶ write: origin? token? ─▶ edit ─▶ effect ─▶ JSON, text, or the page again

Reading is open to anyone who can reach the page; writing is closed unless `Access` opens it. Each attempt to write is
logged with the address of the client. No response and no log line contains the value of a secret flag.

The hard case is a program of several processes, such as gunicorn's workers: an override exists in one process only,
the one that got the request. So once the process has forked, each response has a `warning`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from wigwag.dflag import fork
from wigwag.dflag.page import metrics
from wigwag.dflag.page.access import Access, check_host, check_origin
from wigwag.dflag.page.edit import EditEffect, FlagEdit, apply_edit, read_query, read_reset, read_value
from wigwag.dflag.page.listing import Filter, describe, list_flags, read_filter
from wigwag.dflag.page.messages import (
    FORM,
    HTML,
    HttpError,
    PageLimits,
    PageRequest,
    Pairs,
    Response,
    finished,
    json_response,
    problem,
    text_response,
)
from wigwag.dflag.page.routes import WRITES, Route, RouteOperation, document, route
from wigwag.dflag.page.state import PageStateCache
from wigwag.dflag.page.view.html import policy, render, render_error
from wigwag.dflag.page.view.panel import Banner
from wigwag.dflag.values.numerals import shown

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.health import UpdaterHealth

__all__ = ["Access", "PageLimits", "Site"]
log = logging.getLogger("wigwag.dflag.page")
_LONGEST_REASON = 300
_ABOUT_THE_VALUE = (409, 412, 422)


class Site:
    """The page of a set of flags.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate = flags.int("rate", 10)
    >>> site = Site(flags, access=Access(unauthenticated=True))
    >>> body, headers = b'{"value": 20}', {"host": "localhost", "content-type": "application/json"}
    >>> site(PageRequest("PUT", "/flags/rate", headers=headers, body=body)).status, rate.get(), str(rate.held)
    (200, 20, 'HTTP override')
    """

    def __init__(
        self,
        flags: FlagSet,
        updater: UpdaterHealth | None = None,
        access: Access | None = None,
        *,
        limits: PageLimits = PageLimits(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `access`, nothing can be set. `clock` is that of the flags.

        Without `updater`, the page shows the one that the flags have at the time of a request: it may start later.
        """
        self.flags, self._updater, self.access, self.limits = flags, updater, access or Access(), limits
        self._clock, self._states, self._forks = clock, PageStateCache(flags), fork.count()

    @property
    def updater(self) -> UpdaterHealth | None:
        """The updater that the page shows."""
        return self._updater or self.flags.updater

    def __call__(self, request: PageRequest) -> Response:
        """Answer a request. This never raises."""
        try:
            response = self._answer(request)
        except HttpError as error:
            response = _error(request, error)
        except Exception:
            log.exception("a request to the flags page failed: %s %s", shown(request.method), shown(request.path))
            response = problem(HttpError(500, "internal error; see the log of the program"))
        return finished(response, request.method)

    def _answer(self, request: PageRequest) -> Response:
        check_host(request.header("host"), self.access.allowed_hosts)
        target = route(request.method, request.path)
        if target.operation in WRITES:
            return self._write(request, target)
        match target.operation:
            case RouteOperation.DESCRIBE:
                return json_response(document(self.flags.name, request.root))
            case RouteOperation.MEASURE:
                return text_response(metrics.rendered(self.flags, self._states.state(), self.updater), metrics.TYPE)
            case _:
                return self._read(request, target)

    def _flag(self, name: str) -> AnyFlag:
        flag = self.flags.find(name)
        if flag is None:
            raise HttpError(404, f"there is no flag {shown(name)}")
        return flag

    def _warning(self, request: PageRequest) -> str | None:
        """Return the warning that the flags here are those of one process of several; None if they are not."""
        if fork.count() == self._forks and not request.multiprocess:
            return None
        others = "other processes have flags of their own; to change all of them, use the ConfigMap"
        return f"this is process {os.getpid()} only: {others}"

    # reads

    def _read(self, request: PageRequest, target: Route) -> Response:
        listed = read_filter(request.query)
        as_html = request.accepts_html and not listed.json
        if target.operation is RouteOperation.SHOW:
            flag = self._flag(target.name)
            return self._flag_page(request, flag) if as_html else _tagged_json(self._described(flag))
        listing = self._listing(request, listed)
        return self._page(request, listing, listed) if as_html else _tagged_json(listing)

    def _described(self, flag: AnyFlag) -> dict[str, Any]:
        restart = self.updater.restart_required if self.updater is not None else ()
        return describe(self._states.state().find(flag), self._clock(), restart)

    def _listing(self, request: PageRequest, filter: Filter) -> dict[str, Any]:
        set_url = f"{request.root}/set" if self.access.enabled else ""
        listing = list_flags(self._states.state(), filter, self._clock(), set_url, self.updater)
        return {**listing, "warning": self._warning(request)}

    def _flag_page(
        self, request: PageRequest, flag: AnyFlag, banner: Banner | None = None, status: int = 200, headers: Pairs = ()
    ) -> Response:
        """Return the page of one flag."""
        listing = self._listing(request, Filter())
        listing["flags"] = [each for each in listing["flags"] if each["name"] == flag.name]
        return self._page(request, listing, None, banner, status, headers)

    def _page(
        self,
        request: PageRequest,
        listing: dict[str, Any],
        filter: Filter | None,
        banner: Banner | None = None,
        status: int = 200,
        headers: Pairs = (),
    ) -> Response:
        page = render(self.flags.name, listing, self.access, request.root, filter, banner)
        own = (("Content-Security-Policy", policy()), _etag(listing), *headers)
        return text_response(page, HTML, status, own)

    # writes

    def _write(self, request: PageRequest, target: Route) -> Response:
        """Apply an edit, or refuse it; a form gets the reason on the page."""
        try:
            return self._edit(request, target)
        except HttpError as error:
            subject = f"flag {shown(target.name)}" if target.name else "a flag"
            reason = shown(error.detail, _LONGEST_REASON)
            log.warning("a change of %s by %s was refused: %d %s", subject, _client(request), error.status, reason)
            flag = self.flags.find(target.name)
            if flag is None or not _from_page(request) or error.status not in _ABOUT_THE_VALUE:
                raise
            banner = Banner(flag.name, error.detail, False, _typed(request, flag))
            return self._flag_page(request, flag, banner, error.status, error.headers)

    def _edit(self, request: PageRequest, target: Route) -> Response:
        check_origin(request.headers, self.access.allowed_origins)
        self.access.check(request.headers)
        if len(request.body) > self.limits.body:
            raise HttpError(413, f"a body has at most {self.limits.body} bytes")
        if target.operation is RouteOperation.SET_BY_QUERY:
            name, edit = read_query(request)
            flag = self._flag(name)
        else:
            flag = self._flag(target.name)
            edit = read_reset(request) if target.operation is RouteOperation.RESET else read_value(request)
        effect = apply_edit(flag, edit, self.flags, self._states, self._clock())
        warning = self._warning(request)
        if not effect.validate_only:
            _audit(request, edit, effect, alone=warning is not None)
        if target.operation is RouteOperation.SET_BY_QUERY and "json" not in request.header("accept"):
            more = f"Warning: {warning}\n" if warning else ""
            return text_response(f'Success "{effect.name}" -> "{effect.new_value}"\n{more}')
        if not _from_page(request):
            return json_response({**asdict(effect), "warning": warning, "flag": self._described(flag)})
        if effect.validate_only:
            return self._flag_page(request, flag, Banner(flag.name, effect.summary(), True, _typed(request, flag)))
        return Response(303, HTML, b"", (("Location", f"{quote(request.root)}/#flag-{quote(flag.name)}"),))


def _etag(described: dict[str, Any]) -> tuple[str, str]:
    return "ETag", f'"{described["etag"]}"'


def _tagged_json(described: dict[str, Any]) -> Response:
    return json_response(described, headers=(_etag(described),))


def _error(request: PageRequest, error: HttpError) -> Response:
    response = problem(error)
    if not request.accepts_html:
        return response
    headers = (("Content-Security-Policy", policy()), *error.headers)
    return text_response(render_error(response.line, error.detail, request.root), HTML, error.status, headers)


def _from_page(request: PageRequest) -> bool:
    """Return whether a form of the page was sent without the script."""
    return request.accepts_html and request.media_type == FORM


def _typed(request: PageRequest, flag: AnyFlag) -> str | None:
    """Return the text of a form, to show it again; never that of a secret flag."""
    if flag.secret:
        return None
    try:
        value = read_value(request).value
    except HttpError:
        return None
    return value if isinstance(value, str) else None


def _client(request: PageRequest) -> str:
    return request.peer or "(unknown)"


def _audit(request: PageRequest, edit: FlagEdit, effect: EditEffect, *, alone: bool) -> None:
    verb = "reset" if edit.value is None else "set"
    old, new = shown(effect.old_value), shown(effect.new_value)  # for a secret flag, a placeholder
    more = f" for {edit.ttl:g} s" if edit.ttl is not None else ""
    more += ", in this process only" if alone else ""
    log.info("flag %r was %s over HTTP by %s: %s -> %s%s", effect.name, verb, _client(request), old, new, more)
