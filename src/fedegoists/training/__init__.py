"""Comparing methods over several trials, and writing down what came out."""

from fedegoists.training.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
