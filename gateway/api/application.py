"""The API as one ASGI callable: its table of URLs, its authentication, its last resorts."""

import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator

from gateway import metrics
from gateway.api import control, errors, published, reports
from gateway.api.asked import query_problem
from gateway.api.auth import (
    SCOPE_ADMINISTER,
    SCOPE_INFERENCE,
    SCOPE_OPERATE,
    SCOPE_RECEIPTS,
    SCOPE_REPORTS,
)
from gateway.api.calls import Calls
from gateway.api.cancelling import Cancelling
from gateway.api.capabilities import CapabilityMatrix
from gateway.api.completions import COMPLETIONS
from gateway.api.conditional import conditional
from gateway.api.deciding import DECIDE, Deciding
from gateway.api.errors import Failure
from gateway.api.forms import CHAT
from gateway.api.headers import repeated_problem
from gateway.api.health import Health
from gateway.api.http import (
    QUERY_FIELDS_LIMIT,
    BodyTooLarge,
    BodyTooSlow,
    ClientGone,
    Endpoint,
    Header,
    Method,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    Table,
    UnreadableQuery,
    allowed_methods,
)
from gateway.api.kserve import (
    GENERATE,
    INFER,
    STREAM,
    Generate,
    Protocol,
    protocol_error,
)
from gateway.api.listing import Lists
from gateway.api.native import Reports, Requests, Unknowns
from gateway.api.openai import Models, NotGiven
from gateway.api.openapi import PATH, OpenApi
from gateway.api.operating import Operations
from gateway.api.outcomes import Outcomes
from gateway.api.ports import Ports
from gateway.api.problems import invalid
from gateway.api.proofs import Proofs
from gateway.api.reading import PATH as PAGE
from gateway.api.reading import ApiPage
from gateway.api.reconciliations import RECONCILIATIONS, Reconciliations
from gateway.api.replies import failed, failed_in, failed_natively
from gateway.api.responses import Responses, StoredResponses
from gateway.api.retained import Retained
from gateway.api.sse import error_event
from gateway.api.submit import REQUESTS, Submit
from gateway.ids import RANDOM_BYTES, exchange_id
from gateway.randomness import random_bytes
from gateway.submission import Caller
from ledger.reading import READ_FAULTS

log = logging.getLogger(__name__)

DEFAULT_BODY_LIMIT_BYTES = 1_048_576

_PREFIXES = ("/v1/", "/api/v1/", "/v2/")
_NATIVE_PREFIX = "/api/"
_PROTOCOL_PREFIX = "/v2"
OPERATIONS = "/api/v1/operations"
CANCEL = "/cancel"
VERSION = "/v2/models/{model}/versions/{version}"
_EXACT = frozenset({"/v1", "/v2", "/api/v1", "/healthz", "/readyz", "/metrics", PATH, PAGE})

_MISTAKEN = ("/chat/completions", "/completions", "/responses", "/embeddings", "/v1/models")

ForCaller = Callable[[Request, Caller], Awaitable[Response | None]]


def handles(path: str) -> bool:
    """Returns whether a path belongs to the API; any other is Django's.

    A client's whose base URL is mistaken does too: it is told so in words that it can read.
    """
    return path in _EXACT or path.startswith(_PREFIXES) or path.endswith(_MISTAKEN)


def api_application(
    ports: Ports, *, body_limit_bytes: int = DEFAULT_BODY_LIMIT_BYTES
) -> "Application":
    """Returns the API over the running gateway, as an ASGI callable."""
    return Application(ports, body_limit_bytes)


