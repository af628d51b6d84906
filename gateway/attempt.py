"""One attempt on its provider: waited for, sent, read to its one outcome, cancelled on the way."""

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable

from gateway.patience import Patience
from gateway.providers.base import Call, Provider
from gateway.providers.outcomes import Cancelled, Outcome, Timings, Unknown
from gateway.run import Leg, Run
from gateway.submission import Delta
from ledger.rates import Usage

log = logging.getLogger(__name__)

CANCEL_SECONDS = 30.0
"""How long a backend may take to acknowledge a cancel; after it the attempt's end is unknown."""


async def outcome_of(
    run: Run,
    leg: Leg,
    provider: Provider,
    now_us: Callable[[], int],
    *,
    sent: Callable[[int], None],
    piece: Callable[[Delta], None],
) -> Outcome:
    """Return how the attempt ended; each piece goes to `piece` as it comes.

    `sent` is called when the provider has it. One that is cancelled before that is cancelled for
    certain. A fault of the adapter is an unknown: it must not cost the request its receipt.
    """
    if leg.wait_us and leg.cancel_reason is None:
        leg.cancelled = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(leg.wait_us / 1e6):
                await leg.cancelled.wait()
    if leg.cancel_reason is not None:
        return unsent(leg.cancel_reason)
    patience = Patience()
    try:
        attempted = provider.start(_call(run, leg))
        leg.attempted, leg.started_us = attempted, now_us()
        sent(leg.started_us)
        leg.patience = patience
        return await attempted.carry(piece)
    except asyncio.CancelledError:
        if patience.at_end():
            return lost("CANCEL_NOT_ACKNOWLEDGED", leg)
        raise
    except Exception as fault:  # an adapter's fault must not cost the request its receipt
        return _broken(leg, fault)
    finally:
        patience.drop()
        # An attempt holds its run's pieces and its messages: it is freed as soon as it is over.
        leg.patience = leg.attempted = None


def stop(leg: Leg, reason: str, patience_s: float) -> None:
    """Cancel an attempt, once; its backend has at most `patience_s` from now to acknowledge."""
    if leg.cancel_reason is None:
        leg.cancel_reason = reason
        if leg.cancelled is not None:
            leg.cancelled.set()
        if leg.attempted is not None:
            leg.attempted.cancel(reason)
    if leg.patience is not None:
        leg.patience.shorten(patience_s)


def lost(reason: str, leg: Leg) -> Unknown:
    """Return the outcome of an attempt that was lost sight of: unknown, never failed (PRV-2)."""
    return Unknown(
        reason=reason,
        usage=Usage(input_tokens=leg.input_tokens, output_tokens=leg.tokens),
        usage_source="counted",
        timings=Timings(),
    )


def unsent(reason: str) -> Cancelled:
    """Return the outcome of an attempt that its provider never had: it costs nothing."""
    return Cancelled(
        reason=reason,
        usage=Usage(input_tokens=0, output_tokens=0),
        usage_source="counted",
        timings=Timings(cancel_ack_us=0),
        sent=False,
    )


def log_fault(what: str, of: str, fault: Exception) -> None:
    """Log where something broke, without the message: it could quote a prompt (SEC-1)."""
    where = "".join(traceback.format_tb(fault.__traceback__))
    log.error("%s broke %s of %s\n%s", type(fault).__name__, what, of, where)


def _broken(leg: Leg, fault: Exception) -> Unknown:
    log_fault("the adapter", leg.attempt_id, fault)
    return lost("ADAPTER_FAULT", leg)


def _call(run: Run, leg: Leg) -> Call:
    submission, request, context = run.submission, run.weighed.request, run.submission.trace
    attempt_id = leg.attempt_id
    return Call(
        attempt_id=attempt_id,
        route=leg.route,
        tenant_id=request.tenant_id,
        priority=request.priority,
        input_tokens=leg.input_tokens,
        max_output_tokens=request.budget.max_output_tokens,
        messages=submission.messages,
        schema=submission.schema,
        tools_json=submission.tools_json,
        parameters=submission.parameters,
        ignore_eos=submission.ignore_eos,
        seed=submission.seed,
        without=frozenset(leg.without),
        traceparent=context.traceparent(attempt_id) if context else None,
        tracestate=context.tracestate if context else None,
    )
