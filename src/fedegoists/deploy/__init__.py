"""Deployment: kits for real organisations, their processes, and runs over them."""
