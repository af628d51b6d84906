"""Failures as responses: body, status, and the headers that tell a client whether to retry."""

from gateway.api.errors import Failure, openai_body, problem_body
from gateway.api.http import JSON, PROBLEM_JSON, Header, Response


def failed(failure: Failure, headers: tuple[Header, ...] = ()) -> Response:
    """Returns the failure as OpenAI's error object."""
    return Response(
        body=openai_body(failure),
        status=failure.status,
        content_type=JSON,
        headers=(*headers, *_retry_headers(failure)),
        request_id=failure.request_id,
        code=failure.code,
    )


def failed_natively(failure: Failure, headers: tuple[Header, ...] = ()) -> Response:
    """Returns the failure as a problem of RFC 9457."""
    return Response(
        body=problem_body(failure),
        status=failure.status,
        content_type=PROBLEM_JSON,
        headers=(*headers, *_retry_headers(failure)),
        request_id=failure.request_id,
        code=failure.code,
    )


def failed_in(failure: Failure, body: bytes, headers: tuple[Header, ...] = ()) -> Response:
    """Returns the failure with a body of another format."""
    return Response(
        body=body,
        status=failure.status,
        headers=(*headers, *_retry_headers(failure)),
        request_id=failure.request_id,
        code=failure.code,
    )


def _retry_headers(failure: Failure) -> tuple[Header, ...]:
    """Returns x-should-retry; Retry-After, in seconds rounded up, where it is known."""
    headers = [(b"x-should-retry", b"true" if failure.retryable else b"false")]
    if failure.retryable and failure.retry_after_ms is not None:
        headers.append((b"retry-after-ms", str(failure.retry_after_ms).encode()))
        headers.append((b"retry-after", str(-(-failure.retry_after_ms // 1000)).encode()))
    if failure.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="weighbridge"'))
    if failure.allow is not None:
        headers.append((b"allow", failure.allow.encode()))
    return tuple(headers)
