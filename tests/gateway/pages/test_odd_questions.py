"""Addresses that nobody means: every page answers with itself or says what can't be answered."""

from urllib.parse import urlencode

import pytest
from django.test import Client

from ledger.store import Store
from tests import factories
from tests.console_pages import PATHS, path_of
from tests.sample_console import Console

SCRIPT = '"><script>alert(1)</script>'
ODD = (
    "&=&%&x=1",
    "%00=%00&%ff=%fe",
    "zone=%00&before=-1",
    "zone=%2B99:99",
    "before=99999999999999999999",
    "before=%D9%A1%D9%A2",  # digits, and none that SQLite reads
    "older=9223372036854775807.9223372036854775807",
    "within=1e9&at=2026-11-29T25:00",
    "first=9999-12-31",
    "since=2026-01-01T00:00&until=9999-12-31T23:59",
    "as=&table=",
    "as=csv&as=json&table=x",
    urlencode({"tenant": SCRIPT, "key": SCRIPT, "action": SCRIPT, "class": SCRIPT}),
    urlencode({"before": SCRIPT, "after": SCRIPT, "next": SCRIPT, SCRIPT: SCRIPT}),
    urlencode({"tenant": "x" * 20_000, "a" * 200: "1"}),
)
PLAIN = tuple(
    name
    for name in dict.fromkeys(name.partition("?")[0] for name in PATHS)
    if name not in ("a degraded receipt", "an unknown receipt")  # as a completed one
)


@pytest.mark.parametrize("name", PLAIN)
def test_an_odd_question_gets_an_answer_or_a_refusal_and_never_a_fault(
    sample: Console, viewer: Client, name: str
):
    """SEC-3."""
    path = path_of(sample, name)
    for odd in ODD:
        answer = viewer.get(f"{path}?{odd}")
        assert answer.status_code in (200, 302, 400, 404), (odd, answer.status_code)
        assert "<script>alert" not in answer.content.decode(errors="replace"), odd


@pytest.mark.parametrize("name", [name for name in PLAIN if name.startswith("/")])
def test_a_page_of_an_empty_ledger_says_what_to_do(viewer: Client, name: str):
    answer = viewer.get(name)
    if answer.status_code == 404:
        assert name.count("/") > 1  # of one thing, which an empty ledger hasn't got
        return
    assert answer.status_code == 200
    assert "<h1" in answer.content.decode()


@pytest.mark.parametrize(
    "path",
    ["/now?follow=0", "/receipts", "/costs?by=tenant&then=route", "/costs?by=reason", "/slo",
     "/slo/slices?by=tenant", "/slo/slices?by=route", "/releases", "/unknowns", "/audit-log"],
)  # fmt: skip
def test_names_are_text_whatever_they_hold(store: Store, viewer: Client, path: str):
    """SEC-1, SEC-3: also in titles, addresses and pictures."""
    now_us = factories.NOW_US
    names = dict.fromkeys(("tenant_id", "logical_model", "route_id", "release_id", "arm"), SCRIPT)
    store.append(
        [
            factories.receipt(1, **names, accepted_at_us=now_us),
            factories.rejected_receipt(2, tenant_id=SCRIPT, terminal_error_code=SCRIPT),
            factories.control_action(action=SCRIPT, subject=SCRIPT, actor=SCRIPT, reason=SCRIPT),
        ]
    ).result()
    for asked in (path, f"{path}{'&' if '?' in path else '?'}as=json&table={SCRIPT}"):
        answer = viewer.get(asked)
        assert answer.status_code in (200, 404)
        if answer["Content-Type"].startswith("text/html"):
            assert "<script>alert" not in answer.content.decode()


def test_a_receipt_whose_id_holds_markup_or_a_path_is_not_found(viewer: Client):
    for name in (SCRIPT, "../login", "req_" + "x" * 5_000, "%00", "a b", "💥"):
        answer = viewer.get(f"/receipts/{name}")
        assert answer.status_code in (301, 302, 404), name
        assert "<script>alert" not in answer.content.decode()
