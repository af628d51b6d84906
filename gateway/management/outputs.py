"""What a command is told to write, looked at before it works for minutes."""

import argparse
from collections.abc import Mapping
from pathlib import Path


def refuse_outputs(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Return nothing where each output may be written; keys are the options' names.

    Raises ValueError for `-`, a folder, a folder that isn't there, what is no regular file, and
    for the file of an input or of another output, also by another name or a link.
    """
    taken = {name: path for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        if str(path) == "-":
            raise ValueError(f"{name} takes the name of a file; to the terminal nothing is written")
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name the file to write")
        if path.exists() and not path.is_file():
            raise ValueError(f"{name} {path} is not a regular file; name one, or a new one")
        if not path.resolve().parent.is_dir():
            raise ValueError(f"{path}: there is no folder {path.resolve().parent}")
        for other, used in taken.items():
            if _same(path, used):
                raise ValueError(f"{other} and {name} name the same file, {path}; name another")
        taken[name] = path


def folder(text: str) -> Path:
    """The folder that an option names; an empty name isn't taken for the one you are in."""
    if not text.strip():
        raise argparse.ArgumentTypeError("names no folder; the one you are in is .")
    return Path(text)


def because(error: OSError) -> str:
    """Return what the system refused, with the file's name where it told one."""
    why = error.strerror or str(error)
    return f"{error.filename}: {why}" if error.filename else why


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()
