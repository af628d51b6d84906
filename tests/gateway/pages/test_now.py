"""Now: what is wrong, for whom, since when; its forms act; each diagnosis leads to its proof."""

import re
from datetime import UTC, datetime

import pytest
from django.test import Client

from gateway.demo.scenario_run import START_US, run
from gateway.demo.scenarios import SCENARIOS, WINDOW_US
from gateway.pages.now_view import Read, read_of, undiagnosed
from ledger.diagnosis import Picture
from ledger.queries.dossier import dossier
from ledger.queries.objectives import open_episodes, override_of
from ledger.reading import connect_read_only, reader
from tests.gateway.control.ledger_of import (
    NOW_US,
    STEP_US,
    closed,
    evaluate,
    experiment_one,
    pour,
)
from tests.gateway.pages.conftest import LogIn
from tests.gateway.pages.test_receipts import HX, text_of
from tests.ledger.seeded import Plans

AT = datetime.fromtimestamp(NOW_US / 1e6, UTC).isoformat()[:16]
FAULTY = sorted(name for name, one in SCENARIOS.items() if one.finds)
SLO = "interactive-queue"


@pytest.fixture
def shedding(fleet, own_ledger):
    """The fleet after the course's first experiment: batch is shed for the interactive tail."""
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    evaluate(fleet, closed(NOW_US))
    return fleet


def episodes(ledger) -> list[tuple[str, str]]:
    connection = connect_read_only(ledger)
    found = [
        (one.record.episode or "", one.record.phase or "") for one in open_episodes(connection)
    ]
    connection.close()
    return found


def test_on_an_empty_ledger_nothing_is_wrong_and_nothing_is_cleared(viewer: Client):
    said = text_of(viewer.get("/now"))
    assert "Nothing is wrong" in said
    assert "Too few requests to diagnose" in said
    assert "That is no all-clear" in said


def test_home_is_now(viewer: Client):
    assert viewer.get("/")["Location"] == "/now"


def test_an_alert_names_who_waits_since_when_and_what_was_done(shedding, viewer: Client):
    """DIA-1, SLO-8: the page says what is wrong, for whom, since when, and which action holds."""
    said = text_of(viewer.get(f"/now?at={AT}"))
    assert "Interactive requests wait at most 1 s in the queue" in said
    assert "priority interactive" in said
    assert "Shed priority" in said
    assert "in force" in said
    assert f"{datetime.fromtimestamp(NOW_US / 1e6, UTC):%d %b %Y %H:%M}" in said


def test_an_action_in_force_is_undone_from_its_row(shedding, log_in: LogIn):
    operator = log_in("operator")
    page = operator.get(f"/now?at={AT}").content.decode()
    (name, phase), *_ = [one for one in episodes(shedding.ledger) if one[0].startswith(SLO)]
    assert phase == "applied"
    assert f'value="{name}"' in page
    form = {"episode": name, "reason": "the cause is gone", "next": f"/now?at={AT}"}
    assert operator.post("/act/undo_action", form)["Location"] == f"/now?at={AT}"
    assert name not in dict(episodes(shedding.ledger))


def test_an_objective_is_overridden_for_a_time_and_the_override_is_ended(shedding, log_in: LogIn):
    operator = log_in("operator")
    page = operator.get(f"/now?at={AT}").content.decode()
    until_us = int(re.findall(r'<option value="(\d{16})">1 h', page)[0])
    form = {"slo_id": SLO, "expires_at_us": str(until_us), "reason": "a load test"}
    assert operator.post("/act/override_slo", form).status_code == 302
    connection = connect_read_only(shedding.ledger)
    assert override_of(connection, SLO, until_us - 1) is not None
    assert "acts on nothing until" in text_of(operator.get(f"/now?at={AT}"))
    ended = {"slo_id": SLO, "expires_at_us": "0", "reason": "it is over"}
    assert operator.post("/act/override_slo", ended).status_code == 302
    assert override_of(connection, SLO, until_us - 1) is None
    connection.close()


def test_a_viewer_sees_the_alert_and_no_form(shedding, viewer: Client):
    page = viewer.get(f"/now?at={AT}").content.decode()
    assert "Interactive requests wait" in page
    assert "/act/" not in page


