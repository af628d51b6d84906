"""ADM-5 end to end: receipts in a ledger teach a revision, decisions name it, replay finds it."""

import asyncio
import contextlib

import msgspec

from gateway import configuration as configured
from gateway.learning import Learner, observed_of
from gateway.policy.learning import learn
from gateway.policy.values import LearningRule, PredictionBucket, RoutePolicy
from gateway.providers.outcomes import Completed
from gateway.replaying import Replayer
from ledger.queries import predictions as stored
from ledger.queries.configuration import current_policy
from ledger.rates import Usage
from ledger.records import PredictionRevision
from ledger.store import Store
from tests.gateway.clock import VirtualClock
from tests.gateway.scripted import START_US, ScriptedProvider, stage
from tests.ledger.receipts import receipt
from tests.server_fixtures import Fleet

RULE = LearningRule(least_requests=10, window_requests=40)
ROUTE = "fast-v2"


def publish_learning(fleet: Fleet, store: Store) -> None:
    with contextlib.closing(fleet.reader()) as reader:
        record = current_policy(reader)
    assert record is not None
    policy = msgspec.json.decode(record.body_json, type=RoutePolicy)
    policy = msgspec.structs.replace(policy, revision="policy-learning", learning=RULE)
    body = msgspec.json.encode(policy).decode()
    store.append(
        (msgspec.structs.replace(record, revision=policy.revision, body_json=body),)
    ).result()


def serve(store: Store, first: int, count: int, identity_id: str, **changed) -> None:
    """File receipts of `count` completed requests, each a millisecond slower than the last."""
    for number in range(first, first + count):
        store.append(
            (
                receipt(
                    request_id=f"req_{number:08}", status="completed", route_id=ROUTE,
                    identity_id=identity_id, input_tokens=12, output_tokens=11, attempts=1,
                    prefill_us=200_000 + number * 1_000, decode_us=number * 10_000, **changed,
                ),
            )
        ).result()  # fmt: skip


def revisions(fleet: Fleet, learner: Learner) -> tuple[PredictionRevision, ...]:
    with contextlib.closing(fleet.reader()) as reader:
        return learner.revisions(configured.load(reader), RULE)


def test_receipts_teach_a_revision_that_can_be_learned_again_from_the_ledger(fleet: Fleet):
    with Store.open(fleet.ledger) as store, contextlib.closing(fleet.reader()) as reader:
        publish_learning(fleet, store)
        identity_id = configured.load(reader).routes[ROUTE].identity_id
        serve(store, 1, 9, identity_id)
        learner = Learner(fleet.reader, VirtualClock(START_US))
        assert revisions(fleet, learner) == ()  # nine are too few
        serve(store, 10, 31, identity_id)
        (record,) = revisions(fleet, learner)
        assert (record.route_id, record.receipts) == (ROUTE, 40)
        (bucket,) = msgspec.json.decode(record.body_json, type=tuple[PredictionBucket, ...])
        assert (bucket.prefill_us, bucket.inter_token_us) == (236_000, 36_000)  # the 36th of 40

        served, _ = stored.served_after(reader, 0)
        again = learn([observed_of(each) for each in served if each.seq <= record.last_seq], RULE)
        assert again == (bucket,)

        store.append((record,)).result()
        assert revisions(fleet, learner) == ()  # nothing new: nothing moved
        loaded = configured.load(reader)
        assert loaded.routes[ROUTE].prediction.revision == record.revision
        assert loaded.policy.routes[0].prediction.revision == "declared-1"


def test_what_ended_otherwise_or_took_several_attempts_teaches_nothing(fleet: Fleet):
    with Store.open(fleet.ledger) as store, contextlib.closing(fleet.reader()) as reader:
        publish_learning(fleet, store)
        identity_id = configured.load(reader).routes[ROUTE].identity_id
        serve(store, 1, 40, identity_id)
        store.append(
            (receipt(request_id="req_x", status="cancelled", route_id=ROUTE, prefill_us=9),)
        ).result()
        store.append(
            (receipt(request_id="req_y", status="completed", route_id=ROUTE, attempts=2),)
        ).result()
        assert len(stored.served_after(reader, 0)[0]) == 40


def test_a_decision_names_what_was_learned_and_replays_identically_from_the_ledger(fleet: Fleet):
    """RTE-3 with ADM-5: before and after a revision, by the predictions that were known then."""
    with Store.open(fleet.ledger) as store, contextlib.closing(fleet.reader()) as reader:
        publish_learning(fleet, store)
        for route in configured.load(reader).policy.routes:
            body = (PredictionBucket(over_tokens=0, upto_tokens=256, prefill_us=77_000,
                                     inter_token_us=7_000, requests=40),)  # fmt: skip
            store.append(
                (
                    PredictionRevision(
                        route_id=route.route_id, revision="learned-9",
                        identity_id=route.identity_id, policy_revision="policy-learning",
                        body_json=msgspec.json.encode(body).decode(), receipts=40, first_seq=1,
                        last_seq=9, learned_at_us=START_US,
                    ),
                )
            ).result()  # fmt: skip

    def completing(call):
        usage = Usage(input_tokens=call.input_tokens, output_tokens=3)
        return [Completed(usage=usage, finish_reason="stop")]

    async def play(on):
        run = await on.admitted(max_output_tokens=10)
        _, end = await on.pieces(run)
        return end.filed.receipt

    with stage(fleet.ledger, ScriptedProvider(script=completing)) as on:
        filed = asyncio.run(play(on))
    assert filed.prediction_revision == "learned-9"
    with contextlib.closing(fleet.reader()) as reader:
        replayer = Replayer(reader)
        compared = replayer.one(filed.request_id)
        assert compared is not None
        assert compared.verdict == "identical", compared.differences
        inputs = replayer.inputs(filed.request_id)
        assert inputs is not None
        assert inputs.predictions_seq > 0
        assert replayer.routes(replayer.policy("policy-learning"), 0)[0].prediction.buckets == ()


def test_a_policy_that_does_not_learn_decides_by_what_it_declares(fleet: Fleet):
    with contextlib.closing(fleet.reader()) as reader:
        loaded = configured.load(reader)
    assert loaded.candidates is loaded.policy.routes
    assert loaded.predictions_seq == 0
