"""Comparison of training methods over several repetitions, and its result files."""

from fedegoists.training.comparison import Comparison, ComparisonResult, compare

__all__ = ["Comparison", "ComparisonResult", "compare"]
