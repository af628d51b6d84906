"""The fleet as a reviewable file: read with line and column, compared, written.

`named` turns records' bodies into trees of named fields and back, `positions` says where a key
stands in a TOML text, `differences` compares two values field by field, `document` is the file as
a whole, `in_force` what a ledger has of it. All but the last are pure.
"""
