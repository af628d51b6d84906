"""The console against forms, sessions and redirects that aren't its own (SEC-2, SEC-3)."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import get_resolver

from gateway.auth_roles import Role
from gateway.management.commands.create_operator import make_operator

PASSWORD = "a long pass phrase"
PATHS = [
    re.sub(r"<[a-z]+:[a-z_]+>", "none", str(pattern.pattern))
    for pattern in get_resolver().url_patterns
]


@pytest.fixture(autouse=True)
def _console(settings, ledger_path: Path, db: None) -> None:
    settings.WEIGHBRIDGE_DB = ledger_path
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # for speed
    cache.clear()


def operator(name: str = "ada", role: Role = "admin") -> User:
    make_operator(name, role)
    user = User.objects.get(username=name)
    user.set_password(PASSWORD)
    user.save()
    return user


def logged_in(**options) -> Client:
    client = Client(**options)
    client.force_login(operator())
    return client


def test_no_url_takes_a_form_without_this_sessions_token_from_who_is_logged_in():
    """CSRF: also with the token of another session, and whatever the method's name."""
    client = logged_in(enforce_csrf_checks=True)
    stranger = Client(enforce_csrf_checks=True)
    stranger.get("/login")
    token = stranger.cookies["csrftoken"].value
    for path in PATHS:
        for form in ({}, {"csrfmiddlewaretoken": "x" * 64}, {"csrfmiddlewaretoken": token}):
            assert client.post(f"/{path}", form).status_code in (403, 405), path
        for method in ("put", "patch", "delete"):
            assert getattr(client, method)(f"/{path}").status_code in (403, 405), path


def test_what_is_asked_for_with_get_changes_nothing():
    """A link or an image elsewhere is a GET with the session's cookie."""
    client = logged_in()
    for path in ("act/set_tenant", "reconciliation/import", "logout"):
        assert client.get(f"/{path}").status_code == 405


def test_a_session_that_somebody_planted_is_not_the_one_that_is_logged_in():
    operator()
    client = Client()
    client.get("/login")
    client.cookies[settings.SESSION_COOKIE_NAME] = "planted" * 4
    answer = client.post("/login", {"username": "ada", "password": PASSWORD})
    assert answer.status_code == 302
    fresh = client.cookies[settings.SESSION_COOKIE_NAME].value
    assert fresh != "planted" * 4
    other = Client()
    other.cookies[settings.SESSION_COOKIE_NAME] = "planted" * 4
    assert other.get("/now").status_code == 302


def test_a_session_ends_at_the_logout_and_when_its_password_changes():
    client = logged_in()
    before = client.cookies[settings.SESSION_COOKIE_NAME].value
    assert client.get("/theme").status_code == 405
    client.post("/logout")
    thief = Client()
    thief.cookies[settings.SESSION_COOKIE_NAME] = before
    assert thief.get("/now").status_code == 302
    user = User.objects.get(username="ada")
    client.force_login(user)
    user.set_password("another long pass phrase")
    user.save()
    assert client.get("/now").status_code == 302


def test_the_sessions_cookie_is_no_scripts_and_no_other_sites():
    operator()  # and logged in by the form: a forced login's cookie isn't the server's own
    answer = Client().post("/login", {"username": "ada", "password": PASSWORD})
    cookie = answer.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert 0 < int(cookie["max-age"]) <= 12 * 3_600


ELSEWHERE = (
    "https://evil.example", "//evil.example", "///evil.example", "/\\evil.example",
    "\\\\evil.example", "https:evil.example", "http:///evil.example", "javascript:alert(1)",
    "data:text/html,x", " //evil.example", "\t//evil.example", "https://testserver@evil.example",
    "https://testserver.evil.example", "ftp://testserver/",
)  # fmt: skip


def test_no_form_sends_its_user_to_another_host():
    """Neither at the login, nor from one that is logged in already, nor after a change."""
    operator()
    for elsewhere in ELSEWHERE:
        client = Client()
        form = {"username": "ada", "password": PASSWORD, "next": elsewhere}
        answer = client.post("/login", form)
        assert (answer.status_code, answer["Location"]) == (302, "/now"), elsewhere
        assert client.get("/login", {"next": elsewhere})["Location"] == "/now"
        for path in ("/theme", "/act/set_tenant", "/logout"):
            answer = client.post(path, {"next": elsewhere, "theme": "dark"})
            went = answer.get("Location", "/")
            assert went.startswith("/") and not went.startswith("//"), (path, elsewhere)


def test_a_login_costs_the_same_for_a_name_that_isnt_there(monkeypatch: pytest.MonkeyPatch):
    """Structural: the password is hashed either way, so that time tells no names."""
    hashed = []
    real = User.set_password

    def hashing(user: User, raw: str) -> None:
        hashed.append(raw)
        real(user, raw)

    monkeypatch.setattr(User, "set_password", hashing)
    Client().post("/login", {"username": "nobody", "password": "guess"})
    assert hashed == ["guess"]
