"""`manage.py rates`: reading, trying, importing into a draft (CST-5, CST-7)."""

import csv
import json
import re
import shlex
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from django.core.management import CommandError, call_command

from gateway.demo.fleet import policy as demo_policy
from gateway.management.rate_text import trial_lines
from ledger.queries.drafts import draft
from ledger.rates import Rate, RateTable
from ledger.reading import connect_read_only
from ledger.rollups.projection import Rollups
from ledger.store import Store
from ledger.what_if import Served, tried
from tests import factories
from tests.factories import NOW_US
from tests.ledger import archived

RATES_PAGE = Path(__file__).resolve().parents[3] / "docs" / "rates.md"
LATER = msgspec.structs.replace(
    factories.RATE_TABLE,
    version="rates-2",
    effective_from_us=NOW_US + 10**12,
    rates=(msgspec.structs.replace(factories.RATE_TABLE.rates[0], input_micro_per_mtok=3_000_000),),
)


@pytest.fixture
def priced(ledger_path, settings):
    settings.WEIGHBRIDGE_DB = ledger_path
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append(
            [
                factories.rate_table(),
                factories.rate_table(LATER),
                *(factories.receipt(number) for number in range(1, 11)),
            ]
        ).result()
    return ledger_path


def run(*arguments):
    out, err = StringIO(), StringIO()
    call_command("rates", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_a_difference_is_shown_price_by_price_in_percent(priced):
    assert run("diff", "rates-1", "rates-2")[0] == ("route-a: changed\n  input: 2 -> 3 (+50 %)\n")
    assert run("diff", "rates-1", "rates-1")[0] == "No price differs.\n"


def test_a_history_says_what_a_key_has_cost_and_since_when(priced):
    assert run("history", "route-a")[0] == (
        "1970-01-01T00:00:00+00:00 until 2025-12-06T05:46:40+00:00  rates-1\n"
        "  cached_input 0.5; input 2; output 8\n"
        "2025-12-06T05:46:40+00:00  rates-2\n"
        "  cached_input 0.5; input 3; output 8\n"
    )
    of_the_model = run("history", "assistant-large")[0]  # route-a serves it
    assert of_the_model == f"route-a:\n{run('history', 'route-a')[0]}"


def test_cst_7_the_history_of_a_route_without_a_price_of_its_own_is_its_identity_s(
    ledger_path, settings
):
    settings.WEIGHBRIDGE_DB = ledger_path
    plain = demo_policy()
    first = plain.routes[0]
    other = next(each for each in plain.routes if each.identity_id != first.identity_id)
    rate = msgspec.structs.replace(factories.RATE_TABLE.rates[0], key=first.identity_id)
    table = msgspec.structs.replace(factories.RATE_TABLE, rates=(rate,))
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        body = msgspec.json.encode(plain).decode()
        store.append([factories.rate_table(table), factories.route_policy(body_json=body)]).result()
    out, _ = run("history", first.route_id)
    identity = first.identity_id
    assert out == f"{first.route_id} is priced as {identity}:\n{run('history', identity)[0]}"
    assert "input 2; output 8" in out
    said = f"{other.route_id} never had a price; requests of it are unpriced.\n"
    assert run("history", other.route_id)[0] == said


def test_the_history_of_an_unknown_name_is_refused_with_the_names_that_are_like_it(priced):
    with pytest.raises(CommandError, match=r"Nothing is called 'rout-a': .*; there is route-a"):
        run("history", "rout-a")
    with pytest.raises(CommandError, match=r"Nothing is called '€€': .* priced key\."):
        run("history", "€€")


def test_a_table_is_tried_on_past_traffic(priced):
    out, _ = run("try", "rates-2", "--first", "2025-11-24", "--last", "2025-11-24", "--by", "route")
    assert out == (
        "all: 10 requests: 0.036 before -> 0.046 units by rates-2, difference 0.01\n"
        "route-a: 10 requests: 0.036 before -> 0.046 units by rates-2, difference 0.01\n"
    )


def test_cst_5_a_group_without_a_price_by_the_table_says_so_and_saves_nothing():
    found = {name: getattr(factories.receipt(1), name) for name in Served._fields[:-1]}
    priced, lost = Served(**found), Served(**found | {"route_id": "b", "identity_id": "b"})
    new = Served(**found | {"rate_key": None, "cost_total_pico": 0})
    assert list(trial_lines(tried(LATER, [priced, lost, lost, new], ("route",)), "units")) == [
        "all: 4 requests, 1 priced by both: "
        "0.0036 before -> 0.0046 units by rates-2, difference 0.001",
        "  unpriced by rates-2: 2 requests, not compared; 0.0072 units before",
        "  unpriced before: 1 request, not compared; 0.0046 units by rates-2",
        "b: 2 requests, none priced both before and by rates-2",
        "  unpriced by rates-2: 2 requests, not compared; 0.0072 units before",
        "route-a: 2 requests, 1 priced by both: "
        "0.0036 before -> 0.0046 units by rates-2, difference 0.001",
        "  unpriced before: 1 request, not compared; 0.0046 units by rates-2",
    ]


def test_a_public_table_becomes_a_draft_of_exactly_the_models_named(priced, tmp_path):
    public = tmp_path / "prices.json"
    entry = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "cost_per_second": 1}
    public.write_text(json.dumps({"acme/m": entry, "acme/other": entry}))
    out, err = run(
        "import", "litellm", str(public), "--version", "rates-3", "--price", "route-a=acme/m",
        "--currency", "units",
    )  # fmt: skip
    assert out == "Kept revision 1 of the draft rates-3.\n"
    assert err == "left out: acme/m cost_per_second 1: no such meter\n"
    connection = connect_read_only(priced)
    kept = draft(connection, "rate_table", "rates-3")
    connection.close()
    assert kept is not None
    assert msgspec.json.decode(kept.body_json, type=RateTable).rates == (
        Rate(
            key="route-a",
            input_micro_per_mtok=1_000_000,
            output_micro_per_mtok=2_000_000,
            cached_input_micro_per_mtok=1_000_000,
        ),
    )


