"""Runs: learning benefits, and training in the coalitions of a decision."""
