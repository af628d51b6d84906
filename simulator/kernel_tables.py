"""Turns published measurements of real accelerators into iteration records.

`layer_records(folder, layers)` returns `IterationRecords` from LLMServingSim's kernel tables
(casys-kaist/LLMServingSim @5daddb21, MIT): times of one transformer layer, measured inside
vLLM 0.19. `splitwise_records(path, ...)` returns them from Splitwise's end-to-end table
(Mutinifni/splitwise-sim @8f99e7dc, MIT): prompt and token times of static batches. The shipped
profiles were fitted to these; a user's own tables in the same shape work too.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from simulator.fitting import Floats, IterationRecords
from simulator.trace_files import table_rows

# A step runs these once; every other table is once a layer, except that layernorm is twice.
_ONCE_A_STEP = ("embedding", "final_layernorm")
_TWICE_A_LAYER = "layernorm"


def layer_records(
    folder: Path, layers: int, *, max_context_tokens: int, max_prefix_tokens: int
) -> IterationRecords:
    """Whole iterations composed of one layer's kernels, within the stated domain.

    Time = layers x (attention + dense) + embedding + final layernorm + LM head + sampler, each
    table linear between its rows. Host time and tensor-parallel all-reduce aren't in it. Rows
    whose tokens in KV exceed `max_context_tokens`, or whose chunk has more than
    `max_prefix_tokens` before it, are left out: chunks deep in a long prompt re-read a prefix
    that the model has no term for. Raises `TraceError` for a bad table.
    """
    dense = _table(folder / "dense.csv", "tokens")
    per_sequence = _table(folder / "per_sequence.csv", "sequences")
    columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    rows = [
        (*(row.integer(name, 0, 2**24) for name in columns), row.number("time_us", 0))
        for row in table_rows(folder / "attention.csv")
    ]
    chunk, prefix, decodes, context = np.array([r[:4] for r in rows], dtype=np.int64).T
    attention_us = np.array([r[4] for r in rows])
    tokens = chunk + decodes
    dense_us = sum(
        np.interp(tokens, *points) * (2 if layer == _TWICE_A_LAYER else 1)
        for layer, points in dense.items()
        if layer not in _ONCE_A_STEP
    )
    step_us = sum(np.interp(tokens, *dense[layer]) for layer in _ONCE_A_STEP)
    sequences = decodes + (chunk > 0)
    step_us = step_us + sum(np.interp(sequences, *points) for points in per_sequence.values())
    inside = (decodes * context + chunk + prefix <= max_context_tokens) & (
        prefix <= max_prefix_tokens
    )
    return IterationRecords(
        prefill_tokens=chunk[inside],
        decodes=decodes[inside],
        decode_context_sum=(decodes * context)[inside],
        attention_pairs=(chunk * prefix + chunk * (chunk - 1) // 2)[inside],
        duration_us=(layers * (attention_us + dense_us) + step_us)[inside],
    )


def splitwise_records(
    path: Path, *, model: str, hardware: str, tensor_parallel: int
) -> IterationRecords:
    """Two iterations a row: the whole batch's prompts at once, and its mean decode step.

    The mean decode has half of the output behind its prompt. Raises ValueError when no row has
    that model, hardware and degree, `TraceError` for a bad table.
    """
    records: list[tuple[int, int, int, int, float]] = []
    for row in table_rows(path):
        wanted = (model, hardware, str(tensor_parallel))
        if (row.text("model"), row.text("hardware"), row.text("tensor_parallel")) != wanted:
            continue
        prompt = row.integer("prompt_size", 1, 2**20)
        batch = row.integer("batch_size", 1, 2**20)
        output = row.integer("token_size", 1, 2**20)
        pairs = batch * (prompt * (prompt - 1) // 2)
        records.append((prompt * batch, 0, 0, pairs, row.number("prompt_time", 0) * 1e3))
        context = batch * prompt + batch * output // 2
        records.append((0, batch, context, 0, row.number("token_time", 0) * 1e3))
    if not records:
        raise ValueError(f"no row for {model} on {hardware} x {tensor_parallel}")
    counts = np.array([r[:4] for r in records], dtype=np.int64).T
    return IterationRecords(
        prefill_tokens=counts[0],
        decodes=counts[1],
        decode_context_sum=counts[2],
        attention_pairs=counts[3],
        duration_us=np.array([r[4] for r in records]),
    )


def _table(path: Path, key: str) -> dict[str, tuple[Floats, Floats]]:
    """(sizes, µs) by layer, in order of size."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in table_rows(path):
        points[row.needed("layer")].append((row.number(key, 0), row.number("time_us", 0)))
    return {
        layer: (np.array([p[0] for p in sorted(found)]), np.array([p[1] for p in sorted(found)]))
        for layer, found in points.items()
    }
