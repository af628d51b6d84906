"""Rollups: sums, latency histograms and SLO counts, kept in the receipts' own transaction.

Mutable projections: `manage.py rebuild_rollups` makes them again from the receipts, and proves
with `--check` that they equal them.
"""
