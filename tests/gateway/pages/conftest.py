"""The console over a ledger of a test's own, and clients of each role."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client

from gateway.auth_roles import ensure_groups
from gateway.clock import SystemClock
from tests.gateway.operations import books
from tests.sample_books import fleet_records, keep_books, tenant_records
from tests.sample_console import Console, fill
from tests.server_fixtures import Fleet

LogIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def _console(settings: Any, ledger_path: Path, db: None) -> None:
    settings.WEIGHBRIDGE_DB = ledger_path
    # A login's hash takes half a second by intention; every page's test makes one.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
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


@pytest.fixture
def own_ledger(settings: Any, fleet: Fleet) -> Path:
    """The demonstration's fleet in a ledger of this test's own, which the console may change."""
    settings.WEIGHBRIDGE_DB = fleet.ledger
    return fleet.ledger


@pytest.fixture(scope="session")
def sample_folder(ledger_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small sample console's ledger, made once; to be read alone."""
    folder = tmp_path_factory.mktemp("sample")
    path, now_us = folder / "ledger.sqlite3", SystemClock().now_us()
    path.write_bytes(ledger_template.read_bytes())
    fill(path, count=60, end_us=now_us, span_us=1_800_000_000)
    books.append(path, fleet_records(now_us) + tenant_records(now_us))
    keep_books(path)
    return folder


@pytest.fixture
def sample(settings: Any, sample_folder: Path) -> Console:
    """The sample as the console's ledger; nothing serves it."""
    settings.WEIGHBRIDGE_DB = sample_folder / "ledger.sqlite3"
    return Console(base_url="", passwords={}, sessions={}, folder=sample_folder)
