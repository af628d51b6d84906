"""OpenTelemetry's spans and metrics of requests, as a collector gets them; and nothing when off."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from gateway import settings as settings_file
from gateway import telemetry
from gateway.policy.values import AttemptRules
from gateway.submission import Message, Parameters, Refusal
from gateway.telemetry.conventions import BUCKETS
from gateway.trace_context import span_id, trace_of
from tests.gateway.attempts import (
    FAST,
    OTHER,
    Plan,
    cancelled_after,
    completing,
    planned,
    played,
    refusing,
    with_rules,
)
from tests.gateway.scripted import stage, submission
from tests.gateway.test_hedges import HEDGED
from tests.otlp_collector import Collector, collecting, plain
from tests.server import ROOT

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "the lorry in bay four carries gold"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Telemetry that is on; what was told is whole once `telemetry.stop()` returned."""
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.base_url)
        telemetry.start(frozenset({"traces", "metrics"}))
        yield found
        telemetry.stop()


def traced(flags: str = "01", **more: Any) -> dict[str, Any]:
    sent = trace_of(f"00-{TRACE}-{PARENT}-{flags}", "congo=1", fresh=bytes(16))
    return {"trace": sent, "messages": (Message(role="user", content=SECRET),), **more}


def test_a_retried_request_is_a_servers_span_with_a_clients_span_for_each_attempt(fleet, collector):
    """The ids are those that the providers were told, so their spans hang below ours."""
    provider = planned(refusing(), completing)
    end = played(fleet, provider, stream=True, seed=7, **traced())
    telemetry.stop()
    first, second, server = collector.spans()
    request_id = end.receipt.request_id
    assert {span.trace_id.hex() for span in collector.spans()} == {TRACE}
    assert (server.kind, server.parent_span_id.hex()) == (2, PARENT)  # SERVER, the caller's
    assert server.span_id.hex() == span_id(TRACE, request_id)
    assert [span.parent_span_id for span in (first, second)] == [server.span_id] * 2
    assert [span.kind for span in (first, second)] == [3, 3]  # CLIENT
    assert [f"00-{TRACE}-{span.span_id.hex()}-01" for span in (first, second)] == [
        call.traceparent for call in provider.calls
    ]
    assert [span.status.code for span in (first, second, server)] == [2, 0, 0]  # ERROR, unset
    assert server.name == "chat assist"
    assert server.start_time_unix_nano == end.receipt.accepted_at_us * 1_000
    assert server.end_time_unix_nano == end.receipt.ended_at_us * 1_000
    told = plain(server.attributes)
    assert told == told | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "weighbridge.simulator",
        "gen_ai.request.model": "assist",
        "gen_ai.request.max_tokens": 200,
        "gen_ai.request.stream": True,
        "gen_ai.request.seed": 7,
        "gen_ai.response.model": end.receipt.identity_id,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": end.receipt.input_tokens,
        "gen_ai.usage.output_tokens": 3,
        "weighbridge.request.id": request_id,
        "weighbridge.attempts": 2,
    }
    kinds = [plain(span.attributes)["weighbridge.attempt.kind"] for span in (first, second)]
    assert kinds == ["primary", "retry"]
    assert plain(first.attributes)["error.type"] == "PROVIDER_OVERLOADED"
    assert "error.type" not in told
    assert collector.services() == {"weighbridge"}


def test_a_hedges_loser_is_a_span_too(fleet, collector):
    """HDG-1: both attempts, with what each used."""
    loser = Plan(script=cancelled_after(1), waits_at=1)
    played(fleet, planned(loser, completing), rules=HEDGED, primaries=(FAST, OTHER), **traced())
    telemetry.stop()
    told = [plain(span.attributes) for span in collector.spans()[:2]]
    assert [(each["weighbridge.attempt.kind"], each["weighbridge.status"]) for each in told] == [
        ("primary", "cancelled"),
        ("hedge", "completed"),
    ]
    assert told[0]["error.type"] == "HEDGE_LOST"


def test_metrics_have_the_conventions_names_buckets_and_attributes(fleet, collector):
    provider = planned(refusing(), completing)
    end = played(fleet, provider, **traced())
    telemetry.stop()
    under = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "weighbridge.simulator",
        "gen_ai.request.model": "assist",
        "gen_ai.response.model": end.receipt.identity_id,
    }
    for name, bounds in BUCKETS.items():
        points = collector.histogram(name)
        assert points and all(tuple(point.explicit_bounds) == bounds for point in points), name
    assert BUCKETS["gen_ai.server.time_to_first_token"][:4] == (0.001, 0.005, 0.01, 0.02)
    (duration,) = collector.histogram("gen_ai.server.request.duration")
    assert plain(duration.attributes) == under and duration.count == 1
    calls = [plain(p.attributes) for p in collector.histogram("gen_ai.client.operation.duration")]
    assert sorted(call.get("error.type", "") for call in calls) == ["", "PROVIDER_OVERLOADED"]
    usage = {
        plain(point.attributes)["gen_ai.token.type"]: point.sum
        for point in collector.histogram("gen_ai.client.token.usage")
    }
    assert usage == {"input": end.receipt.input_tokens, "output": 3}