class Application:
    """ASGI callable. `table.endpoints` lists every URL with the access that it asks for."""

    def __init__(self, ports: Ports, body_limit_bytes: int) -> None:
        self._ports = ports
        self._body_limit_bytes = body_limit_bytes
        health, retained = Health(ports), Retained(ports.clock)
        endpoints = (
            *self._openai(retained),
            *self._requests(retained),
            *self._records(),
            *self._protocol(),
            _open("/healthz", "healthz", health.alive),
            _open("/readyz", "readyz", health.ready),
            _open("/metrics", "metrics", health.metrics),
            _open(PATH, "openapi", self._document),
            _open(PAGE, "api_docs", self._page),
        )
        self.table = Table(endpoints)
        self._openapi, self._docs = OpenApi(endpoints), ApiPage(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        name = "no_such_url"
        try:
            found = self.table.find(request.path)
            endpoint = None
            if found is not None:
                methods, request.parameters = found
                endpoint = methods.get("GET" if request.method == "HEAD" else request.method)
            if endpoint is not None:
                name = endpoint.name
                response = await endpoint.handler(request)
            elif found is not None:
                response = self._failed(
                    request,
                    errors.of_http(
                        "METHOD_NOT_ALLOWED",
                        "This URL has no such method.",
                        allow=allowed_methods(found[0]),
                    ),
                )
            else:
                message = "The API has no such URL."
                if request.path.endswith(_MISTAKEN):
                    message += " OpenAI's clients take this server's address with /v1 as base URL."
                response = self._failed(request, errors.of_http("NOT_FOUND", message))
        except ClientGone:
            metrics.turned_away("CLIENT_GONE")
            return
        except BodyTooLarge as too_large:
            response = self._too_large(request, too_large.hang_up)
        except BodyTooSlow:
            response = self._failed(
                request, errors.of_http("BODY_TOO_SLOW", "The body didn't arrive in time.")
            )
        except UnreadableQuery:
            message = f"The query isn't UTF-8, or has more than {QUERY_FIELDS_LIMIT} fields."
            response = self._failed(request, errors.of_problem(invalid(message)))
        except Exception as fault:  # the last resort: a fault is a 500, never a trace
            response = await self._after_fault(request, name, fault)
        if response is not None:
            if request.path.startswith(_NATIVE_PREFIX):
                response = conditional(request, response)
            if response.code is not None and response.request_id is None:
                metrics.turned_away(response.code)
            metrics.responded(name, response.status)
            await request.respond(response, response.request_id or self._exchange_id())

    def _openai(self, retained: Retained) -> Iterator[Endpoint]:
        """The URLs of OpenAI's API."""
        ports, limit_bytes = self._ports, self._body_limit_bytes
        models, stored = Models(ports), StoredResponses(ports, retained)
        chat, texts = Calls(ports, limit_bytes, CHAT), Calls(ports, limit_bytes, COMPLETIONS)
        responses = Responses(ports, limit_bytes, retained)
        yield self._keyed("POST", "/v1/chat/completions", "chat_completions", chat)
        yield self._keyed("POST", "/v1/completions", "completions", texts)
        yield self._keyed("POST", "/v1/responses", "responses", responses)
        yield self._keyed("GET", "/v1/responses/{id}", "response", stored.one)
        yield self._keyed("DELETE", "/v1/responses/{id}", "response_delete", stored.delete)
        yield self._keyed("POST", "/v1/responses/{id}/cancel", "response_cancel", stored.cancel)
        yield self._keyed("POST", "/v1/embeddings", "embeddings", NotGiven(limit_bytes))
        yield self._keyed("GET", "/v1/models", "models", models.every)
        yield self._keyed("GET", "/v1/models/{id}", "model", models.one)

    def _requests(self, retained: Retained) -> Iterator[Endpoint]:
        """The URLs of requests, before they run and after, one by one and as lists."""
        ports, limit_bytes = self._ports, self._body_limit_bytes
        submit, lists = Submit(ports, limit_bytes, retained), Lists(ports)
        requests, cancelling = Requests(ports), Cancelling(ports)
        yield self._keyed("POST", DECIDE, "decide", Deciding(ports, limit_bytes))
        yield self._keyed("POST", REQUESTS, "submit", submit)
        yield self._keyed("GET", "/api/v1/requests/{id}/output", "output", submit.output)
        yield self._keyed("GET", "/api/v1/requests/{id}/trace", "trace", lists.trace)
        yield self._keyed("GET", "/api/v1/receipts", "receipts", lists.receipts)
        yield self._keyed("GET", "/api/v1/snapshots", "snapshots", lists.snapshots)
        yield self._keyed("GET", "/api/v1/requests/{id}", "request", requests.request)
        yield self._keyed("POST", "/api/v1/requests/{id}/cancel", "cancel", cancelling.cancel)
        yield self._keyed("GET", "/api/v1/requests/{id}/receipt", "receipt", requests.receipt)
        yield self._keyed("GET", "/api/v1/requests/{id}/decision", "decision", requests.decision)
        yield self._keyed("GET", "/api/v1/requests/{id}/proof", "proof", Proofs(ports).proof)

    def _records(self) -> Iterator[Endpoint]:
        """The URLs of what the ledger says in all, and of what changes the system."""
        ports, limit_bytes = self._ports, self._body_limit_bytes
        report, outcomes = Reports(ports), Outcomes(ports, limit_bytes)
        shown, acted = published.Published(ports), control.Control(ports)
        books, operating = Reconciliations(ports), Operations(ports, limit_bytes)
        for path in reports.PATHS:
            yield self._keyed("GET", path, path.rpartition("/")[2], report.report)
        yield self._keyed("POST", "/api/v1/requests/{id}/outcome", "outcome", outcomes.one)
        yield self._keyed("POST", "/api/v1/outcomes", "outcomes", outcomes.bulk)
        matrix = CapabilityMatrix(ports)
        yield self._keyed("GET", "/api/v1/capabilities", "capabilities", matrix.shown)
        yield self._keyed("GET", published.POLICIES, "policies", shown.policies)
        yield self._keyed("GET", published.RATE_TABLES, "rate_tables", shown.rate_tables)
        yield self._keyed("GET", published.FLEET, "fleet", shown.fleet)
        yield self._keyed("GET", "/api/v1/unknowns", "unknowns", Unknowns(ports).listed)
        yield self._keyed("GET", control.EVALUATIONS, "slo_evaluations", acted.evaluations)
        yield self._keyed("GET", control.ACTIONS, "actions", acted.actions)
        yield self._keyed("GET", control.ROLLOUTS, "rollouts", acted.rollouts)
        yield self._keyed("GET", control.DIAGNOSIS, "diagnosis", acted.diagnosis)
        yield self._keyed("GET", RECONCILIATIONS, "reconciliations", books.listed)
        yield self._keyed("GET", f"{RECONCILIATIONS}/{{id}}", "reconciliation", books.one)
        yield self._keyed("GET", OPERATIONS, "operations", operating.listed)
        yield self._keyed("POST", f"{OPERATIONS}/{{id}}", "operation", operating.perform)

    def _protocol(self) -> Iterator[Endpoint]:
        """The URLs of the Open Inference Protocol, each of a model's also of a version of it."""
        served = Protocol(self._ports)
        yield self._keyed("GET", "/v2", "v2_server", served.server)
        yield _open("/v2/health/live", "v2_live", served.live)
        yield _open("/v2/health/ready", "v2_ready", served.ready)
        for path, name in (("/v2/models/{model}", ""), (VERSION, "_version")):
            yield self._keyed("GET", path, f"v2_model{name}", served.model)
            yield self._keyed("GET", f"{path}/ready", f"v2_model_ready{name}", served.model_ready)
            for kind in (INFER, GENERATE, STREAM):
                call = Generate(self._ports, self._body_limit_bytes, kind)
                yield self._keyed("POST", f"{path}/{kind}", f"v2_{kind}{name}", call)

    async def _document(self, request: Request) -> Response:
        return await self._openapi.shown(request)

    async def _page(self, request: Request) -> Response:
        return await self._docs.shown(request)

    def _keyed(self, method: Method, path: str, name: str, handler: ForCaller) -> Endpoint:
        """Returns an endpoint for whoever has a key with a scope of its part of the API."""
        scopes: tuple[str, ...] = (SCOPE_INFERENCE,)
        if path in reports.PATHS:
            scopes = (SCOPE_RECEIPTS, SCOPE_REPORTS)
        elif path in control.PATHS or path.startswith(RECONCILIATIONS):
            scopes = (SCOPE_REPORTS, SCOPE_OPERATE, SCOPE_ADMINISTER)
        elif path.startswith((OPERATIONS, *published.PATHS)):
            scopes = (SCOPE_OPERATE, SCOPE_ADMINISTER)
        elif path.endswith(("/outcome", "/outcomes")):
            scopes = (SCOPE_INFERENCE, SCOPE_RECEIPTS)
        elif path.startswith(_NATIVE_PREFIX) and not _runs(path):
            scopes = (SCOPE_RECEIPTS,)
        strict = method == "GET" and path.startswith(_NATIVE_PREFIX)

        async def authenticated(request: Request) -> Response | None:
            repeated = repeated_problem(request.repeated)
            if repeated is not None:
                return self._failed(request, errors.of_problem(repeated))
            caller = self._ports.keys.caller(
                request.headers.get("authorization"), self._ports.clock.now_us()
            )
            if caller is None:
                return self._failed(request, errors.of_reason("UNAUTHENTICATED"))
            if caller.scopes.isdisjoint(scopes):
                message = f"The API key doesn't have the scope {' or '.join(scopes)}."
                return self._failed(request, errors.of_http("SCOPE_MISSING", message))
            if strict:
                wrong = query_problem(path, request)
                if wrong is not None:
                    return self._failed(request, errors.of_problem(wrong))
            return await handler(request, caller)

        return Endpoint(
            method=method,
            path=path,
            name=name,
            access="key",
            scopes=scopes,
            handler=authenticated,
        )

    def _failed(
        self, request: Request, failure: Failure, headers: tuple[Header, ...] = ()
    ) -> Response:
        """Returns a failure in the format of the part of the API that was asked."""
        if request.path.startswith(_NATIVE_PREFIX):
            return failed_natively(failure, headers)
        if request.path.startswith(_PROTOCOL_PREFIX):
            return failed_in(failure, protocol_error(failure), headers)
        return failed(failure, headers)

    def _too_large(self, request: Request, hang_up: bool) -> Response:
        limit = self._body_limit_bytes
        failure = errors.of_http("BODY_TOO_LARGE", f"The body may have at most {limit} bytes.")
        return self._failed(request, failure, ((b"connection", b"close"),) if hang_up else ())

    async def _after_fault(self, request: Request, name: str, fault: Exception) -> Response | None:
        """Log where a fault happened, without its message: that could quote a prompt (SEC-1)."""
        exchange = self._exchange_id()
        where = "".join(traceback.format_tb(fault.__traceback__))
        log.error("%s in %s (%s)\n%s", type(fault).__name__, name, exchange, where)
        failure = errors.internal(exchange)
        if isinstance(fault, READ_FAULTS) and _asks(request):
            failure = errors.ledger_unreadable()
        if not request.sent_start:
            return self._failed(request, failure)
        await request.write(error_event(errors.openai_body(failure)), more=False)
        return None

    def _exchange_id(self) -> str:
        return exchange_id(self._ports.clock.now_us(), random_bytes(RANDOM_BYTES))


def _asks(request: Request) -> bool:
    """Returns whether the same may be asked again at any time: nothing runs for it."""
    return request.method in ("GET", "HEAD") or request.path.endswith(CANCEL)


def _runs(path: str) -> bool:
    """Returns whether a native path is for who runs requests, not for who reads about them."""
    return path in (DECIDE, REQUESTS) or path.endswith((CANCEL, "/output"))


def _open(path: str, name: str, handler: Callable[[Request], Awaitable[Response]]) -> Endpoint:
    return Endpoint(method="GET", path=path, name=name, access="open", handler=handler)
