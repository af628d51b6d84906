"""Pages of a ledger that is away for a while: they say so, and the health page still answers."""

import pytest
from django.test import Client

from tests.console_pages import DOWNLOADS, FORMS, PATHS

OWN = [path for path in (*PATHS, *DOWNLOADS, *FORMS) if path.startswith("/")]


@pytest.mark.parametrize("path", OWN)
def test_a_page_says_that_the_ledger_is_away_and_is_no_fault(settings, viewer: Client, path: str):
    settings.WEIGHBRIDGE_DB = settings.WEIGHBRIDGE_DB.with_name("away.sqlite3")
    answer = viewer.get(path)
    assert answer.status_code in (200, 403, 503), path
    if answer.status_code == 503:
        said = b"".join(answer).decode()
        assert "FILE_MOVED" in said and "put the ledger" in said
        assert str(settings.WEIGHBRIDGE_DB) not in said


def test_the_health_page_still_answers(settings, viewer: Client):
    settings.WEIGHBRIDGE_DB = settings.WEIGHBRIDGE_DB.with_name("away.sqlite3")
    assert viewer.get("/health").status_code == 200