def test_a_list_of_what_is_left_out_that_can_not_be_written_says_so(priced, tmp_path):
    public = tmp_path / "prices.json"
    public.write_text(json.dumps({"acme/m": {"input_cost_per_token": 1e-06}}))
    asked = ("import", "litellm", str(public), "--version", "v", "--all", "--currency", "units")
    with pytest.raises(CommandError, match=r"nowhere\.csv can't be written: No such file"):
        run(*asked, "--left-out", str(tmp_path / "no" / "nowhere.csv"))


def test_dollars_are_not_taken_for_another_currency_unless_that_is_said(priced, tmp_path):
    public = tmp_path / "prices.json"
    public.write_text(json.dumps({"acme/m": {"input_cost_per_token": 1e-06}}))
    asked = ("import", "litellm", str(public), "--version", "v", "--price", "route-a=acme/m")
    with pytest.raises(CommandError, match="in USD and this ledger is in units"):
        run(*asked)
    assert run(*asked, "--currency", "units")[0].startswith("Kept revision 1")


def test_cst_5_a_trial_says_which_requests_are_archived_and_not_in_it(
    ledger_path, tmp_path, settings
):
    archived.fill(ledger_path)
    file = archived.archived(ledger_path, tmp_path / "old").archive.file
    body = msgspec.json.encode(demo_policy()).decode()
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append([factories.route_policy(revision="policy-2", body_json=body)]).result()
    settings.WEIGHBRIDGE_DB = ledger_path
    out, err = run("try", "rates-1", "--first", "2025-11-01", "--last", "2025-12-31")
    assert err == f"Not tried: requests of these days are in {file}.\n"
    assert out.startswith("all: 3 requests: ")  # an open unknown, and a task that is not all old
    assert run("try", "rates-1", "--first", "2026-02-01", "--last", "2026-03-01")[1] == ""


