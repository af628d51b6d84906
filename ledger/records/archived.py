"""What stays in the chain of a row that was archived: its place and its hashes (LED-8)."""

from typing import ClassVar

from ledger.records.base import Record


class ArchivedRow(Record, frozen=True, kw_only=True):
    """A row whose content is in an archive. Its seq and entry_hash are those of that row.

    It stands in the place of another row, so it is none of RECORDS: the store never appends it.
    """

    TABLE: ClassVar[str] = "archived_row"
    LABEL: ClassVar[str] = "archive_seq"

    leaf: bytes  # sha256 of the archived row's canonical bytes
    archive_seq: int  # of the control action that names the archive
