"""The lab's server: the page and its interface behind the guard, and how it is started."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles

from cutaway.errors import CutawayError, InputError
from cutaway.lab.api import Json, routes
from cutaway.lab.guard import FAILED, Access, Guard, RefusedError
from cutaway.lab.runner import Runner

STATIC = Path(__file__).parent / "static"
PORT = 8765
MOST_CONNECTIONS = 400


def make_app(access: Access, exercises: bool = True, static: Path = STATIC) -> Guard:
    """The whole application. exercises: whether learners' answers may be run (loopback only)."""
    runner = Runner()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        runner.stop_all()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.add_exception_handler(CutawayError, _say)
    app.add_exception_handler(HTTPException, _say_http)
    app.add_exception_handler(RefusedError, _say_refusal)
    app.add_exception_handler(Exception, _say_failed)
    app.include_router(routes(runner, exercises))
    if (static / "index.html").is_file():
        app.mount("/", StaticFiles(directory=static, html=True))
    else:
        app.get("/")(_not_built)
    app.add_middleware(GZipMiddleware, minimum_size=1000)
    return Guard(app, access)


def error_parts(message: str) -> dict[str, str]:
    """ "lab rope: m is -1; it must be ..." as {"where": "lab rope", "what": "m is -1", "fix": "it must be ..."}."""
    where, colon, rest = message.partition(": ")
    if not colon:
        where, rest = "", message
    what, _, fix = rest.rpartition("; ")
    return {"where": where, "what": what or fix, "fix": fix if what else ""}


async def _say(request: Request, error: Exception) -> Json:
    return Json({"error": error_parts(str(error))}, status_code=422)


async def _say_http(request: Request, error: Exception) -> Json:
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = {404: "there is nothing at this address", 405: "this method is not for this address"}.get(status, "refused")
    said = {"where": request.url.path[:80], "what": what, "fix": "start at the lab's own page"}
    return Json({"error": said}, status_code=status)


async def _say_refusal(request: Request, error: Exception) -> Json:
    refusal = error if isinstance(error, RefusedError) else FAILED
    return Json({"error": refusal.error}, status_code=refusal.status, headers={"connection": "close"})


async def _say_failed(request: Request, error: Exception) -> Json:
    return Json({"error": FAILED.error}, status_code=500)


async def _not_built() -> PlainTextResponse:
    return PlainTextResponse("The lab's page is not built yet. In a source checkout run: make lab\n", status_code=503)


def serve(
    host: str = "127.0.0.1", port: int = PORT, ready: Callable[[str], Any] = print, allow: tuple[str, ...] = ()
) -> None:
    """Serves until interrupted; `ready` gets the address with the launch token. A busy default port is passed over.

    allow: further names (host or host:port) under which requests may come. Raises InputError for an address that
    cannot be bound.
    """
    listening = _bind(host, port)
    port = listening.getsockname()[1]
    shown = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
    names = {f"{shown}:{port}", f"localhost:{port}", *(name if ":" in name else f"{name}:{port}" for name in allow)}
    access = Access(frozenset(name.lower() for name in names))
    config = uvicorn.Config(
        make_app(access, exercises=is_loopback(host)), http="h11", ws="none", lifespan="on", log_level="critical",
        access_log=False, server_header=False, proxy_headers=False, limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=5, timeout_graceful_shutdown=2,
    )  # fmt: skip
    ready(f"http://{shown}:{port}/?token={access.token}")
    uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tries = [port, 0] if port == PORT else [port]
    problem: Exception | None = None
    for number in tries:
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
        except (OSError, OverflowError) as error:
            listening.close()
            problem = error
        else:
            return listening
    raise InputError(f"lab server: {host}:{port} cannot be bound ({problem}); choose another --host or --port")
