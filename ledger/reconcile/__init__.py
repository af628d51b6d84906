"""A provider's lines against our attempts, for one period: what agrees, what doesn't, and why.

`matching.compare` is the core: values in, one row for each line and each attempt out. `tying`
refuses what doesn't add up, `reports` says it for people, `running` reads the ledger and makes
the records; `closing` is sign-off and lock (REC-2, REC-3).
"""
