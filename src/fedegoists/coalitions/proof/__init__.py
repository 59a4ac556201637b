"""Certificates of a decision, and checks that share no code with the search."""
