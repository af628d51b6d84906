"""SLO-9: an objective's body as text, and what is no rule's factor."""

from fractions import Fraction

import pytest

from ledger import slo_text
from tests.ledger.test_slo import definition, rule


@pytest.mark.parametrize("factor", ["1e9999999", "nan", "1/0", "-6", "", "6" * 5_000])
def test_a_factor_that_is_no_plain_number_is_refused_before_it_is_computed(factor):
    """1e9999999 as an exact number would hold the server for minutes."""
    body = slo_text.to_json(definition(rules=(rule(6),))).replace('"6"', f'"{factor}"')
    with pytest.raises(ValueError, match=r"such as 14\.4 or 72/5"):
        slo_text.from_json("slo", 1, body)


def test_a_factor_is_read_as_a_decimal_or_a_fraction():
    body = slo_text.to_json(definition(rules=(rule(6),)))
    for text in ("14.4", "72/5"):
        (read,) = slo_text.from_json("slo", 1, body.replace('"6"', f'"{text}"')).rules
        assert read.factor == Fraction(72, 5)
