"""Clients of others against a running server: what they rely on, as they ask for it."""
