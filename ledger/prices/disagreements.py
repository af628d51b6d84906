"""Models on which public price tables disagree: to be read before a table is drafted. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.prices.imported import Imported
from ledger.rates import Rate

FIELDS = ("input", "output", "cached_input", "cache_write_5m", "cache_write_1h")
SAME_PROVIDER: Mapping[str, str] = {
    "gemini": "google",
    "xai": "x-ai",
    "fireworks_ai": "fireworks",
    "together_ai": "together",
    "moonshot": "moonshotai",
    "bedrock": "aws",
    "bedrock_converse": "aws",
}
"""One provider's other names in these tables: facts about names, not guesses about models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A base price that tables give differently: table -> micro-units per million tokens."""

    provider: str
    model: str
    meter: str
    prices: Mapping[str, int]


def disagreements(imports: Mapping[str, Imported], at_us: int) -> tuple[Disagreement, ...]:
    """Where two tables or more price the same model of the same provider differently, in order.

    Compared are the standard tier's prices at a time, below every threshold, of exactly the same
    model name. A price that a table lacks is no disagreement.
    """
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for table, imported in imports.items():
        for (provider, model), rate in sorted(_standard(imported, at_us).items()):
            for meter, micro in base_prices(rate).items():
                found.setdefault((provider, model, meter), {})[table] = micro
    return tuple(
        Disagreement(provider=provider, model=model, meter=meter, prices=prices)
        for (provider, model, meter), prices in sorted(found.items())
        if len(set(prices.values())) > 1
    )


def base_prices(rate: Rate) -> dict[str, int]:
    """The prices of `FIELDS` that a rate states, below every threshold.

    One of cached input that equals input's says nothing: it may stand for none.
    """
    stated = {
        "input": rate.input_micro_per_mtok,
        "output": rate.output_micro_per_mtok,
        "cached_input": rate.cached_input_micro_per_mtok,
        **dict(rate.meters),
    }
    if rate.cached_input_micro_per_mtok == rate.input_micro_per_mtok:
        del stated["cached_input"]
    return {name: stated[name] for name in FIELDS if name in stated and name not in rate.unpriced}


def _standard(imported: Imported, at_us: int) -> dict[tuple[str, str], Rate]:
    rates: dict[tuple[str, str], Rate] = {}
    for rate in imported.rates:
        early = rate.valid_from_us is not None and at_us < rate.valid_from_us
        late = rate.valid_to_us is not None and at_us >= rate.valid_to_us
        if rate.service_tier or rate.windows or early or late:
            continue
        provider, model = imported.models[rate.key]
        rates.setdefault((SAME_PROVIDER.get(provider, provider), model), rate)
    return rates
