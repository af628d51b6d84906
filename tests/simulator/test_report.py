"""The report: one self-contained page, the same numbers for machines, and no half files."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from simulator.capacity import Target, fewest, sweep
from simulator.charts import Line, line_chart
from simulator.profiles import profile
from simulator.replay import Scenario
from simulator.report import html_report, json_report, summary_table, write_whole
from simulator.traces import Record, build_trace
from simulator.workload import generate_conversation_hour, scaled

PROFILE = profile("llama-3.1-8b-rtxpro6000")
TRACE = scaled(generate_conversation_hour(3, 200), 200.0)
RUNS = sweep(Scenario(trace=TRACE, profile=PROFILE), [1, 2])
ANSWER = fewest(RUNS, Target(ttft_p99_ms=2_000))
VOID = {"meta", "br", "path", "polyline"}


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(page):
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return parser.seen


def test_the_page_is_well_formed_and_loads_nothing():
    page = html_report(RUNS, ANSWER)
    tags = parsed(page)
    assert page.startswith("<!doctype html>")
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags}
    assert not any({"src", "href", "style"} & set(attributes) for _, attributes in tags)
    assert "http" not in page.replace("http-equiv", "")


def test_each_of_the_four_pictures_has_a_name_and_a_table_twin():
    tags = parsed(html_report(RUNS, ANSWER))
    pictures = [attributes["aria-label"] for tag, attributes in tags if tag == "svg"]
    assert pictures == [
        "Time to first token",
        "Time between tokens",
        "Queue over time",
        "KV over time",
    ]
    assert sum(tag == "table" for tag, _ in tags) == 1 + len(pictures)


def test_flags_and_the_answer_stand_above_the_numbers():
    page = html_report(RUNS, ANSWER)
    assert page.index("uncalibrated: rankings only") < page.index("<table")
    assert page.index("the target is met from replicas") < page.index("<table")


def test_a_source_with_markup_is_text_and_not_markup():
    hostile = replace(TRACE, source='<script>alert("x")</script>')
    page = html_report(sweep(Scenario(trace=hostile, profile=PROFILE), [1]))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_json_holds_the_same_numbers_and_is_the_same_bytes_each_time():
    text = json_report(RUNS, ANSWER)
    document = json.loads(text)
    assert text == json_report(RUNS, ANSWER)
    assert document["schema"] == "weighbridge.simulation/1"
    assert [run["summary"]["replicas"] for run in document["runs"]] == [1, 2]
    told = document["runs"][0]["summary"]["ttft"]["mean_ms"]
    assert told == RUNS[0].summary.ttft.mean_ms
    assert document["answer"]["replicas"] == ANSWER.replicas


def test_a_run_without_a_second_token_has_null_and_a_dash():
    one = build_trace("one", [Record(arrival_us=0, input_tokens=5, output_tokens=1)])
    runs = sweep(Scenario(trace=one, profile=PROFILE), [1])
    assert json.loads(json_report(runs))["runs"][0]["summary"]["itl"]["mean_ms"] is None
    page = html_report(runs)
    parsed(page)
    assert "Time between tokens: no data" in page
    assert "–" in page


def test_what_no_run_has_takes_no_column_and_what_one_has_is_shown_for_all():
    headings = summary_table(RUNS)[0]
    assert "preemptions" in headings
    assert "busy %" in headings
    assert not {"cancelled", "too large", "shed", "in time %", "cached tokens"} & set(headings)
    other = replace(RUNS[1].summary, refused=3, shed=5, goodput_share=0.9876, cached_tokens=1_024)
    table = summary_table([RUNS[0], replace(RUNS[1], summary=other)])
    first, second = (dict(zip(table[0], row, strict=True)) for row in table[1:])
    assert (first["too large"], first["shed"], first["in time %"]) == ("0", "0", "–")
    assert (second["too large"], second["shed"], second["in time %"]) == ("3", "5", "98.8")
    assert (first["cached tokens"], second["cached tokens"]) == ("0", "1,024")


def test_the_least_and_the_most_busy_replica_are_shown_where_they_differ():
    summary = replace(RUNS[1].summary, busy_shares=(0.125, 0.5))
    table = summary_table([replace(RUNS[1], summary=summary)])
    assert dict(zip(*table, strict=True))["busy %"] == "12–50"


def test_the_page_has_colours_for_a_dark_screen_and_draws_the_kv_capacity():
    page = html_report(RUNS)
    assert "@media(prefers-color-scheme:dark)" in page
    assert page.count('class="bound line') == len(RUNS)


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_write_that_fails_halfway_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half" * 10_000 + "\udc00")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_chart_stays_within_its_frame():
    drawn = line_chart("t", "x", "y", [Line(label="a", x=[0, 5, 1e6], y=[0, 3, 1e7])])
    points = re.search(r'points="([^"]+)"', drawn)
    assert points is not None
    for pair in points.group(1).split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= 720
        assert 0 <= y <= 300


@pytest.mark.parametrize(("x", "y"), [([], []), ([float("nan")], [1.0]), ([0.0, -1.0], [1.0, 2.0])])
def test_a_chart_without_a_drawable_point_says_so(x, y):
    assert "no data" in line_chart("t", "x", "y", [Line(label="a", x=x, y=y)], log_x=True)


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [3.0, 3.0, 3.0], [1e-9, 1e9]])
def test_a_chart_of_a_point_or_a_constant_is_drawn(values):
    drawn = line_chart("t", "x", "y", [Line(label="a", x=values, y=values)])
    assert "<polyline" in drawn
    assert "nan" not in drawn
