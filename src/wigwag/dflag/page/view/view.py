"""What is answered to those who only look, and to those who have just changed something."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wigwag.dflag.page.division import Division
from wigwag.dflag.page.listing import Filter, described, listed
from wigwag.dflag.page.messages import HTML, PageRequest, Pairs, Response, answer_json, answer_text
from wigwag.dflag.page.view import html

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.page.access import Access
    from wigwag.dflag.page.state import PageStateCache
    from wigwag.dflag.page.view.panel import Banner
    from wigwag.dflag.updating.health import UpdaterHealth


def wants_html(request: PageRequest) -> bool:
    """Tell whether a browser asks, as the original does."""
    return "html" in request.header("accept")


class PageView:
    """The flags as JSON and as HTML."""

    def __init__(
        self,
        title: str,
        camera: PageStateCache,
        updater: Callable[[], UpdaterHealth | None],
        access: Access,
        clock: Callable[[], float],
    ) -> None:
        self._title, self._camera, self._updater = title, camera, updater
        self._access, self._clock, self._division = access, clock, Division()

    def all(self, request: PageRequest, wanted: Filter) -> Response:
        """Return a list of flags as JSON."""
        listing = self._listed(request, wanted)
        return answer_json(listing, headers=_tagged(listing["etag"]))

    def one(self, flag: AnyFlag) -> Response:
        """Return a flag as JSON."""
        found = self.described(flag)
        return answer_json(found, headers=_tagged(found["etag"]))

    def page(self, request: PageRequest, wanted: Filter) -> Response:
        """Return a list of flags as HTML."""
        return self._page(request, self._listed(request, wanted), wanted)

    def page_of(
        self, request: PageRequest, flag: AnyFlag, notice: Banner | None = None, status: int = 200, headers: Pairs = ()
    ) -> Response:
        """Return a flag as HTML, with something to say about it."""
        listing = self._listed(request, Filter())
        listing["flags"] = [one for one in listing["flags"] if one["name"] == flag.name]
        return self._page(request, listing, None, notice, status, headers)

    def warning(self, request: PageRequest) -> str | None:
        """Return what is to be known about the process that answers, if it is one of several."""
        return self._division.warning(request)

    def described(self, flag: AnyFlag) -> dict[str, Any]:
        """Return a flag as it is in a list."""
        updater = self._updater()
        restart = updater.restart_required if updater is not None else ()
        return described(self._camera.state().find(flag), self._clock(), restart)

    def _listed(self, request: PageRequest, wanted: Filter) -> dict[str, Any]:
        set_url = f"{request.root}/set" if self._access.enabled else ""
        listing = listed(self._camera.state(), wanted, self._clock(), set_url, self._updater())
        return {**listing, "warning": self.warning(request)}

    def _page(
        self,
        request: PageRequest,
        listing: dict[str, Any],
        wanted: Filter | None,
        notice: Banner | None = None,
        status: int = 200,
        headers: Pairs = (),
    ) -> Response:
        page = html.HtmlPage(self._title, listing, self._access, request.root, wanted, notice)
        own = (("Content-Security-Policy", html.policy()), *_tagged(listing["etag"]), *headers)
        return answer_text(html.render(page), HTML, status, own)


def _tagged(tag: str) -> Pairs:
    return (("ETag", f'"{tag}"'),)
