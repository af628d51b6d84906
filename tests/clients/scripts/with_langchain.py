"""LangChain's chat model: an answer, a stream, a structured answer, a call. Prints what it got."""

# mypy: disable-error-code="import-not-found"
# It runs in the environment of clients, which mypy doesn't see.

import json
import os

from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model="assist", base_url=os.environ["BASE_URL"], api_key=os.environ["KEY"], max_retries=0,
    stream_usage=True,
)  # fmt: skip
SCHEMA = {
    "title": "weight",
    "type": "object",
    "properties": {"plate": {"type": "string"}},
    "required": ["plate"],
    "additionalProperties": False,
}


def weigh(plate: str) -> str:
    """Weighs a lorry."""
    return plate


whole = model.invoke("Weigh it")
pieces = list(model.stream("Weigh it"))
structured = model.with_structured_output(SCHEMA, method="json_schema").invoke("Weigh it")
called = model.bind_tools([weigh], tool_choice="required").invoke("Weigh it")
print(
    json.dumps(
        {
            "text": whole.content,
            "tokens": whole.usage_metadata["output_tokens"],
            "streamed": "".join(piece.content for piece in pieces),
            "streamed_tokens": sum(
                (piece.usage_metadata or {}).get("output_tokens", 0) for piece in pieces
            ),
            "structured": sorted(structured),
            "called": [call["name"] for call in called.tool_calls],
        }
    )
)
