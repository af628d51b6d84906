"""The other gateways: how each is installed, started and asked. Nothing of theirs is in here.

Each lives in an environment of its own under `.venv-peers`, at the versions in `pins/`, with the
settings that its own documentation gives for speed: no log of requests, no database, the plainest
routing. What can't be installed or started is told with the reason.
"""

import hashlib
import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.driving import Door
from benchmarks.peers.ours import ROOT
from benchmarks.peers.processes import free_port

HOME = ROOT / ".venv-peers"
PINS = Path(__file__).with_name("pins")
INSTALL_SECONDS = 900
REASON_LIMIT_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A command with its environment, and where what it starts is asked."""

    command: Sequence[str]
    door: Door
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One other gateway. `start` takes a folder of its own, its port and the upstream's."""

    key: str
    title: str
    package: str
    note: str
    start: Callable[[Path, int, int], Start]
    node: bool = False

    @property
    def home(self) -> Path:
        return HOME / self.key

    @property
    def version(self) -> str:
        """Return the pinned version."""
        if self.node:
            return str(json.loads(_pins(self)[0].read_text())["dependencies"][self.package])
        for line in _pins(self)[0].read_text().splitlines():
            name, _, version = line.partition("==")
            if name == self.package:
                return version
        raise LookupError(f"{_pins(self)[0].name} does not pin {self.package}")


def _litellm(folder: Path, port: int, upstream: int) -> Start:
    key = f"sk-{secrets.token_hex(32)}"  # without one it doesn't start
    settings = folder / "litellm.yaml"
    settings.write_text(
        "model_list:\n"
        "  - model_name: mote\n"
        "    litellm_params:\n"
        "      model: openai/mote\n"
        f"      api_base: http://127.0.0.1:{upstream}/v1\n"
        "      api_key: none\n"
        "litellm_settings:\n"
        "  telemetry: false\n"
    )
    return Start(
        command=[
            str(HOME / "litellm" / "bin" / "litellm"), "--config", str(settings),
            "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1",
        ],
        door=Door(port=port, headers={"authorization": f"Bearer {key}"}),
        environment={
            "LITELLM_MASTER_KEY": key,
            "LITELLM_MODE": "PRODUCTION",
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )  # fmt: skip


def _portkey(folder: Path, port: int, upstream: int) -> Start:
    # Its pins hold @hono/node-server back: with newer ones its streams fail (its issue 1389).
    script = HOME / "portkey" / "node_modules" / "@portkey-ai" / "gateway" / "build"
    return Start(
        command=["node", str(script / "start-server.js"), f"--port={port}", "--headless"],
        door=Door(
            port=port,
            headers={
                "authorization": "Bearer none",
                "x-portkey-provider": "openai",
                "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1",
            },
        ),
        environment={"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1"},
    )


def _router(home: str, program: Sequence[str]) -> Callable[[Path, int, int], Start]:
    def start(folder: Path, port: int, upstream: int) -> Start:
        bin_folder = HOME / home / "bin"
        return Start(
            command=[
                str(bin_folder / program[0]), *program[1:],
                "--worker-urls", f"http://127.0.0.1:{upstream}", "--host", "127.0.0.1",
                "--port", str(port), "--policy", "round_robin", "--log-level", "error",
                "--prometheus-port", str(free_port()),
            ],
            door=Door(port=port, headers={}),
        )  # fmt: skip

    return start


PEERS = (
    Peer(
        key="litellm",
        title="LiteLLM proxy",
        package="litellm",
        note="one worker, a master key, no database",
        start=_litellm,
    ),
    Peer(
        key="portkey",
        title="Portkey gateway",
        package="@portkey-ai/gateway",
        note="no key, no accounts",
        start=_portkey,
        node=True,
    ),
    Peer(
        key="vllm-router",
        title="vLLM router",
        package="vllm-router",
        note="Rust; no key, no accounts",
        start=_router("vllm-router", ["vllm-router"]),
    ),
    Peer(
        key="sglang-router",
        title="SGLang router",
        package="sglang-router",
        note="Rust; no key, no accounts",
        start=_router("sglang-router", ["python", "-m", "sglang_router.launch_router"]),
    ),
)


def install(peer: Peer) -> str:
    """Install a peer where it isn't; return "" or the reason why it can't be used."""
    pins = b"".join(path.read_bytes() for path in _pins(peer))
    done, wanted = peer.home / "installed", hashlib.sha256(pins).hexdigest()
    if done.exists() and done.read_text() == wanted:
        return ""
    shutil.rmtree(peer.home, ignore_errors=True)
    peer.home.mkdir(parents=True)
    if peer.node:
        if shutil.which("npm") is None:
            return "not installed: there is no npm on this machine"
        for path in _pins(peer):
            shutil.copyfile(path, peer.home / path.name)
        steps = [["npm", "ci", "--no-audit", "--no-fund", "--prefix", str(peer.home)]]
    else:
        python = str(peer.home / "bin" / "python")
        steps = [
            [sys.executable, "-m", "venv", str(peer.home)],
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
             "-r", str(_pins(peer)[0])],
        ]  # fmt: skip
    for step in steps:
        problem = _problem(step)
        if problem:
            return f"not installed: {problem}"
    done.write_text(wanted)
    return ""


def _problem(step: Sequence[str]) -> str:
    """Run a step; return "" or the end of what it said."""
    try:
        ran = subprocess.run(step, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__} of {Path(step[0]).name}"
    if ran.returncode == 0:
        return ""
    said = " ".join((ran.stderr or ran.stdout).replace(f"{ROOT}/", "").split())
    return f"{Path(step[0]).name} ended with {ran.returncode}: {said[-REASON_LIMIT_CHARS:]}"


def _pins(peer: Peer) -> list[Path]:
    if peer.node:
        return [PINS / peer.key / name for name in ("package.json", "package-lock.json")]
    return [PINS / f"{peer.key}.txt"]
