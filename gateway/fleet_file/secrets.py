"""Finds what looks like a credential, so that none ever gets into the ledger (SEC-1). Pure.

A credential is named, by the environment variable that holds it, and never given. A fault says
where one seems to stand and does not repeat it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.fleet_file.named import Fault, Path

_SHAPES: Final = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\bgh[oprsu]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\bxox[abeprs]-[A-Za-z0-9-]{10,}|\bhf_[A-Za-z0-9]{20,}|\bgsk_[A-Za-z0-9]{20,}"
    r"|\bnvapi-[A-Za-z0-9_-]{20,}|\bwb_[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}"  # a JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(?i:bearer|basic)\s+(?=[A-Za-z+/_.=-]*[0-9])[A-Za-z0-9+/_.=-]{12,}"
    r"|://[^/\s@]*@"
)
_SETTINGS: Final = re.compile(
    r"[?&;#](?:api[_-]?key|key|token|access[_-]?token|auth|authorization|secret|client[_-]?secret"
    r"|password|passwd|pwd|credentials?|signature|sig)=",
    re.IGNORECASE,
)
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_]{32,}")
_FIELD: Final = re.compile(
    r"(?:.*_)?(?:api_?key|token|secret|password|passwd|credentials?|authorization|bearer)",
    re.IGNORECASE,
)
ACTION: Final = "Name the environment variable that holds it: key_env=NAME in the address"


def credential_faults(tree: object, at: Path = ()) -> tuple[Fault, ...]:
    """A fault for each text or field of a tree that looks like a credential."""
    return tuple(_found(tree, at))


def looks_like_credential(text: str) -> bool:
    """Whether a text holds what providers' keys, tokens and passwords look like."""
    return bool(_SHAPES.search(text) or _SETTINGS.search(text))


def _found(tree: object, at: Path) -> Iterator[Fault]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _field(str(key), value, (*at, str(key)))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from _found(value, (*at, index))
    elif isinstance(tree, str) and (
        looks_like_credential(tree) or ("address" in at and _looks_random(tree))
    ):
        yield Fault(path=at, what="it looks like a credential", action=ACTION)


def _field(key: str, value: Any, path: Path) -> Iterator[Fault]:
    if looks_like_credential(key):
        here = (*path[:-1],)
        yield Fault(path=here, what="a name in it looks like a credential", action=ACTION)
    elif _FIELD.fullmatch(key) and isinstance(value, str):
        yield Fault(path=path, what="it is a credential's field", action=ACTION)
    else:
        yield from _found(value, path)


def _looks_random(text: str) -> bool:
    """Whether a long run of letters of both cases and digits stands there, as in a key."""
    return any(
        re.search("[a-z]", run) and re.search("[A-Z]", run) and re.search("[0-9]", run)
        for run in _RANDOM.findall(text)
    )
