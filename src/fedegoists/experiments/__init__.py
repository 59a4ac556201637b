"""Comparing methods over several trials, and writing down what came out."""

from fedegoists.experiments.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
