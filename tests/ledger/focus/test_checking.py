"""The checker of FOCUS 1.2: made from the specification's columns, tried on files of others."""

import csv
import gzip
import io

import pytest

from ledger.focus.charges import HEADINGS
from ledger.focus.checking import PROBLEMS_LIMIT, check
from ledger.focus.columns import COLUMNS, MANDATORY
from tests.shared_data import shared_data_path

GOOD = {
    "BilledCost": "1.5", "BillingAccountId": "a", "BillingAccountName": "",
    "BillingCurrency": "USD", "BillingPeriodStart": "2026-09-01T00:00:00Z",
    "BillingPeriodEnd": "2026-10-01T00:00:00Z", "ChargeCategory": "Usage", "ChargeClass": "",
    "ChargeDescription": "", "ChargePeriodStart": "2026-09-01T00:00:00Z",
    "ChargePeriodEnd": "2026-09-02T00:00:00Z", "ContractedCost": "1.5", "EffectiveCost": "-2E-7",
    "InvoiceIssuerName": "i", "ListCost": "0", "PricingQuantity": "1", "PricingUnit": "Tokens",
    "ProviderName": "p", "PublisherName": "p", "ServiceCategory": "AI and Machine Learning",
    "ServiceName": "s",
}  # fmt: skip


def text(*rows: dict[str, str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def test_the_columns_are_those_of_the_specification():
    """57 columns, 21 of them mandatory: made from the published list, where that is here."""
    path = shared_data_path("exports", "focus_1.2_columns.csv")
    kinds = {"String": "text", "Decimal": "decimal", "Date/Time": "time", "JSON": "json"}
    with path.open(newline="") as file:
        published = [
            (
                row["column_id"],
                "currency" if row["value_format"] == "Currency Format" else kinds[row["data_type"]],
                row["feature_level"].lower(),
                row["allows_nulls"] == "True",
            )
            for row in csv.DictReader(file)
        ]
    assert published == [(c.name, c.kind, c.level, c.nulls) for c in COLUMNS]
    assert (len(COLUMNS), len(MANDATORY)) == (57, 21)


def test_a_file_with_the_mandatory_columns_conforms():
    found = check(text(GOOD, GOOD))
    assert (found.rows, found.conforms, found.problems) == (2, True, ())


@pytest.mark.parametrize(
    ("changes", "code", "column"),
    [
        ({"BilledCost": ""}, "NULL", "BilledCost"),
        ({"BilledCost": "1,5"}, "NOT_A_DECIMAL", "BilledCost"),
        ({"BilledCost": "+1"}, "NOT_A_DECIMAL", "BilledCost"),
        ({"BillingCurrency": "$"}, "CURRENCY", "BillingCurrency"),
        ({"ChargePeriodEnd": "2026-09-02"}, "NOT_A_TIME", "ChargePeriodEnd"),
        ({"ChargePeriodEnd": "2026-09-01T00:00:00Z"}, "PERIOD", "ChargePeriodEnd"),
        ({"ChargeCategory": "Refund"}, "NOT_ALLOWED", "ChargeCategory"),
        ({"ChargeClass": "NULL"}, "NULL_WORD", "ChargeClass"),
        ({"PricingUnit": ""}, "NULL", "PricingUnit"),
        ({"ServiceCategory": "AI"}, "NOT_ALLOWED", "ServiceCategory"),
        ({"ServiceSubcategory": "Caching"}, "SUBCATEGORY", "ServiceSubcategory"),
        ({"Tags": "[1]"}, "NOT_KEY_VALUE", "Tags"),
        ({"Tags": '{"a": {"b": 1}}'}, "NOT_KEY_VALUE", "Tags"),
        ({"Colour": "red"}, "UNKNOWN_COLUMN", "Colour"),
    ],
)
def test_what_breaks_the_format_is_named_with_its_place(changes, code, column):
    found = check(text(GOOD | changes))
    assert [(p.code, p.column) for p in found.problems] == [(code, column)]
    assert found.problems[0].line == (1 if code == "UNKNOWN_COLUMN" else 2)


def test_a_missing_column_and_a_broken_row_are_named():
    short = {name: value for name, value in GOOD.items() if name != "ListCost"}
    assert check(text(short)).counts == {"MISSING_COLUMN": 1}
    assert check(text(GOOD) + "1,2\r\n").counts == {"ROW_LENGTH": 1}
    many = check(text(*[GOOD | {"BilledCost": "x"}] * (PROBLEMS_LIMIT + 5)))
    assert (len(many.problems), many.counts) == (
        PROBLEMS_LIMIT, {"NOT_A_DECIMAL": PROBLEMS_LIMIT + 5},
    )  # fmt: skip
    assert check(text(GOOD | {"PricingQuantity": "", "ChargeClass": "Correction"})).conforms


def test_the_sample_of_1_2_conforms_and_that_of_1_0_does_not():
    sample = shared_data_path("exports", "focus_1.2_genai.csv").read_text()
    assert (check(sample).rows, check(sample).counts) == (12, {})
    old = gzip.decompress(
        shared_data_path("exports", "focus_1.0_sample_first200.csv.gz").read_bytes()
    )
    found = check(old.decode())
    assert found.rows == 200
    assert found.counts == {
        "NOT_A_TIME": 800, "NOT_KEY_VALUE": 58, "NULL_WORD": 1767, "UNKNOWN_COLUMN": 1,
    }  # fmt: skip


def test_our_own_headings_are_columns_of_the_format():
    assert set(MANDATORY) <= set(HEADINGS)
    heading = ",".join(HEADINGS) + "\r\n"
    assert check(heading).conforms
