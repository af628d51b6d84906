"""What the demonstration's replay came to, as text for a terminal. Pure."""

from collections import Counter

from ledger.money import units_text
from ledger.quantiles import nearest_rank
from ledger.records import Receipt

QUANTILES = ((50, "p50"), (95, "p95"), (99, "p99"))


class Summary:
    """Counts receipts as they are made, and tells at the end."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.rejections: Counter[str] = Counter()
        self.degraded = 0
        self.ttft_us: dict[str, list[int]] = {}
        self.cost_pico: Counter[str] = Counter()

    def add(self, receipt: Receipt) -> None:
        self.statuses[receipt.status] += 1
        if receipt.status == "rejected":
            self.rejections[receipt.terminal_error_code or "?"] += 1
        self.degraded += receipt.degraded_from is not None
        if receipt.first_token_us is not None:
            self.ttft_us.setdefault(receipt.priority, []).append(receipt.first_token_us)
        self.cost_pico[receipt.tenant_id] += receipt.cost_total_pico

    def lines(self, seconds: float) -> list[str]:
        total = sum(self.statuses.values())
        accepted = total - self.statuses["rejected"]
        ended = ", ".join(
            f"{count:,} {status}" for status, count in self.statuses.most_common()
            if status != "rejected"
        )  # fmt: skip
        lines = [
            f"{total:,} requests in {seconds:.1f} s ({total / seconds:,.0f}/s), each with a "
            "durable receipt and a recorded decision",
            f"accepted   {accepted:>8,}   {ended}; {self.degraded:,} degraded",
            f"rejected   {self.statuses['rejected']:>8,}",
        ]
        lines += [
            f"           {count:>8,}   {code}" for code, count in self.rejections.most_common()
        ]
        for priority, values in sorted(self.ttft_us.items()):
            ordered = sorted(values)
            shown = "   ".join(
                f"{name} {nearest_rank(ordered, q, 100) / 1000:,.0f} ms" for q, name in QUANTILES
            )
            lines.append(f"TTFT       {priority:<14}{shown}")
        for tenant_id, pico in sorted(self.cost_pico.items()):
            lines.append(f"cost       {tenant_id:<14}{units_text(pico)} units")
        return lines
