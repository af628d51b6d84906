"""What the address of a `kserve` route says. Pure.

    kserve:http://127.0.0.1:8000?model=llama&version=3&counts=totals&close_cancels=1
    kserve:https://models.example.com?model=llama&version=@identity&key_env=EXAMPLE_API_KEY

`version` is the model's version: attempts go to it alone, and an answer of another one fails.
`@identity` stands for the id of the route's model identity, which is what a Weighbridge itself
serves as version. `counts` declares that the server tells its token counts when asked
(`num_input_tokens`, `num_output_tokens`, as Triton does): in each chunk the tokens of that chunk
(`deltas`) or of the answer so far (`totals`); without it the output is counted here. `stream=0`
declares that the server has /generate only. `template` is how messages become one text: `plain`
(each after its role, the default) or `none` (the texts alone). `key_env`, `close_cancels`,
`kv_tokens` and `metrics_port` are those of an `openai` route.
"""

from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import quote

from gateway.policy.values import Route
from gateway.providers import backend_address as address
from gateway.providers.http_exchange import HttpBackend

SETTINGS = (
    "model", "version", "counts", "stream", "template", "key_env", "close_cancels", "kv_tokens",
    "metrics_port",
)  # fmt: skip
NOT_CARRIED = frozenset({"json_schema", "logprobs", "tools", "vision"})
"""Capabilities that the protocol has no place for."""
IDENTITY = "@identity"

Counts = Literal["deltas", "totals"]
Template = Literal["plain", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend(HttpBackend):
    """A server of the Open Inference Protocol. `version` None: whichever it serves."""

    model_url: str  # its metadata; /ready below it
    version: str | None
    counts: Counts | None
    streams: bool
    template: Template


def backend_of(route: Route, *, allow_link_local: bool = False) -> Backend:
    """Return what a route's address declares. Raises BadAddress."""
    given = address.declared(
        route,
        "kserve",
        SETTINGS,
        "kserve:http://HOST:PORT?model=NAME",
        allow_link_local=allow_link_local,
    )
    address.refuse_capabilities(route, "kserve", NOT_CARRIED)
    settings = given.settings
    version = settings.get("version")
    if version is not None and not version.strip("."):
        raise address.bad(route, "version is empty; name one or leave it out")
    if version == IDENTITY:
        version = route.identity_id
    streams = settings.get("stream") is None or address.flag(route, "stream", settings["stream"])
    counts = address.choice(route, "counts", settings.get("counts"), ("deltas", "totals"))
    template = address.choice(route, "template", settings.get("template"), ("plain", "none"))
    base = f"{given.origin}{given.path}/v2/models/{quote(settings['model'], safe='')}"
    model_url = base if version is None else f"{base}/versions/{quote(version, safe='')}"
    return Backend(
        post_url=f"{model_url}/{'generate_stream' if streams else 'generate'}",
        metrics_url=address.metrics_url(route, given),
        model_url=model_url,
        version=version,
        counts=cast(Counts | None, counts),
        streams=streams,
        template=cast(Template, template or "plain"),
        key_env=address.key_env(route, settings.get("key_env")),
        close_cancels=address.flag(route, "close_cancels", settings.get("close_cancels")),
        kv_tokens=address.kv_tokens(route, settings.get("kv_tokens")),
    )
