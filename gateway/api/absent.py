"""What is said of a request that the ledger doesn't show: archived, or not there (LED-8)."""

import sqlite3

from gateway.api import errors
from gateway.api.errors import Failure
from ledger.queries.archives import archived_request

NO_RECEIPT = "There is no such request, or none with a receipt yet."


def absent(
    connection: sqlite3.Connection, tenant_id: str, request_id: str, message: str = NO_RECEIPT
) -> Failure:
    """410 with the archive's name where a tenant's request is archived; 404 with `message`."""
    place = archived_request(connection, request_id)
    if place is None or place.tenant_id != tenant_id:
        return errors.of_http("NOT_FOUND", message)
    return errors.of_http("REQUEST_ARCHIVED", f"The request is archived in {place.file}.")
