"""Files that commands make: each is new, because an earlier one may be evidence or be booked."""

import os
from pathlib import Path
from typing import BinaryIO

from django.core.management.base import CommandError, OutputWrapper


def new_file(path: Path) -> BinaryIO:
    """Open a file that isn't there yet; OSError where it is, or where it can't be written."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb")


def put_out(text: str, path: Path | None, stdout: OutputWrapper) -> None:
    """Write a text as a new file, or to standard output where no file is named.

    CommandError where the file can't be written: then none is left that has a part of it.
    """
    if path is None:
        stdout.write(text)
        return
    if str(path) in ("-", "."):
        raise CommandError("--output takes the name of a new file; without it, the text is told")
    try:
        file = new_file(path)
    except OSError as error:
        raise CommandError(f"can't write {path}: {error.strerror}") from error
    try:
        with file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CommandError(f"can't write {path}: {error.strerror}") from error
