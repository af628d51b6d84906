"""The declared token caps of a request, and which of them some tokens are over (BUD-1, BUD-2)."""

from collections.abc import Iterable

from gateway.policy.values import InferenceRequest, Limit, LogicalModel, TenantState


class Caps:
    """The declared token caps of one request: its own, its tenant's and its logical model's."""

    __slots__ = ("_input", "_output", "_total", "input_tokens", "output_tokens", "total_tokens")

    def __init__(self, request: InferenceRequest, tenant: TenantState, model: LogicalModel) -> None:
        budget = request.budget
        self._input = (budget.max_input_tokens, tenant.max_input_tokens, model.max_input_tokens)
        self._output = (None, tenant.max_output_tokens, model.max_output_tokens)
        self._total = (budget.max_total_tokens, tenant.max_total_tokens, model.max_total_tokens)
        self.input_tokens = _tightest(self._input)
        self.output_tokens = _tightest(self._output)
        self.total_tokens = _tightest(self._total)

    def over(self, input_tokens: int, output_tokens: int) -> tuple[Limit, ...]:
        """Return every cap that these tokens are over (TOKEN_BUDGET_EXCEEDED)."""
        total = input_tokens + output_tokens
        if (
            input_tokens <= self.input_tokens
            and output_tokens <= self.output_tokens
            and total <= self.total_tokens
        ):
            return ()
        return (
            *over(_named("max_input_tokens", self._input), input_tokens),
            *over(_named("max_output_tokens", self._output), output_tokens),
            *over(_named("max_total_tokens", self._total), total),
        )


def over(caps: Iterable[tuple[str, int | None]], observed: int) -> tuple[Limit, ...]:
    """Return the caps that `observed` is over."""
    return tuple(
        Limit(name=name, limit=cap, observed=observed)
        for name, cap in caps
        if cap is not None and observed > cap
    )


def _tightest(caps: tuple[int | None, int | None, int]) -> int:
    own, tenants, tightest = caps
    if own is not None and own < tightest:
        tightest = own
    return tenants if tenants is not None and tenants < tightest else tightest


def _named(name: str, caps: tuple[int | None, ...]) -> list[tuple[str, int | None]]:
    owners = ("request", "tenant", "model")
    return [(f"{owner}.{name}", cap) for owner, cap in zip(owners, caps, strict=True)]