def test_a_refusal_is_a_span_without_attempts_and_an_error_of_its_caller(fleet, collector):
    with stage(fleet.ledger, planned()) as on:
        asked = submission(**traced(deadline_ms=1))
        refused = asyncio.run(on.journey.admit(asked))
    assert isinstance(refused, Refusal)
    telemetry.stop()
    (span,) = collector.spans()
    told = plain(span.attributes)
    assert (span.status.code, told["error.type"]) == (0, refused.reason_code)
    assert (told["gen_ai.provider.name"], "weighbridge.route.id" in told) == ("weighbridge", False)
    (duration,) = collector.histogram("gen_ai.server.request.duration")
    assert plain(duration.attributes)["error.type"] == refused.reason_code


def test_nothing_that_is_told_holds_content(fleet, collector):
    """SEC-1: no prompt, no answer, no stop sequence, no schema, no tool."""
    stop = Parameters(stop=("halt at the gate",), temperature=0.5)
    played(fleet, planned(completing), parameters=stop, **traced())
    telemetry.stop()
    everything = b"".join(body for _, body in collector.raw)
    assert b"gen_ai.request.temperature" in everything
    for secret in (SECRET, "gold", "halt", "Simulated", "Sim"):
        assert secret.encode() not in everything.replace(b"weighbridge.simulator", b"")


def test_a_callers_trace_that_is_not_sampled_has_metrics_alone(fleet, collector):
    played(fleet, planned(completing), **traced("00"))
    telemetry.stop()
    assert collector.spans() == []
    assert collector.histogram("gen_ai.server.request.duration")[0].count == 1


def test_of_traces_that_begin_here_the_sampler_decides_and_providers_are_told(
    fleet, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    low, high = bytes(15) + b"\x01", bytes(8) + b"\xff" * 8
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.base_url)
        telemetry.start(frozenset({"traces"}))
        begun = [
            trace_of(None, None, fresh=each, sampled=telemetry.sampled) for each in (low, high)
        ]
        with_rules(fleet.ledger, AttemptRules())

        async def play(on):
            for trace in begun:
                await on.pieces(await on.admitted(trace=trace))

        provider = planned(completing, completing)
        with stage(fleet.ledger, provider) as on:
            asyncio.run(play(on))
        telemetry.stop()
        assert [trace.flags for trace in begun] == ["01", "00"]
        assert [(call.traceparent or "")[-2:] for call in provider.calls] == ["01", "00"]
        assert {span.trace_id for span in collector.spans()} == {low}
        assert all(
            span.parent_span_id == b""
            for span in collector.spans()
            if span.kind == 2  # SERVER
        )


def test_a_collector_that_is_away_holds_up_neither_a_request_nor_the_stop(
    fleet, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    monkeypatch.setattr(telemetry, "CLOSE_SECONDS", 0.2)
    telemetry.start(frozenset({"traces", "metrics"}))
    end = played(fleet, planned(completing), **traced())
    telemetry.stop()
    assert end.receipt.status == "completed"


def test_off_nothing_of_opentelemetry_is_imported():
    """What carries requests imports no more than the hooks; the rest only `start` does."""
    told = subprocess.run(
        [
            sys.executable, "-c",
            "import gateway.journey, gateway.api.submitting, sys; print([*sys.modules])",
        ],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert "gateway.telemetry" in told.stdout and "opentelemetry" not in told.stdout
    importing = {
        path.name
        for path in (ROOT / "gateway").rglob("*.py")
        if "from opentelemetry" in path.read_text()
    }
    assert importing == {"exporting.py", "meters.py", "spans.py"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, (False, False)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, (True, True)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}, (False, True)),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"},
            (True, False),
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, (False, False)),
    ],
)  # fmt: skip
def test_the_environment_says_what_is_told(monkeypatch, given, told):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert tuple(map(settings_file._told_of, ("TRACES", "METRICS"))) == told


@pytest.mark.parametrize(
    "given",
    [
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "collector:4318"},
    ],
)
def test_what_is_not_done_stops_the_start(monkeypatch, given):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ImproperlyConfigured, match="OTEL_"):
        settings_file._told_of("TRACES")
