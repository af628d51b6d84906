"""What the data plane reads at start and a replay reads later."""

from ledger.queries import configuration, decisions, holds
from ledger.recovery import unfinished
from tests import factories
from tests.factories import NOW_US


def test_the_policy_published_last_is_in_force_and_the_others_stay_readable(store, reader):
    assert configuration.current_policy(reader) is None
    first, second = factories.route_policy(), factories.route_policy(revision="policy-2")
    store.append([first, second]).result()
    assert configuration.current_policy(reader) == second
    assert configuration.policy(reader, "policy-1") == first
    assert configuration.policy(reader, "policy-3") is None
    assert configuration.policies(reader) == [first, second]


def test_the_rate_table_in_effect_is_the_latest_that_had_begun(store, reader):
    tables = [
        factories.rate_table(version="late", effective_from_us=2_000),
        factories.rate_table(version="early", effective_from_us=1_000),
        factories.rate_table(version="corrected", effective_from_us=2_000),
    ]
    store.append(tables).result()
    found = {
        at_us: getattr(configuration.rate_table_in_effect(reader, at_us), "version", None)
        for at_us in (999, 1_000, 1_999, 2_000)
    }
    assert found == {999: None, 1_000: "early", 1_999: "early", 2_000: "corrected"}
    assert configuration.rate_table(reader, "early") == tables[1]
    assert configuration.rate_tables(reader) == tables


def test_a_tenants_highest_revision_is_in_force(store, reader):
    newer = factories.tenant(revision=2, body_json='{"in_flight_limit":4}')
    other = factories.tenant(tenant_id="beta")
    store.append([factories.tenant(), other, newer]).result()
    assert configuration.tenants(reader) == [newer, other]
    assert configuration.tenant(reader, "acme") == newer
    assert configuration.tenant(reader, "nobody") is None


def test_a_revoked_key_is_no_longer_active(store, reader):
    keys = [factories.api_key(number) for number in (1, 2)]
    store.append([*keys, factories.api_key_revocation(1)]).result()
    assert configuration.active_api_keys(reader) == [keys[1]]


def test_evaluations_can_be_read_as_of_a_place_in_the_chain(store, reader):
    assert configuration.evaluations(reader) == ([], 0)
    first, second = factories.evaluation(1), factories.evaluation(2)
    store.append([first, factories.tenant(), second]).result()
    assert configuration.evaluations(reader) == ([first, second], 3)
    assert configuration.evaluations(reader, upto_seq=2) == ([first], 1)


def test_identities_and_snapshot_revisions_are_found(store, reader):
    identity = factories.model_identity()
    snapshots = [factories.capacity_snapshot(revision=revision) for revision in (3, 7)]
    store.append([identity, *snapshots]).result()
    assert configuration.identities(reader) == [identity]
    assert configuration.identity(reader, "mid_a") == identity
    assert configuration.last_snapshot_revision(reader, "route-a") == 7
    assert configuration.last_snapshot_revision(reader, "route-b") == 0
    assert decisions.snapshot(reader, "route-a", 3) == snapshots[0]
    assert decisions.snapshot(reader, "route-a", 4) is None


def test_open_reservations_are_those_without_a_settlement(store, reader):
    reservations = [factories.reservation(number) for number in (1, 2, 3)]
    settled = factories.settlement(2, kind="voided", cost_pico=0)
    store.append([*reservations, settled]).result()
    assert holds.open_reservations(reader) == [reservations[0], reservations[2]]


def test_posted_cost_is_exact_above_64_bits_and_of_one_tenant_and_period(store, reader):
    large = 2**63 - 1
    store.append(
        [
            *(factories.reservation(number) for number in (1, 2, 3, 4)),
            factories.reservation(5, tenant_id="beta"),
            factories.settlement(1, cost_pico=large, settled_at_us=NOW_US),
            factories.settlement(2, cost_pico=large, settled_at_us=NOW_US + 1),
            factories.settlement(3, cost_pico=5, settled_at_us=NOW_US - 1),
            factories.settlement(4, cost_pico=0, kind="voided", settled_at_us=NOW_US),
            factories.settlement(5, cost_pico=7, settled_at_us=NOW_US),
        ]
    ).result()
    assert holds.posted_pico_since(reader, "acme", NOW_US) == 2 * large
    assert holds.posted_pico_since(reader, "acme", NOW_US - 1) == 2 * large + 5
    assert holds.posted_pico_since(reader, "beta", NOW_US) == 7
    assert holds.posted_pico_since(reader, "nobody", 0) == 0


def test_decisions_are_walked_in_chain_order_across_pages_and_by_period(store, reader):
    store.append([factories.route_decision(number) for number in range(2_500)]).result()
    walked = list(decisions.decisions(reader))
    assert [row.seq for row in walked] == list(range(1, 2_501))
    assert walked[7].record == factories.route_decision(7)
    period = decisions.decisions(reader, since_us=NOW_US + 10, until_us=NOW_US + 12)
    assert [row.record.request_id for row in period] == [
        factories.request_id(10),
        factories.request_id(11),
    ]
    found = decisions.decision_of(reader, factories.request_id(3))
    assert found is not None
    assert (found.seq, found.record) == (4, factories.route_decision(3))
    assert decisions.decision_of(reader, "req_none") is None


def test_a_request_without_a_receipt_is_unfinished_with_all_that_is_known_of_it(store, reader):
    for number in (1, 2):
        store.append(factories.request_records(number)[0]).result()
    store.append(factories.request_records(1)[1]).result()
    store.append([factories.route_decision(3)]).result()
    cut_off, bare = unfinished(reader)
    assert cut_off.decision == factories.route_decision(2)
    assert cut_off.reservation == factories.reservation(2)
    assert cut_off.attempts == (factories.attempt(2),)
    assert cut_off.events == ()
    assert (bare.decision, bare.reservation) == (factories.route_decision(3), None)


def test_no_query_leaves_a_transaction_open_that_would_pin_the_log(store, reader):
    store.append([factories.route_decision(number) for number in range(1_500)]).result()
    walk = decisions.decisions(reader)
    next(walk)
    assert not reader.in_transaction
    store._writer.checkpoint()
    found = store._writer._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    assert found[0] == 0  # not busy: no reader holds the log
