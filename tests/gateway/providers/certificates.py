"""Certificates of 127.0.0.1, made by openssl when a test wants them."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def self_signed(
    folder: Path, *, host: str = "IP:127.0.0.1", expired: bool = False
) -> tuple[Path, Path]:
    """The paths of a certificate that is its own authority, and of its key; `host`: its name."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    asked, extensions = folder / "asked.pem", folder / "extensions"
    extensions.write_text(f"subjectAltName={host}\n")
    for arguments in (
        ("req", *NEW_KEY, "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", asked),
        ("x509", "-req", "-in", asked, "-signkey", key, "-extfile", extensions, "-out", certificate,
         "-days", "-1" if expired else "2"),
    ):  # fmt: skip
        done = subprocess.run([openssl, *map(str, arguments)], capture_output=True)
        if done.returncode and expired:
            pytest.skip("this openssl makes no certificate that has expired")
        assert done.returncode == 0, done.stderr
    return certificate, key


def served(certificate: Path, key: Path, *, most: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """What a server needs to show a certificate; `most`: the newest TLS that it speaks."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    if most is not None:
        context.maximum_version = most
    return context


def trusting(certificate: Path) -> ssl.SSLContext:
    """What a client needs to take this certificate, and no other, for its server's authority."""
    return ssl.create_default_context(cafile=str(certificate))
