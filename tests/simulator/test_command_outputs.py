"""What `simulate` and `calibrate` write, where they refuse to, and what of a file they keep."""

import io
import os
import stat
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from gateway.management.outputs import because, refuse_outputs
from simulator.report import write_whole

TRACE = "arrival_us,input_tokens,output_tokens\n0,5,4\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "tr.csv"
    path.write_text(TRACE)
    return path


def refused(*arguments):
    with pytest.raises(CommandError) as caught:
        call_command(*map(str, arguments), stdout=io.StringIO(), stderr=io.StringIO())
    return str(caught.value)


@pytest.mark.parametrize("link", ["", "soft", "hard", "dots"])
@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_report_never_replaces_its_trace_whatever_the_name_it_goes_by(trace, option, link):
    other = trace.parent / "other.csv"
    if link == "soft":
        other.symlink_to(trace)
    elif link == "hard":
        other.hardlink_to(trace)
    else:
        other = trace.parent / ".." / trace.parent.name / "tr.csv" if link else trace
    assert f"the trace and {option} name the same file" in refused("simulate", trace, option, other)
    assert trace.read_text() == TRACE


def test_a_report_never_replaces_the_calibration_nor_the_other_report(trace):
    mine, page = trace.parent / "mine.json", trace.parent / "page.html"
    mine.write_text("{}")
    told = refused("simulate", trace, "--calibration", mine, "--json", mine)
    assert "--calibration and --json name the same file" in told
    (trace.parent / "link.json").symlink_to(page)  # the page isn't there yet
    told = refused("simulate", trace, "--html", page, "--json", trace.parent / "link.json")
    assert "--html and --json name the same file" in told
    assert mine.read_text() == "{}"
    assert not page.exists()


def test_a_calibration_never_replaces_its_receipts(trace):
    told = refused("calibrate", "--receipts", trace, "--output", trace)
    assert "--receipts and --output name the same file" in told
    told = refused("calibrate", "--route", "r", "--ledger", trace, "--output", trace)
    assert "the ledger and --output name the same file" in told
    assert trace.read_text() == TRACE


@pytest.mark.parametrize("option", ["--route", "--from", "--until", "--ledger"])
def test_what_chooses_from_the_ledger_is_refused_beside_a_file_of_receipts(trace, option):
    told = refused("calibrate", "--receipts", trace, option, "2026-01-01")
    assert told == f"{option} is of the ledger: leave it or --receipts out"


@pytest.mark.parametrize("count", [1, 39])
def test_too_few_receipts_are_refused_before_the_fit(tmp_path, count):
    path = tmp_path / "few.csv"
    head = "arrival_us,first_token_us,last_token_us,input_tokens,output_tokens\n"
    path.write_text(head + "".join(f"{k},{k + 4},{k + 8},7,8\n" for k in range(count)))
    told = refused("calibrate", "--receipts", path)
    assert told.startswith(f"few.csv: receipts {count}, needed at least 40, because")


def test_a_dash_a_pipe_and_a_device_are_refused_in_words(trace):
    pipe = trace.parent / "pipe"
    os.mkfifo(pipe)
    assert "--json takes the name of a file" in refused("simulate", trace, "--json", "-")
    assert "is not a regular file" in refused("simulate", trace, "--json", pipe)
    assert "is not a regular file" in refused("simulate", trace, "--html", os.devnull)
    with pytest.raises(ValueError, match="is not a regular file"):
        write_whole(pipe, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_different_new_files_may_be_written(tmp_path):
    refuse_outputs({"--html": tmp_path / "a", "--json": tmp_path / "b"}, {"the trace": None})


def test_a_link_stays_one_and_its_target_is_written_with_the_mode_that_it_had(tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "target.json"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_gets_what_the_umask_leaves(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "new.json", "{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == mode


def test_what_the_system_refuses_is_told_with_the_files_name_where_it_has_one():
    assert because(OSError(28, "No space left on device")) == "No space left on device"
    assert because(FileNotFoundError(2, "No such file", "a.csv")) == "a.csv: No such file"


def test_both_reports_are_rendered_before_the_first_is_written(trace, monkeypatch):
    """Ctrl-C while the second is rendered leaves neither: the fault stands for the signal."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.management.commands.simulate.json_report", interrupted)
    page = trace.parent / "page.html"
    told = refused("simulate", trace, "--html", page, "--json", trace.parent / "numbers.json")
    assert told == "interrupted; no report was written"
    assert [path.name for path in Path(trace.parent).iterdir()] == ["tr.csv"]
