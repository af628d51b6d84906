"""Reading request traces: the published shapes, one's own, and what is refused."""

import gzip
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.trace_files import parse_trace, read_trace
from simulator.traces import TraceError
from tests.shared_data import shared_data_path


def parsed(text: str):
    return parse_trace("test", io.StringIO(text))


def refusal(text: str) -> TraceError:
    with pytest.raises(TraceError) as caught:
        parsed(text)
    return caught.value


def test_own_csv_is_read_by_column_name_in_any_order():
    trace = parsed(
        "output_tokens,tenant,arrival_us,extra,input_tokens,session,shared_prefix_tokens\n"
        "5,acme,1000,x,10,s1,4\n6,beta,3000,y,20,,\n7,acme,4000,z,30,s1,30\n"
    )
    assert trace.arrival_us.tolist() == [0, 2000, 3000]
    assert trace.input_tokens.tolist() == [10, 20, 30]
    assert trace.output_tokens.tolist() == [5, 6, 7]
    assert trace.tenant.tolist() == [0, 1, 0]
    assert trace.tenant_names == ("acme", "beta")
    assert trace.session.tolist() == [0, -1, 0]
    assert trace.shared_prefix_tokens.tolist() == [4, 0, 30]
    assert trace.arrival_us.dtype == np.int64


def test_own_jsonl_carries_priority_cancel_and_deadline_on_the_rebased_clock():
    trace = parsed(
        '{"arrival_us": 500, "input_tokens": 3, "output_tokens": 2, "priority": -1}\n\n'
        '{"arrival_us": 700, "input_tokens": 3, "output_tokens": 2, '
        '"cancel_us": 900, "deadline_us": 800}\n'
    )
    assert trace.priority.tolist() == [-1, 0]
    assert trace.cancel_us.tolist() == [-1, 400]
    assert trace.deadline_us.tolist() == [-1, 300]


