"""The official client at the demonstration's server."""

from collections.abc import Iterator

import openai
import pytest

from tests.server import Server

TENANT = "support-desk"


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    key = server.keys[TENANT]
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key, max_retries=0) as made:
        yield made