def test_it_follows_by_default_and_is_paused_by_its_url(viewer: Client):
    assert 'hx-trigger="every 10s"' in viewer.get("/now").content.decode()
    assert "hx-trigger" not in viewer.get("/now?follow=0").content.decode()
    assert "hx-trigger" not in viewer.get(f"/now?at={AT}").content.decode()
    part = viewer.get("/now?within=5m", headers=HX)
    assert part["HX-Push-Url"] == "false"
    assert 'hx-get="/now?within=5m"' in part.content.decode()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("within=9m", "within: write one of 5m, 15m, 1h"),
        ("at=yesterday", "at: write a time in UTC"),
        ("whitin=5m", "whitin: no such parameter"),
    ],
)
def test_a_question_that_cant_be_asked_is_said(viewer: Client, query: str, said: str):
    answer = viewer.get(f"/now?{query}")
    assert answer.status_code == 400
    assert said in text_of(answer)


def test_no_statement_of_the_page_runs_without_an_index(shedding, viewer: Client):
    with Plans(reader(shedding.ledger)) as plans:
        assert viewer.get(f"/now?at={AT}").status_code == 200
    scanned = {step for step in plans.steps() if step.startswith("SCAN")}
    assert {step.split()[1] for step in scanned} <= {
        *Plans.SMALL, "route_policy", "rollout", "control_action", "open_hold", "h", "a",
        "used",
    }, scanned  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_from_the_alert_on_now_to_the_receipt_that_proves_it(
    ledger_template, tmp_path, settings, viewer: Client, name: str
):
    """DIA-2: each of the eight faults is diagnosed as its own row, and the finding on top links the
    receipts that show it."""
    path = tmp_path / f"{name}.sqlite3"
    path.write_bytes(ledger_template.read_bytes())
    result = run(path, SCENARIOS[name], seed=4)
    assert result.found == SCENARIOS[name].finds
    assert all(one.evidence and one.causes and one.not_yet for one in result.findings)
    settings.WEIGHBRIDGE_DB = path
    ends = datetime.fromtimestamp((START_US + 2 * WINDOW_US) / 1e6, UTC).isoformat()[:19]
    page = viewer.get(f"/now?within=5m&at={ends}").content.decode()
    finding = page[page.index('<article class="finding') :].partition("</article>")[0]
    assert result.findings[0].symptom.capitalize() in text_of_html(finding)
    proofs = re.findall(r'href="(/receipts/[^"]+)"', finding)
    assert proofs
    shown = viewer.get(proofs[0])  # the first click
    assert shown.status_code == 200
    said = text_of_html(finding[finding.index(proofs[0]) :].partition("</li>")[0])
    measured = said.strip().rpartition(", ")[2].removesuffix(" units")
    assert measured in text_of_html(shown.content.decode())
    connection = connect_read_only(path)
    found = dossier(connection, proofs[0].rpartition("/")[2])
    connection.close()
    assert found is not None
    assert proves(result.found, found.current.record, result.findings[0].drill)
    listed = re.findall(r'href="(/receipts\?[^"]+)"', finding)[0].replace("&amp;", "&")
    assert "<tbody>" in viewer.get(listed).content.decode()  # the other way: two clicks


def proves(row: str, receipt, drill: str) -> bool:
    return {
        "ttft_tail": (receipt.first_token_us or 0) > 1_000_000,
        "decode_slow": receipt.itl_mean_us is not None,
        "throughput_collapse": receipt.itl_max_us is not None,
        "cancels_up": receipt.status == "cancelled",
        "cost_jump": receipt.status == "completed" and receipt.cost_total_pico > 0,
        "fallback_schema": receipt.degraded_from is not None and receipt.schema_valid == 0,
        "billed_after_timeout": receipt.status == "unknown" and receipt.cost_total_pico > 0,
        "tenant_unfair": f"tenant={receipt.tenant_id}" == drill and bool(receipt.queue_us),
    }[row]


def text_of_html(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html)


def test_of_more_requests_than_are_read_now_says_how_many_and_from_when(
    shedding, viewer: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ledger.queries.diagnosis.RECEIPTS_LIMIT", 200)
    said = text_of(viewer.get(f"/now?within=1h&at={AT}"))
    assert re.search(
        r"at least 200 accepted requests in 1 h; the diagnosis reads the newest 200, "
        r"from [0-9:.]{12} on",
        said,
    )


def test_what_stands_on_a_part_of_a_window_says_so():
    some, all_of_it = Read(requests=10_000, newest_from_us=5), Read(requests=1, newest_from_us=None)
    assert (some.words, all_of_it.words) == ("the newest 10,000 requests", "1 request")
    assert "in the newest 10,000 requests, beside the newest 10,000" in undiagnosed(some, some)
    picture = Picture(start_us=7, end_us=9, requests=3)
    assert read_of(picture, 7) == Read(requests=3, newest_from_us=None)
    assert read_of(picture, 6) == Read(requests=3, newest_from_us=7)
