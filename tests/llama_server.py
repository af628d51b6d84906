"""A real llama.cpp server in a process of its own, with a tiny model of random weights.

    python -m tests.llama_server MODEL.gguf PORT

A model that is not there is written first. It prints its address once it listens; PORT 0 takes a
free one. What it says means nothing; how it streams, counts, cancels and dies is llama.cpp's own.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

EMBEDDING, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 384, 6, 6, 1_024, 8_192
SEQUENCES = 2  # at once, each with its half of the context
BYTE_TOKENS = 256


def write_model(path: Path) -> None:
    """Write a Llama of about ten million random weights with a vocabulary of bytes and letters."""
    import gguf

    random = np.random.default_rng(7)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["\u2581", *letters, *(f"\u2581{letter}" for letter in letters)]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(BYTE_TOKENS)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *words]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(rank) for rank in range(len(words))])
    writer.add_token_types([2, 3, 3] + [6] * BYTE_TOKENS + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    )

    def weights(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.05).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(EMBEDDING, np.float32))

    weights("token_embd.weight", len(tokens), EMBEDDING)
    norm("output_norm.weight")
    weights("output.weight", len(tokens), EMBEDDING)
    for layer in range(LAYERS):
        norm(f"blk.{layer}.attn_norm.weight")
        norm(f"blk.{layer}.ffn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{layer}.{name}.weight", EMBEDDING, EMBEDDING)
        weights(f"blk.{layer}.ffn_gate.weight", FEED_FORWARD, EMBEDDING)
        weights(f"blk.{layer}.ffn_up.weight", FEED_FORWARD, EMBEDDING)
        weights(f"blk.{layer}.ffn_down.weight", EMBEDDING, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextlib.contextmanager
def llama_server(model: Path, port: int = 0) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """(address, process) of a server for as long as the context lasts."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.llama_server", str(model), str(port)],
        cwd=Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


def serve(model: str, port: int) -> None:
    import xllamacpp

    if not Path(model).exists():
        write_model(Path(model))
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = CONTEXT
    params.n_parallel = SEQUENCES
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
