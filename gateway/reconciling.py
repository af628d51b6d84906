"""What the gateway knows that a reconciliation needs: which routes lead to which models (REC-2)."""

import sqlite3
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec

from gateway.operations.unknowns import ResolveUnknown
from gateway.policy.values import Route, RoutePolicy
from ledger.invoices.currencies import CURRENCIES
from ledger.queries import configuration as stored
from ledger.reconcile.reports import Proposed
from ledger.reconcile.values import Binding, Plan, Refused

EVIDENCE_LIMIT_CHARS = 500


def default_plan(connection: sqlite3.Connection, provider: str) -> Plan | Refused:
    """A plan that binds every real route of any policy to the model that its address names, in the
    currency of our costs.

    Refused (SEVERAL_HOSTS, BINDINGS) where the routes lead to several hosts, or there is none:
    nobody is guessed to be `provider` then, and the plan has to say who is.
    """
    routes: dict[str, Route] = {}
    for record in stored.policies(connection):
        policy = msgspec.json.decode(record.body_json, type=RoutePolicy)
        routes |= {r.route_id: r for r in policy.routes if r.provider_kind != "simulator"}
    hosts = sorted({_url(route).netloc for route in routes.values()})
    if len(hosts) > 1:
        return Refused(
            code="SEVERAL_HOSTS",
            message=f"routes lead to {', '.join(hosts[:5])}: give a plan whose bindings name the "
            f"routes of {provider}",
        )
    bindings = tuple(
        Binding(route_id=route_id, model=_model(route))
        for route_id, route in sorted(routes.items())
    )
    if not bindings:
        message = (
            f"no policy has a real route: nothing of ours can be on {provider}'s invoice. "
            "Simulated routes, as the demonstration's, are billed by nobody; a plan (--plan) that "
            "binds one compares the invoice all the same"
        )
        return Refused(code="BINDINGS", message=message)
    plan = Plan(provider=provider, bindings=bindings)
    currency = currency_of_costs(connection)
    return plan if currency is None else msgspec.structs.replace(plan, currency=currency)


def currency_of_costs(connection: sqlite3.Connection) -> str | None:
    """The currency that our costs are in, which every rate table of a ledger shares.

    None where nothing is priced yet, or in units that are no currency: an operator who counts a
    dollar as one of those, as an import of public prices does, compares them as dollars.
    """
    tables = stored.rate_tables(connection)
    return tables[0].currency if tables and tables[0].currency in CURRENCIES else None


def resolution_of(run_id: str, proposal: Proposed) -> ResolveUnknown | None:
    """What to ask for where a reconciliation's proposal is taken; it is never taken by itself.

    None where the provider charged for it and its lines count no tokens: then a person says them.
    """
    evidence = f"reconciliation {run_id}: {' '.join(proposal.evidence)}"[:EVIDENCE_LIMIT_CHARS]
    if not proposal.ran:
        return ResolveUnknown(attempt_id=proposal.attempt_id, became="not_run", evidence=evidence)
    if proposal.tokens is None:
        return None
    tokens = proposal.tokens
    return ResolveUnknown(
        attempt_id=proposal.attempt_id,
        became="completed",
        evidence=evidence,
        input_tokens=tokens.uncached + tokens.cached,
        cached_input_tokens=tokens.cached,
        output_tokens=tokens.output,
    )


def _url(route: Route) -> SplitResult:
    return urlsplit(route.address.partition(":")[2])


def _model(route: Route) -> str:
    return parse_qs(_url(route).query).get("model", [route.route_id])[0]
