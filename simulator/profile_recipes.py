"""How each shipped profile came from public measurements: which table, which rows, which knots.

`refit(recipe, data)` returns the fit from a folder that holds the measurement files; its result
is what profile_data.py holds, to the picosecond. Sources are named there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulator.fitting import DEFAULT_KNOTS, FittedModel, fit_iterations
from simulator.kernel_tables import layer_records, splitwise_records

MAX_CONTEXT_TOKENS = 65_536
MAX_PREFIX_TOKENS = 4_096
SPLITWISE_KNOTS = (1, 16, 64, 256, 512, 1024, 2048, 8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecipe:
    """A pair measured kernel by kernel: its folder under profiles/ and the model's layers."""

    key: str
    folder: str
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitwiseRecipe:
    """A pair measured end to end in static batches: its rows in splitwise/perf_model.csv."""

    key: str
    model: str
    hardware: str
    tensor_parallel: int


RECIPES: tuple[LayerRecipe | SplitwiseRecipe, ...] = (
    LayerRecipe(
        key="llama-3.1-8b-rtx4090",
        folder="RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1",
        layers=32,
    ),
    LayerRecipe(
        key="llama-3.1-8b-rtxpro6000",
        folder="RTXPRO6000_meta-llama_Llama-3.1-8B_bf16_tp1",
        layers=32,
    ),
    LayerRecipe(
        key="qwen3-32b-rtxpro6000x2",
        folder="RTXPRO6000_Qwen_Qwen3-32B_bf16_tp2",
        layers=64,
    ),
    SplitwiseRecipe(
        key="llama-2-70b-a100x4", model="llama2-70b", hardware="a100-80gb", tensor_parallel=4
    ),
    SplitwiseRecipe(
        key="llama-2-70b-h100x4", model="llama2-70b", hardware="h100-80gb", tensor_parallel=4
    ),
)


def refit(recipe: LayerRecipe | SplitwiseRecipe, data: Path) -> FittedModel:
    """The fit of one recipe over `data`, a folder with profiles/ and splitwise/ in it."""
    if isinstance(recipe, LayerRecipe):
        records = layer_records(
            data / "profiles" / recipe.folder,
            recipe.layers,
            max_context_tokens=MAX_CONTEXT_TOKENS,
            max_prefix_tokens=MAX_PREFIX_TOKENS,
        )
        return fit_iterations(records, name=recipe.key, knots=DEFAULT_KNOTS)
    records = splitwise_records(
        data / "splitwise" / "perf_model.csv",
        model=recipe.model,
        hardware=recipe.hardware,
        tensor_parallel=recipe.tensor_parallel,
    )
    # Static batches never mix prefill and decode, so a constant for mixing can't be told apart.
    return fit_iterations(records, name=recipe.key, knots=SPLITWISE_KNOTS, mixed_constant=False)
