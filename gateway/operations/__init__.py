"""What changes the running system: named, authorised, audited writes, each a pure plan.

An operation is a frozen value with what was asked, and a `plan` from what the ledger holds to the
records to append. `anywhere.perform` runs one from a page or a command; the API has
`POST /api/v1/operations/{name}`. To add one: a class in a module of this package, its module in
`registry.py`. Whatever its records change in the running server follows from their types
(`gateway.runtime.Runtime.apply`).
"""
