"""Coefficients of the shipped profiles: the exact output of profile_recipes.py.

Integer picoseconds; the errors beside them are fractions, measured on the records that were
fitted. Fitted to casys-kaist/LLMServingSim @5daddb21 profiler/perf (MIT; vLLM 0.19 kernels) and
Mutinifni/splitwise-sim @8f99e7dc data/perf_model.csv (MIT; DGX A100 and H100, Patel et al.,
ISCA 2024). `CALIBRATED` was fitted by calibrate.py to all 300 receipts of each public run in
LLMServingSim's bench/examples (MIT; vLLM 0.19.0, ShareGPT-derived, some ten requests a second).
"""

from __future__ import annotations

from simulator.fitting import FittedModel, KindError
from simulator.timing import ObservedRange, TimeModel

_KERNELS = ObservedRange(max_prefill_tokens=2_048, max_decodes=256, max_decode_context_sum=65_536)
_BATCHES = ObservedRange(max_prefill_tokens=32_768, max_decodes=64, max_decode_context_sum=36_864)


def _errors(*kinds: tuple[str, int, float, float, float]) -> tuple[KindError, ...]:
    return tuple(
        KindError(kind=kind, records=records, bias=bias, mean_abs=mean_abs, p99_abs=p99_abs)
        for kind, records, bias, mean_abs, p99_abs in kinds
    )


FITS: tuple[FittedModel, ...] = (
    FittedModel(
        model=TimeModel(
            name="llama-3.1-8b-rtx4090",
            breakpoints=(
                (1, 16_764_101_151),
                (64, 18_605_817_641),
                (128, 20_481_948_659),
                (256, 25_242_418_546),
                (512, 48_709_987_829),
                (1_024, 94_400_367_606),
                (2_048, 181_427_885_307),
            ),
            per_decode_ps=12_448_811,
            per_context_token_ps=162_572,
            per_attention_pair_ps=4_729,
            mixed_ps=1_421_347_030,
            observed=_KERNELS,
        ),
        errors=_errors(
            ("decode", 78, 0.0022, 0.0168, 0.0711),
            ("prefill", 80, 0.0329, 0.0432, 0.1107),
            ("mixed", 5_360, -0.0493, 0.0649, 0.2940),
        ),
    ),
    FittedModel(
        model=TimeModel(
            name="llama-3.1-8b-rtxpro6000",
            breakpoints=(
                (1, 10_997_770_419),
                (64, 11_758_945_647),
                (128, 12_395_970_452),
                (256, 15_017_277_026),
                (512, 23_323_408_845),
                (1_024, 41_221_887_948),
                (2_048, 75_492_087_472),
            ),
            per_decode_ps=5_436_389,
            per_context_token_ps=105_240,
            per_attention_pair_ps=2_652,
            mixed_ps=1_051_919_019,
            observed=_KERNELS,
        ),
        errors=_errors(
            ("decode", 117, 0.0019, 0.0161, 0.0616),
            ("prefill", 167, 0.0207, 0.0490, 0.1111),
            ("mixed", 9_360, -0.0365, 0.0617, 0.3286),
        ),
    ),
    FittedModel(
        model=TimeModel(
            name="qwen3-32b-rtxpro6000x2",
            breakpoints=(
                (1, 24_004_299_019),
                (64, 25_923_363_050),
                (128, 27_244_474_401),
                (256, 33_069_142_755),
                (512, 51_936_652_387),
                (1_024, 91_179_835_058),
                (2_048, 167_544_779_198),
            ),
            per_decode_ps=8_020_155,
            per_context_token_ps=130_500,
            per_attention_pair_ps=5_553,
            mixed_ps=2_677_794_199,
            observed=_KERNELS,
        ),
        errors=_errors(
            ("decode", 117, 0.0016, 0.0181, 0.0719),
            ("prefill", 167, 0.0282, 0.0483, 0.1040),
            ("mixed", 9_360, -0.0452, 0.0708, 0.3404),
        ),
    ),
    FittedModel(
        model=TimeModel(
            name="llama-2-70b-a100x4",
            breakpoints=(
                (1, 43_998_446_940),
                (16, 44_389_384_362),
                (64, 59_242_039_155),
                (256, 78_534_370_892),
                (512, 127_409_149_998),
                (1_024, 240_676_374_999),
                (2_048, 439_636_539_858),
                (8_192, 2_465_148_852_061),
            ),
            per_decode_ps=32_889_430,
            per_context_token_ps=260_545,
            per_attention_pair_ps=0,
            mixed_ps=0,
            observed=_BATCHES,
        ),
        errors=_errors(
            ("decode", 105, -0.0006, 0.0182, 0.0545),
            ("prefill", 105, -0.0057, 0.0470, 0.2348),
        ),
    ),
    FittedModel(
        model=TimeModel(
            name="llama-2-70b-h100x4",
            breakpoints=(
                (1, 29_311_269_263),
                (16, 31_258_085_100),
                (64, 46_553_552_421),
                (256, 53_465_400_435),
                (512, 60_359_699_292),
                (1_024, 103_837_045_775),
                (2_048, 198_210_876_226),
                (8_192, 867_569_699_972),
            ),
            per_decode_ps=43_254_074,
            per_context_token_ps=42_924,
            per_attention_pair_ps=2_766,
            mixed_ps=0,
            observed=_BATCHES,
        ),
        errors=_errors(
            ("decode", 105, -0.0003, 0.0136, 0.0462),
            ("prefill", 105, -0.0019, 0.0304, 0.1373),
        ),
    ),
)

CALIBRATED: tuple[tuple[TimeModel, int], ...] = (
    (
        TimeModel(
            name="llama-3.1-8b-rtx4090-vllm0.19",
            breakpoints=(
                (1, 17_046_900_090),
                (64, 18_896_869_164),
                (128, 20_828_006_420),
                (256, 25_551_364_068),
                (512, 47_548_126_344),
                (1_024, 87_179_864_331),
                (2_048, 185_819_344_406),
            ),
            per_decode_ps=12_310_598,
            per_context_token_ps=167_168,
            per_attention_pair_ps=4_732,
            mixed_ps=1_381_646_102,
            calibrated=True,
            observed=ObservedRange(
                max_prefill_tokens=2_048, max_decodes=50, max_decode_context_sum=54_472
            ),
        ),
        20_271,
    ),
    (
        TimeModel(
            name="llama-3.1-8b-rtxpro6000-vllm0.19",
            breakpoints=(
                (1, 13_518_753_705),
                (64, 14_305_089_228),
                (128, 14_946_475_058),
                (256, 17_675_315_833),
                (512, 27_321_861_592),
                (1_024, 49_434_880_500),
                (2_048, 88_169_368_973),
            ),
            per_decode_ps=5_570_754,
            per_context_token_ps=88_736,
            per_attention_pair_ps=2_714,
            mixed_ps=1_338_124_964,
            calibrated=True,
            observed=ObservedRange(
                max_prefill_tokens=2_048, max_decodes=128, max_decode_context_sum=170_677
            ),
        ),
        21_584,
    ),
)
"""Time models, and the overhead outside the engine in µs, fitted to receipts of real runs."""
