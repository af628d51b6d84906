"""The HTTP API in front of Django: OpenAI's on /v1, the native one on /api/v1, and health."""

from gateway.api.application import Application, api_application, handles

__all__ = ["Application", "api_application", "handles"]
