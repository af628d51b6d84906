"""The house rules that a tool can hold: file length, purity, one reader of time and environment."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINES_LIMIT = 400
PURE = (
    "gateway/policy", "gateway/phases.py", "gateway/settling.py", "ledger/money.py",
    "ledger/rates.py", "ledger/chain.py", "ledger/quantiles.py", "ledger/histograms.py",
    "ledger/slo.py", "ledger/slo_burn.py", "ledger/releases.py", "ledger/strata.py",
    "ledger/rollout_window.py", "ledger/slo_", "ledger/diagnosis.py", "ledger/release_gate.py",
    "ledger/evaluation_import.py", "ledger/openslo.py", "gateway/control/overlay.py",
    "gateway/control/canary_policy.py",
    "ledger/peeking.py", "ledger/rollouts.py", "ledger/rate_", "ledger/meters.py",
    "ledger/receipt_cost.py", "ledger/usage", "ledger/prices", "ledger/what_if.py", "simulator",
    "ledger/invoices", "ledger/focus/columns.py", "ledger/focus/checking.py",
    "ledger/spreadsheets.py", "ledger/reconcile/values.py", "ledger/reconcile/matching.py",
    "ledger/reconcile/judging.py", "ledger/reconcile/tying.py", "ledger/reconcile/currency.py",
    "ledger/reconcile/closing.py",
)  # fmt: skip
# The simulator's shells: they read traces and write reports.
SHELLS = {"simulator/trace_files.py", "simulator/report.py", "simulator/client_fits.py",
          "simulator/kernel_tables.py", "simulator/calibration_file.py",
          "simulator/receipts.py", "simulator/live.py"}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "eval", "exec", "id"}
IMPURE_MODULES = {"time", "random", "secrets", "socket", "subprocess", "sqlite3", "logging"}


def tracked(*suffixes: str) -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return (ROOT / name for name in listed if name.endswith(suffixes) and (ROOT / name).exists())


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_source_file_is_longer_than_the_limit():
    long = {
        named(path): length
        for path in tracked(".py", ".html", ".css", ".js")
        if "/migrations/" not in named(path) and "/vendor" not in named(path)
        and (length := len(path.read_text().splitlines())) > LINES_LIMIT
    }  # fmt: skip
    # One stylesheet is one room: its parts are found by their headings.
    long.pop("gateway/static/css/weighbridge.css", None)
    assert long == {}


def pure_files() -> list[Path]:
    return [
        path
        for path in tracked(".py")
        if named(path).startswith(PURE) and named(path) not in SHELLS
    ]


@pytest.mark.parametrize("path", pure_files(), ids=named)
def test_pure_code_calls_nothing_that_reads_the_world(path: Path):
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id in IMPURE_CALLS - {"id"} else []
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in IMPURE_MODULES]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in IMPURE_MODULES:
            found.append(node.module or "")
    assert found == [], f"{named(path)} is pure code and uses {found}"


def test_only_the_settings_read_the_environment_and_only_the_clock_reads_the_time():
    offenders = []
    for path in tracked(".py"):
        name = named(path)
        if not name.startswith(("gateway/", "ledger/", "simulator/")):
            continue
        text = path.read_text()
        if name != "gateway/settings.py" and re.search(r"os\.environ\.get|os\.getenv", text):
            offenders.append(f"{name} reads the environment")
        if name != "gateway/clock.py" and re.search(
            r"\btime\.(time|time_ns)\(|datetime\.now\(|timezone\.now\(", text
        ):
            offenders.append(f"{name} reads the time")
    assert offenders == []


def test_no_tracked_text_names_a_path_of_a_machine():
    places = re.compile(r"/(?:root|work|home|tmp)/[a-z]")
    offenders = [
        f"{named(path)}: {match.group()}"
        for path in tracked(".py", ".md", ".toml", ".html", ".css", "Makefile", "run")
        if (match := places.search(path.read_text())) and path.name != "test_tidy.py"
    ]
    assert offenders == []


def test_nothing_is_left_to_be_done_later():
    left = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    offenders = [
        named(path)
        for path in tracked(".py", ".html", ".css")
        if left.search(path.read_text()) and path.name != "test_tidy.py"
    ]
    assert offenders == []


def test_money_is_never_a_float():
    """No float() and no true division in the modules that hold money (LED-3)."""
    money = ("money.py", "rates.py", "rate_lookup.py", "receipt_cost.py", "what_if.py", "chain.py")
    rooms = ("invoices", "reconcile", "focus")
    paths = [path for room in rooms for path in (ROOT / "ledger" / room).glob("*.py")]
    for path in (*(ROOT / "ledger" / name for name in money), *paths):
        tree, name = ast.parse(path.read_text()), named(path)
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)), name
            assert not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "float"
            ), name


def test_every_setting_and_command_is_documented():
    settings = (ROOT / "gateway" / "settings.py").read_text()
    operate = (ROOT / "docs" / "operate.md").read_text()
    names = set(re.findall(r'"(WEIGHBRIDGE_[A-Z_]+)"', settings))
    assert {name for name in names if f"`{name}`" not in operate} == set()
    readme = (ROOT / "README.md").read_text()
    commands = {
        path.stem
        for package in ("gateway", "ledger")
        for path in (ROOT / package / "management" / "commands").glob("*.py")
        if path.stem != "__init__"
    }
    assert {command for command in commands if f"manage.py {command}" not in readme} == set()


def test_every_runtime_dependency_has_a_reason_in_the_readme_and_is_used():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = (ROOT / "README.md").read_text()
    for requirement in project["dependencies"]:
        name = re.split(r"[\[<>=]", requirement)[0]
        assert re.search(rf"\b{re.escape(name)}\b", readme), f"{name} has no reason in the README"


def test_the_links_of_the_documents_lead_somewhere():
    for path in tracked(".md"):
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            if not target.startswith("http"):
                assert (path.parent / target).exists(), f"{named(path)}: {target}"
