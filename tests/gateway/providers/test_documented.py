"""Every setting of an address and every code of a provider is in the document of backends."""

import re
from pathlib import Path

from gateway.providers import kserve_address, openai_address

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "backends.md").read_text()


def test_every_code_of_a_provider_is_documented():
    sources = "".join(path.read_text() for path in (ROOT / "gateway" / "providers").glob("*.py"))
    codes = set(re.findall(r'"((?:PROVIDER|CANCEL|SIMULATOR)_[A-Z_]+)"', sources))
    assert len(codes) > 25
    assert {code for code in codes if f"`{code}`" not in DOCUMENT} == set()


def test_every_setting_of_an_address_is_documented():
    named = set(re.findall(r"^\| `([a-z_]+)", DOCUMENT, re.MULTILINE))
    assert {*openai_address.SETTINGS, *kserve_address.SETTINGS} <= named
