"""The server from outside: who is let in, what is refused, and that nothing makes it fall over."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cutaway.lab import course, labs
from cutaway.lab.app import error_parts, is_loopback, make_app
from cutaway.lab.exercises import IDS, load
from cutaway.lab.guard import HEADERS
from tests.lab.serving import ACCESS, COOKIE, HOST, asgi, refused

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


def test_an_errors_sentence_is_taken_apart() -> None:
    assert error_parts("lab rope: m is -1; it must be 0 or more") == {
        "where": "lab rope", "what": "m is -1", "fix": "it must be 0 or more",
    }  # fmt: skip
    assert error_parts("nothing to take apart")["what"] == "nothing to take apart"
