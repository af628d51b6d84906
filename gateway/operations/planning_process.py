"""The process that `gateway.operations.planner` asks: frames in, frames out, nothing written."""

import os
import sys
from pathlib import Path
from typing import BinaryIO

import django

NICENESS = 5  # it takes what the data plane leaves


def serve(ledger: Path, asks: BinaryIO, answers: BinaryIO) -> None:
    """Answer each ask until the pipe closes. A fault ends the process, with its traceback."""
    import msgspec

    from gateway.operations.base import Refused, Seen
    from gateway.operations.planner import FRAME, Ask, packed
    from gateway.operations.planning import prepare
    from gateway.operations.registry import read
    from ledger.reading import reader

    while len(header := asks.read(FRAME.size)) == FRAME.size:
        ask = msgspec.msgpack.decode(asks.read(*FRAME.unpack(header)), type=Ask)
        operation = read(ask.operation, ask.fields)
        if isinstance(operation, Refused):
            answer = packed(operation)
        else:
            seen = Seen(connection=reader(ledger), now_us=ask.now_us, actor=ask.actor)
            answer = packed(prepare(operation, seen))
        answers.write(FRAME.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    os.nice(NICENESS)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    try:
        serve(Path(sys.argv[1]), sys.stdin.buffer, answers)
    except BrokenPipeError:  # the server that asked was killed: nobody waits for the answer
        os._exit(0)
