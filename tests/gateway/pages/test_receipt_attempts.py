"""What followed an attempt, what became of an answer, and how an end became known, in words."""

from gateway.pages.receipt_attempts import bars, followed, reported, resolutions, tried
from ledger.queries.dossier import dossier
from ledger.records import AttemptDecision, OutcomeReport
from ledger.rows import Stored
from ledger.store import Store
from tests import factories

AT_US = factories.NOW_US
REQUEST = "req_of_two"


def step(**changes) -> Stored[AttemptDecision]:
    fields = {"asked": "ended", "action": "retry", "reason": "UPSTREAM_RESET", "route_id": "b"}
    record = factories.any_record(AttemptDecision, 1, **(fields | changes))
    assert isinstance(record, AttemptDecision)
    return Stored(seq=1, record=record, entry_hash=b"")


def test_each_answer_to_what_follows_is_a_sentence():
    asked = [
        step(),
        step(action="fallback"),
        step(asked="hedge_due", action="hedge"),
        step(action="none", route_id=None),
    ]
    assert [one.said for one in followed(asked)] == [
        "The attempt ended: it was tried again on b.",
        "The attempt ended: it was sent to b instead.",
        "The attempt had been silent for the hedge's delay: a second attempt was started on b "
        "beside it.",
        "The attempt ended: nothing followed.",
    ]


def test_a_report_says_what_it_knows_and_no_more():
    record = factories.any_record(
        OutcomeReport, 1, quality_passed=1, citations_verified=None, schema_valid=0,
        task_completed=None, taken_over=1,
    )  # fmt: skip
    assert isinstance(record, OutcomeReport)
    assert reported([record])[0].said == (
        "its quality passed; it breaks its schema; a person took over"
    )


def two_attempts() -> list:
    named = {"request_id": REQUEST}
    return [
        factories.attempt(
            1, **named, attempt_id=f"{REQUEST}.0", ordinal=0, kind="primary",
            started_at_us=AT_US + 1_000, route_id="a",
        ),
        factories.attempt_event(
            1, **named, attempt_id=f"{REQUEST}.0", event="ended", outcome="failed",
            error_code="UPSTREAM_RESET", at_us=AT_US + 51_000,
        ),
        factories.attempt(
            2, **named, attempt_id=f"{REQUEST}.1", ordinal=1, kind="retry",
            started_at_us=AT_US + 60_000, route_id="b",
        ),
    ]  # fmt: skip


def test_attempts_stand_beside_each_other_from_acceptance_on(store: Store, reader):
    receipt = factories.receipt(
        1, request_id=REQUEST, accepted_at_us=AT_US, e2e_us=500_000, status="unknown"
    )
    store.append([*two_attempts(), receipt]).result()
    found = dossier(reader, REQUEST)
    assert found is not None
    first, second = tried(found)
    assert (first.start_us, first.length_us, first.outcome) == (1_000, 50_000, "failed")
    assert (second.kind, second.start_us, second.length_us) == ("retry", 60_000, None)
    drawn = bars((first, second), receipt)
    assert [(one.label, one.start_us, one.length_us) for one in drawn] == [
        ("0 primary", 1_000, 50_000), ("1 retry", 60_000, 440_000),
    ]  # fmt: skip
    assert resolutions(found) == ()
