"""What the addresses of real backends have in common, and where they may not lead (SEC-3). Pure.

    KIND:http://HOST:PORT/PATH?SETTING=VALUE&…

No address holds a credential: `key_env` names the environment variable that does. A server is
never asked to talk to a link-local address or to a cloud's metadata service, whose answers are
credentials; a deployment that really has a backend there says so in its settings.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from gateway.policy.values import Route

KV_TOKENS_LIMIT = 1_000_000_000

_ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,127}")
_OWN_PREFIX = "WEIGHBRIDGE_"
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data"}
)
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Of clouds whose metadata service is at an address that is not link-local.
_METADATA_ADDRESSES = frozenset(
    {"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"}
)
# IPv6 networks that lead to the IPv4 address at an address's end: mapped, translated, compatible
# (RFC 4291, 2765), NAT64 (RFC 6052).
_EMBEDDING = tuple(
    map(ipaddress.IPv6Network, ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96"))
)
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215; its prefix has one of 4 lengths
_6TO4 = ipaddress.IPv6Network("2002::/16")
# A number, or parts of which one is hexadecimal, octal or missing: some resolvers read an IPv4
# address into it, and no check of ours would have seen it.
_ODD_IPV4 = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", re.IGNORECASE)


class BadAddress(ValueError):
    """An address that can't be used; the message says of which route, what, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An address in its parts. `origin`: scheme, host, port; `path` without a slash at its end."""

    origin: str
    path: str
    settings: Mapping[str, str]


def declared(
    route: Route, kind: str, names: tuple[str, ...], example: str, *, allow_link_local: bool
) -> Declared:
    """Return the parts of a route's address; `names` are its settings. Raises BadAddress."""
    given, _, rest = route.address.partition(":")
    try:
        url = urlsplit(rest)
        named = bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none, a bracket that isn't closed
        named = False
    if given != kind or not named or url.scheme not in ("http", "https"):
        raise bad(route, f"it is not `{example}`")
    if url.username is not None or url.password is not None:
        raise bad(route, "it holds a credential; name an environment variable with key_env=")
    if url.fragment:
        raise bad(route, "it has a part after `#`; settings follow `?`")
    if not allow_link_local and is_off_limits(url.hostname or ""):
        raise bad(
            route,
            "its host is a link-local or metadata address; use the backend's own, or set "
            "WEIGHBRIDGE_ALLOW_LINK_LOCAL=1",
        )
    settings: dict[str, str] = {}
    for name, text in parse_qsl(url.query, keep_blank_values=True):
        if name not in names:
            raise bad(route, f"{name} is no setting; there are {', '.join(names)}")
        if name in settings:
            raise bad(route, f"{name} is there twice; keep one")
        settings[name] = text
    if not settings.get("model"):
        raise bad(route, "it names no model; add model=NAME")
    return Declared(
        origin=f"{url.scheme}://{url.netloc}", path=url.path.rstrip("/"), settings=settings
    )


def is_off_limits(host: str) -> bool:
    """Whether a host, as a name or an address, is one that no backend is expected at."""
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return bool(_ODD_IPV4.fullmatch(name))
    return any(
        each.is_link_local
        or each.is_multicast
        or each.is_unspecified
        or str(each) in _METADATA_ADDRESSES
        for each in (address, *_embedded(address))
    )


def _embedded(address: _Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that an IPv6 one may lead to; the loopback's own leads to none."""
    if not isinstance(address, ipaddress.IPv6Address) or address.is_loopback:
        return []
    octets, found = address.packed, []
    if any(address in network for network in _EMBEDDING):
        found = [octets[12:]]
    elif address in _6TO4:
        found = [octets[2:6]]
    elif address in _LOCAL_NAT64:
        without_u = octets[:8] + octets[9:]  # RFC 6052, section 2.2
        places = [without_u[6:10], without_u[7:11], without_u[8:12], octets[12:]]
        found = [each for each in places if any(each)]  # zeros: it is in another of them
    return [ipaddress.IPv4Address(each) for each in found]


def refuse_capabilities(route: Route, kind: str, not_carried: frozenset[str]) -> None:
    """A capability that an attempt would drop on the way must not be declared (PRV-4)."""
    dropped = sorted(not_carried.intersection(route.capabilities))
    if dropped:
        raise bad(route, f"a {kind} route can't carry {', '.join(dropped)}; declare it without")


def key_env(route: Route, name: str | None) -> str | None:
    if name is None:
        return None
    if not _ENVIRONMENT_NAME.fullmatch(name):
        # What stands there may be the credential itself, so it is not repeated.
        raise bad(route, "key_env is no name of an environment variable (A-Z, 0-9, _)")
    if name.startswith(_OWN_PREFIX):
        raise bad(route, f"key_env names one of the gateway's own settings; {_OWN_PREFIX}* stay")
    return name


def flag(route: Route, name: str, text: str | None) -> bool:
    if text not in (None, "0", "1"):
        raise bad(route, f"{name} is neither 0 nor 1")
    return text == "1"


def choice(route: Route, name: str, text: str | None, choices: tuple[str, ...]) -> str | None:
    if text is not None and text not in choices:
        raise bad(route, f"{name} is none of {', '.join(choices)}")
    return text


def metrics_url(route: Route, given: Declared) -> str:
    """Return where the backend's metrics are: on its own port, or on the one that is declared."""
    port = given.settings.get("metrics_port")
    if port is None:
        return f"{given.origin}/metrics"
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65_536):
        raise bad(route, "metrics_port is no port")
    url = urlsplit(given.origin)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{url.scheme}://{host}:{port}/metrics"


def kv_tokens(route: Route, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise bad(route, "kv_tokens is no whole number of at most ten digits")
    if not 0 < int(text) <= KV_TOKENS_LIMIT:
        raise bad(route, f"kv_tokens is not from 1 to {KV_TOKENS_LIMIT}")
    return int(text)


def bad(route: Route, what: str) -> BadAddress:
    return BadAddress(f"the address of route {route.route_id} can't be used: {what}")
