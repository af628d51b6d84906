"""The page: ratios first, what is missed in words, who is absent and why."""

import pytest

from benchmarks.peers.paging import BEGINS, ENDS, figures, number, replaced, table
from benchmarks.peers.values import OURS, Books
from tests.benchmarks import runs


def test_ratios_stand_before_targets_and_figures():
    page = figures(runs.good_run())
    assert page.index("## Ratios") < page.index("## Targets") < page.index("## Figures")
    assert "| Litellm | 40.0 × | 0.019 × |" in page


def test_what_is_missed_is_said_in_words():
    assert "None of those measured is missed." in figures(runs.good_run())
    slow = runs.results(runs.gateway(OURS, {"burst": (runs.cell(requests_per_s=10.0),)}))
    assert "Missed in this run: whole streams of 51 chunks a second" in figures(slow)


def test_a_peer_that_was_not_measured_is_named_with_its_reason():
    absent = runs.gateway("other", {}, absent="not installed: no npm", start_s=None)
    page = figures(runs.results(absent))
    assert "Other 1.0: not installed: no npm" in page
    assert "| Other |" not in page


def test_a_load_that_a_gateway_never_answered_whole_is_a_row_with_its_failures():
    broken = runs.cell(whole=0, failed=17, p50_ms=None)
    page = figures(runs.results(runs.gateway("other", {"many": (broken,)})))
    assert "| Other | – | – | – | – | – | – | – | all 17 |" in page


def test_a_figure_that_was_never_measured_is_a_dash():
    lame = runs.gateway(OURS, {"one": (runs.cell(p99_ms=None, cpu_us=None),)})
    (row,) = [
        line for line in figures(runs.results(lame)).splitlines() if "| Weighbridge | 20" in line
    ]
    assert row.count("–") == 4  # the spread's own, CPU, p99, added p99


@pytest.mark.parametrize(
    ("problem", "said"), [("", "sound"), ("1 is lost", "not sound: 1 is lost")]
)
def test_the_books_are_told_whole(problem, said):
    books = Books(
        key=OURS, sent=5, receipts=5, completed=4, bytes_each=3_000, verified="35 rows, r",
        problem=problem,
    )  # fmt: skip
    page = figures(runs.results(runs.gateway(OURS), books=(books,)))
    assert "5 requests sent, 5 receipts (4 completed), 3,000 bytes" in page
    assert said in page


def test_only_what_stands_between_the_marks_is_replaced():
    page = f"before\n{BEGINS}\nold\n{ENDS}\nafter\n"
    assert replaced(page, "new") == f"before\n{BEGINS}\n\nnew\n\n{ENDS}\nafter\n"
    assert replaced(replaced(page, "old"), "new") == replaced(page, "new")


@pytest.mark.parametrize("page", ["", f"{BEGINS}", f"{ENDS}"])
def test_a_page_without_both_marks_is_refused(page):
    with pytest.raises(ValueError, match="has no lines"):
        replaced(page, "new")


def test_numbers_are_short():
    assert [number(each) for each in (None, 0.0634, 99.994, 12_345.6)] == [
        "–", "0.06", "99.99", "12,346",
    ]  # fmt: skip


def test_a_table_has_a_row_for_each():
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