def test_cst_7_an_import_that_would_leave_keys_without_a_price_says_so(priced, tmp_path):
    public = tmp_path / "prices.json"
    entry = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
    public.write_text(json.dumps({"acme/m": entry}))
    asked = ("import", "litellm", str(public), "--version", "v", "--price", "new=acme/m")
    assert run(*asked, "--currency", "units")[1] == (
        "A draft is the whole table: 1 key of rates-2 would have no price; "
        "--over rates-2 keeps them.\n"
    )
    assert run(*asked, "--currency", "units", "--over", "rates-2")[1] == ""
    assert run("diff", "rates-2", "v")[0].splitlines()[0] == "new: added"
    assert "route-a" not in run("diff", "rates-2", "v")[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "rates-9"), "no rate table or draft 'rates-9'"),
        (("disagreements", "csv=x"), "no format"),
        (("disagreements", "genai=/nowhere/at/all"), "can't be read"),
        (
            ("try", "rates-2", "--first", "2025-11-24", "--last", "2025-11-24", "--zone", "x"),
            "zone",
        ),
    ],
)
def test_what_can_not_be_done_says_so(priced, arguments, said):
    with pytest.raises(CommandError, match=said):
        run(*arguments)


def test_cst_9_models_on_which_tables_differ_are_listed_as_a_csv_that_is_safe_to_open(tmp_path):
    files = []
    for price, kind in ((1, "genai"), (2, "litellm")):
        files.append(tmp_path / kind)
        name = '=a,"b"'
        text = [{"id": "p", "models": [{"id": name, "prices": {"input_mtok": price}}]}]
        entry = {name: {"input_cost_per_token": price / 10**6, "litellm_provider": "p"}}
        files[-1].write_text(json.dumps(text if kind == "genai" else entry))
    out, _ = run("disagreements", f"genai={files[0]}", f"litellm={files[1]}")
    assert list(csv.reader(out.splitlines())) == [
        ["provider", "model", "meter", "genai", "litellm"],
        ["p", '\'=a,"b"', "input", "1", "2"],
    ]


def test_a_name_that_is_only_the_beginning_of_a_model_is_refused_and_nothing_is_kept(
    priced, tmp_path
):
    public = tmp_path / "prices.json"
    public.write_text(json.dumps({"acme/m-1": {"input_cost_per_token": 1e-06}}))
    with pytest.raises(CommandError, match="no price of exactly acme/m"):
        run("import", "litellm", str(public), "--version", "v", "--price", "route-a=acme/m")
    connection = connect_read_only(priced)
    assert draft(connection, "rate_table", "v") is None
    connection.close()


def test_cst_7_the_example_of_the_documents_runs_as_it_is_printed(
    fleet, settings, tmp_path, monkeypatch
):
    """docs/rates.md, from the import to the history, on the demonstration's fleet."""
    settings.WEIGHBRIDGE_DB = fleet.ledger
    monkeypatch.chdir(tmp_path)
    prices = {"input_mtok": 0.25, "cache_read_mtok": 0.025, "output_mtok": 2}
    model = {"id": "gpt-5-mini", "match": {"equals": "gpt-5-mini"}, "prices": prices}
    public = [{"id": "openai", "name": "OpenAI", "models": [model]}]
    (tmp_path / "prices.json").write_text(json.dumps(public))
    section = RATES_PAGE.read_text().split("## Before a table is published")[1]
    lines = re.findall(r"^    manage\.py rates (.+)$", section, re.MULTILINE)
    said = [run(*shlex.split(line, comments=True))[0] for line in lines]
    assert [line.split()[0] for line in lines] == ["import", "diff", "try", "publish", "history"]
    assert said[0] == "Kept revision 1 of the draft rates-2.\n"
    assert said[1] == "fast-v2: added\n" + "".join(
        f"  {meter}: new at {price}\n"
        for meter, price in (("cached_input", "0.025"), ("input", "0.25"), ("output", "2"))
    )
    assert said[3].startswith("Published the rate table rates-2")
    assert "  cached_input 0.025; input 0.25; output 2\n" in said[4]
    assert "fast-v2 is priced as " in said[4]
