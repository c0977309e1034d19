"""The dashboard's pages over HTTP: read-only, each made again when one of its runs has changed."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import io
import ipaddress
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from wsgiref.types import StartResponse, WSGIEnvironment

from markupsafe import Markup

from vedette.dashboard.listing import (
    COLUMNS_MAX,
    differing_settings,
    matching_text,
    shared_values,
)
from vedette.dashboard.sources import RUNS_MAX, Source
from vedette.reports.configurations import group_runs
from vedette.reports.raw_numbers import write_numbers
from vedette.reports.record import RunRecord
from vedette.reports.writing import VIDEO_BYTES_MAX, VIDEO_TYPES, fill_page, page_contents
from vedette_rl.number_format import format_bytes
from vedette_rl.storage.regular_files import read_bytes
from vedette_services.errors import NotARunError, error_message
from vedette_services.run.overview import unreadable

log = logging.getLogger("vedette.dashboard")

CHARTED_MAX = 20
"""Runs that are drawn together."""
POLL_S = 3.0
"""Seconds after which a page asks for what is new."""
READ_S = 1.0
"""Seconds of reading after which a page is sent without the runs that are still unread."""
SPARKS_S = 0.5
"""Seconds of reading small curves for the list, after which the others come with the next page."""

_PAGES_MAX = 16  # in memory, one for each choice of runs
_ASSETS = {
    "/report.css": "text/css",
    "/report.js": "text/javascript",
    "/live.js": "text/javascript",
    "/list.js": "text/javascript",
    "/plotly/plotly-basic.min.js": "text/javascript",
}
_NOTHING = {
    "data": Markup('{"charts": []}'),
    "charts": [],
    "runs": [],
    "settings": {},
    "title": "Vedette",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding, Cookie",
}


class _NoPageError(Exception):
    """A request has no page: it is refused, or goes to another place."""

    def __init__(self, status: HTTPStatus, text: str = "", **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.body = text.encode("utf-8", "replace")
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, slots=True)
class _Page:
    """The content, packed by gzip, and the tag by which a browser asks whether it has changed."""

    etag: str
    kind: str
    packed: bytes


class Dashboard:
    """The WSGI application.

    Args:
        source: the runs.
        token: any browser that sends it may look; "": everybody who comes by an IP address or as
            ``localhost``. Other names may be those of other sites, whose pages would read ours.
    """

    def __init__(self, source: Source, token: str = "") -> None:
        self._source = source
        self._token = token
        self._salt = secrets.token_hex(4)  # of the tags: another version makes other pages
        self._pages: dict[tuple[str, ...], tuple[object, _Page]] = {}
        self._lock = threading.Lock()  # one page is made at a time

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        headers = dict(_HEADERS)
        try:
            page = self._answer(environ)
            headers |= {"ETag": page.etag, "Content-Type": f"{page.kind}; charset=utf-8"}
            status = HTTPStatus.OK
            body = page.packed
            if environ.get("HTTP_IF_NONE_MATCH") == page.etag:
                status = HTTPStatus.NOT_MODIFIED
                body = b""
            elif "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
                headers["Content-Encoding"] = "gzip"
            else:
                body = gzip.decompress(body)
        except _NoPageError as other:
            status = other.status
            body = other.body
            headers |= {"Content-Type": "text/plain; charset=utf-8", **other.headers}
        if status != HTTPStatus.NOT_MODIFIED:
            headers["Content-Length"] = str(len(body))
        start(f"{status.value} {status.phrase}", [*headers.items()])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: WSGIEnvironment) -> _Page:
        """Check a request, then find or make the page that it asks for.

        Raises:
            _NoPageError: it gets another answer.
        """
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            raise _NoPageError(
                HTTPStatus.METHOD_NOT_ALLOWED, "this is read-only", Allow="GET, HEAD"
            )
        try:
            query = parse_qs(environ["QUERY_STRING"], max_num_fields=RUNS_MAX)
        except ValueError as error:
            raise _NoPageError(HTTPStatus.BAD_REQUEST, "the query has too many parts") from error
        path = environ["PATH_INFO"]
        if self._token:
            self._check_token(environ, path, query.get("token", [""])[-1])
        elif not _is_local(environ.get("HTTP_HOST", "")):
            text = "this dashboard has the names localhost and 127.0.0.1 only; see --bind"
            raise _NoPageError(HTTPStatus.FORBIDDEN, text)
        if path == "/numbers.csv":
            return self._numbers(query.get("run", []), query.get("tag", []))
        if path == "/video":
            return self._video(query.get("run", [""])[-1], query.get("name", [""])[-1])
        return _asset(path) if path in _ASSETS else self._find(path, query.get("run", []))

    def _numbers(self, keys: Sequence[str], tags: Sequence[str]) -> _Page:
        """Every recorded number of curves of runs.

        Raises:
            _NoPageError: a run is not in the list, or cannot be read.
        """
        text = io.StringIO()
        try:
            records = [self._source.whole_record(key) for key in keys[:CHARTED_MAX]]
            write_numbers(text, records, set(tags))
        except (NotARunError, KeyError) as error:
            raise _NoPageError(HTTPStatus.NOT_FOUND, "there is no such run") from error
        data = text.getvalue().encode("utf-8", "replace")
        return _Page(
            f'"{hashlib.sha256(data).hexdigest()[:16]}"', "text/csv", gzip.compress(data, 1)
        )

    def _video(self, key: str, name: str) -> _Page:
        """A video in a run's directory.

        Raises:
            _NoPageError: there is none of this name, or it is too large.
        """
        path = self._source.videos(key).get(name)
        try:
            if path is None or path.stat().st_size > VIDEO_BYTES_MAX:
                text = f"there is no such video of at most {format_bytes(VIDEO_BYTES_MAX)}"
                raise _NoPageError(HTTPStatus.NOT_FOUND, text)
            data = read_bytes(path)
        except OSError as error:
            raise _NoPageError(HTTPStatus.NOT_FOUND, f"{name}: {error.strerror}") from error
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        return _Page(etag, VIDEO_TYPES[path.suffix], gzip.compress(data, 1))

    def _check_token(self, environ: WSGIEnvironment, path: str, given: str) -> None:
        """Check the token: the first URL has it, then a cookie.

        Raises:
            _NoPageError: it is missing or wrong; or it was in the URL, and becomes a cookie.
        """
        name = f"vedette-{environ['SERVER_PORT']}"  # cookies are the same for all ports
        if self._is_token(given):
            cookie = f"{name}={self._token}; HttpOnly; SameSite=Lax; Path=/"
            place = "/" + quote(path.lstrip("/"))
            raise _NoPageError(HTTPStatus.SEE_OTHER, Location=place, Set_Cookie=cookie)
        cookies = [each.strip() for each in environ.get("HTTP_COOKIE", "").split(";")]
        pairs = [each.partition("=") for each in cookies]
        if not any(key == name and self._is_token(value) for key, _, value in pairs):
            text = "open the URL that `vedette dashboard` printed: it has the token"
            raise _NoPageError(HTTPStatus.FORBIDDEN, text)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())

    def _find(self, path: str, chosen: Sequence[str]) -> _Page:
        """Find or make the page at a path.

        Raises:
            _NoPageError: there is none.
        """
        only = self._source.only
        with self._lock:
            try:
                if path == "/":
                    return self._page([only]) if only else self._home(chosen)
                key = path.removeprefix("/run/")
                if self._source.version(key) is not None:
                    return self._page([key], home=not only)
            except NotARunError as error:
                raise _NoPageError(HTTPStatus.NOT_FOUND, str(error)) from error
            except Exception as error:
                log.debug("a page could not be made", exc_info=True)
                text = f"this page could not be made: {error_message(error)}"
                raise _NoPageError(HTTPStatus.INTERNAL_SERVER_ERROR, text) from error
        raise _NoPageError(HTTPStatus.NOT_FOUND, "there is no such page; all runs are at /")

    def _home(self, chosen: Sequence[str]) -> _Page:
        """The list of runs, and the charts of those that are chosen, or of the newest."""
        overviews = self._source.overviews()
        marked = [key for key in overviews if key in chosen]
        if not marked and overviews:
            env = next(iter(overviews.values())).env
            marked = [
                key for key, run in overviews.items() if run.env == env and run.state != "new"
            ]
        drawn = sorted(marked[:CHARTED_MAX], key=lambda key: overviews[key].began_s or 0.0)
        details = {key: self._source.details(key) for key in overviews}
        differing = differing_settings([*details.values()])
        rows = [
            (key, key in drawn, run, details[key], matching_text(run, details[key], differing))
            for key, run in overviews.items()
        ]
        return self._page(
            drawn,
            listing=rows,
            left_out=len(marked) - len(drawn),
            shared=shared_values([*overviews.values()]),
            columns=differing[:COLUMNS_MAX],
            group_keys=sorted(differing),
        )

    def _page(self, keys: Sequence[str], **contents: Any) -> _Page:
        """Make a page about runs; one that is in memory is sent again if nothing has changed."""
        name = (*contents, *keys)
        listed = [row[0] for row in contents.get("listing", ())]
        versions = [self._source.version(key) for key in keys]
        version = (versions, contents, self._source.sparklines(listed, 0.0))
        known, page = self._pages.pop(name, (None, None))
        if page is None or known != version:
            records, faults, unread = self._read(keys, listed="listing" in contents)
            run_contents = _contents(records, faults if "listing" in contents else None)
            sparks = self._source.sparklines(listed, SPARKS_S)
            version = (versions, contents, sparks)
            made = time.time() if unread else 0.0  # what is unread comes next
            tag = repr((self._salt, name, version, made, faults)).encode("utf-8", "replace")
            etag = f'"{hashlib.sha256(tag).hexdigest()[:16]}"'
            wait_s = 0.1 if unread else POLL_S
            more = {"unread": unread, "faults": faults, "wait_s": wait_s, "etag": etag}
            html = fill_page(
                "live.html",
                **run_contents,
                **contents,
                **more,
                sparks=sparks,
                drawn_keys=[key for key in keys if key in records],
                place=self._source.place,
            )
            page = _Page(etag, "text/html", gzip.compress(html.encode("utf-8", "replace"), 1))
            is_whole = not unread and not faults and len(sparks) == len(listed)
            known = version if is_whole else None
        self._pages[name] = known, page
        for oldest in [*self._pages][:-_PAGES_MAX]:
            del self._pages[oldest]
        return page

    def _read(
        self, keys: Sequence[str], *, listed: bool
    ) -> tuple[dict[str, RunRecord], dict[str, str], int]:
        """Read runs for `READ_S`.

        Returns:
            Them, the errors of others if they are `listed`, and the number of those left unread.
        """
        records: dict[str, RunRecord] = {}
        faults: dict[str, str] = {}
        deadline = time.monotonic() + READ_S
        unread = 0
        for key in keys:
            if records and time.monotonic() > deadline and not self._source.is_read(key):
                unread += 1
                continue
            try:
                records[key] = self._source.record(key)
            except Exception as error:
                if not listed:
                    raise
                if not isinstance(error, NotARunError):  # that one was removed
                    log.debug("a run could not be read", exc_info=True)
                    faults[key] = unreadable(error)
        return records, faults, unread


def _contents(records: dict[str, RunRecord], faults: dict[str, str] | None) -> dict[str, Any]:
    """Return what the page shows of runs.

    Args:
        faults: gets the errors of runs that cannot be shown; None: they are raised.
    """
    if not records:
        return _NOTHING
    try:
        return _contents_of(records)
    except Exception:
        if faults is None:
            raise
        shown = {}
        for key, record in records.items():
            try:
                _contents_of({key: record})
                shown[key] = record
            except Exception as error:
                log.debug("a run could not be shown", exc_info=True)
                faults[key] = unreadable(error)
        if len(shown) == len(records):
            raise
    return _contents(shown, faults)


def _contents_of(records: dict[str, RunRecord]) -> dict[str, Any]:
    """Return what the page shows of runs, of which it has no videos: a browser asks for them."""
    videos_at = f"/video?run={next(iter(records))}"
    return page_contents(group_runs([*records.values()]), videos_at=videos_at)


def _is_local(host: str) -> bool:
    """Return True for a Host header that no name server can have given another meaning."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


@cache
def _asset(path: str) -> _Page:
    """A file of the report's, which is the same for every page."""
    text = (files("vedette.reports") / path.removeprefix("/")).read_bytes()
    etag = f'"{hashlib.sha256(text).hexdigest()[:16]}"'
    return _Page(etag, _ASSETS[path], gzip.compress(text))
