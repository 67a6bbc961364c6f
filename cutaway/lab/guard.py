"""Who may talk to the lab: one ASGI layer around everything, so that no route can forget a check."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LARGEST_BODY = 256 * 1024
SLOWEST_BODY = 10.0
CONTENT_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; "
    "worker-src 'self'; connect-src 'self'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_SITES = ("same-origin", "none")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    """The launch token and the hosts ("127.0.0.1:8765") under which the server may be reached."""

    hosts: frozenset[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def cookie(self) -> str:
        """The cookie's name; cookies know no ports, so two labs on one machine need two names."""
        return f"cutaway_lab_{min(self.hosts, default='').rpartition(':')[2]}"


class RefusedError(Exception):
    """A request that goes no further, with what is said to it."""

    def __init__(self, status: int, where: str, what: str, fix: str) -> None:
        super().__init__(what)
        self.status = status
        self.error = {"where": where, "what": what, "fix": fix}


FAILED = RefusedError(500, "server", "it failed on this request", "look at the terminal of cutaway lab")


ENDING = RefusedError(503, "server", "it is ending", "start it again with: cutaway lab")


class Guard:
    """Checks host, origin, cookie and size of every request, sets the security headers, hides a failure's inside."""

    def __init__(self, app: Any, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = {name.encode() for name in HEADERS}
                kept = [pair for pair in message.get("headers", []) if pair[0].lower() not in own]
                message = {**message, "headers": [*kept, *_encoded(HEADERS), *_caching(scope["path"], kept)]}
            await send(message)

        try:
            await self._serve(scope, receive, sending)
        except RefusedError as refusal:
            if not started:
                await _answer(sending, refusal, scope)
        except asyncio.CancelledError:  # the server ends while this request is still computed
            if not started:
                await _answer(sending, ENDING, scope)
        except Exception:  # noqa: BLE001 - logged here; the client learns nothing of the inside
            _log.exception("the lab's server failed on %s", scope["path"])
            if not started:
                await _answer(sending, FAILED, scope)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        self._check_host(headers)
        token = (
            parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=20).get("token")
            if scope["path"] == "/"
            else None
        )
        if token and scope["method"] == "GET":
            await self._let_in(token[0], send)
            return
        self._check_cookie(headers)
        length = _values(headers, "content-length")
        if length and (not length[0].isascii() or not length[0].isdigit() or int(length[0][:20]) > LARGEST_BODY):
            raise _too_large()
        await self.app(scope, _limited(receive), send)

    def _check_host(self, headers: list[tuple[str, str]]) -> None:
        hosts, origins = _values(headers, "host"), _values(headers, "origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.access.hosts:
            raise RefusedError(
                421, "host", "this is not a name of the lab's server", "use the address that cutaway lab printed"
            )
        sites = _values(headers, "sec-fetch-site")
        if any(origin != f"http://{hosts[0].lower()}" for origin in origins) or any(
            site not in _SITES for site in sites
        ):
            raise RefusedError(403, "origin", "the request comes from another page", "use the lab's own page")

    def _check_cookie(self, headers: list[tuple[str, str]]) -> None:
        cookies: SimpleCookie = SimpleCookie()
        try:
            for value in _values(headers, "cookie"):
                cookies.load(value)
        except CookieError:
            cookies = SimpleCookie()
        given = cookies.get(self.access.cookie)
        if given is None or not _equal(given.value, self.access.token):
            fix = "open the whole address that cutaway lab printed, token included"
            raise RefusedError(401, "token", "this browser has not been let in", fix)

    async def _let_in(self, token: str, send: Send) -> None:
        """Trades the token for a cookie, so that it does not stay in the address."""
        if not _equal(token, self.access.token):
            raise RefusedError(401, "token", "this is not the token of this launch", "use the address printed last")
        cookie = f"{self.access.cookie}={self.access.token}; Path=/; HttpOnly; SameSite=Strict"
        headers = _encoded({"location": "/", "set-cookie": cookie, "content-length": "0"})
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _limited(receive: Receive) -> Receive:
    """receive, but for bodies that are too large or come too slowly."""
    read, deadline = 0, None

    async def receiving() -> Message:
        nonlocal read, deadline
        loop = asyncio.get_running_loop()
        if deadline is None:
            deadline = loop.time() + SLOWEST_BODY
        if read < 0:
            return await receive()  # the body is there: only the client's leaving is waited for
        try:
            message = await asyncio.wait_for(receive(), max(deadline - loop.time(), 0.001))
        except TimeoutError:
            raise RefusedError(408, "request", "its body came too slowly", "send it again") from None
        read += len(message.get("body", b""))
        if read > LARGEST_BODY:
            raise _too_large()
        if not message.get("more_body", False):
            read = -1
        return message

    return receiving


def _too_large() -> RefusedError:
    return RefusedError(413, "request", f"its body is larger than {LARGEST_BODY // 1024} KiB", "send less")


def _values(headers: list[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in headers if key == name]


def _equal(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), token.encode())


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def _caching(path: str, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Vite puts a hash into the names under assets/, so they never change; everything else is asked for again."""
    if any(name.lower() == b"cache-control" for name, _ in headers):
        return []
    lasting = path.startswith("/assets/")
    return _encoded({"cache-control": "private, max-age=31536000, immutable" if lasting else "no-cache"})


async def _answer(send: Send, refusal: RefusedError, scope: Message) -> None:
    """Says why: as a line of text to somebody who opens an address, as JSON to the page."""
    text = any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    line = "{where}: {what}; {fix}".format(**refusal.error)
    body = f"{line}\n".encode() if text else json.dumps({"error": refusal.error}).encode()
    kind = "text/plain; charset=utf-8" if text else "application/json"
    headers = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store"}
    if refusal.status in (408, 413):
        headers["connection"] = "close"
    await send({"type": "http.response.start", "status": refusal.status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body})
