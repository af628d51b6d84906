"""ETag and If-None-Match of what the native API shows: asked again, the same is not sent again."""

import hashlib

from msgspec.structs import replace

from gateway.api.http import Request, Response

NOT_MODIFIED = 304
TAG_CHARS = 32


def conditional(request: Request, response: Response) -> Response:
    """Returns a shown body with its ETag, or 304 without it where the caller has it already.

    The tag is of the bytes, so it changes whenever they do. Caches on the way keep nothing
    (no-store): what the caller kept by itself it asks about each time.
    """
    if request.method not in ("GET", "HEAD") or response.status != 200:
        return response
    tag = f'"{hashlib.sha256(response.body).hexdigest()[:TAG_CHARS]}"'
    headers = (*response.headers, (b"etag", tag.encode()))
    known = {each.strip().removeprefix("W/") for each in _sent(request).split(",")}
    if tag in known or "*" in known:
        return replace(response, status=NOT_MODIFIED, body=b"", headers=headers)
    return replace(response, headers=headers)


def _sent(request: Request) -> str:
    return request.headers.get("if-none-match", "")
