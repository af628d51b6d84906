"""The base of values on the way of a request: cheap to make, and silent about content (SEC-1)."""

from typing import ClassVar

import msgspec


class Quiet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A frozen value, a fifth of a dataclass's cost to make; its repr leaves `UNSHOWN` out.

    `gc=False`: none of these values can be part of a cycle, so the collector need not walk them.
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name not in self.UNSHOWN
        ]
        return f"{type(self).__name__}({', '.join(shown)})"
