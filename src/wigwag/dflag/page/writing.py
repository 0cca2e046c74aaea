"""What is done for those who set flags: who they are, what they want, and a line in the log, whatever comes of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

from wigwag.dflag.page.access import check_origin
from wigwag.dflag.page.change import FORM, media_type, read_change, read_query, read_switches
from wigwag.dflag.page.messages import HTML, HttpError, Response, answer_json, answer_text
from wigwag.dflag.page.routes import RouteOperation
from wigwag.dflag.page.view.panel import Banner
from wigwag.dflag.page.view.view import wants_html
from wigwag.dflag.values.numerals import shown

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.page.access import Access
    from wigwag.dflag.page.change import FlagEdit
    from wigwag.dflag.page.effect import Changer, EditEffect
    from wigwag.dflag.page.messages import PageLimits, PageRequest
    from wigwag.dflag.page.routes import Route
    from wigwag.dflag.page.view.view import PageView

log = logging.getLogger("wigwag.dflag.page")
_LONGEST_REASON = 300
_ABOUT_THE_VALUE = (409, 412, 422)


class Writing:
    """Answers requests that change something."""

    def __init__(self, flags: FlagSet, view: PageView, changer: Changer, access: Access, limits: PageLimits) -> None:
        self._flags, self._view, self._changer = flags, view, changer
        self._access, self._limits = access, limits

    def flag(self, name: str) -> AnyFlag:
        """Return the flag of a name or alias."""
        flag = self._flags.find(name)
        if flag is None:
            raise HttpError(404, f"there is no flag {shown(name)}")
        return flag

    def answer(self, request: PageRequest, asked: Route) -> Response:
        """Make a change, or refuse it; to a form, say why on the page."""
        try:
            return self._done(request, asked)
        except HttpError as refusal:
            reason = shown(refusal.detail, _LONGEST_REASON)
            log.warning("a change of %s by %s was refused: %d %s", _what(asked), _who(request), refusal.status, reason)
            flag = self._flags.find(asked.name)
            if flag is None or not _form(request) or refusal.status not in _ABOUT_THE_VALUE:
                raise
            notice = Banner(flag.name, refusal.detail, False, _typed(request, flag))
            return self._view.page_of(request, flag, notice, refusal.status, refusal.headers)

    def _done(self, request: PageRequest, asked: Route) -> Response:
        check_origin(request.headers, self._access.allowed_origins)
        self._access.check(request.headers)
        if len(request.body) > self._limits.body:
            raise HttpError(413, f"a body has at most {self._limits.body} bytes")
        match asked.operation:
            case RouteOperation.RESET:
                flag, change = self.flag(asked.name), read_switches(request)
                effect = self._changer.reset(flag, change)
            case RouteOperation.SET:
                flag, change = self.flag(asked.name), read_change(request)
                effect = self._changer.set(flag, change)
            case _:
                name, change = read_query(request)
                flag = self.flag(name)
                effect = self._changer.set(flag, change)
        _audit(request, asked, flag, change, effect, self._view.warning(request) is not None)
        return self._told(request, asked, flag, effect)

    def _told(self, request: PageRequest, asked: Route, flag: AnyFlag, effect: EditEffect) -> Response:
        warning = self._view.warning(request)
        if asked.operation is RouteOperation.SET_BY_QUERY and "json" not in request.header("accept"):
            more = f"Warning: {warning}\n" if warning else ""
            return answer_text(f'Success "{effect.name}" -> "{effect.new}"\n{more}')
        if not _form(request):
            return answer_json({**effect.described(), "warning": warning, "flag": self._view.described(flag)})
        if effect.validate_only:
            return self._view.page_of(request, flag, Banner(flag.name, effect.told(), True, _typed(request, flag)))
        where = f"{quote(request.root)}/#flag-{quote(flag.name)}"
        return Response(303, HTML, b"", (("Location", where),))


def _form(request: PageRequest) -> bool:
    """Tell whether a form of the page was sent without the script."""
    return wants_html(request) and media_type(request) == FORM


def _typed(request: PageRequest, flag: AnyFlag) -> str | None:
    """Return what was typed into a form, so that it is still there; but nothing secret."""
    if flag.secret:
        return None
    try:
        value = read_change(request).value
    except HttpError:
        return None
    return value if isinstance(value, str) else None


def _what(asked: Route) -> str:
    return f"flag {shown(asked.name)}" if asked.name else "a flag"


def _who(request: PageRequest) -> str:
    return request.peer or "(unknown)"


def _audit(
    request: PageRequest, asked: Route, flag: AnyFlag, change: FlagEdit, effect: EditEffect, alone: bool
) -> None:
    if effect.validate_only:
        return
    verb = "reset" if asked.operation is RouteOperation.RESET else "set"
    old, new = shown(effect.old), shown(effect.new)  # of a secret flag, that it is secret
    more = f" for {change.ttl:g} s" if change.ttl is not None else ""
    more += ", in this process only" if alone else ""
    log.info("flag %r was %s over HTTP by %s: %s -> %s%s", flag.name, verb, _who(request), old, new, more)
