"""The console over a ledger of a test's own, and clients of each role."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client

from gateway.auth_roles import ensure_groups

LogIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def _console(settings: Any, ledger_path: Path, db: None) -> None:
    settings.WEIGHBRIDGE_DB = ledger_path
    cache.clear()


@pytest.fixture
def log_in() -> LogIn:
    """Makes a client that is logged in with a role; without one, with a login that has none."""

    def make(role: str | None = "viewer") -> Client:
        ensure_groups()
        user = User.objects.create_user(username=f"the-{role}", password="a long pass phrase")
        if role is not None:
            user.groups.add(Group.objects.get(name=role))
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def viewer(log_in: LogIn) -> Client:
    return log_in("viewer")
