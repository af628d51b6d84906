"""A receipt's proof as a file: its bytes, its place, the hashes up to a checkpoint (LED-7)."""

import sqlite3

import msgspec

from ledger.block_roots import Subtrees
from ledger.chain import Checkpoint, canonical, checkpoint_of
from ledger.errors import LedgerDamaged
from ledger.offline_proof import problems
from ledger.proofs import consistency_path, inclusion_path
from ledger.queries.archives import archived_request
from ledger.reading import fetch_one, read_head
from ledger.records import Receipt
from ledger.rows import field_names, select

FORMAT = "weighbridge-proof-1"


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """That the checkpoint of the proof continues one that was exported before."""

    size: int
    root: str
    path: tuple[str, ...]


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to check it; hashes in hexadecimal. `row` is what the leaf covers."""

    format: str
    request_id: str
    row: str
    seq: int
    path: tuple[str, ...]
    size: int
    root: str
    earlier: Earlier | None = None


class NoProof(msgspec.Struct, frozen=True, kw_only=True):
    """Why not: NO_SUCH_RECEIPT, REQUEST_ARCHIVED, OTHER_ARCHIVE, ARCHIVE_DIFFERS, CHECKPOINT_AHEAD,
    CHECKPOINT_DIFFERS or LEDGER_DAMAGED."""

    code: str
    what: str


def prove_receipt(
    connection: sqlite3.Connection,
    request_id: str,
    earlier: Checkpoint | None = None,
    archive: sqlite3.Connection | None = None,
) -> Proof | NoProof:
    """The proof of a request's current receipt at the ledger's present size, checked once here.

    Reads the rows of at most three blocks and the kept roots of the others. `earlier`: a
    checkpoint that was exported before, which the present one is proved to continue. `archive`:
    the file that has the receipt where it is archived; its place in the chain stayed behind.
    """
    row = _current(connection, request_id)
    head = read_head(connection)
    place = archived_request(connection, request_id) if row is None else None
    if place is not None:
        if archive is None:
            what = f"the request is archived: its receipt is in {place.file}"
            return NoProof(code="REQUEST_ARCHIVED", what=what)
        row = _current(archive, request_id)
        if row is None:
            what = f"this archive doesn't have the request: its receipt is in {place.file}"
            return NoProof(code="OTHER_ARCHIVE", what=what)
    if row is None or head is None:
        return NoProof(code="NO_SUCH_RECEIPT", what="the ledger has no receipt of this request")
    if earlier is not None and earlier.size > head.size:
        what = f"the checkpoint saw {earlier.size} rows; the ledger has {head.size}"
        return NoProof(code="CHECKPOINT_AHEAD", what=what)
    seq, subtrees = int(row[0]), Subtrees(connection, head)
    try:
        path = inclusion_path(seq - 1, head.size, subtrees.root)
        continued = None
        if earlier is not None:
            hashes = consistency_path(earlier.size, head.size, subtrees.root)
            continued = Earlier(
                size=earlier.size, root=earlier.root, path=tuple(one.hex() for one in hashes)
            )
    except LedgerDamaged as error:
        return NoProof(code="LEDGER_DAMAGED", what=str(error))
    proof = Proof(
        format=FORMAT,
        request_id=request_id,
        row=_covered(row).decode(),
        seq=seq,
        path=tuple(one.hex() for one in path),
        size=head.size,
        root=checkpoint_of(head).root,
        earlier=continued,
    )
    found = problems(msgspec.to_builtins(proof))
    if found and place is not None and "earlier" not in found[0]:
        what = f"the row in the archive isn't the one that was moved there: {'; '.join(found)}"
        return NoProof(code="ARCHIVE_DIFFERS", what=what)
    if found:
        code = "CHECKPOINT_DIFFERS" if "earlier" in found[0] else "LEDGER_DAMAGED"
        return NoProof(code=code, what="; ".join(found))
    return proof


def _current(connection: sqlite3.Connection, request_id: str) -> sqlite3.Row | None:
    sql = f"{select(Receipt)} WHERE request_id = ? ORDER BY revision DESC LIMIT 1"
    row: sqlite3.Row | None = fetch_one(connection, sql, (request_id,))
    return row


def _covered(row: sqlite3.Row) -> bytes:
    """The canonical bytes of a receipt's row, under the version that it was written in."""
    present = frozenset(field_names(Receipt, row[1]))
    named = zip(Receipt.__struct_fields__, tuple(row)[3:], strict=True)
    values = [value for name, value in named if name in present]
    return canonical(Receipt.TABLE, row[1], row[0], values)
