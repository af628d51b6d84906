"""The rules for further attempts that docs/attempts.md shows are a fleet file's, word for word."""

import re
from pathlib import Path

from gateway.fleet_file.document import read_fleet
from gateway.policy.values import AttemptRules, BreakerRule, HedgeRule, RetryRule

DOCS = Path(__file__).resolve().parents[3] / "docs"


def example(name: str) -> str:
    found = re.search(r"```toml\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_documented_rules_can_be_read_and_are_the_documented_defaults():
    rules = example("attempts.md")
    reading = read_fleet(example("fleet.md") + "\n" + rules)
    assert reading.problems == ()
    assert reading.fleet is not None and reading.fleet.policy is not None
    assert reading.fleet.policy.attempts == AttemptRules(
        limit=3,
        retry=RetryRule(),
        hedge=HedgeRule(delay_us=800_000),
        breaker=BreakerRule(),
    )
