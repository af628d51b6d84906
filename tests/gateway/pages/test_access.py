"""Who may see what: logins, roles, forms from elsewhere, redirects, headers."""

import contextlib

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.urls import NoReverseMatch, get_resolver, reverse

from gateway.auth_roles import ROLES, role_of
from gateway.management.commands.create_operator import make_operator
from gateway.pages import login
from gateway.pages.login_limits import (
    FAILURES_PER_ADDRESS_LIMIT,
    FAILURES_PER_NAME_LIMIT,
    WINDOW_US,
    Try,
)
from gateway.pages.middleware import POLICY
from gateway.pages.navigation import ENTRIES
from tests.gateway.clock import VirtualClock
from tests.gateway.pages.conftest import LogIn

OPEN = {"login", "logout", "theme", "home"}
GUARDED = {
    "now": "viewer",
    "receipt-proof": "viewer",
    "slo-one": "viewer",
    "slo-slices": "viewer",
    "slo-declare": "admin",
    "release-declare": "operator",
    "rollout-start": "operator",
    "rollout": "viewer",
    "receipts": "viewer",
    "receipt": "viewer",
    "costs": "viewer",
    "costs-csv": "viewer",
    "bridge": "viewer",
    "slo": "viewer",
    "releases": "viewer",
    "unknowns": "viewer",
    "tenants": "viewer",
    "tenant": "viewer",
    "audit-log": "viewer",
    "reconciliation": "viewer",
    "reconciliation-run": "viewer",
    "reconciliation-csv": "viewer",
    "reconciliation-sqlite": "viewer",
    "focus": "viewer",
    "routes": "viewer",
    "policies": "viewer",
    "policies-compare": "viewer",
    "policy": "viewer",
    "rates": "viewer",
    "rates-compare": "viewer",
    "rates-history": "viewer",
    "rate-table": "viewer",
    "health": "viewer",
    "checkpoint": "viewer",
    "display": "viewer",
}
OF_ONE = (  # their URL names what they show
    "receipt", "receipt-proof", "slo-one", "rollout", "tenant", "policy", "rate-table",
    "reconciliation-run", "reconciliation-csv", "reconciliation-sqlite",
)  # fmt: skip
ACTING = {  # take forms alone
    "act": "operator",
    "reconciliation-import": "operator",
    "evaluations-import": "operator",
}


def url_of(name: str) -> str:
    return reverse(name, args=["none"] if name in OF_ONE else [])


def test_every_url_is_listed_with_the_role_that_it_requires():
    found = {
        pattern.name: getattr(pattern.callback, "required_role", None)
        for pattern in get_resolver().url_patterns
    }
    assert found == GUARDED | ACTING | dict.fromkeys(OPEN)


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_a_page_sends_who_is_not_logged_in_to_the_login_and_back(client: Client, name: str):
    answer = client.get(url_of(name))
    assert answer.status_code == 302
    assert answer["Location"] == f"/login?next={url_of(name)}"


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_a_login_without_a_role_sees_no_page(log_in: LogIn, name: str):
    answer = log_in(None).get(url_of(name))
    assert answer.status_code == 403
    assert f"needs the role {GUARDED[name]}; you have none" in answer.content.decode()


@pytest.mark.parametrize("role", ROLES)
def test_each_role_sees_every_page_of_the_navigation(log_in: LogIn, role: str):
    client = log_in(role)
    assert [client.get(reverse(entry.url_name)).status_code for entry in ENTRIES] == [200] * len(
        ENTRIES
    )


def test_a_partial_without_a_login_reloads_the_whole_page_at_the_login(client: Client):
    answer = client.get("/receipts?status=failed", headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Redirect"]) == (
        401,
        "/login?next=/receipts%3Fstatus%3Dfailed",
    )


@pytest.mark.parametrize(
    ("back", "leads_to"),
    [
        ("/tenants/acme?x=1", "/tenants/acme%3Fx%3D1"),
        ("//elsewhere.example/", "/"),
        ("", "/act/create_key"),
    ],
)
def test_a_form_without_a_session_leads_to_the_login_and_back_to_its_page(
    client: Client, back: str, leads_to: str
):
    answer = client.post("/act/create_key", {"tenant_id": "acme", "next": back})
    assert (answer.status_code, answer["Location"]) == (302, f"/login?next={leads_to}&unsent=1")
    assert "nothing was written" in client.get(answer["Location"]).content.decode()


