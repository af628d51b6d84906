"""What each endpoint takes and gives, beside the table of URLs: the OpenAPI document's other half.

An endpoint without a row here fails a test, and so does a row without its endpoint.
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from gateway import diagnosing, reporting
from gateway.api import control, shapes
from gateway.api.budget import header_readings
from gateway.api.completions import CompletionBody
from gateway.api.kserve_body import GenerateBody, InferBody
from gateway.api.listing import RECEIPT_PARAMETERS, SNAPSHOT_PARAMETERS
from gateway.api.outcomes import Bulk, OutcomeBody
from gateway.api.reconciliations import RECONCILIATIONS_PARAMETERS
from gateway.api.responses_body import ResponsesBody
from gateway.api.submit_body import SubmitBody
from gateway.api.wire import ChatBody
from gateway.operations.base import Done
from gateway.policy.reasons import REASONS
from ledger.proof_files import Proof

Tag = Literal["inference", "ledger", "reports", "operations", "health"]

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"
TOML = "application/toml"
OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    what: str
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One endpoint. `answer`: the type of a 200's JSON; None: an object whose fields grow.

    `failures` are the statuses besides those that every endpoint of its kind has.
    """

    summary: str
    tag: Tag
    body: Any = None
    body_needed: bool = True
    answer: Any = None
    content: tuple[str, ...] = (JSON,)
    statuses: tuple[int, ...] = (200,)  # that carry `answer`
    failures: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[str, ...] = field(default=())


ADMISSION = tuple(sorted({reason.http_status for reason in REASONS.values()}))
RUNNING = (*ADMISSION, 410, 499, 502, 504)
"""What a call that runs something may come to: refused, or accepted and ended without an answer."""

BUDGET = (
    *(Parameter(name=name, what=what, place="header") for name, what in header_readings()),
    Parameter(name="idempotency-key", what="one execution, however often sent", place="header"),
)
_ANSWERED = ("x-weighbridge-route", "x-weighbridge-degraded", "x-weighbridge-simulated")


def _named(names: tuple[str, ...], what: str = "see docs/reports.md") -> tuple[Parameter, ...]:
    return tuple(Parameter(name=name, what=what) for name in dict.fromkeys(names))


_PERIOD = {
    "within": "1h, 6h, 24h, 7d, 30d or 90d, up to now",
    "first": "a local day, included",
    "last": "a local day, included",
    "zone": "UTC, an offset such as +05:30, or a name",
}


def _report(names: tuple[str, ...]) -> tuple[Parameter, ...]:
    filters = (*reporting.FILTERS, reporting.TAG_FILTER)
    said = {**dict.fromkeys(filters, "a filter; repeated, any of its values"), **_PERIOD}
    return tuple(
        Parameter(name=name, what=said.get(name, "see docs/reports.md"))
        for name in dict.fromkeys(names)
    )


_CHAT = Described(
    summary="Answers a chat, whole or as a stream of server-sent events.",
    tag="inference",
    body=ChatBody,
    answer=shapes.ChatCompletionShape,
    content=(JSON, EVENTS),
    failures=RUNNING,
    parameters=BUDGET,
    headers=_ANSWERED,
)


def _protocol(path: str) -> dict[tuple[str, str], "Described"]:
    """The Open Inference Protocol's URLs of a model, or of one of its versions."""
    call: dict[str, Any] = {
        "tag": "inference",
        "failures": RUNNING,
        "parameters": BUDGET,
        "headers": _ANSWERED,
    }
    return {
        ("GET", path): Described(
            summary="Names a model's versions and tensors.",
            tag="inference",
            answer=shapes.ModelMetadata,
        ),
        ("GET", f"{path}/ready"): Described(
            summary="Says whether requests for a model are taken.",
            tag="inference",
            answer=shapes.ModelReady,
            statuses=(200, 503),
        ),
        ("POST", f"{path}/infer"): Described(
            summary="Answers one text, as a tensor; binary data is taken and given.",
            body=InferBody,
            answer=shapes.InferredShape,
            content=(JSON, OCTETS),
            **call,
        ),
        ("POST", f"{path}/generate"): Described(
            summary="Answers one text.", body=GenerateBody, answer=shapes.GeneratedShape, **call
        ),
        ("POST", f"{path}/generate_stream"): Described(
            summary="Answers one text as a stream of server-sent events.",
            body=GenerateBody,
            content=(EVENTS,),
            **call,
        ),
    }


