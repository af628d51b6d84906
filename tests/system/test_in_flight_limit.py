"""Two hundred at once of a tenant that may have four in flight (ADM-7, LED-6)."""

import contextlib

from ledger.carrying import source
from ledger.records import Reservation, Settlement
from tests.server_fixtures import SMALL_TEAM, SMALL_TEAM_IN_FLIGHT, Fleet
from tests.system.crowd import Noted, crowd
from tests.system.watching import assert_each_decision_has_one_receipt, assert_sound, held, until


def most_at_once(reader) -> int:
    """The most reservations that were open at one time, by the ledger's own times.

    One that ends in the microsecond in which another is taken has made room for it.
    """
    rows = reader.execute(
        f"SELECT r.reserved_at_us, s.settled_at_us FROM {source(Reservation)} AS r "
        f"JOIN {source(Settlement)} AS s ON s.reservation_id = r.reservation_id"
    ).fetchall()
    changes = sorted(
        [(taken_us, 1) for taken_us, _ in rows] + [(ended_us, -1) for _, ended_us in rows]
    )
    open_now, most = 0, 0
    for _, change in changes:
        open_now += change
        most = max(most, open_now)
    return most


def test_of_two_hundred_at_once_never_more_than_the_limit_are_accepted_and_none_leaks(
    fleet: Fleet,
):
    noted, after = Noted(), Noted()
    with fleet.serving(time_scale=5.0) as server:
        key = server.keys[SMALL_TEAM]
        crowd(server, key, noted, clients=200, max_tokens=60)
        until(lambda: held(server) == (0, 0, 0), "nothing is held once all have ended")
        crowd(server, key, after, clients=SMALL_TEAM_IN_FLIGHT, max_tokens=2)
        server.stop()

    accepted = noted.statuses.count(200)
    assert len(noted.statuses) == len(noted.ids) == 200
    assert accepted >= SMALL_TEAM_IN_FLIGHT
    assert noted.statuses.count(429) == 200 - accepted > 0
    for headers, error in noted.errors:
        assert error["code"] == "TENANT_CONCURRENCY_LIMIT"
        assert error["limits"][0]["limit"] == SMALL_TEAM_IN_FLIGHT
        assert error["limits"][0]["observed"] >= SMALL_TEAM_IN_FLIGHT
        assert int(headers["Retry-After"]) >= 1
        assert int(headers["Retry-After-Ms"]) >= 1
        assert headers["X-Should-Retry"] == "true"
    assert after.statuses == [200] * SMALL_TEAM_IN_FLIGHT

    with contextlib.closing(fleet.reader()) as reader:
        assert most_at_once(reader) == SMALL_TEAM_IN_FLIGHT
        assert_each_decision_has_one_receipt(reader)
        assert_sound(reader)