def test_a_page_is_sent_with_the_policy_and_is_kept_nowhere(viewer: Client):
    answer = viewer.get("/receipts")
    assert answer["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert answer["Cache-Control"] == "private, no-store"
    assert answer["X-Frame-Options"] == "DENY"


def test_whatever_the_console_answers_is_kept_nowhere_and_framed_nowhere(viewer: Client):
    """Pages, files, refusals, redirects: what a shared browser keeps, the next one reads."""
    without_arguments = []
    for name in sorted(OPEN | GUARDED.keys()):
        with contextlib.suppress(NoReverseMatch):
            without_arguments.append(reverse(name))
    assert len(without_arguments) > 25
    for path in (*without_arguments, "/nowhere", "/receipts/req_none"):
        answer = viewer.get(path)
        assert "no-store" in answer["Cache-Control"], path
        assert (answer["Content-Security-Policy"], answer["X-Frame-Options"]) == (POLICY, "DENY")


@pytest.mark.parametrize("path", ["/login", "/logout", "/theme"])
def test_a_form_from_another_site_changes_nothing(path: str):
    client = Client(enforce_csrf_checks=True)
    answer = client.post(path, {"theme": "dark", "username": "x", "password": "y"})
    assert answer.status_code == 403
    assert "Nothing was changed" in answer.content.decode()
    assert "theme" not in answer.cookies


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:0"])
def test_the_login_never_sends_to_another_host(client: Client, elsewhere: str):
    make_operator("ada", "viewer")
    password = User.objects.get(username="ada")
    password.set_password("a long pass phrase")
    password.save()
    answer = client.post(
        "/login", {"username": "ada", "password": "a long pass phrase", "next": elsewhere}
    )
    assert (answer.status_code, answer["Location"]) == (302, "/now")


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", ""])
def test_the_theme_switch_goes_back_to_this_host_only(client: Client, elsewhere: str):
    answer = client.post("/theme", {"theme": "dark", "next": elsewhere})
    assert (answer["Location"], answer.cookies["theme"].value) == ("/", "dark")


def test_the_chosen_theme_is_in_the_page_and_an_unknown_one_is_not(viewer: Client):
    viewer.cookies["theme"] = "dark"
    assert 'data-theme="dark"' in viewer.get("/receipts").content.decode()
    viewer.cookies["theme"] = '"><script>'
    assert 'data-theme="system"' in viewer.get("/receipts").content.decode()


def test_after_five_failures_a_right_password_is_not_looked_at(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    # Time stands still: failures are counted in windows, and a slow machine could cross into one.
    monkeypatch.setattr(login, "clock", VirtualClock(WINDOW_US * 5))
    password = make_operator("ada", "viewer")
    for _ in range(FAILURES_PER_NAME_LIMIT):
        answer = client.post("/login", {"username": "ada", "password": "wrong"})
        assert answer.status_code == 200
    refused = client.post("/login", {"username": "ada", "password": password})
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= WINDOW_US // 1_000_000
    assert client.get("/receipts").status_code == 302
    other = make_operator("bea", "viewer")
    assert client.post("/login", {"username": "bea", "password": other}).status_code == 302


def test_the_next_window_forgives_failures():
    attempt = Try(username="ada", address="192.0.2.1", at_us=WINDOW_US * 7 + 1)
    for _ in range(FAILURES_PER_NAME_LIMIT):
        attempt.failed()
    assert attempt.wait_seconds() == 300
    later = Try(username="ada", address="192.0.2.1", at_us=WINDOW_US * 8)
    assert later.wait_seconds() == 0


def test_names_that_differ_in_case_share_one_limit():
    Try(username="Ada", address="192.0.2.1", at_us=0).failed()
    for _ in range(FAILURES_PER_NAME_LIMIT - 1):
        Try(username="ada", address="192.0.2.1", at_us=0).failed()
    assert Try(username="ADA", address="192.0.2.1", at_us=0).wait_seconds() > 0


def test_a_stranger_who_knows_a_name_keeps_nobody_out_but_is_stopped_for_every_name():
    """SEC-2."""
    for _ in range(FAILURES_PER_NAME_LIMIT):
        Try(username="ada", address="192.0.2.9", at_us=0).failed()
    assert Try(username="ada", address="192.0.2.9", at_us=0).wait_seconds() > 0
    assert Try(username="ada", address="192.0.2.1", at_us=0).wait_seconds() == 0
    for number in range(FAILURES_PER_ADDRESS_LIMIT - FAILURES_PER_NAME_LIMIT):
        Try(username=f"guess-{number}", address="192.0.2.9", at_us=0).failed()
    assert Try(username="bea", address="192.0.2.9", at_us=0).wait_seconds() > 0


def test_create_operator_makes_one_login_with_the_role_and_refuses_a_second(capsys):
    call_command("create_operator", "ada", "--role", "operator")
    password = capsys.readouterr().out.split()[-1]
    user = User.objects.get(username="ada")
    assert user.check_password(password)
    assert role_of(user) == "operator"
    with pytest.raises(CommandError, match="already an operator named 'ada'"):
        call_command("create_operator", "ada", "--role", "admin")
    assert role_of(User.objects.get(username="ada")) == "operator"
