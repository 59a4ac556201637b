"""Comparing methods over several trials, and writing down what came out."""

from fedegoists.training.comparison import Comparison, ComparisonResult, compare

__all__ = ["Comparison", "ComparisonResult", "compare"]
