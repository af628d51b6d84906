"""A process that commits as fast as it can and says what was acknowledged, until it is killed."""

import sys

from ledger.store import Store
from tests import factories

ROWS_PER_CALL = 5


def main() -> None:
    path, first = sys.argv[1], int(sys.argv[2])
    store = Store.open(path)
    pending: list[tuple[int, object]] = []
    for number in range(first, first + 1_000_000):
        records = [
            factories.trace_event(number, event=f"part.{part}") for part in range(ROWS_PER_CALL)
        ]
        pending.append((number, store.append(records)))
        if len(pending) == 8:
            for acknowledged, future in pending:
                future.result()  # type: ignore[attr-defined] # a concurrent Future
                print(acknowledged, flush=True)
            pending.clear()


if __name__ == "__main__":
    main()
