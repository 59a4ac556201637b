"""Incentives: what participants could gain by false reports, and what takes that gain away.

Where to find what::

    reporting         the decision as a function of reports, and outcomes in true utility
    received_lies     misreports of received benefit
    competitor_lies   invented and hidden competitors
    two_names         one organisation under two names
    leaving_together  groups that would rather leave
    inspection_rates       how often to inspect so that lying does not pay
    incentive_report  `incentives`: all of it for each participant
"""

from fedegoists.coalitions.incentives.incentive_report import (
    IncentiveReport,
    ParticipantIncentives,
    incentives,
)
from fedegoists.coalitions.incentives.inspection_rates import inspection_probability
from fedegoists.coalitions.incentives.reporting import Temptation

__all__ = [
    "IncentiveReport",
    "ParticipantIncentives",
    "Temptation",
    "incentives",
    "inspection_probability",
]
