"""The HTTP API in front of Django: OpenAI's on /v1, the native one on /api/v1, and health."""
