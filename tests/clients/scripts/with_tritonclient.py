"""tritonclient over the Open Inference Protocol: health, metadata, infer. Prints what it got."""

# mypy: disable-error-code="import-not-found"
# It runs in the environment of clients, which mypy doesn't see.

import json
import os

import numpy as np
import tritonclient.http as triton

address = os.environ["BASE_URL"].removeprefix("http://").removesuffix("/v1")
headers = {"Authorization": f"Bearer {os.environ['KEY']}"}
client = triton.InferenceServerClient(address, network_timeout=60, connection_timeout=60)
texts = {}
for binary in (False, True):
    given = triton.InferInput("text_input", [1], "BYTES")
    given.set_data_from_numpy(np.array([b"Weigh it"], dtype=object), binary_data=binary)
    output = triton.InferRequestedOutput("text_output", binary_data=False)
    answer = client.infer("assist", [given], outputs=[output], headers=headers)
    texts[str(binary)] = str(answer.as_numpy("text_output")[0])
print(
    json.dumps(
        {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "model_ready": client.is_model_ready("assist", headers=headers),
            "versions": client.get_model_metadata("assist", headers=headers)["versions"],
            "texts": texts,
            "version": answer.get_response()["model_version"],
        }
    )
)
