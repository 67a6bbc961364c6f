"""The server with a small page, for the tests of the lab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cutaway.lab.app import make_app
from tests.lab.serving import ACCESS, COOKIE, HOST


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
