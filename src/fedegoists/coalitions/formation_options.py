"""The choices a user has: how coalitions are formed, and which objective is best."""

from typing import Literal, get_args

FormationMethod = Literal["best", "stable", "published", "cliques", "truthful"]
FORMATION_METHODS: tuple[FormationMethod, ...] = get_args(FormationMethod)

Objective = Literal["welfare", "fair", "participation"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

Risk = Literal["expected", "worst-decile", "ignore"]
RISKS: tuple[Risk, ...] = get_args(Risk)
"""What is maximised under uncertain benefits: the expected welfare, or the mean welfare of the
worst tenth of scenarios; or their errors are ignored."""

DEFAULT_SCENARIOS = 200
