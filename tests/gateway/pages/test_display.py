"""The zone that times are shown in, the keyboard, the theme: per browser, for every page."""

import pytest
from django.test import Client

from gateway.pages import zone
from ledger.store import Store
from tests import factories
from tests.gateway.pages.test_receipts import text_of


def test_times_come_in_the_chosen_zone_with_utc_on_hover(store: Store, viewer: Client):
    """CST-9."""
    store.append([factories.receipt(1, accepted_at_us=1_795_000_000_000_000)]).result()
    in_utc = viewer.get("/receipts").content.decode()
    assert 'title="2026-11-18T11:06:40.000Z"' in in_utc
    assert "11:06:40.000</time>" in in_utc
    kept = viewer.post("/display", {"zone": "+05:30", "keys": "on", "next": "/receipts"})
    assert kept["Location"] == "/receipts"
    shown = viewer.get("/receipts").content.decode()
    assert 'datetime="2026-11-18T16:36:40.000+05:30" title="2026-11-18T11:06:40.000Z"' in shown
    assert "16:36:40.000</time>" in shown
    assert "Times in +05:30" in shown
    row = viewer.get("/receipts?as=json&table=receipts").json()["rows"][0]
    assert row["Accepted +05:30"] == "2026-11-18T16:36:40.000+05:30"


def test_the_zone_of_the_address_wins_over_the_chosen_one(viewer: Client):
    viewer.post("/display", {"zone": "Asia/Kolkata"})
    assert 'value="Asia/Kolkata"' in viewer.get("/costs").content.decode()
    said = text_of(viewer.get("/costs?zone=Europe/Berlin"))
    assert "Times in Europe/Berlin" in said
    plus_lost = text_of(viewer.get("/costs?zone=+05:30"))
    assert "Times in +05:30" in plus_lost


def test_no_request_is_shown_in_the_zone_of_the_one_before(viewer: Client, client: Client):
    viewer.post("/display", {"zone": "Asia/Shanghai"})
    viewer.get("/receipts")
    assert zone.shown() == zone.IN_UTC


@pytest.mark.parametrize("name", ["Mars/Olympus", "x" * 500, "+05:31", "<script>", "../etc"])
def test_a_zone_that_is_none_is_refused_with_what_can_be_written(viewer: Client, name: str):
    answer = viewer.post("/display", {"zone": name})
    assert answer.status_code == 422
    assert "write UTC, an offset such as +05:30" in text_of(answer)
    assert zone.COOKIE not in answer.cookies
    viewer.cookies[zone.COOKIE] = name
    assert viewer.get("/receipts").status_code == 200


def test_the_shortcuts_can_be_turned_off_and_on_again(viewer: Client):
    """WCAG 2.1.4."""
    assert 'data-keys="on"' in viewer.get("/receipts").content.decode()
    viewer.post("/display", {"zone": "UTC"})
    assert 'data-keys="off"' in viewer.get("/receipts").content.decode()
    assert "checked" not in viewer.get("/display").content.decode()
    viewer.post("/display", {"zone": "UTC", "keys": "on"})
    assert 'data-keys="on"' in viewer.get("/receipts").content.decode()


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:0"])
def test_the_display_page_goes_back_to_this_host_only(viewer: Client, elsewhere: str):
    assert viewer.post("/display", {"zone": "UTC", "next": elsewhere})["Location"] == "/"
    assert elsewhere not in viewer.get("/display", {"next": elsewhere}).content.decode()
