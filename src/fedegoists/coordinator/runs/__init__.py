"""Runs: learning who benefits whom, and training in the coalitions that were decided."""
