"""The objectives that a fresh ledger starts with: one for each row of the source's section 10.

Counted in the receipts' transaction under `slo_id@revision`; after a change here raise the
revision and run `manage.py rebuild_rollups`. A declared objective of the same id takes one's place.
"""

from dataclasses import replace

from ledger.slo import Action, Indicator, Selector, SloDefinition
from ledger.slo_rules import default_rules


def _objective(
    slo_id: str,
    title: str,
    indicator: Indicator,
    target_ppm: int,
    action: Action,
    *,
    threshold_us: int | None = None,
    selector: Selector = Selector(),  # noqa: B008 - frozen
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
        action=action,
    )


_INTERACTIVE = Selector(priorities=("interactive",))
SECOND_US = 1_000_000

DEFAULT_SLOS: tuple[SloDefinition, ...] = (
    _objective(
        "interactive-ttft",
        "Interactive requests get their first token within 1 s",
        "ttft",
        990_000,
        Action(kind="limit_prefill", automatic=True),
        threshold_us=SECOND_US,
        selector=_INTERACTIVE,
    ),
    _objective(
        "interactive-itl",
        "Interactive answers flow: at most 60 ms between tokens on average",
        "itl",
        950_000,
        Action(kind="reduce_batch", automatic=True),
        threshold_us=60_000,
        selector=_INTERACTIVE,
    ),
    _objective(
        "interactive-queue",
        "Interactive requests wait at most 1 s in the queue",
        "queue",
        990_000,
        Action(kind="shed_priority", target="batch", automatic=True),
        threshold_us=SECOND_US,
        selector=_INTERACTIVE,
    ),
    _objective(
        "batch-queue",
        "Batch requests wait at most 60 s in the queue",
        "queue",
        990_000,
        Action(kind="advise_scaling", automatic=True),
        threshold_us=60 * SECOND_US,
        selector=Selector(priorities=("batch",)),
    ),
    _objective(
        "valid-completion",
        "Accepted requests complete in time, valid and on the main path",
        "valid_completion",
        990_000,
        Action(kind="cut_route"),
    ),
    _objective(
        "capacity",
        "Requests are not turned away for want of capacity",
        "capacity",
        990_000,
        Action(kind="change_quota"),
    ),
    _objective(
        "cancel-acknowledgement",
        "A cancelled request is given up by its backend within 1 s",
        "cancel_ack",
        950_000,
        Action(kind="open_incident", automatic=True),
        threshold_us=SECOND_US,
    ),
    replace(
        _objective(
            "cost-per-valid-result",
            "What is spent buys valid results at 0.05 units or less each",
            "cost",
            950_000,
            Action(kind="tighten_tokens"),
        ),
        threshold_pico=50_000_000_000,
    ),
    _objective(
        "main-path",
        "Completed requests were served on the main path",
        "main_path",
        950_000,
        Action(kind="open_incident", automatic=True),
    ),
)
