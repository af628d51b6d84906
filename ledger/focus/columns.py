"""The columns of FOCUS 1.2 and the values that they allow. Data alone."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "decimal", "time", "json", "currency"]
Level = Literal["mandatory", "conditional", "recommended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column by its id. `nulls`: whether a row may leave it empty."""

    name: str
    kind: Kind
    level: Level
    nulls: bool


def _column(name: str, kind: Kind, level: Level, *, nulls: bool) -> Column:
    return Column(name=name, kind=kind, level=level, nulls=nulls)


COLUMNS: tuple[Column, ...] = (
    _column("AvailabilityZone", "text", "recommended", nulls=True),
    _column("BilledCost", "decimal", "mandatory", nulls=False),
    _column("BillingAccountId", "text", "mandatory", nulls=False),
    _column("BillingAccountName", "text", "mandatory", nulls=True),
    _column("BillingAccountType", "text", "conditional", nulls=False),
    _column("BillingCurrency", "currency", "mandatory", nulls=False),
    _column("BillingPeriodEnd", "time", "mandatory", nulls=False),
    _column("BillingPeriodStart", "time", "mandatory", nulls=False),
    _column("CapacityReservationId", "text", "conditional", nulls=True),
    _column("CapacityReservationStatus", "text", "conditional", nulls=True),
    _column("ChargeCategory", "text", "mandatory", nulls=False),
    _column("ChargeClass", "text", "mandatory", nulls=True),
    _column("ChargeDescription", "text", "mandatory", nulls=True),
    _column("ChargeFrequency", "text", "recommended", nulls=False),
    _column("ChargePeriodEnd", "time", "mandatory", nulls=False),
    _column("ChargePeriodStart", "time", "mandatory", nulls=False),
    _column("CommitmentDiscountCategory", "text", "conditional", nulls=True),
    _column("CommitmentDiscountId", "text", "conditional", nulls=True),
    _column("CommitmentDiscountName", "text", "conditional", nulls=True),
    _column("CommitmentDiscountQuantity", "decimal", "conditional", nulls=True),
    _column("CommitmentDiscountStatus", "text", "conditional", nulls=True),
    _column("CommitmentDiscountType", "text", "conditional", nulls=True),
    _column("CommitmentDiscountUnit", "text", "conditional", nulls=True),
    _column("ConsumedQuantity", "decimal", "conditional", nulls=True),
    _column("ConsumedUnit", "text", "conditional", nulls=True),
    _column("ContractedCost", "decimal", "mandatory", nulls=False),
    _column("ContractedUnitPrice", "decimal", "conditional", nulls=True),
    _column("EffectiveCost", "decimal", "mandatory", nulls=False),
    _column("InvoiceId", "text", "recommended", nulls=True),
    _column("InvoiceIssuerName", "text", "mandatory", nulls=False),
    _column("ListCost", "decimal", "mandatory", nulls=False),
    _column("ListUnitPrice", "decimal", "conditional", nulls=True),
    _column("PricingCategory", "text", "conditional", nulls=True),
    _column("PricingCurrency", "currency", "conditional", nulls=True),
    _column("PricingCurrencyContractedUnitPrice", "decimal", "conditional", nulls=True),
    _column("PricingCurrencyEffectiveCost", "decimal", "conditional", nulls=True),
    _column("PricingCurrencyListUnitPrice", "decimal", "conditional", nulls=True),
    _column("PricingQuantity", "decimal", "mandatory", nulls=True),
    _column("PricingUnit", "text", "mandatory", nulls=True),
    _column("ProviderName", "text", "mandatory", nulls=False),
    _column("PublisherName", "text", "mandatory", nulls=False),
    _column("RegionId", "text", "conditional", nulls=True),
    _column("RegionName", "text", "conditional", nulls=True),
    _column("ResourceId", "text", "conditional", nulls=True),
    _column("ResourceName", "text", "conditional", nulls=True),
    _column("ResourceType", "text", "conditional", nulls=True),
    _column("ServiceCategory", "text", "mandatory", nulls=False),
    _column("ServiceName", "text", "mandatory", nulls=False),
    _column("ServiceSubcategory", "text", "recommended", nulls=False),
    _column("SkuId", "text", "conditional", nulls=True),
    _column("SkuMeter", "text", "conditional", nulls=True),
    _column("SkuPriceDetails", "json", "conditional", nulls=True),
    _column("SkuPriceId", "text", "conditional", nulls=True),
    _column("SubAccountId", "text", "conditional", nulls=True),
    _column("SubAccountName", "text", "conditional", nulls=True),
    _column("SubAccountType", "text", "conditional", nulls=True),
    _column("Tags", "json", "conditional", nulls=True),
)
MANDATORY = tuple(column.name for column in COLUMNS if column.level == "mandatory")

_SUBCATEGORIES: dict[str, tuple[str, ...]] = {
    "AI and Machine Learning": (
        "AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing",
    ),
    "Analytics": (
        "Analytics Platforms", "Business Intelligence", "Data Processing", "Search",
        "Streaming Analytics",
    ),
    "Business Applications": ("Productivity and Collaboration",),
    "Compute": (
        "Containers", "End User Computing", "Quantum Compute", "Serverless Compute",
        "Virtual Machines",
    ),
    "Databases": (
        "Caching", "Data Warehouses", "Ledger Databases", "NoSQL Databases",
        "Relational Databases", "Time Series Databases",
    ),
    "Developer Tools": (
        "Developer Platforms", "Continuous Integration and Deployment",
        "Development Environments", "Source Code Management", "Quality Assurance",
    ),
    "Identity": ("Identity and Access Management",),
    "Integration": ("API Management", "Messaging", "Workflow Orchestration"),
    "Internet of Things": ("IoT Analytics", "IoT Platforms"),
    "Management and Governance": (
        "Architecture", "Compliance", "Cost Management", "Data Governance", "Disaster Recovery",
        "Endpoint Management", "Observability", "Support",
    ),
    "Media": ("Content Creation", "Gaming", "Media Streaming", "Mixed Reality"),
    "Migration": ("Data Migration", "Resource Migration"),
    "Mobile": (),
    "Multicloud": ("Multicloud Integration",),
    "Networking": (
        "Application Networking", "Content Delivery", "Network Connectivity",
        "Network Infrastructure", "Network Routing", "Network Security",
    ),
    "Security": ("Secret Management", "Security Posture Management",
                 "Threat Detection and Response"),
    "Storage": ("Backup Storage", "Block Storage", "File Storage", "Object Storage",
                "Storage Platforms"),
    "Web": ("Application Platforms",),
    "Other": (),
}  # fmt: skip
SUBCATEGORIES: dict[str, frozenset[str]] = {
    category: frozenset({*names, f"Other ({category})"})
    for category, names in _SUBCATEGORIES.items()
}
"""Of each service category; each has an "Other (…)" as well."""

ALLOWED: dict[str, frozenset[str]] = {
    "ChargeCategory": frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"}),
    "ChargeClass": frozenset({"Correction"}),
    "ChargeFrequency": frozenset({"One-Time", "Recurring", "Usage-Based"}),
    "PricingCategory": frozenset({"Standard", "Dynamic", "Committed", "Other"}),
    "CapacityReservationStatus": frozenset({"Used", "Unused"}),
    "CommitmentDiscountCategory": frozenset({"Spend", "Usage"}),
    "CommitmentDiscountStatus": frozenset({"Used", "Unused"}),
    "ServiceCategory": frozenset(SUBCATEGORIES),
    "ServiceSubcategory": frozenset().union(*SUBCATEGORIES.values()),
}
