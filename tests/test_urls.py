"""Every URL of the running server, from the tables that it serves by: what the nameless may ask.

What each guarded URL requires is listed in `gateway/api/test_urls.py` and `pages/test_access.py`;
here stands, for both at once, all that is open, so that a new URL is guarded or listed.
"""

import json
import re

import pytest
from django.urls import get_resolver

from tests.gateway.api.client import SmallGateway
from tests.server import Server

OPEN_API = {"/healthz": 200, "/readyz": 200, "/metrics": 200, "/api/openapi.json": 200,
    "/api/docs": 200,
            "/v2/health/live": 200, "/v2/health/ready": 200}  # fmt: skip
OPEN_PAGES = {"": 302, "login": 200, "logout": 405, "theme": 405}

ENDPOINTS = [
    (endpoint.method, re.sub(r"{[a-z]+}", "x", endpoint.path), endpoint.access)
    for endpoint in SmallGateway().application().table.endpoints
]
PAGES = [
    re.sub(r"<[a-z]+:[a-z_]+>", "x", str(pattern.pattern))
    for pattern in get_resolver().url_patterns
]


def test_every_open_url_is_listed_here():
    assert {path for _, path, access in ENDPOINTS if access == "open"} == set(OPEN_API)
    assert set(OPEN_PAGES) <= set(PAGES)


@pytest.mark.parametrize(("method", "path", "access"), ENDPOINTS)
def test_an_endpoint_answers_the_nameless_only_where_it_is_open(
    server: Server, method: str, path: str, access: str
):
    for key in (None, "wb_of_nobody"):
        status, headers, body = server.call(path, key=key, body=b"{}" if method == "POST" else None)
        if path in OPEN_API:
            assert status == OPEN_API[path]
        else:
            assert status == 401
            assert headers["www-authenticate"].startswith("Bearer")
            failure = json.loads(body)
            told = failure if "code" in failure else failure["error"]
            assert told["code"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_answers_the_nameless_only_where_it_is_open(server: Server, path: str):
    status, headers, body = server.call(f"/{path}")
    if path in OPEN_PAGES:
        assert status == OPEN_PAGES[path]
    else:
        assert (status, headers["location"]) == (302, f"/login?next=/{path}")
        assert body == b""


@pytest.mark.parametrize("path", PAGES)
def test_no_page_takes_a_form_that_another_site_sent(server: Server, path: str):
    form = {"content-type": "application/x-www-form-urlencoded", "origin": "http://elsewhere"}
    status, _, _ = server.call(f"/{path}", body=b"username=a&password=b", headers=form)
    assert status in (302, 403, 405)
    assert status != 302 or path not in OPEN_PAGES


def test_an_unknown_url_is_not_found_on_either_side(server: Server):
    for path in ("/v1/nothing", "/api/v1/nothing", "/nothing", "/receipts/x/y"):
        status, _, body = server.call(path)
        assert status == 404 and b"Traceback" not in body
