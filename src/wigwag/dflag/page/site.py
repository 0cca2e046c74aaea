"""The flags page as a function from a request to an answer. It knows no connection; what serves it is beside it.

    request ─▶ host? ─▶ route ─▶ read: state ─▶ JSON or HTML
                          └────▶ write: origin? token? ─▶ change ─▶ effect ─▶ JSON, text, or the page again

Listing is open to whoever can reach it; setting is closed, unless `Access` opens it. Every attempt to set is logged,
with who made it; what a secret flag holds is in no answer and no log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from wigwag.dflag.page import metrics, openapi
from wigwag.dflag.page.access import Access, check_host
from wigwag.dflag.page.effect import Changer
from wigwag.dflag.page.listing import read_filter
from wigwag.dflag.page.messages import (
    HTML,
    HttpError,
    PageLimits,
    PageRequest,
    Response,
    answer_json,
    answer_text,
    finished,
    phrase,
    problem,
)
from wigwag.dflag.page.routes import WRITES, Route, RouteOperation, route
from wigwag.dflag.page.state import PageStateCache
from wigwag.dflag.page.view import html
from wigwag.dflag.page.view.view import PageView, wants_html
from wigwag.dflag.page.writing import Writing
from wigwag.dflag.values.numerals import shown

if TYPE_CHECKING:
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.health import UpdaterHealth

__all__ = ["Access", "PageLimits", "Site"]
log = logging.getLogger("wigwag.dflag.page")
_FAULT = "something went wrong here; the log of the program says what"


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

        Without `updater`, the page shows the one that the flags have when somebody asks: it may be started later.
        """
        self.flags, self._updater, self.access, self.limits = flags, updater, access or Access(), limits
        self._camera = PageStateCache(flags)
        self._view = PageView(flags.name, self._camera, lambda: self.updater, self.access, clock)
        self._writing = Writing(flags, self._view, Changer(flags, self._camera, clock), self.access, limits)

    @property
    def updater(self) -> UpdaterHealth | None:
        """The updater that the page tells of."""
        return self._updater or self.flags.updater

    def __call__(self, request: PageRequest) -> Response:
        """Answer a request; it never raises."""
        try:
            response = self._answer(request)
        except HttpError as refusal:
            response = _refused(request, refusal)
        except Exception:
            log.exception("a request to the flags page has failed: %s %s", shown(request.method), shown(request.path))
            response = problem(HttpError(500, _FAULT))
        return finished(response, request.method)

    def _answer(self, request: PageRequest) -> Response:
        check_host(request.header("host"), self.access.allowed_hosts)
        asked = route(request.method, request.path)
        if asked.operation in WRITES:
            return self._writing.answer(request, asked)
        match asked.operation:
            case RouteOperation.DESCRIBE:
                return answer_json(openapi.document(self.flags.name, request.root))
            case RouteOperation.MEASURE:
                return answer_text(metrics.rendered(self.flags, self._camera.state(), self.updater), metrics.TYPE)
            case _:
                return self._read(request, asked)

    def _read(self, request: PageRequest, asked: Route) -> Response:
        wanted = read_filter(request.query)
        as_html = wants_html(request) and not wanted.json
        if asked.operation is RouteOperation.SHOW:
            flag = self._writing.flag(asked.name)
            return self._view.page_of(request, flag) if as_html else self._view.one(flag)
        return self._view.page(request, wanted) if as_html else self._view.all(request, wanted)


def _refused(request: PageRequest, refusal: HttpError) -> Response:
    if not wants_html(request):
        return problem(refusal)
    title = f"{refusal.status} {phrase(refusal.status)}"
    headers = (("Content-Security-Policy", html.policy()), *refusal.headers)
    return answer_text(html.render_error(title, refusal.detail, request.root), HTML, refusal.status, headers)
