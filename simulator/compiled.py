"""The engine in machine code: the same modules through mypyc, used while their source is the same.

`manage.py compile_simulator` makes them; nothing needs them. Their results are those of the
source, to the bit (`tests/simulator/test_compiled.py`), in less than half of the time.
"""

import hashlib
import sys
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = (
    "batch", "engine", "fleet", "iterations", "kv", "leaping",
    "preemption", "scheduler", "state", "stepping", "striding", "timing",
)  # fmt: skip
GROUP = "weighbridge_engine"  # mypyc puts all code in one library of this name
LIBRARY = f"{GROUP}__mypyc"
MADE_FROM = "made-from.sha256"


def folder(package: Path = HERE) -> Path:
    """Return where this Python's compiled modules are, or would be."""
    return package / "_compiled" / str(sysconfig.get_config_var("SOABI"))


def files() -> list[str]:
    """Return the names of the libraries that belong together, in no folder yet."""
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return [f"{name}{suffix}" for name in (LIBRARY, *MODULES)]


def source_digest(package: Path = HERE) -> str:
    """Return one SHA-256 of all of the package: compiled code relies on its neighbours' types."""
    return _digest(sorted(package.glob("*.py")))


def stamp(place: Path, source: str) -> bytes:
    """Return what a whole folder has in MADE_FROM; OSError where a library is missing.

    Of the libraries, too: one cut short by a crash or a full disk would end the process that
    loads it without a word.
    """
    return f"{source} {_digest([place / each for each in files()])}\n".encode()


def _digest(paths: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path.name}\n".encode() + path.read_bytes())
    return whole.hexdigest()


def found(package: Path = HERE) -> Path | None:
    """Return the folder of compiled modules that are whole and of this source; else None."""
    place = folder(package)
    try:
        whole = (place / MADE_FROM).read_bytes() == stamp(place, source_digest(package))
    except OSError:
        return None
    return place if whole else None


def prefer(package_path: list[str]) -> None:
    """Have the compiled modules imported in place of the source, all of them or none."""
    place = found()
    if place is None:
        return
    loader = ExtensionFileLoader(LIBRARY, str(place / files()[0]))
    spec = spec_from_loader(LIBRARY, loader)
    if spec is None:
        return
    # Each compiled module asks for the common library by a name of the top level.
    try:
        library = module_from_spec(spec)
        loader.exec_module(library)
    except ImportError:  # made for another system: a copied folder, an older C library
        return
    sys.modules[LIBRARY] = library
    package_path.insert(0, str(place))
