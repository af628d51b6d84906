"""TOML with the line and column of every key: written, read, and found again."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet_file.positions import BadToml, Place, nearest, parse
from gateway.fleet_file.toml_text import written
from tests.gateway.fleet_file.fleets import TEXTS

TEXT = '''\
# a comment with [brackets] and "quotes"
title = "a \\" # no comment"   # one

[policy]
"odd.key" = 'its' # not really
other.dotted = { inline = [1, 2, { deep = true }], "b c" = """
several = "lines"
""" }
list = [
    "x",  # why
    'y]',
    [ 1 ],
]
when = 2026-12-01T00:00:00Z

[[policy.routes]]
id = 1
  [policy.routes.prediction]
  us = 2

[[policy.routes]]
id = 3
[[policy.routes.arms]]
arm = "a"
[[policy.routes.arms]]
arm = "b"
'''


def test_every_kind_of_key_is_found_where_it_stands():
    tree, places = parse(TEXT)
    assert tree["policy"]["other"]["dotted"]["inline"][2] == {"deep": True}
    assert places["title",] == Place(2, 1)
    assert places["policy",] == Place(4, 1)
    assert places["policy", "odd.key"] == Place(5, 1)
    assert places["policy", "other", "dotted"] == Place(6, 1)
    assert places["policy", "other", "dotted", "inline"] == Place(6, 18)
    assert places["policy", "other", "dotted", "inline", 2, "deep"] == Place(6, 36)
    assert places["policy", "other", "dotted", "b c"] == Place(6, 52)
    assert places["policy", "list", 1] == Place(11, 5)
    assert places["policy", "list", 2, 0] == Place(12, 7)
    assert places["policy", "when"] == Place(14, 1)
    assert places["policy", "routes"] == Place(16, 1)
    assert places["policy", "routes", 0, "prediction", "us"] == Place(19, 3)
    assert places["policy", "routes", 1, "id"] == Place(22, 1)
    assert places["policy", "routes", 1, "arms", 1] == Place(25, 1)
    assert places["policy", "routes", 1, "arms", 1, "arm"] == Place(26, 1)


def test_what_is_missing_is_told_where_it_should_be():
    _, places = parse(TEXT)
    assert nearest(places, ("policy", "routes", 1, "gone", 3)) == Place(21, 1)
    assert nearest(places, ("nowhere",)) == Place(1, 1)
    assert nearest(places, ()) == Place(1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb = = 2\n", "line 2, column 5: Invalid value"),
        ("[a]\nx = 1\n[a]\n", "line 3, column 3: Cannot declare ('a',) twice"),
        ('a = "open', 'line 1, column 10: Unterminated string'),
        ("a = 1\na = 2\n", "line 2, column 6: Cannot overwrite a value"),
    ],
)  # fmt: skip
def test_bad_syntax_is_told_with_line_and_column(text, said):
    with pytest.raises(BadToml, match=r"^line [0-9]+, column [0-9]+: ") as told:
        parse(text)
    assert str(told.value).startswith(said)


def test_windows_line_ends_count_as_one():
    _, places = parse("a = 1\r\n[b]\r\nc = 2\r\n")
    assert places["b", "c"] == Place(3, 1)


def leaves(node: Any, path: tuple = ()) -> set[tuple]:
    """Every path of a tree, but the root's."""
    found = {path} if path else set()
    if isinstance(node, dict):
        found |= {each for key, value in node.items() for each in leaves(value, (*path, key))}
    if isinstance(node, list):
        found |= {each for i, value in enumerate(node) for each in leaves(value, (*path, i))}
    return found


SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS
TREES = st.dictionaries(
    TEXTS,
    st.recursive(
        SCALARS | st.lists(SCALARS, max_size=3),
        lambda inner: (
            st.dictionaries(TEXTS, inner, max_size=3)
            | st.lists(st.dictionaries(TEXTS, inner, max_size=2), max_size=3)
        ),
        max_leaves=10,
    ),
    max_size=4,
)


@given(TREES)
def test_any_tree_is_written_so_that_it_reads_back_and_each_path_has_a_place(tree):
    text = written(tree)
    assert tomllib.loads(text) == tree
    again, places = parse(text)
    assert again == tree
    assert leaves(tree) <= set(places)
    lines = text.split("\n")
    for path, place in places.items():
        assert 1 <= place.line <= len(lines)
        assert 1 <= place.column <= len(lines[place.line - 1]) + 1
        if isinstance(path[-1], str) and path[-1].isascii() and path[-1].isalnum():
            assert path[-1] in "\n".join(lines[place.line - 1 :])


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text):
    try:
        tree, _ = parse(text)
    except BadToml as problem:
        assert problem.place.line >= 1
    else:
        assert tree == tomllib.loads(text)


@given(st.text("ab\"'\\=.[]{}#,\n \t01", max_size=40))
def test_any_text_made_of_tomls_own_signs_is_read_or_refused(text):
    try:
        tree, places = parse(text)
    except BadToml:
        return
    assert leaves(tree) <= set(places)
