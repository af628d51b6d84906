"""What commands that change something have in common: perform, and tell a refusal on stderr."""

from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, OutputWrapper

from gateway.operations import anywhere
from gateway.operations.base import Done, Operation, Refused
from ledger.management.opened import readable


def asked(ledger: Path, operation: Operation) -> Done | Refused:
    """Return what became of an operation asked for by whoever runs the command.

    Raises CommandError where there is no usable ledger.
    """
    with readable(ledger):
        return anywhere.perform(ledger, operation, anywhere.command_actor())


def performed(ledger: Path, operation: Operation, stderr: OutputWrapper) -> Done:
    """Return what was done. Of a refusal: its problems on stderr, one a line, and CommandError."""
    result = asked(ledger, operation)
    if isinstance(result, Refused):
        raise refusal(result, stderr)
    return result


class PerformingCommand(BaseCommand):
    """A command that says on stdout what it did."""

    def perform(self, operation: Operation) -> None:
        """Raises CommandError as `performed` does."""
        self.stdout.write(performed(settings.WEIGHBRIDGE_DB, operation, self.stderr).summary)


def refusal(refused: Refused, stderr: OutputWrapper) -> CommandError:
    """Return the error to raise, its problems written to stderr: the command then exits with 1."""
    for problem in refused.problems:
        stderr.write(problem)
    return CommandError(f"{refused.code}: {refused.message}")


def text_of(path: Path, limit_bytes: int) -> str:
    """Return the text of a file. Raises CommandError for one that can't be read or is too long."""
    try:
        size = path.stat().st_size
        if size > limit_bytes:
            raise CommandError(f"{path} has {size} bytes of at most {limit_bytes}.")
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise CommandError(f"{path} can't be read: {problem.strerror}.") from problem
    except UnicodeDecodeError as problem:
        raise CommandError(f"{path} is no UTF-8 text, from byte {problem.start} on.") from problem
