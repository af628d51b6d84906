"""litellm as a client: an answer, a stream, a refusal. Prints what it got."""

# mypy: disable-error-code="import-not-found"
# It runs in the environment of clients, which mypy doesn't see.

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for one
import litellm

asked = {
    "model": "openai/assist",
    "api_base": os.environ["BASE_URL"],
    "api_key": os.environ["KEY"],
    "messages": [{"role": "user", "content": "Weigh it"}],
}
whole = litellm.completion(**asked, max_tokens=8)
pieces = [
    piece.choices[0].delta.content or "" for piece in litellm.completion(**asked, stream=True)
]
try:
    litellm.completion(**{**asked, "model": "openai/none"})
    refused = None
except litellm.exceptions.NotFoundError:
    refused = "NotFoundError"
print(
    json.dumps(
        {
            "text": whole.choices[0].message.content,
            "tokens": whole.usage.completion_tokens,
            "streamed": "".join(pieces),
            "refused": refused,
        }
    )
)
