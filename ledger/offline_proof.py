"""Checks a proof of Weighbridge with nothing but SHA-256: this file stands alone, copy it anywhere.

    python offline_proof.py PROOF.json [--checkpoint CHECKPOINT.json]

Prints what holds and exits 0, or what doesn't and exits 1; 2 where it was called wrongly. Give it
a checkpoint that you kept yourself: a proof alone only shows that its parts agree.
`docs/proofs.md` has it in words.
"""

import argparse
import json
import sys
from hashlib import sha256
from typing import Any


def problems(proof: dict[str, Any], checkpoint: dict[str, Any] | None = None) -> list[str]:
    """A sentence for each thing that doesn't hold; empty when the proof is good.

    `checkpoint` ({"size": …, "root": …}): one that the reader trusts; it has to be the one that the
    proof leads to, or the earlier one that it continues.
    """
    found = []
    leaf = sha256(b"\x00" + proof["row"].encode()).digest()
    path = [bytes.fromhex(one) for one in proof["path"]]
    root = root_from_inclusion(leaf, proof["seq"] - 1, proof["size"], path)
    if root is None or root.hex() != proof["root"]:
        found.append("the row and its path don't lead to the root")
    row = json.loads(proof["row"])
    if row[0] != "receipt" or row[2] != proof["seq"] or row[3] != proof["request_id"]:
        found.append("the row is not this request's receipt at this place")
    earlier = proof.get("earlier")
    if earlier is not None:
        between = [bytes.fromhex(one) for one in earlier["path"]]
        if not continues(earlier, proof, between):
            found.append("the root is no continuation of the earlier checkpoint")
    if checkpoint is not None:
        known = [(one["size"], one["root"]) for one in (proof, earlier) if one is not None]
        if (checkpoint["size"], checkpoint["root"]) not in known:
            found.append("the proof says nothing of the checkpoint that was given")
    return found


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def root_from_inclusion(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    """The root that a leaf and its path give (RFC 9162, 2.1.3.2); None where they can't fit."""
    if not 0 <= index < size:
        return None
    at, last, root = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return None
        if at % 2 or at == last:
            root = node(sibling, root)
            while at % 2 == 0 and at:
                at, last = at // 2, last // 2
        else:
            root = node(root, sibling)
        at, last = at // 2, last // 2
    return root if last == 0 else None


def continues(first: dict[str, Any], second: dict[str, Any], path: list[bytes]) -> bool:
    """Whether the second (size, root) continues the first (RFC 9162, 2.1.4.2)."""
    sizes = first["size"], second["size"]
    if sizes[0] == sizes[1]:
        return bool(not path and first["root"] == second["root"])
    if sizes[0] == 0:  # every tree continues that of no rows, whose root is the hash of nothing
        return not path and first["root"] == sha256(b"").hexdigest()
    if sizes[0] > sizes[1] or not path:
        return False
    if sizes[0] & (sizes[0] - 1) == 0:  # a whole tree: its root begins the path
        path = [bytes.fromhex(first["root"]), *path]
    at, last = sizes[0] - 1, sizes[1] - 1
    while at % 2:
        at, last = at // 2, last // 2
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if at % 2 or at == last:
            old, new = node(sibling, old), node(sibling, new)
            while at % 2 == 0 and at:
                at, last = at // 2, last // 2
        else:
            new = node(new, sibling)
        at, last = at // 2, last // 2
    return last == 0 and (old.hex(), new.hex()) == (first["root"], second["root"])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Checks a proof of Weighbridge with SHA-256 alone."
    )
    parser.add_argument("proof", metavar="PROOF.json")
    parser.add_argument("--checkpoint", metavar="CHECKPOINT.json", help="one that you kept")
    options = parser.parse_args(arguments)
    checkpoint = None
    try:
        with open(options.proof, encoding="utf-8") as file:
            proof = json.load(file)
        if options.checkpoint is not None:
            with open(options.checkpoint, encoding="utf-8") as file:
                checkpoint = json.load(file)
        found = problems(proof, checkpoint)
    except OSError as error:
        found = [f"{error.filename} can't be read: {error.strerror}"]
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        found = ["this is no proof, or no checkpoint: a part is missing or isn't what it has to be"]
    for problem in found:
        sys.stdout.write(f"WRONG: {problem}\n")
    if not found:
        sys.stdout.write(
            f"{proof['request_id']} is row {proof['seq']} of {proof['size']}, root {proof['root']}"
            + ("\n" if checkpoint else "; not compared with a checkpoint of yours\n")
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
