"""What a hostile client may send: it is refused or served, and the server lives on."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.testclient import TestClient

from cutaway.lab import labs
from cutaway.lab.app import make_app
from cutaway.lab.guard import LARGEST_BODY, Access
from tests.lab.serving import ACCESS, COOKIE, HOST, asgi, refused


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"3", b'"x"', b"{}{}", b'{"state": 3}', b'{"state": {"m": NaN}}', b"\xff\xfe",
        b"\x00",
        b'{"state": {"m": Infinity}}', b'{"state": {"m": 1e999}}', b"[" * 100_000, b'{"state":' * 20_000,
        b'{"state": {"m": ' + b"9" * 5000 + b"}}", b'{"state": {"\\ud800": 1}}', b'{"state": {"m": "\\ud800"}}',
    ],
)  # fmt: skip
def test_a_broken_body_is_refused_in_words(client: TestClient, body: bytes) -> None:
    refused(client.post("/api/labs/rope", content=body), 422)


def test_too_large_a_body_is_refused_with_and_without_its_length(client: TestClient) -> None:
    big = b'{"state": {}, "x": "' + b"x" * LARGEST_BODY + b'"}'
    refused(client.post("/api/labs/rope", content=big), 413)
    refused(client.post("/api/labs/rope", content=iter([big[:1000], big[1000:]])), 413)
    refused(client.post("/api/labs/rope", content=b"{}", headers={"content-length": "9" * 40}), 413)


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_bodies_are_served_or_refused(client: TestClient, caplog: pytest.LogCaptureFixture, count: int) -> None:
    """Random bytes, broken JSON and well-formed nonsense, at every address that reads a body."""
    dice = random.Random(1)
    paths = [*(f"/api/labs/{lab}" for lab in labs.IDS), "/api/answers", "/api/skip/parts", "/api/skip/parts/check",
             "/api/labs/none", "/api/exercises/none/run"]  # fmt: skip
    defaults = {f"/api/labs/{lab}": labs.default(lab) for lab in labs.IDS}
    seen: dict[int, int] = {}
    with caplog.at_level(logging.ERROR):
        for _ in range(count):
            path = dice.choice(paths)
            status, content = asgi(client.app, "POST", path, [("host", HOST), ("cookie", COOKIE["cookie"])],
                                   nonsense(dice, defaults.get(path, {})))  # fmt: skip
            seen[status] = seen.get(status, 0) + 1
            assert status in (200, 404, 422), (path, content[:300])
            assert b"Traceback" not in content
            json.loads(content)
    assert caplog.records == []
    assert seen[200] > count / 100, "well-formed states must be among them"
    assert seen[422] > count / 10


def nonsense(dice: random.Random, default: dict[str, Any]) -> bytes:
    kind = dice.random()
    if kind < 0.2:
        return dice.randbytes(dice.randrange(200))
    if kind < 0.4:
        text = json.dumps({"state": default})
        return text[: dice.randrange(len(text) + 1)].encode()
    state = {
        key: dice.choice([value, anything(dice, 0)]) if dice.random() < 0.3 else value for key, value in default.items()
    }
    body = (
        {"state": state}
        if kind < 0.8
        else {dice.choice(["question", "answer", "seed", "answers", "code", "x"]): anything(dice, 0)}
    )
    return json.dumps(body).encode()


def anything(dice: random.Random, depth: int) -> Any:
    simple = [None, True, 0, -1, 2.5, 1e308, -1e-308, 10**30, "", "f", "é\ud800", "x" * 300, [], {}]
    if depth > 2 or dice.random() < 0.6:
        return dice.choice([*simple, dice.randrange(-50, 50), dice.gauss(0, 10)])
    if dice.random() < 0.6:
        return [anything(dice, depth + 1) for _ in range(dice.randrange(6))]
    return {dice.choice("abc"): anything(dice, depth + 1) for _ in range(dice.randrange(4))}


# A real server on a real port


@pytest.fixture
def server(page: Path) -> Iterator[str]:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    access = Access(frozenset({f"127.0.0.1:{port}"}), ACCESS.token)
    config = uvicorn.Config(make_app(access, static=page), http="h11", ws="none", log_level="critical", lifespan="on")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(10)
    assert not thread.is_alive(), "the server must end when told to"


def test_a_hundred_clients_at_once(server: str) -> None:
    cookie = {"cookie": f"cutaway_lab_{server.rpartition(':')[2]}={ACCESS.token}"}

    def ask(number: int) -> int:
        state = {"m": number, "n": 0}
        with httpx.Client(headers=cookie, timeout=60, trust_env=False) as client:
            response = client.post(f"{server}/api/labs/rope", json={"state": state})
        assert response.status_code in (200, 503)
        if response.status_code == 200:
            assert response.json()["result"]["distance"] == number
        return response.status_code

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        statuses = list(pool.map(ask, range(100)))
    assert statuses.count(200) >= 50


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET " + b"/x" * 50_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /api/labs/rope HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", b"\r\n" * 1000,
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
)  # fmt: skip
def test_what_is_not_http_is_refused_and_the_server_lives_on(server: str, raw: bytes) -> None:
    port = int(server.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        assert b"Traceback" not in client.recv(4096)
    cookie = {"cookie": f"cutaway_lab_{port}={ACCESS.token}"}
    assert httpx.get(f"{server}/api/labs", headers=cookie, trust_env=False).status_code == 200


def test_a_body_that_never_comes_is_given_up(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutaway.lab.guard.SLOWEST_BODY", 0.5)
    port = int(server.rpartition(":")[2])
    head = (
        f"POST /api/labs/rope HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 100\r\n"
        f"Cookie: cutaway_lab_{port}={ACCESS.token}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head.encode() + b"{")
        assert b" 408 " in client.recv(4096).split(b"\r\n")[0]