def test_azure_original_columns_keep_microseconds_and_cut_the_seventh_digit():
    trace = parsed(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799609,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    assert trace.arrival_us.tolist() == [0, 52000]
    assert trace.input_tokens.tolist() == [4808, 3180]


def test_azure_2024_times_with_a_zone_are_read_too():
    trace = parsed(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,1,1\n2024-05-10 02:00:01.009930+02:00,2,2\n"
    )
    assert trace.arrival_us.tolist() == [0, 1_000_000]


def test_burstgpt_is_read_by_name_with_and_without_sessions_and_drops_failed_calls():
    with_session = parsed(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
        "Total tokens,Log Type\n5,s0,1,ChatGPT,472,18,490,Conversation log\n"
        "45.5,s1,2,ChatGPT,1087,0,1087,Conversation log\n118,s0,2,GPT-4,417,276,693,API log\n"
    )
    without = parsed(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,API log\n118,ChatGPT,417,276,693,API log\n"
    )
    assert with_session.dropped == 1
    assert with_session.session.tolist() == [0, 0]
    assert with_session.arrival_us.tolist() == without.arrival_us.tolist() == [0, 113_000_000]
    assert with_session.output_tokens.tolist() == without.output_tokens.tolist() == [18, 276]


def test_mooncake_blocks_seen_before_are_the_shared_prefix():
    trace = parsed(
        '{"timestamp": 0, "input_length": 1500, "output_length": 4, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 3000, "input_length": 1100, "output_length": 4, "hash_ids": [0, 1, 9]}\n'
        '{"timestamp": 3000, "input_length": 600, "output_length": 4, "hash_ids": [0, 9]}\n'
        '{"timestamp": 6000, "input_length": 900, "output_length": 4, "hash_ids": [7, 1]}\n'
    )
    assert trace.arrival_us.tolist() == [0, 3_000_000, 3_000_000, 6_000_000]
    # The third is capped at its own input: its last block isn't full.
    assert trace.shared_prefix_tokens.tolist() == [0, 1024, 600, 0]
    assert trace.block_ids == ((0, 1, 2), (0, 1, 9), (0, 9), (7, 1))
    assert trace.block_id_tokens == 512


def test_arrivals_out_of_order_are_sorted_and_ties_keep_the_order_of_the_file():
    trace = parsed("arrival_us,input_tokens,output_tokens\n9,1,1\n5,2,1\n9,3,1\n5,4,1\n")
    assert trace.arrival_us.tolist() == [0, 0, 4, 4]
    assert trace.input_tokens.tolist() == [2, 4, 1, 3]


@pytest.mark.parametrize(
    ("row", "column", "reason"),
    [
        ("x,1,1", "1 (arrival_us)", "'x' is not a whole number"),
        ("-1,1,1", "1 (arrival_us)", "-1 is not between"),
        ("1,0,1", "2 (input_tokens)", "0 is not between"),
        ("1,1,1.5", "3 (output_tokens)", "'1.5' is not a whole number"),
        ("1,1,", "3 (output_tokens)", "missing"),
        ("1,1_0,1", "2 (input_tokens)", "is not a whole number"),
        ("1,1,99999999999999999999999", "3 (output_tokens)", "a number of 23 digits"),
        ("1,1", "3", "2 fields where the header has 3"),
        ("1,1,1,1", "4", "4 fields where the header has 3"),
        ('1,1,"1', "1", "unexpected end of data"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_column(row, column, reason):
    error = refusal(f"arrival_us,input_tokens,output_tokens\n0,1,1\n{row}\n")
    assert (error.line, error.column) == (3, column)
    assert reason in error.reason


def test_broken_json_is_refused_with_the_character_where_it_breaks():
    error = refusal('{"arrival_us": 1, "input_tokens": 1, "output_tokens": 1}\n{"arrival_us": }\n')
    assert (error.line, error.column, error.reason) == (2, "16", "not valid JSON")


@pytest.mark.parametrize("value", ["1.5", "true", "[1]", "null", "NaN", '"x"'])
def test_a_json_value_that_is_no_whole_number_is_refused_by_name(value):
    error = refusal(f'{{"arrival_us": 1, "input_tokens": {value}, "output_tokens": 1}}\n')
    assert (error.line, error.column) == (1, "input_tokens")


@pytest.mark.parametrize("time", ["1e999999999", "NaN", "-5", "soon", ""])
def test_a_burstgpt_time_outside_the_range_is_refused_without_being_built(time):
    error = refusal(f"Timestamp,Request tokens,Response tokens\n{time},1,1\n")
    assert (error.line, error.column) == (2, "1 (Timestamp)")


def test_a_prefix_longer_than_its_prompt_and_a_cancel_before_arrival_are_refused():
    head = "arrival_us,input_tokens,output_tokens,shared_prefix_tokens,cancel_us\n"
    assert refusal(head + "5,10,1,11,\n").column == "4 (shared_prefix_tokens)"
    assert refusal(head + "5,10,1,10,4\n").column == "5 (cancel_us)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no requests"),
        ("arrival_us,input_tokens,output_tokens\n", "holds no requests"),
        ("a,b\n1,2\n", "unknown shape"),
        ("arrival_us,input_tokens\n1,2\n", "no column named output_tokens"),
        ("a,a\n1,2\n", "a column name twice"),
        ("[1]\n", "a JSON array; write CSV"),
        ("\narrival_us,input_tokens,output_tokens\n1,1,1\n", "a blank line; write CSV"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_at_its_first_line(text, reason):
    error = refusal(text)
    assert error.line == 1
    assert reason in error.reason


def test_a_truncated_or_fake_gzip_is_refused_not_raised_through(tmp_path):
    whole = gzip.compress(b"arrival_us,input_tokens,output_tokens\n" + b"1,1,1\n" * 5000)
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    fake = tmp_path / "fake.csv.gz"
    fake.write_bytes(b"arrival_us\n")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path in (cut, fake, binary):
        with pytest.raises(TraceError, match="not readable as text"):
            read_trace(path)


def test_a_byte_that_is_not_utf8_is_refused_where_it_stands(tmp_path):
    path = tmp_path / "latin.csv"
    head = b"arrival_us,input_tokens,output_tokens,tenant\n"
    path.write_bytes(head + b"5,10,10,acme\n" * 3_000 + b"5,10,10,caf\xe9\n" + b"6,1,1,a\n" * 3_000)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert (caught.value.line, caught.value.column) == (3_002, "12")
    assert caught.value.reason == "not readable as text: byte 0xe9 is not UTF-8"


def test_a_broken_archive_is_refused_at_the_line_where_it_breaks(tmp_path):
    lines = [b"arrival_us,input_tokens,output_tokens\n", *(b"%d,1,1\n" % k for k in range(5_000))]
    whole = gzip.compress(b"".join(lines), compresslevel=0)
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert 2_000 < caught.value.line < 3_000
    assert "end-of-stream" in caught.value.reason


def test_a_trace_longer_than_can_be_replayed_names_both_ends_and_the_limit():
    text = (
        "ContextTokens,TIMESTAMP,GeneratedTokens\n5,2023-11-16 18:15:46,4\n"
        "5,0001-01-01 00:00:00,4\n5,2023-11-16 18:15:47,4\n"
    )
    with pytest.raises(TraceError) as caught:
        parse_trace("far", io.StringIO(text), 26 * 86_400_000_000)
    assert (caught.value.line, caught.value.column) == (4, "2 (TIMESTAMP)")
    assert caught.value.reason == (
        "the last arrival, '2023-11-16 18:15:47', is 738,839.8 days after the first, "
        "'0001-01-01 00:00:00' in line 3; a trace may last 26.0 days: "
        "correct the time, or split the trace"
    )


def test_tenants_are_numbered_in_the_order_of_their_arrival():
    trace = parsed("arrival_us,input_tokens,output_tokens,tenant\n9,1,1,b\n7,1,1,\n5,1,1,a\n")
    assert (trace.tenant.tolist(), trace.tenant_names) == ([0, -1, 1], ("a", "b"))


def test_gzip_and_plain_files_hold_the_same_trace(tmp_path):
    text = b"arrival_us,input_tokens,output_tokens\n0,1,2\n5,3,4\n"
    (tmp_path / "a.csv").write_bytes(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    plain, packed = read_trace(tmp_path / "a.csv"), read_trace(tmp_path / "a.csv.gz")
    assert plain.arrival_us.tolist() == packed.arrival_us.tolist() == [0, 5]
    assert (plain.source, packed.source) == ("a.csv", "a.csv.gz")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**12),
            st.integers(1, 10**6),
            st.integers(1, 10**6),
            st.text(max_size=5),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_written_trace_reads_back_the_same(rows):
    import json

    text = "".join(
        json.dumps({"arrival_us": a, "input_tokens": i, "output_tokens": o, "tenant": t}) + "\n"
        for a, i, o, t in rows
    )
    trace = parsed(text)
    expected = sorted(rows, key=lambda row: row[0])
    first = expected[0][0]
    names = [trace.tenant_names[k] if k >= 0 else "" for k in trace.tenant.tolist()]
    assert [
        (a + first, i, o, t)
        for a, i, o, t in zip(
            trace.arrival_us.tolist(),
            trace.input_tokens.tolist(),
            trace.output_tokens.tolist(),
            names,
            strict=True,
        )
    ] == expected


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_arbitrary_text_is_a_trace_or_a_typed_refusal(text):
    try:
        parsed(text)
    except TraceError as error:
        assert error.line >= 1


@pytest.mark.parametrize(
    ("name", "requests", "tenants"),
    [
        ("azure2023_code.csv.gz", 8_819, 0),
        ("azure2023_conv.csv.gz", 19_366, 0),
        ("mooncake_conversation.csv.gz", 12_031, 0),
        ("burstgpt3_first105.csv", 105, 0),
        ("servegen_r1_30min_SAMPLED.csv.gz", 22_476, 20),
    ],
)
def test_shared_traces_are_read_whole(name, requests, tenants):
    trace = read_trace(shared_data_path("traces", name))
    assert (len(trace), len(trace.tenant_names)) == (requests, tenants)
    assert trace.arrival_us[0] == 0
    assert (np.diff(trace.arrival_us) >= 0).all()
    assert (trace.shared_prefix_tokens <= trace.input_tokens).all()
