"""The picture: well-formed, with a bar for each gateway, and a name for those without one."""

from xml.etree import ElementTree

from benchmarks.peers.picturing import BAR, PANELS, STYLE, picture
from benchmarks.peers.values import OURS
from tests.benchmarks import runs

SVG = "{http://www.w3.org/2000/svg}"


def drawn(results):
    return ElementTree.fromstring(picture(results))  # noqa: S314 (it is our own text)


def test_every_gateway_has_a_bar_in_each_figure_that_it_has():
    root = drawn(runs.good_run())
    bars = root.findall(f"{SVG}rect")
    assert len(bars) == 3 + 3 + 2 + 1  # LiteLLM has no paced load here, the simulator no added one
    assert root.get("aria-label") == "Weighbridge beside other gateways, 2026-01-02, 2 cores"


def test_the_longest_bar_is_the_most_and_the_others_are_in_proportion():
    bars = drawn(runs.good_run()).findall(f"{SVG}rect")
    widths = [float(bar.get("width")) for bar in bars[:3]]  # 4,000, 6,000 and 100 a second
    assert widths == [round(BAR * 4 / 6, 1), BAR, round(BAR / 60, 1)]


def test_who_has_no_figure_is_named_as_not_measured():
    root = drawn(runs.results(runs.gateway(OURS), runs.gateway("a<b", {})))
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert texts.count("A<B") == texts.count("not measured") == len(PANELS)


def test_it_reads_on_dark_pages_and_stays_within_its_frame():
    assert "prefers-color-scheme:dark" in STYLE
    root = drawn(runs.good_run())
    _, _, width, height = map(float, root.get("viewBox").split())
    for bar in root.findall(f"{SVG}rect"):
        assert float(bar.get("x")) + float(bar.get("width")) < width
        assert float(bar.get("y")) + float(bar.get("height")) < height
