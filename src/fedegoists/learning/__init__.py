"""Data sets, their division among silos, tasks and models."""
