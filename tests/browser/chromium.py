"""Debian's chromium, by playwright; where it is missing browser tests skip, in CI they fail."""

import os
import shutil

import pytest
from playwright.sync_api import Browser, Playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


MISSING = "there is no chromium; on Debian: apt-get install chromium-headless-shell"


def executable() -> str | None:
    """The headless shell, which is the same engine at a third of the processor's time, or else the
    whole browser."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


def launch(playwright: Playwright) -> Browser:
    """The browser; RuntimeError, saying what to install, where there is none."""
    path = executable()
    if path is None:
        raise RuntimeError(MISSING)
    return playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))


def require() -> None:
    """Skip the test where chromium is missing, but fail it where CI=true."""
    if executable() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
