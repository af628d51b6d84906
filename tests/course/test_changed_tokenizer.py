"""The source's third extension (section 15), from the request to the receipt: another tokenizer
revision counts the same text otherwise, and budget, cost and receipt name the one that counted."""

import asyncio

from gateway.submission import Caller, Message, Refusal, Submission
from gateway.tokenizers import tokenizer
from ledger.store import Store
from tests.faults.plan import Plan, text_of
from tests.faults.server import FaultServer
from tests.gateway.providers.journeys import carried, load, published

OLD, NEW = "o200k_base/chat-1", "cl100k_base/chat-1"
TEXT = "取消若不能及时回收，客户端断开后仍消耗容量。" * 4
MESSAGES = (Message(role="user", content=TEXT),)


def test_extension_three_a_changed_tokenizer_is_named_by_budget_cost_and_receipt(ledger_path):
    counts = {each: tokenizer(each).count_chat(MESSAGES, None) for each in (OLD, NEW)}
    made = {each: tokenizer(each).count_text(text_of(Plan())) for each in (OLD, NEW)}
    assert counts[OLD] < counts[NEW]  # the experiment: the same text, more tokens
    between = (counts[OLD] + counts[NEW]) // 2

    async def one_request(gateway):
        _, filed = await gateway.run(messages=MESSAGES)
        capped = await gateway.runtime.journey.admit(
            Submission(
                caller=Caller(tenant_id="acme", key_id="key_1", scopes=frozenset({"inference"})),
                logical_model="assist",
                messages=MESSAGES,
                max_input_tokens=between,
            )
        )
        if not isinstance(capped, Refusal):
            _ = [piece async for piece in gateway.runtime.journey.deliver(capped)]
        return filed.current.record, capped

    async def running():
        async with FaultServer() as upstream:
            upstream.plan = Plan(protocol="kserve")
            address = f"kserve:{upstream.origin}?model=tiny"
            load(ledger_path, address)
            before = await carried(ledger_path, one_request)
            changed = published(
                address, revision="policy-new", identity_id="mid_b", tokenizer_revision=NEW
            )
            with Store.open(ledger_path) as store:
                store.append(changed).result()
            return before, await carried(ledger_path, one_request)

    (old, accepted), (new, refused) = asyncio.run(running())
    for receipt, revision, identity_id in ((old, OLD, "mid_a"), (new, NEW, "mid_b")):
        assert (receipt.tokenizer_revision, receipt.identity_id) == (revision, identity_id)
        assert receipt.input_tokens == counts[revision]
        assert receipt.output_tokens == made[revision]  # counted by the same revision
        assert receipt.usage_source == "counted"
        assert receipt.cost_total_pico == (
            2_000_000 * receipt.input_tokens + 8_000_000 * receipt.output_tokens
        )
    assert not isinstance(accepted, Refusal)  # the budget that held the text holds it no more
    assert refused.reason_code == "TOKEN_BUDGET_EXCEEDED"
    assert (refused.limits[0][1], refused.limits[0][2]) == (between, counts[NEW])
