"""Every kind of fault. Each does its worst under load, and returns once the fault is lifted."""

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from types import MappingProxyType

from tests.faults.injections import backend, clients, processes, storage
from tests.faults.load import Load
from tests.faults.rig import Rig

Inject = Callable[[Rig, Load, Random], Awaitable[None]]

KINDS: Mapping[str, Inject] = MappingProxyType(
    {
        inject.__name__: inject
        for module in (processes, storage, backend, clients)
        for inject in module.KINDS
    }
)
NEED_DISK = frozenset(inject.__name__ for inject in storage.KINDS)
"""Kinds that a preloaded disk or clock does; skipped where there is no compiler."""
