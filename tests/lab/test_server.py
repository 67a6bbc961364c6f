"""The server from outside: who is let in, what is refused, and that nothing makes it fall over."""

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

from cutaway.lab import course, labs
from cutaway.lab.app import error_parts, is_loopback, make_app
from cutaway.lab.exercises import IDS, load
from cutaway.lab.guard import HEADERS, LARGEST_BODY, Access

HOST = "127.0.0.1:8765"
ACCESS = Access(frozenset({HOST, "localhost:8765"}), "the-token-of-this-test")
COOKIE = {"cookie": f"{ACCESS.cookie}={ACCESS.token}"}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>lab</title>")
    (tmp_path / "assets" / "main-3f2a.js").write_text("export default 1")
    return tmp_path


@pytest.fixture
def client(page: Path) -> Iterator[TestClient]:
    app = make_app(ACCESS, static=page)
    with TestClient(app, base_url=f"http://{HOST}", headers=COOKIE, raise_server_exceptions=False) as client:
        yield client


def refused(response: httpx.Response, status: int) -> dict[str, str]:
    """Any refusal: right status, one JSON error, no trace of the inside."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"where", "what", "fix"}
    assert error["what"]
    assert "Traceback" not in response.text
    assert "/cutaway/" not in response.text
    return error


# Letting in


def test_the_token_is_traded_for_a_strict_cookie(page: Path) -> None:
    stranger = TestClient(make_app(ACCESS, static=page), base_url=f"http://{HOST}", follow_redirects=False)
    refused(stranger.get("/"), 401)
    refused(stranger.get("/api/labs"), 401)
    refused(stranger.get("/assets/main-3f2a.js"), 401)
    let_in = stranger.get(f"/?token={ACCESS.token}")
    assert let_in.status_code == 303
    assert let_in.headers["location"] == "/"
    cookie = let_in.headers["set-cookie"]
    assert cookie.startswith(f"cutaway_lab_8765={ACCESS.token};")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert stranger.get("/").status_code == 200
    assert stranger.get("/api/labs").status_code == 200


@pytest.mark.parametrize(
    "token", ["", "wrong", "the-token-of-this-tes", "the-token-of-this-test ", "%00", "%ff%fe", "é" * 50]
)
def test_a_wrong_token_gets_no_cookie(page: Path, token: str) -> None:
    stranger = TestClient(make_app(ACCESS, static=page), base_url=f"http://{HOST}", follow_redirects=False)
    response = stranger.get(f"/?token={token}")
    refused(response, 401)
    assert "set-cookie" not in response.headers
    assert ACCESS.token not in response.text


@pytest.mark.parametrize(
    "cookie",
    [
        "", "cutaway_lab_8765=", "cutaway_lab_8765=wrong", f"cutaway_lab={ACCESS.token}", f"other={ACCESS.token}",
        "=;=;",
        "\xff\xfe", f"cutaway_lab_8765={ACCESS.token}x", "a" * 5000,
    ],
)  # fmt: skip
def test_a_wrong_cookie_is_no_cookie(page: Path, cookie: str) -> None:
    stranger = TestClient(make_app(ACCESS, static=page), base_url=f"http://{HOST}")
    refused(stranger.get("/api/labs", headers={"cookie": cookie.encode("latin-1")}), 401)


def test_somebody_who_opens_an_address_reads_a_sentence(page: Path) -> None:
    stranger = TestClient(make_app(ACCESS, static=page), base_url=f"http://{HOST}")
    response = stranger.get("/", headers={"accept": "text/html,*/*"})
    assert response.status_code == 401
    assert response.headers["content-type"].startswith("text/plain")
    assert "cutaway lab" in response.text


HOSTS = [HOST, "localhost:8765", "evil.example:8765", "0.0.0.0:8765", "[::1]:8765", "127.0.0.1", "127.0.0.1:8766",
         "127.0.0.1.nip.io:8765", "", None]  # fmt: skip
ORIGINS = [None, "same", "null", "http://evil.example", "https://127.0.0.1:8765", "http://127.0.0.1:8766"]


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("host", HOSTS)
def test_only_its_own_host_and_origin_are_served(client: TestClient, host: str | None, origin: str | None) -> None:
    headers = [("cookie", COOKIE["cookie"])]
    headers += [] if host is None else [("host", host)]
    headers += [] if origin is None else [("origin", f"http://{host}" if origin == "same" else origin)]
    status, body = asgi(client.app, "POST", "/api/labs/rope", headers, b"{}")
    good_host = host in (HOST, "localhost:8765")
    expected = 200 if good_host and origin in (None, "same") else 403 if good_host else 421
    assert status == expected
    assert ("result" in json.loads(body)) == (expected == 200)


@pytest.mark.parametrize(
    "extra",
    [
        [("host", HOST)], [("origin", f"http://{HOST}"), ("origin", "http://evil.example")],
        [("sec-fetch-site", "cross-site")], [("sec-fetch-site", "same-site")],
    ],
)  # fmt: skip
def test_doubled_and_foreign_headers_are_refused(client: TestClient, extra: list[tuple[str, str]]) -> None:
    headers = [("cookie", COOKIE["cookie"]), ("host", HOST), *extra]
    assert asgi(client.app, "GET", "/api/labs", headers, b"")[0] in (403, 421)


def asgi(app: Any, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, bytes]:
    """One request with exactly these headers, which no HTTP client would send."""
    import asyncio

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


def test_websockets_are_closed(client: TestClient) -> None:
    import asyncio

    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    asyncio.run(client.app({"type": "websocket", "path": "/", "headers": []}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_every_answer_carries_the_security_headers(client: TestClient) -> None:
    for response in (client.get("/"), client.get("/api/labs"), client.get("/nowhere"), client.post("/api/labs/rope")):
        for name, value in HEADERS.items():
            assert response.headers[name] == value
        assert "access-control-allow-origin" not in response.headers
        assert "server" not in response.headers
    assert "default-src 'self'" in HEADERS["content-security-policy"]
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_the_page_and_its_lasting_files(client: TestClient) -> None:
    assert "<title>lab" in client.get("/").text
    assert client.get("/").headers["cache-control"] == "no-cache"
    assert "immutable" in client.get("/assets/main-3f2a.js").headers["cache-control"]
    for path in ("/../app.py", "/%2e%2e/app.py", "/assets/../../app.py", "/..%2fapp.py", "/assets/%00"):
        assert client.get(path).status_code in (400, 404)


def test_without_a_built_page_it_says_how_to_build_it(tmp_path: Path) -> None:
    bare = TestClient(make_app(ACCESS, static=tmp_path), base_url=f"http://{HOST}", headers=COOKIE)
    assert bare.get("/").status_code == 503
    assert "make lab" in bare.get("/").text
    assert bare.get("/api/labs").status_code == 200


# The interface


def test_labs_over_http_are_the_labs(client: TestClient) -> None:
    assert client.get("/api/labs").json() == {lab: labs.default(lab) for lab in labs.IDS}
    for lab in ("order", "block", "rope"):
        assert client.post(f"/api/labs/{lab}", json={"state": {}}).json() == {"result": labs.run(lab, {})}
    moved = client.post("/api/labs/rope", json={"state": {"m": 2}}).json()["result"]
    assert moved["numbers"]["score"] == "0.8415"


def test_a_users_mistake_is_told_where_what_and_what_to_do(client: TestClient) -> None:
    error = refused(client.post("/api/labs/rope", json={"state": {"m": -1}}), 422)
    assert error == {"where": "lab rope", "what": "m is -1", "fix": "it must be a whole number from 0 to 10000"}
    refused(client.post("/api/labs/ropes", json={"state": {}}), 422)
    refused(client.post("/api/labs/rope", json={"states": {}}), 422)
    refused(client.get("/api/nothing"), 404)
    refused(client.delete("/api/labs"), 405)


def test_the_course_its_questions_and_skip_tests(client: TestClient) -> None:
    assert client.get("/api/course").json() == json.loads(json.dumps(course.course()))
    right = client.post("/api/answers", json={"question": "16.6", "answer": "2"}).json()
    wrong = client.post("/api/answers", json={"question": "16.6", "answer": "3"}).json()
    assert right["right"] is True
    assert wrong["right"] is False
    assert wrong["reason_html"] != right["reason_html"]
    refused(client.post("/api/answers", json={"question": "16.6", "answer": "many"}), 422)
    refused(client.post("/api/answers", json={"question": "99.9", "answer": "2"}), 422)
    questions = client.post("/api/skip/parts", json={"seed": 3}).json()["questions"]
    assert len(questions) == 5
    outcome = client.post("/api/skip/parts/check", json={"seed": 3, "answers": {}}).json()
    assert outcome["cleared"] is False
    assert outcome["read"]
    demo = client.get("/api/demos/parts")
    assert "numpy" in demo.text
    assert demo.headers["content-disposition"].startswith("attachment")


def test_exercises_run_stop_and_show_their_solution_after_an_honest_try(client: TestClient) -> None:
    listed = client.get("/api/exercises").json()
    assert [exercise["id"] for exercise in listed] == list(IDS)
    assert all(load(e["id"]).solution not in json.dumps(e) for e in listed)
    job = client.post("/api/exercises/rotate/run", json={"code": load("rotate").solution}).json()["job"]
    assert finished(client, job)["passed"] is True
    slow = client.post("/api/exercises/rotate/run", json={"code": "import time; time.sleep(60)"}).json()["job"]
    assert client.get(f"/api/jobs/{slow}").json()["state"] == "running"
    assert client.delete(f"/api/jobs/{slow}").json()["state"] == "stopped"
    refused(client.get("/api/jobs/none"), 422)
    refused(client.get("/api/exercises/rotate/solution?attempts=2"), 422)
    refused(client.get("/api/exercises/rotate/solution?attempts=many"), 422)
    assert client.get("/api/exercises/rotate/solution?attempts=3").json() == {"solution": load("rotate").solution}


def finished(client: TestClient, job: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        state = client.get(f"/api/jobs/{job}").json()
        if state["state"] != "running":
            return state
        time.sleep(0.05)
    raise AssertionError("the answer's run never ended")


def test_no_code_is_run_when_others_can_reach_the_server(page: Path) -> None:
    open_app = make_app(ACCESS, exercises=is_loopback("192.168.1.5"), static=page)
    with TestClient(open_app, base_url=f"http://{HOST}", headers=COOKIE) as client:
        error = refused(client.post("/api/exercises/rotate/run", json={"code": "1"}), 422)
    assert "127.0.0.1" in error["fix"]
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "example.org")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


# Hostile bodies


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


def test_an_errors_sentence_is_taken_apart() -> None:
    assert error_parts("lab rope: m is -1; it must be 0 or more") == {
        "where": "lab rope", "what": "m is -1", "fix": "it must be 0 or more",
    }  # fmt: skip
    assert error_parts("nothing to take apart")["what"] == "nothing to take apart"
