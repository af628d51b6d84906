"""Which line is which: whole exports, parts and later exports give the same money (REC-1)."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.invoices.identity import Export, line_id, lines_in_force, things
from ledger.invoices.importing import Import, importing
from ledger.invoices.values import Line, Refusal
from ledger.money import parse_units
from ledger.records import InvoiceLine
from tests.ledger.invoices.test_importing import line, report

Known = dict[str, InvoiceLine]


def cur(native: str | None, pico: int, model: str = "m", **changes: Any) -> Line:
    return line(0, model, pico, native_id=native, **changes)


def take(known: Known, lines: Sequence[Line], export: Export | None = None) -> Import | Refusal:
    """Import the lines as a file of their own, as a ledger would that has seen it before or not."""
    one = report(list(lines))
    found = lines_in_force(one, lambda ids: {key: known[key] for key in ids if key in known})
    made = importing(one, known=found, imported_before=0, now_us=1, by="x", export=export)
    if isinstance(made, Import):
        known.update({each.line_id: each for each in made.lines})
    return made


def code(made: Import | Refusal) -> str:
    return made.code if isinstance(made, Refusal) else f"{len(made.lines)} {made.revised}"


def amounts(known: Known) -> list[tuple[str | None, int]]:
    """(model, pico units) of all lines in force, in order."""
    return sorted((one.model, parse_units(one.amount or "0")) for one in known.values())


def test_lines_of_two_parts_that_differ_in_id_are_two_lines():
    """REC-1: an export in two files, about one thing: 5 and 7 are 12, in either order."""
    for parts in ([cur("A", 5)], [cur("B", 7)]), ([cur("B", 7)], [cur("A", 5)]):
        known: Known = {}
        assert [code(take(known, part)) for part in parts] == ["1 0", "1 0"]
        assert amounts(known) == [("m", 5), ("m", 7)]
        assert [code(take(known, part)) for part in parts] == ["0 0", "0 0"]


def test_a_line_that_is_added_beside_another_of_its_thing_is_counted():
    known: Known = {}
    take(known, [cur("A", 5)])
    made = take(known, [cur("B", 7), cur("C", 1, model="n")])
    assert isinstance(made, Import)
    assert (len(made.lines), made.beside) == (2, 1)


def test_a_line_that_a_later_file_does_not_have_stays_beside_the_one_that_it_has():
    """REC-1: 5 and 7, then 7 alone: 12, with ids and without."""
    for first, second in (("A", "B"), (None, None)):
        known: Known = {}
        take(known, [cur(first, 5), cur(second, 7)])
        assert code(take(known, [cur(second, 7)])) == "0 0"
        assert amounts(known) == [("m", 5), ("m", 7)]


def test_an_id_that_comes_again_with_another_amount_is_a_revision_also_in_a_part():
    exports: tuple[Export | None, ...] = (None, "part", "later")
    for export in exports:
        known: Known = {}
        take(known, [cur("A", 5), cur("B", 7)])
        assert code(take(known, [cur("B", 8)], export)) == "1 1"
        assert amounts(known) == [("m", 5), ("m", 8)]


def test_the_same_amount_under_another_id_is_refused_until_it_is_said_what_the_export_is():
    """AWS gives a line another id whenever it makes the report again."""
    known: Known = {}
    take(known, [cur("A", 5), cur("B", 7)])
    made = take(known, [cur("C", 5), cur("D", 8)])
    assert isinstance(made, Refusal)
    assert (made.code, made.line) == ("AMBIGUOUS_LINES", 1)
    for said in ("id C of 0.000000000005 USD", "id A of", "--export part", "--export later"):
        assert said in made.message
    as_part = dict(known)
    assert code(take(as_part, [cur("C", 5), cur("D", 8)], "part")) == "2 0"
    assert amounts(as_part) == [("m", 5), ("m", 5), ("m", 7), ("m", 8)]
    assert code(take(known, [cur("C", 5), cur("D", 8)], "later")) == "1 1"
    assert amounts(known) == [("m", 5), ("m", 8)]


def test_without_ids_one_line_left_over_on_each_side_is_a_revision_and_more_are_refused():
    known: Known = {}
    take(known, [cur(None, 5), cur(None, 7)])
    assert code(take(known, [cur(None, 5), cur(None, 8)])) == "1 1"
    assert code(take(known, [cur(None, 6), cur(None, 9)])) == "AMBIGUOUS_LINES"
    assert code(take(known, [cur(None, 9)])) == "AMBIGUOUS_LINES"
    assert code(take(known, [cur(None, 9)], "later")) == "AMBIGUOUS_LINES"
    assert amounts(known) == [("m", 5), ("m", 8)]
    assert code(take(known, [cur(None, 6), cur(None, 9)], "later")) == "2 2"
    assert code(take(known, [cur(None, 1)], "part")) == "1 0"
    assert amounts(known) == [("m", 1), ("m", 6), ("m", 9)]


def test_lines_of_a_ledger_from_before_ids_were_kept_are_found_again():
    """Their ids are of thing and place, as ever; what is changed keeps the id, and gets its own."""
    known: Known = {}
    old = [cur("A", 5), cur("B", 7), cur("C", 9, model="n")]
    take(known, old)
    thing, numbers = next(iter(things(report(old)).items()))
    assert numbers == [0, 1]
    assert {line_id(thing, 0), line_id(thing, 1)} < set(known)
    known = {key: msgspec.structs.replace(one, native_id=None) for key, one in known.items()}
    ids = set(known)
    assert code(take(known, old)) == "0 0"
    assert code(take(known, [cur("A", 5), cur("B", 7), cur("C", 8, model="n")])) == "1 1"
    assert set(known) == ids
    assert [one.native_id for one in known.values() if one.revision] == ["C"]


def test_every_line_about_a_thing_is_read_however_many_there_are():
    known: Known = {}
    take(known, [cur(f"{number:02}", number) for number in range(20)])
    found = lines_in_force(
        report([cur("x", 1)]), lambda ids: {key: known[key] for key in ids if key in known}
    )
    assert found == known


def _total(known: Known) -> dict[str | None, int]:
    return {model: sum(p for m, p in amounts(known) if m == model) for model, _ in amounts(known)}


WHOLE = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from("mn"), st.integers(0, 4)), max_size=6
)  # amount, model, part


@settings(max_examples=30)
@given(rows=WHOLE, order=st.permutations(range(5)), again=st.lists(st.integers(0, 4), max_size=4))
def test_any_parts_in_any_order_and_again_are_the_whole(rows, order, again):
    """REC-1: also where lines say the same; without a word on it, the same or a refusal."""
    lines = [(cur(f"id{n}", pico, model), part) for n, (pico, model, part) in enumerate(rows)]
    whole: Known = {}
    take(whole, [one for one, _ in lines])
    parts = [[one for one, of in lines if of == part] for part in (*order, *again)]
    said: Known = {}
    for part in parts:
        assert isinstance(take(said, part, "part"), Import)
    assert (amounts(said), set(said)) == (amounts(whole), set(whole))
    unsaid: Known = {}
    results = [take(unsaid, part) for part in parts]
    if all(isinstance(one, Import) for one in results):
        assert amounts(unsaid) == amounts(whole)
    distinct = len({(pico, model) for pico, model, _ in rows}) == len(rows)
    if distinct:
        assert all(isinstance(one, Import) for one in results)
    for known in (said, dict(whole)):
        assert isinstance(take(known, [one for one, _ in lines]), Import)
        assert amounts(known) == amounts(whole)


@settings(max_examples=30)
@given(
    rows=st.lists(st.tuples(st.integers(1, 5), st.sampled_from("mn"), st.integers(0, 2)),
                  max_size=6, unique_by=lambda row: row[:2]),
    order=st.permutations(range(3)),
)  # fmt: skip
def test_without_ids_parts_that_are_said_to_be_parts_are_the_whole(rows, order):
    whole: Known = {}
    take(whole, [cur(None, pico, model) for pico, model, _ in rows])
    known: Known = {}
    for part in (*order, *order):
        lines = [cur(None, pico, model) for pico, model, of in rows if of == part]
        assert isinstance(take(known, lines, "part"), Import)
    assert amounts(known) == amounts(whole)


@given(before=WHOLE, after=WHOLE)
def test_a_whole_later_export_that_has_no_fewer_lines_of_each_thing_is_what_is_in_force(
    before, after
):
    """REC-1: whatever its ids, the total is the later export's."""
    known: Known = {}
    take(known, [cur(f"a{n}", pico, model) for n, (pico, model, _) in enumerate(before)])
    count = {model: sum(m == model for _, m, _ in before) for model in "mn"}
    if any(0 < count[m] > sum(other == m for _, other, _ in after) for m in "mn"):
        return
    later = [cur(f"b{n}", pico, model) for n, (pico, model, _) in enumerate(after)]
    assert isinstance(take(known, later, "later"), Import)
    fresh: Known = {}
    take(fresh, later)
    assert amounts(known) == amounts(fresh)
