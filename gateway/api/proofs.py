"""GET /api/v1/requests/{id}/proof: that a tenant's receipt stands in the ledger (LED-7)."""

import asyncio

import msgspec

from gateway.api import errors
from gateway.api.absent import NO_RECEIPT, absent
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.problems import invalid
from gateway.api.replies import failed_natively
from gateway.submission import Caller
from ledger.chain import HASH_BYTES, Checkpoint
from ledger.proof_files import NoProof, Proof, prove_receipt
from ledger.queries.dossier import dossier

ID_LIMIT_CHARS = 64
SIZE_LIMIT_DIGITS = 18


class Proofs:
    """Answers from the ledger, off the event loop; checked here before it is sent."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def proof(self, request: Request, caller: Caller) -> Response:
        """The proof at the ledger's present size; ?size= and ?root= name an earlier checkpoint."""
        named = {name: values[-1] for name, values in request.query().items()}
        earlier = _checkpoint(named)
        if isinstance(earlier, str):
            return failed_natively(errors.of_problem(invalid(earlier)))
        if len(request.parameter) > ID_LIMIT_CHARS:
            return failed_natively(errors.of_http("NOT_FOUND", NO_RECEIPT))
        made = await asyncio.to_thread(self._make, caller.tenant_id, request.parameter, earlier)
        if isinstance(made, errors.Failure):
            return failed_natively(made)
        if isinstance(made, NoProof):
            return failed_natively(errors.of_problem(invalid(f"{made.code}: {made.what}.")))
        return Response(body=msgspec.json.encode(made))

    def _make(
        self, tenant_id: str, request_id: str, earlier: Checkpoint | None
    ) -> Proof | NoProof | errors.Failure:
        reader = self._ports.reader()
        found = dossier(reader, request_id)
        if found is None or found.current.record.tenant_id != tenant_id:
            return absent(reader, tenant_id, request_id)
        return prove_receipt(reader, request_id, earlier)


def _checkpoint(named: dict[str, str]) -> Checkpoint | str | None:
    """The checkpoint that a query names; what is wrong with it; None where it names none."""
    if not named:
        return None
    size, root = named.get("size", ""), named.get("root", "")
    if named.keys() != {"size", "root"}:
        return "A checkpoint is named by size and root, and by nothing else."
    if not (size.isascii() and size.isdigit() and len(size) <= SIZE_LIMIT_DIGITS):
        return "size is a number of rows."
    if len(root) != 2 * HASH_BYTES or not set(root) <= set("0123456789abcdef"):
        return "root is 64 hexadecimal digits, in lower case."
    return Checkpoint(size=int(size), root=root)
