"""`manage.py simulate` and `manage.py calibrate` as an operator runs them."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper

from gateway.management.commands.simulate import replica_counts
from gateway.management.progress import progress_bar
from gateway.management.times import instant_us
from ledger.queries.timings import completed_timings
from ledger.reading import connect_read_only
from simulator.calibrate import SPLITS, calibrate, forecast
from simulator.calibration_file import CalibrationFileError, calibration_json, read_calibration
from simulator.profiles import profile
from simulator.receipts import Receipts
from simulator.workload import generate_conversation_hour, scaled
from tests.ledger.receipts import T0_US, receipt
from tests.ledger.seeded import fill

COMMAND = "manage.py simulate --requests 400000 --sweep replicas=1..64 --html"
ROOT = Path(__file__).resolve().parents[2]
TRACE = "arrival_us,input_tokens,output_tokens\n" + "".join(
    f"{k * 50_000},{200 + k},{20 + k % 7}\n" for k in range(60)
)


def run(command, *arguments):
    out, err = io.StringIO(), io.StringIO()
    call_command(command, *map(str, arguments), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_simulate_prints_a_table_and_says_that_it_is_uncalibrated(trace):
    out, err = run("simulate", trace, "--profile", "qwen3-32b-rtxpro6000x2")
    assert "60 requests from trace.csv" in out
    assert "note: uncalibrated: rankings only" in out
    assert "TTFT p99 ms" in out
    assert err == ""


def test_the_gateways_own_policy_can_be_asked_about(trace):
    out, _ = run("simulate", trace, "--policy", "gateway")
    assert out.splitlines()[-1].split()[1] == "gateway"


def test_a_sweep_answers_how_many_replicas_and_writes_page_and_numbers(trace, tmp_path):
    page, numbers = tmp_path / "report.html", tmp_path / "report.json"
    out, _ = run(
        "simulate", trace, "--sweep", "replicas=1..3", "--scale", "20",
        "--ttft-p99-ms", "100000", "--html", page, "--json", numbers,
    )  # fmt: skip
    assert "the target is met from replicas = 1" in out
    assert [r["summary"]["replicas"] for r in json.loads(numbers.read_text())["runs"]] == [1, 2, 3]
    assert page.read_text().startswith("<!doctype html>")
    assert f"wrote {page}" in out


def test_without_a_trace_an_hour_of_conversations_is_generated_from_the_seed():
    first, _ = run("simulate", "--requests", "50", "--seed", "4")
    assert first == run("simulate", "--requests", "50", "--seed", "4")[0]
    assert "seed 4" in first


def test_a_bad_trace_is_refused_with_line_and_column_and_writes_nothing(tmp_path):
    path, page = tmp_path / "bad.csv", tmp_path / "report.html"
    path.write_text("arrival_us,input_tokens,output_tokens\n1,2,3\n4,x,6\n")
    with pytest.raises(CommandError, match=r"bad.csv: line 3, column 2 \(input_tokens\)"):
        run("simulate", path, "--html", page)
    assert not page.exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--profile", "gpt-9"), "no profile 'gpt-9'"),
        (("--policy", "fastest"), "no policy 'fastest'; there are .*, gateway"),
        (("--replicas", "0"), "replicas must be between"),
        (("--scale", "0"), "factor between"),
        (("--sweep", "replicas=8..1"), "rising"),
        (("--sweep", "profiles=1"), "write replicas="),
        (("--sweep", "replicas=1..2", "--replicas", "2"), "leave --replicas out"),
        (("--sweep", ""), "--sweep ''; write replicas="),
        (("--seed", "1"), "--seed is of the generated hour"),
        (("--requests", "9"), "--requests is of the generated hour"),
        (("--calibration", "c.json", "--profile", "qwen3-32b-rtxpro6000x2"), "leave --profile out"),
        (("--scale", "nan"), "--scale takes a factor between 0.001 and 1,000"),
        (("--ttft-p99-ms", "-3"), "--ttft-p99-ms must be a positive number"),
        (("--itl-p99-ms", "nan"), "--itl-p99-ms must be a positive number"),
        (("--json", "/nowhere/at/all.json"), "/nowhere/at/all.json: there is no folder"),
        (("--html", "."), "is a folder; name the file"),
        (("--html", "same.txt", "--json", "./same.txt"), "name the same file"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_sentence(trace, arguments, reason):
    with pytest.raises(CommandError, match=reason):
        run("simulate", trace, *arguments)


def test_a_seed_is_not_negative():
    with pytest.raises(CommandError, match="--seed may not be negative"):
        run("simulate", "--seed", "-1")


def test_how_long_a_trace_may_be_is_told_at_its_own_rate(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("arrival_us,input_tokens,output_tokens\n0,5,5\n2592000000000,5,5\n")
    with pytest.raises(CommandError, match=r"line 3, .* in line 2; a trace may last 26\.7 days"):
        run("simulate", path)
    assert "2 requests" in run("simulate", path, "--scale", "1.2")[0]


def test_each_note_is_told_once_also_with_a_target(trace):
    out, _ = run("simulate", trace, "--ttft-p99-ms", "0.4")
    assert out.count("not on this deployment") == 1
    assert "no run meets the target; with replicas = 1: TTFT p99 " in out
    assert "ms, over 0.4\n" in out


def test_a_trace_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CommandError, match=r"none\.csv: No such file or directory$"):
        run("simulate", tmp_path / "none.csv")
    with pytest.raises(CommandError, match=rf"^{tmp_path}: Is a directory$"):
        run("simulate", tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0,100,99999999999999999999999", "column 3 .output_tokens.: a number of 23 digits"),
        ("0,10000000,10000000", "line 2, column 1: prompt and output may have 16777216 tokens"),
        ("9999999999999999999,1,1", "is not between 0 and"),
        ("0.5,1,1", "'0.5' is not a whole number"),
        ("1,2", "2 fields where the header has 3"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused_where_they_stand(tmp_path, line, reason):
    path = tmp_path / "odd.csv"
    path.write_text(f"arrival_us,input_tokens,output_tokens\n{line}\n")
    with pytest.raises(CommandError, match=reason):
        run("simulate", path)


def test_a_file_with_other_separators_is_told_so(tmp_path):
    path = tmp_path / "semicolons.csv"
    path.write_text("arrival_us;input_tokens;output_tokens\n0;10;5\n")
    with pytest.raises(CommandError, match="fields are separated by commas"):
        run("simulate", path)


def test_a_trace_of_one_line_in_any_order_of_columns_is_one_request(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("\ufeffoutput_tokens,arrival_us,input_tokens\r\n5,77,10\r\n")
    out, _ = run("simulate", path)
    assert out.splitlines()[0] == "1 request from one.csv"


def test_sweeps_are_spans_and_lists():
    assert replica_counts("replicas=1..4") == [1, 2, 3, 4]
    assert replica_counts("replicas=1,2,4..6,4") == [1, 2, 4, 5, 6]
    with pytest.raises(ValueError, match="at most"):
        replica_counts("replicas=1..65")


def test_ctrl_c_in_the_middle_of_a_run_leaves_no_file_behind(tmp_path):
    page = tmp_path / "out" / "report.html"
    page.parent.mkdir()
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *COMMAND.split(), str(page)],
        cwd=ROOT,
        env={**os.environ, "WEIGHBRIDGE_VAR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=terminal,
        # Where the tests run in the background SIGINT is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(terminal)
    try:
        shown = os.read(screen, 1_000)
        while b"%" not in shown:  # the bar: the run has begun
            shown += os.read(screen, 1_000)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    try:
        while more := os.read(screen, 1_000):
            shown += more
    except OSError:
        pass  # how a terminal ends once its other side is gone
    os.close(screen)
    assert process.returncode == 130
    assert b"interrupted; no report was written" in shown
    assert list(page.parent.iterdir()) == []


def test_the_bar_is_drawn_on_a_terminal_only_and_wiped():
    class Text(io.StringIO):
        terminal = False

        def isatty(self):
            return self.terminal

    for terminal in (True, False):
        text = Text()
        text.terminal = terminal
        screen = OutputWrapper(text)
        with progress_bar(screen, "simulating") as tell:
            tell(0.5)
            tell(0.501)
            tell(1.0)
        assert text.getvalue().count("50 %") == (1 if terminal else 0)
        assert bool(text.getvalue()) is terminal


def made_receipts(requests=40):
    load = scaled(generate_conversation_hour(5, requests), 40.0)
    base = profile("llama-3.1-8b-rtxpro6000")
    blank = Receipts(
        source="made",
        arrival_us=load.arrival_us,
        first_token_us=load.arrival_us,
        last_token_us=load.arrival_us,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
    )
    told = forecast(blank, base.replica, base.time, 15_000)
    return load, np.rint(told.ttft).astype(int), np.rint(told.e2e).astype(int)


@pytest.fixture
def served(ledger_path):
    load, ttft_us, e2e_us = made_receipts()
    rows = [
        receipt(
            request_id=f"req_{k}",
            accepted_at_us=T0_US + int(load.arrival_us[k]),
            input_tokens=int(load.input_tokens[k]),
            output_tokens=int(load.output_tokens[k]),
            first_token_us=int(ttft_us[k]),
            e2e_us=int(e2e_us[k]),
            attempts=1,
        )
        for k in range(len(load))
    ]
    rows += [
        receipt(request_id="req_retried", accepted_at_us=T0_US, attempts=2),
        receipt(request_id="req_failed", accepted_at_us=T0_US, attempts=1, status="failed"),
        receipt(request_id="req_other", accepted_at_us=T0_US, attempts=1, route_id="route_b"),
    ]
    fill(ledger_path, rows)
    return ledger_path


def test_only_requests_that_one_attempt_completed_on_the_route_are_read(served):
    connection = connect_read_only(served)
    timings = completed_timings(connection, "route_a", from_us=0, until_us=2**62)
    latest = completed_timings(connection, "route_a", from_us=0, until_us=2**62, limit=3)
    none = completed_timings(connection, "route_a", from_us=0, until_us=T0_US)
    connection.close()
    assert len(timings) == 40
    assert [t.accepted_at_us for t in timings] == sorted(t.accepted_at_us for t in timings)
    assert latest == timings[-3:]
    assert none == ()


def test_calibrate_reads_the_ledger_and_shows_the_backtest_beside_the_fit(served, tmp_path):
    file = tmp_path / "calibration.json"
    out, err = run("calibrate", "--ledger", served, "--route", "route_a", "--output", file)
    assert err.splitlines()[:2] == ["fitting all (1 of 4)", "backtest, interleaved (2 of 4)"]
    assert "40 receipts from route route_a" in out
    for name in ("fitted: TTFT", "interleaved: TPOT", "first half to last half: E2E"):
        assert name in out
    calibrated = read_calibration(file)
    assert calibrated.calibrated
    assert calibrated.overhead_us == pytest.approx(15_000, abs=10_000)
    told, _ = run("simulate", "--requests", "30", "--calibration", file)
    assert "calibrated on receipts" in told
    assert "rankings only" not in told
    assert "note: backtest, worst error of mean / p99 on receipts" in told
    assert {error.split for error in calibrated.held_out} == set(SPLITS)
    assert {error.metric for error in calibrated.held_out} == {"ttft", "tpot", "e2e"}


def test_calibrate_refuses_without_receipts_and_writes_nothing(served, tmp_path):
    file = tmp_path / "calibration.json"
    arguments = ("calibrate", "--ledger", served, "--output", file)
    with pytest.raises(CommandError, match="name a --route"):
        run(*arguments)
    with pytest.raises(CommandError, match="no completed receipt"):
        run(*arguments, "--route", "route_none")
    with pytest.raises(CommandError, match="route_b: receipts 1, needed at least 40"):
        run(*arguments, "--route", "route_b")
    assert not file.exists()


def test_a_calibration_survives_its_file_to_the_picosecond(tmp_path):
    base = profile("llama-3.1-8b-rtxpro6000")
    load, ttft_us, e2e_us = made_receipts(24)
    receipts = Receipts(
        source="made",
        arrival_us=load.arrival_us,
        first_token_us=load.arrival_us + ttft_us,
        last_token_us=load.arrival_us + e2e_us,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
    )
    found = calibrate(receipts, base.replica, base.time)
    path = tmp_path / "calibration.json"
    path.write_text(calibration_json(base, base.replica, found, "made", {}))
    read = read_calibration(path)
    assert read.time == found.model
    assert (read.replica, read.overhead_us) == (base.replica, found.overhead_us)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "other"}', "\x00"])
def test_a_file_that_is_no_calibration_is_refused(tmp_path, text):
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(CalibrationFileError, match="is not a calibration"):
        read_calibration(path)


def test_times_without_a_zone_are_utc():
    assert instant_us("1970-01-01T00:00:01") == instant_us("1970-01-01T01:00:01+01:00") == 1_000_000
