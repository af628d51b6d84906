"""The public tables of the shared data, read once, and a table's own words for a model's name."""

import gzip
import json
import re
from functools import cache
from typing import Any

from ledger.prices import Imported, read_genai, read_litellm
from tests.shared_data import shared_data_path

GENAI = "genai_prices_repo_v2_data.json.gz"
LITELLM = "litellm_1.110.2_model_prices.json.gz"


@cache
def genai() -> Imported:
    return read_genai(shared_data_path("prices", GENAI).read_bytes())


@cache
def litellm() -> Imported:
    return read_litellm(shared_data_path("prices", LITELLM).read_bytes())


@cache
def _providers() -> dict[str, Any]:
    listed = json.loads(gzip.decompress(shared_data_path("prices", GENAI).read_bytes()))
    return {provider["id"]: provider for provider in listed}


@cache
def key_by_pattern(provider: str, name: str) -> str | None:
    """The key of the model that genai-prices means by a name, by its patterns and fallbacks.

    Here alone: the product takes exact names, and leaves it to a person to say which model is
    meant by another.
    """
    known = _providers()[provider]
    for each in (known, *(_providers()[one] for one in known.get("fallback_model_providers", ()))):
        for model in each["models"]:
            if _matches(model["match"], name) or _matches(model["match"], name.lower()):
                return f"{each['id']}/{model['id']}"
    return None


def _matches(clause: dict[str, Any], name: str) -> bool:
    ((kind, value),) = clause.items()
    if kind in ("or", "and"):
        found = [_matches(inner, name) for inner in value]
        return any(found) if kind == "or" else all(found)
    return {
        "equals": lambda: name == value,
        "starts_with": lambda: name.startswith(value),
        "ends_with": lambda: name.endswith(value),
        "contains": lambda: value in name,
        "regex": lambda: re.search(value, name) is not None,
    }[kind]()
