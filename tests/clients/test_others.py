"""Clients of others, in an environment of their own: LangChain, litellm, `llm`, tritonclient, Node.

`make test-clients` makes the environment (CLIENTS, by default .venv-clients beside .venv); where
it, or one client of it, is absent the test is skipped and says so.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import EVERYTHING
from tests.server import ROOT, Server

CLIENTS = Path(os.environ.get("CLIENTS", ROOT / ".venv-clients"))
SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE_SECONDS = 300


def _run(server: Server, *command: str, **more: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": more.pop("HOME", os.environ.get("HOME", ".")),
        "BASE_URL": f"{server.base_url}/v1",
        "KEY": server.keys[EVERYTHING],
        **more,
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def _script(server: Server, package: str, script: str) -> dict[str, Any]:
    python = CLIENTS / "bin" / "python"
    if not python.exists():
        pytest.skip(
            f"there is no environment of clients at {CLIENTS}: `make test-clients` makes it"
        )
    found = subprocess.run([python, "-c", f"import {package}"], capture_output=True)
    if found.returncode:
        pytest.skip(f"{package} isn't in the environment of clients")
    printed = _run(server, str(python), str(SCRIPTS / script))
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


def test_langchain_gets_answers_streams_objects_and_calls(open_server: Server):
    told = _script(open_server, "langchain_openai", "with_langchain.py")
    assert told["text"].startswith("Simulated") and told["streamed"].startswith("Simulated")
    assert told["tokens"] > 0 and told["streamed_tokens"] > 0
    assert (told["structured"], told["called"]) == (["plate"], ["weigh"])


def test_litellm_gets_answers_streams_and_its_own_errors(open_server: Server):
    told = _script(open_server, "litellm", "with_litellm.py")
    assert told["text"].startswith("Simulated") and told["streamed"].startswith("Simulated")
    assert (told["tokens"] <= 8, told["refused"]) == (True, "NotFoundError")


def test_tritonclient_infers_with_json_and_binary_input(open_server: Server):
    told = _script(open_server, "tritonclient.http", "with_tritonclient.py")
    assert told["live"] and told["ready"] and told["model_ready"]
    assert all("Simulated" in text for text in told["texts"].values())
    assert told["version"] in told["versions"] or len(told["versions"]) > 1


def test_the_llm_command_prompts_and_streams(open_server: Server, tmp_path: Path):
    command = CLIENTS / "bin" / "llm"
    if not command.exists():
        pytest.skip(f"the command llm isn't at {CLIENTS}: `make test-clients` installs it")
    model = (
        "- model_id: weighed\n  model_name: assist\n"
        f"  api_base: {open_server.base_url}/v1\n  api_key_name: weighed\n"
    )
    (tmp_path / "extra-openai-models.yaml").write_text(model)
    key = open_server.keys[EVERYTHING]
    for more in ([], ["--no-stream"]):
        said = _run(
            open_server, str(command), "-m", "weighed", "--key", key, *more, "Weigh it",
            LLM_USER_PATH=str(tmp_path),
        )  # fmt: skip
        assert said.startswith("Simulated")


def test_openais_client_for_node(open_server: Server):
    node, package = shutil.which("node"), CLIENTS / "node_modules" / "openai"
    if node is None or not package.exists():
        pytest.skip(f"node, or its package openai at {CLIENTS}, is absent")
    script = CLIENTS / "with_openai.mjs"  # node looks for packages beside the script
    shutil.copyfile(SCRIPTS / "with_openai.mjs", script)
    told = json.loads(_run(open_server, node, str(script)))
    assert told["text"].startswith("Simulated") and told["streamed"].startswith("Simulated")
    assert told["response"].startswith("Simulated")
    assert (told["receipt"], told["refused"]) == ("completed", [404, "MODEL_NOT_FOUND"])


def test_guidellm_measures_a_load_offline(open_server: Server, tmp_path: Path):
    """Prompts of its own file: synthetic ones would need a tokenizer from a hub."""
    command = shutil.which(os.environ.get("GUIDELLM", str(CLIENTS / "bin" / "guidellm")))
    if command is None:
        pytest.skip("guidellm isn't installed (its torch takes 6 GB): GUIDELLM names its command")
    asked = {"prompt": "How heavy is the lorry?", "output_tokens_count": 16}
    (tmp_path / "prompts.jsonl").write_text(f"{json.dumps(asked)}\n" * 8)
    backend = f"kind=openai_http,target={open_server.base_url},model=assist"
    _run(
        open_server, command, "run", "--disable-console",
        "--backend", f"{backend},api_key={open_server.keys[EVERYTHING]}",
        "--profile", "kind=concurrent,streams=2",
        "--constraint", "kind=max_requests,count=8",
        "--data", f"kind=json_file,path={tmp_path / 'prompts.jsonl'}",
        "--output", f"kind=json,path={tmp_path / 'report.json'}",
        HF_HUB_OFFLINE="1", HOME=str(tmp_path),
    )  # fmt: skip
    (benchmark,) = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (8, 0)


def test_promtool_finds_nothing_wrong_with_our_metrics(open_server: Server):
    promtool = shutil.which(os.environ.get("PROMTOOL", "promtool"))
    if promtool is None:
        pytest.skip("promtool isn't installed (Debian's package prometheus has it)")
    open_server.chat("Hello", key=open_server.keys[EVERYTHING], max_tokens=4)
    exposition = open_server.call("/metrics")[2].decode()
    # vLLM's own names have a colon, which promtool advises against: they are as vLLM has them.
    ours = "".join(line for line in exposition.splitlines(True) if "vllm:" not in line)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=ours, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr + done.stdout) == (0, "")
