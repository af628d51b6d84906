"""What the journey weighs, made of what could be read of a call: chat, budget, trace."""

from collections.abc import Mapping

from msgspec.structs import replace

from gateway import telemetry
from gateway.api.budget import Asked
from gateway.api.problems import Problem
from gateway.api.wire import ChatRequest
from gateway.randomness import random_bytes
from gateway.submission import Caller, Submission
from gateway.trace_context import TraceContext, trace_of

# What a JSON schema, tools or log probabilities imply (BUD-1): the route must be able to do it.
CAPABILITY_JSON_SCHEMA = "json_schema"
CAPABILITY_TOOLS = "tools"
CAPABILITY_LOGPROBS = "logprobs"
SEED_LIMIT = 2**63
TRACE_ID_BYTES = 16


def submissions(
    caller: Caller,
    wanted: ChatRequest,
    asked: Asked,
    *,
    trace: TraceContext | None = None,
    patience_ms: int | None = None,
) -> tuple[Submission, ...]:
    """Returns what the journey weighs, for each answer that is wanted.

    Of several with a seed each gets one of its own: the same seed would make the same answer. A
    cost budget is that of all of them, so each gets an equal part of it, rounded down (BUD-2).
    """
    first = submission(caller, wanted, asked, trace=trace, patience_ms=patience_ms)
    if first.max_cost_pico is not None:
        first = replace(first, max_cost_pico=first.max_cost_pico // wanted.choices)
    if wanted.seed is None:
        return (first,) * wanted.choices
    seeds = (wanted.seed + index for index in range(wanted.choices))
    return tuple(
        replace(first, seed=seed if seed < SEED_LIMIT else seed - 2 * SEED_LIMIT) for seed in seeds
    )


def submission(
    caller: Caller,
    wanted: ChatRequest,
    asked: Asked,
    *,
    trace: TraceContext | None = None,
    patience_ms: int | None = None,
) -> Submission:
    """Returns what the journey weighs: the chat, what was asked for and what that implies."""
    has_tools = wanted.tools_json is not None
    implied = set(asked.required_capabilities)
    if wanted.wants_json:
        implied.add(CAPABILITY_JSON_SCHEMA)
    if has_tools:
        implied.add(CAPABILITY_TOOLS)
    if wanted.parameters.logprobs:
        implied.add(CAPABILITY_LOGPROBS)
    return Submission(
        caller=caller,
        logical_model=wanted.model,
        messages=wanted.messages,
        stream=wanted.stream,
        max_input_tokens=asked.max_input_tokens,
        max_output_tokens=wanted.max_output_tokens,
        max_total_tokens=asked.max_total_tokens,
        deadline_ms=asked.deadline_ms,
        max_cost_pico=asked.max_cost_pico,
        ttft_objective_us=asked.ttft_objective_us,
        tpot_objective_us=asked.tpot_objective_us,
        priority=asked.priority,
        user_path=asked.user_path,
        task_type=asked.task_type,
        required_capabilities=tuple(sorted(implied)),
        allowed_regions=asked.allowed_regions,
        quality_floor_milli=asked.quality_floor_milli,
        side_effects=has_tools if wanted.side_effects is None else wanted.side_effects,
        session_id=asked.session_id,
        tags=asked.tags,
        tools_json=wanted.tools_json,
        schema=wanted.schema,
        ignore_eos=wanted.ignore_eos,
        seed=wanted.seed,
        parameters=wanted.parameters,
        trace=trace,
        patience_ms=patience_ms,
    )


def trace_sent(headers: Mapping[str, str]) -> TraceContext:
    """Returns the W3C trace that the caller is in, or a new one where it names none."""
    return trace_of(
        headers.get("traceparent"),
        headers.get("tracestate"),
        fresh=random_bytes(TRACE_ID_BYTES),
        sampled=telemetry.sampled,
    )


def no_such_model(models: tuple[str, ...]) -> Problem:
    """The name that was asked for isn't quoted: what a client sent stays out of errors."""
    return Problem(
        code="MODEL_NOT_FOUND",
        message=f"There is no such model; there are {', '.join(models)}.",
        param="model",
    )
