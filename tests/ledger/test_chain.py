"""The chain's bytes and the RFC 6962 tree, against their definitions (LED-7)."""

from hashlib import sha256
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.chain import (
    GENESIS,
    BadHead,
    Builder,
    Head,
    canonical,
    checkpoint_of,
    leaf_hash,
    node_hash,
)
from ledger.records import Record
from ledger.rows import field_names, record_of


def test_canonical_bytes_are_a_json_array_of_table_version_seq_and_fields():
    row = canonical("receipt", 1, 7, ["req_1", None, -5, b"\x00\xff", 'é"\n'])
    assert row == '["receipt",1,7,"req_1",null,-5,"00ff","é\\"\\n"]'.encode()


@pytest.mark.parametrize("value", ["\ud800", 2**64, -(2**63) - 1, {1}, object(), bytearray(b"x")])
def test_what_has_no_canonical_form_is_refused_and_never_written_as_something_else(value):
    with pytest.raises(TypeError):
        canonical("receipt", 1, 7, ["req_1", value])


def test_a_link_is_the_hash_of_the_hash_before_and_the_leaf():
    builder = Builder()
    first, second = builder.add(b"one"), builder.add(b"two")
    assert first == sha256(b"\x01" + bytes(32) + sha256(b"\x00one").digest()).digest()
    assert second == sha256(b"\x01" + first + sha256(b"\x00two").digest()).digest()
    assert builder.head.entry_hash == second


# The published test vectors of Certificate Transparency: roots of the first n of eight leaves.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def test_the_tree_gives_the_published_roots_of_certificate_transparency():
    builder = Builder()
    assert builder.root == sha256(b"").digest()
    for leaf, root in zip(LEAVES, ROOTS, strict=True):
        builder.add(leaf)
        assert builder.root.hex() == root


def tree_hash(leaves):
    """RFC 6962, section 2.1, as it is written there."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(tree_hash(leaves[:split]), tree_hash(leaves[split:]))


@given(st.lists(st.binary(max_size=8), max_size=70), st.integers(0, 70))
def test_a_tree_built_in_two_goes_is_the_tree_of_the_definition(leaves, cut):
    first = Builder()
    for leaf in leaves[:cut]:
        first.add(leaf)
    second = Builder(first.head)
    for leaf in leaves[cut:]:
        second.add(leaf)
    assert second.root == tree_hash(leaves)
    assert second.size == len(leaves)
    assert checkpoint_of(second.head).root == second.root.hex()


def test_a_head_whose_parts_do_not_fit_is_refused():
    with pytest.raises(BadHead):
        Builder(Head(size=3, entry_hash=GENESIS, frontier=bytes(32)))
    with pytest.raises(BadHead):
        Builder(Head(size=0, entry_hash=b"", frontier=b""))


class Grown(Record, frozen=True, kw_only=True):
    """A record whose second version has a field more."""

    TABLE: ClassVar[str] = "grown"
    VERSION: ClassVar[int] = 2
    SINCE: ClassVar[dict[str, int]] = {"tier": 2}
    name: str
    tier: str = "standard"


def test_a_field_added_later_is_outside_the_hash_of_older_rows_and_reads_as_its_default():
    assert field_names(Grown, 1) == ("name",)
    assert field_names(Grown, 2) == ("name", "tier")
    assert record_of(Grown, (1, 1, b"", "a", None)) == Grown(name="a", tier="standard")
    assert record_of(Grown, (2, 2, b"", "b", "gold")) == Grown(name="b", tier="gold")
