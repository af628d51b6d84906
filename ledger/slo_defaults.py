"""The objectives that a fresh ledger starts with (SPEC 12).

Counted in the receipts' transaction under `slo_id@revision`; after a change here raise the
revision and run `manage.py rebuild_rollups`.
"""

from ledger.slo import Indicator, Selector, SloDefinition, default_rules


def _objective(
    slo_id: str,
    title: str,
    indicator: Indicator,
    target_ppm: int,
    *,
    threshold_us: int | None = None,
    selector: Selector,
    control_action: str,
) -> SloDefinition:
    rules, left_out = default_rules(target_ppm)
    return SloDefinition(
        slo_id=slo_id,
        revision=1,
        title=title,
        indicator=indicator,
        target_ppm=target_ppm,
        threshold_us=threshold_us,
        selector=selector,
        rules=rules,
        left_out=left_out,
        control_action=control_action,
    )


_INTERACTIVE = Selector(priorities=("interactive",))

DEFAULT_SLOS: tuple[SloDefinition, ...] = (
    _objective(
        "interactive-ttft",
        "Interactive requests get their first token within 1 s",
        "ttft",
        990_000,
        threshold_us=1_000_000,
        selector=_INTERACTIVE,
        control_action="limit prefill concurrency",
    ),
    _objective(
        "interactive-queue",
        "Interactive requests wait at most 1 s in the queue",
        "queue",
        990_000,
        threshold_us=1_000_000,
        selector=_INTERACTIVE,
        control_action="reduce batch pressure",
    ),
    _objective(
        "batch-queue",
        "Batch requests wait at most 60 s in the queue",
        "queue",
        990_000,
        threshold_us=60_000_000,
        selector=Selector(priorities=("batch",)),
        control_action="advise scaling",
    ),
    _objective(
        "valid-completion",
        "Accepted requests complete in time, valid and on the main path",
        "valid_completion",
        990_000,
        selector=Selector(),
        control_action="freeze the release",
    ),
    _objective(
        "capacity",
        "Requests are not turned away for want of capacity",
        "capacity",
        990_000,
        selector=Selector(),
        control_action="shed a priority",
    ),
)
