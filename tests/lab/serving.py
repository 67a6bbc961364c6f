"""What the tests of the server share: its access, a refusal's form, and requests that no HTTP client would send."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from cutaway.lab.guard import Access

HOST = "127.0.0.1:8765"
ACCESS = Access(frozenset({HOST, "localhost:8765"}), "the-token-of-this-test")
COOKIE = {"cookie": f"{ACCESS.cookie}={ACCESS.token}"}


def refused(response: httpx.Response, status: int) -> dict[str, str]:
    """Any refusal: right status, one JSON error, no trace of the inside."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"where", "what", "fix"}
    assert error["what"]
    assert "Traceback" not in response.text
    assert "/cutaway/" not in response.text
    return error


def asgi(app: Any, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, bytes]:
    """One request with exactly these headers, which no HTTP client would send."""
    sent: list[dict] = []
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "server": ("127.0.0.1", 8765),
        "client": ("127.0.0.1", 1),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
    }  # fmt: skip

    async def receive() -> dict:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], content
