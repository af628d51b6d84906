"""Ledger files for tests: each is a copy of one migrated template, never the ORM's test database."""