DESCRIBED = MappingProxyType(
    {
        ("GET", "/v2"): Described(
            summary="Names the server and the protocol's extensions it has.", tag="inference"
        ),
        ("GET", "/v2/health/live"): Described(summary="Says that the process runs.", tag="health"),
        ("GET", "/v2/health/ready"): Described(
            summary="Says whether requests are taken.", tag="health", statuses=(200, 503)
        ),
        **_protocol("/v2/models/{model}"),
        **_protocol("/v2/models/{model}/versions/{version}"),
        ("POST", "/v1/chat/completions"): _CHAT,
        ("POST", "/v1/completions"): Described(
            summary="Answers one prompt, as one user's message, in the older format.",
            tag="inference",
            body=CompletionBody,
            answer=shapes.CompletionShape,
            content=(JSON, EVENTS),
            failures=RUNNING,
            parameters=BUDGET,
            headers=_ANSWERED,
        ),
        ("POST", "/v1/responses"): Described(
            summary="Answers in the Responses format: whole, streamed, or in the background.",
            tag="inference",
            body=ResponsesBody,
            answer=shapes.ResponseShape,
            content=(JSON, EVENTS),
            failures=RUNNING,
            parameters=BUDGET,
            headers=_ANSWERED,
        ),
        ("GET", "/v1/responses/{id}"): Described(
            summary="Shows a stored response while memory keeps it.",
            tag="inference",
            answer=shapes.ResponseShape,
            failures=(410,),
        ),
        ("DELETE", "/v1/responses/{id}"): Described(
            summary="Forgets a stored response, and stops it where it runs; its receipt stays.",
            tag="inference",
            answer=shapes.DeletedResponseShape,
            failures=(410,),
        ),
        ("POST", "/v1/responses/{id}/cancel"): Described(
            summary="Cancels a stored response where it runs, and shows it.",
            tag="inference",
            answer=shapes.ResponseShape,
            failures=(410,),
        ),
        ("POST", "/v1/embeddings"): Described(
            summary="Is always refused: no provider kind gives embeddings.",
            tag="inference",
            body=dict[str, Any],
            statuses=(),
            failures=(422,),
        ),
        ("GET", "/v1/models"): Described(
            summary="Lists the logical models of the policy in force.",
            tag="inference",
            answer=shapes.ModelsShape,
        ),
        ("GET", "/v1/models/{id}"): Described(
            summary="Shows one logical model.", tag="inference", answer=shapes.ModelShape
        ),
        ("POST", "/api/v1/decide"): Described(
            summary="Says what would be decided on a chat now; nothing is held or recorded.",
            tag="inference",
            body=ChatBody,
            answer=shapes.DryRun,
            failures=(404,),
            parameters=BUDGET[:-1],
        ),
        ("POST", "/api/v1/requests"): Described(
            summary="Submits a request with its whole budget: now, streamed, or to be asked for.",
            tag="inference",
            body=SubmitBody,
            answer=shapes.AnswerShape,
            content=(JSON, EVENTS),
            statuses=(200, 202),
            failures=RUNNING,
            parameters=BUDGET,
        ),
        ("GET", "/api/v1/requests/{id}/output"): Described(
            summary="Shows an asynchronous request's output while memory keeps it.",
            tag="inference",
            answer=shapes.AnswerShape,
            statuses=(200, 202),
            failures=(410, 499, 502, 504),
        ),
        ("GET", "/api/v1/requests/{id}/trace"): Described(
            summary="Shows what was observed of a request.",
            tag="ledger",
            answer=shapes.TraceShape,
            failures=(410,),
        ),
        ("GET", "/api/v1/receipts"): Described(
            summary="Lists current receipts, newest first.",
            tag="ledger",
            answer=shapes.ReceiptsPage,
            parameters=_named(RECEIPT_PARAMETERS, "a filter; limit and after: the page"),
        ),
        ("GET", "/api/v1/snapshots"): Described(
            summary="Lists the capacity snapshots that decisions used, newest first.",
            tag="ledger",
            answer=shapes.SnapshotsPage,
            parameters=_named(SNAPSHOT_PARAMETERS, "route: one route's; limit and after: the page"),
        ),
        ("GET", "/api/v1/requests/{id}"): Described(
            summary="Shows where a request is, and its attempts.",
            tag="ledger",
            answer=shapes.RequestShape,
            failures=(410,),
        ),
        ("POST", "/api/v1/requests/{id}/cancel"): Described(
            summary="Cancels a running request and says what became of the cancel.",
            tag="inference",
            answer=shapes.CancelShape,
            statuses=(200, 202),
        ),
        ("GET", "/api/v1/requests/{id}/receipt"): Described(
            summary="Shows a request's current receipt.",
            tag="ledger",
            answer=shapes.ReceiptShape,
            failures=(410,),
        ),
        ("GET", "/api/v1/requests/{id}/decision"): Described(
            summary="Shows what was decided, or what would be by another policy or rate table.",
            tag="ledger",
            failures=(410,),
            parameters=_named(("policy", "rates"), "decide again by this revision"),
        ),
        ("GET", "/api/v1/requests/{id}/proof"): Described(
            summary="Proves that a receipt stands in the ledger.",
            tag="ledger",
            answer=Proof,
            failures=(410,),
            parameters=_named(("size", "root"), "of a checkpoint that was exported before"),
        ),
        ("GET", "/api/v1/costs"): Described(
            summary="Costs, tokens and outcomes by up to three dimensions.",
            tag="reports",
            parameters=_report((*reporting.COSTS_PARAMETERS, reporting.TAG_FILTER)),
        ),
        ("GET", "/api/v1/costs/bridge"): Described(
            summary="What made one period cost more than another.",
            tag="reports",
            parameters=_report((*reporting.BRIDGE_PARAMETERS, reporting.TAG_FILTER)),
        ),
        ("GET", "/api/v1/slo"): Described(
            summary="Every objective with its burn, budget and rules.", tag="reports"
        ),
        ("GET", control.EVALUATIONS): Described(
            summary="One objective's evaluated windows, the newest first.",
            tag="reports",
            parameters=_named(control.EVALUATIONS_PARAMETERS, "see docs/control.md"),
        ),
        ("GET", control.ACTIONS): Described(
            summary="Control actions, the newest first, or those that are open.",
            tag="reports",
            parameters=_named(control.ACTIONS_PARAMETERS, "see docs/control.md"),
        ),
        ("GET", control.ROLLOUTS): Described(
            summary="Every rollout, or one with each of its steps.",
            tag="reports",
            parameters=_named(control.ROLLOUTS_PARAMETERS, "see docs/control.md"),
            failures=(404,),
        ),
        ("GET", control.DIAGNOSIS): Described(
            summary="What is wrong in a window, with the receipts that show it.",
            tag="reports",
            parameters=_named(diagnosing.PARAMETERS, "see docs/control.md"),
        ),
        ("GET", "/api/v1/releases"): Described(
            summary="Compares two model identities or release arms.",
            tag="reports",
            parameters=_report(reporting.RELEASES_PARAMETERS),
        ),
        ("POST", "/api/v1/requests/{id}/outcome"): Described(
            summary="Says what became of one answer.",
            tag="ledger",
            body=OutcomeBody,
            answer=shapes.OutcomesTaken,
            failures=(409, 410, 503),
        ),
        ("POST", "/api/v1/outcomes"): Described(
            summary="Says what became of many answers: all are taken, or none.",
            tag="ledger",
            body=Bulk,
            answer=shapes.OutcomesTaken,
            failures=(404, 409, 410, 503),
        ),
        ("GET", "/api/v1/capabilities"): Described(
            summary="What can be relied on behind each route.", tag="ledger"
        ),
        ("GET", "/api/v1/policies"): Described(
            summary="Published and drafted route policies, or one, or two compared.",
            tag="operations",
            failures=(404,),
            parameters=_named(("revision", "compared_with"), "a revision"),
        ),
        ("GET", "/api/v1/rate-tables"): Described(
            summary="Published and drafted rate tables, or one, or two compared.",
            tag="operations",
            failures=(404,),
            parameters=_named(("version", "compared_with"), "a version"),
        ),
        ("GET", "/api/v1/fleet"): Described(
            summary="What is in force, as a fleet file.", tag="operations", content=(TOML,)
        ),
        ("GET", "/api/v1/reconciliations"): Described(
            summary="Lists each provider's invoices, runs against them and the last closed period.",
            tag="reports",
            parameters=_named(RECONCILIATIONS_PARAMETERS, "a filter; see docs/reconcile.md"),
        ),
        ("GET", "/api/v1/reconciliations/{id}"): Described(
            summary="Shows a run: opening, movements, closing, and its largest differences.",
            tag="reports",
        ),
        ("GET", "/api/v1/unknowns"): Described(
            summary="The open unknowns with their age and the money at risk.", tag="ledger"
        ),
        ("GET", "/api/v1/operations"): Described(
            summary="Lists every operation with its role and fields.",
            tag="operations",
            answer=shapes.OperationsShape,
        ),
        ("POST", "/api/v1/operations/{id}"): Described(
            summary="Does an operation, which the audit log attributes to the key.",
            tag="operations",
            body=dict[str, Any],
            body_needed=False,
            answer=Done,
            failures=(409, 422, 503),
        ),
        ("GET", "/healthz"): Described(
            summary="Says that the process runs.", tag="health", answer=shapes.AliveShape
        ),
        ("GET", "/readyz"): Described(
            summary="Says whether requests are taken, and each reason why not.",
            tag="health",
            answer=shapes.ReadyShape,
            statuses=(200, 503),
        ),
        ("GET", "/metrics"): Described(
            summary="Metrics in Prometheus' text format.", tag="health", content=(TEXT,)
        ),
        ("GET", "/api/docs"): Described(
            summary="This document as a page.", tag="health", content=("text/html",)
        ),
        ("GET", "/api/openapi.json"): Described(
            summary="This document.", tag="health", answer=dict[str, Any]
        ),
    }
)
